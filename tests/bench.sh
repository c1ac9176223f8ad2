#!/usr/bin/env bash
# rankflash-bench on the demo pair, on one rank and two: JSON with every figure, each beside its limit; CSV; comparisons; and usage that cannot be.
set -u
. "$(dirname "$0")/mpi.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
bench="$top_builddir/rankflash-bench"
short=(--quick -r 1 -p 20 -d 300 --rows 1,8 -t 1)

# figure FILE NAME [DRAFTER]: the objects of that figure (with that drafter, or with none), each on one line
figure() {
    tr -d '\n' <"$1" | sed 's/{ *"figure"/\n{"figure"/g' | grep "^{\"figure\": \"$2\"" | grep -v '"ops"' |
        if [ -n "${3:-}" ]; then grep "\"drafter\": \"$3\""; else grep -v '"drafter"'; fi
}

# has FILE COUNT WORDS NAME [DRAFTER]: so many of a figure, with a time above 0, and these members
has() {
    local file=$1 count=$2 words=$3 found word
    shift 3
    found=$(figure "$file" "$@")
    [ "$(grep -c . <<<"$found")" -eq "$count" ] || { fail "$file: $* occurs $(grep -c . <<<"$found") times, not $count"; return; }
    while read -r line; do
        for word in best_s median_s samples $words; do
            grep -qE "\"$word\": ([1-9]|[0-9.]+e-|0\.0*[1-9]|true|\"[A-Za-z])" <<<"$line" || fail "$file: $*: no $word in $line"
        done
    done <<<"$found"
}

# report FILE: what every report must have
report() {
    local file=$1
    has "$file" 1 "bytes percent limit" load
    has "$file" 1 "tokens_per_s bytes products percent limit" prefill
    has "$file" 1 "tokens_per_s bytes products percent limit read_bytes_per_s" decode
    has "$file" 2 "tokens_per_s bytes products percent limit ratio" verify
    has "$file" 1 "bytes percent limit" attention
    for drafter in MTP DFlash; do
        has "$file" 1 "percent" prefill $drafter
        has "$file" 1 "ratio" commit $drafter
        has "$file" 1 "tokens_per_s percent ratio" draft $drafter
        has "$file" 2 "tokens_per_s percent ratio simulated" round $drafter
    done
    grep -q '"ops"' "$file" && grep -q '"matmul": *{' "$file" && grep -q '"plan_bytes"' "$file" || fail "$file lacks the breakdown or the memory"
}

"$bench" "${short[@]}" --json >"$work/one.json" 2>"$work/said" || fail "one rank: $(tail -1 "$work/said")"
report "$work/one.json"

# ---- weights of a plain step: those of the body and the output, 34 bytes for 32 numbers, and little else
weights=$(figure "$work/one.json" decode | grep -o '"bytes": [0-9.e+]*' | awk '{ printf "%d", $2 }')
size=$(stat -c %s "$srcdir/share/factbook-tiny/factbook-tiny-Q8_0.gguf")
[ "${weights:-0}" -gt $((size * 3 / 4)) ] && [ "${weights:-0}" -lt $((size * 5 / 4)) ] || fail "a decode step moves ${weights:-0} bytes of a file of $size"

# ---- CSV, text, another JSON beside it, and comparisons
"$bench" "${short[@]}" --csv -o "$work/two.json" --accept 2 --compare "$work/one.json" >"$work/csv" 2>"$work/said" || fail "--csv: $(tail -1 "$work/said")"
[ "$(head -1 "$work/csv" | tr ',' '\n' | wc -l)" -eq "$(sed -n 5p "$work/csv" | tr ',' '\n' | wc -l)" ] || fail "--csv: lines of other lengths"
[ "$(grep -c '^round,.*,2,1,' "$work/csv")" -eq 2 ] || fail "--accept 2: $(grep '^round' "$work/csv")"
has "$work/two.json" 1 "simulated" round DFlash
grep -qE '^decode, depth 300, rows 1 +% of its limit +[0-9.]+ -> +[0-9.]+ +[0-9.]+ x$' "$work/said" || fail "--compare says $(tail -5 "$work/said")"
# reports in which everything was far better: the new one is worse
sed 's/"percent": [0-9.e+-]*/"percent": 9.9e9/' "$work/one.json" | sed '1s/^/[/; $s/$/]/' >"$work/golden.json"
"$bench" "${short[@]}" --compare "$work/golden.json" --tolerance 50 >"$work/text" 2>/dev/null
[ $? -eq 1 ] || fail "a thousand times worse than an old report, and no exit code 1"
grep -qE '^decode, depth 300, rows 1 +% of its limit .* WORSE$' "$work/text" || fail "worse, but not said: $(tail -3 "$work/text")"
grep -qE '^round, DFlash, 7 accepted \(simulated\)' "$work/text" || fail "the table lacks the rounds"

# ---- what cannot be
refused() { # refused CODE FLAGS...
    local code=$1 rc
    shift
    "$bench" "$@" >"$work/out" 2>"$work/err"
    rc=$?
    [ $rc -eq "$code" ] && [ "$(wc -l <"$work/err")" -eq 1 ] && [ ! -s "$work/out" ] || fail "$*: exit code $rc: $(head -2 "$work/err")"
}
refused 2 -p 0
refused 2 -p 20,10
refused 2 -d 1,x
refused 2 --rows 17
refused 2 --accept 16
refused 2 -r 0
refused 2 -c 100
refused 2 --temp 1
refused 2 --quick=1
refused 2 --tolerance 5
refused 2 model.gguf
refused 3 --compare "$work/nothing"
refused 3 --compare "$work/csv"
refused 3 --prompts "$work/one.json"
refused 3 -m "$work/csv"
echo '[[1, 2], [3, -4]]' >"$work/prompts"
refused 3 --prompts "$work/prompts"

# ---- two ranks: transports, and real rounds
if command -v mpirun >/dev/null 2>&1 && grep -q '^#define RF_HAVE_MPI 1' "$top_builddir/config.h"; then
    echo '[[10, 20, 30], {"ids": [40, 50]}]' >"$work/prompts"
    ranks 2 "$bench" "${short[@]}" --prompts "$work/prompts" --json >"$work/ranks.json" 2>"$work/said" || fail "two ranks: $(tail -1 "$work/said")"
    report "$work/ranks.json"
    has "$work/ranks.json" 15 "payload_bytes transport" allreduce
    has "$work/ranks.json" 1 "tokens_per_s" generate
    has "$work/ranks.json" 1 "tokens_per_s ratio" generate DFlash
    [ "$(grep -c '"rank":' "$work/ranks.json")" -eq 2 ] || fail "memory of two ranks: $(grep -c '"rank":' "$work/ranks.json")"
    ranks 2 "$bench" --rows 99 >/dev/null 2>&1
    [ $? -eq 2 ] || fail "two ranks, bad flag: exit code is not 2"
fi
finish
