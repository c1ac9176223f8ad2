#!/usr/bin/env bash
# What a rank holds (RssAnon + RssShmem at a waiting prompt, caches filled) is at most what --plan said, plus 5 %.
set -u
. "$(dirname "$0")/mpi.sh"
need_mpirun
grep -q fsanitize "$top_builddir/config.status" && { echo "skipped: a sanitizer holds memory of its own"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
program="$top_builddir/rankflash"

# measure RANKS FLAGS...: KiB each rank holds, by rank, after a turn that filled the caches
measure() {
    local n=$1 job
    shift
    rm -f "$work/in"
    mkfifo "$work/in"
    mpirun --oversubscribe -np "$n" "$program" "$@" --temp 0 -t 1 <"$work/in" >"$work/out" 2>"$work/err" &
    job=$!
    exec 3>"$work/in"
    cat "$work/turn" >&3
    for _ in $(seq 1200); do grep -q "turn 1" "$work/err" && break; sleep 0.1; done
    grep -q "turn 1" "$work/err" || echo "no turn: $(tail -1 "$work/err")" >&2
    for pid in $(pgrep -P "$job" -x rankflash | sort -n); do
        awk '/^RssAnon:|^RssShmem:/ {s += $2} END {print s}' "/proc/$pid/status"
    done
    exec 3>&-
    wait "$job"
}

# planned RANKS FLAGS...: KiB a rank
planned() {
    local n=$1
    shift
    "$program" --plan --ranks "$n" "$@" | awk '/^ +[0-9]+ +[0-9.]+ +[0-9.]+/ {printf "%.0f\n", $8 * 1024}'
}

yes "The economy of Norway is growing." | head -c 75000 | tr '\n' ' ' >"$work/turn"
echo >>"$work/turn"
for n in 1 2; do
    for flags in "--spec-type draft-dflash -ctk f32 -ctv f32" "--spec-type draft-mtp -sm $([ $n = 1 ] && echo none || echo layer)"; do
        mapfile -t plan < <(planned "$n" -c 16384 -n 4 $flags)
        mapfile -t now < <(measure "$n" -c 16384 -n 4 $flags)
        [ "${#now[@]}" = "$n" ] && [ "${#plan[@]}" = "$n" ] || { fail "$n ranks: ${#now[@]} measured, ${#plan[@]} planned"; continue; }
        for r in $(seq 0 $((n - 1))); do
            echo "$n ranks, rank $r, $flags: planned ${plan[$r]} KiB, holds ${now[$r]} KiB"
            [ "${now[$r]}" -le $((${plan[$r]} * 105 / 100)) ] || fail "rank $r holds more than the plan and 5 %"
            [ "${now[$r]}" -ge $((${plan[$r]} / 2)) ] || fail "rank $r holds less than half: the plan or this test is off"
        done
    done
done
finish
