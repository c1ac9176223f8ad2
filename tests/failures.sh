#!/usr/bin/env bash
# A rank that fails while loading ends all with one message and its exit code; a rank that is killed takes the others with it within 5 seconds.
set -u
. "$(dirname "$0")/mpi.sh"
need_mpirun
work=$(mktemp -d) || exit 1
trap 'end_ranks "$work"; rm -rf "$work"' EXIT
program="$top_builddir/rankflash"
model="$srcdir/share/factbook-tiny/factbook-tiny-Q8_0.gguf"
prompt="What is the capital of France?"

# expect NAME CODE WORDS -- two app contexts of mpirun
expect() {
    local name=$1 code=$2 words=$3 got said
    shift 4
    timeout -k 5 60 mpirun --oversubscribe "$@" >"$work/out" 2>"$work/err"
    got=$?
    said=$(grep -c '^rankflash: ' "$work/err")
    [ "$got" = "$code" ] || fail "$name: exit code $got, not $code: $(head -3 "$work/err")"
    [ "$said" = 1 ] || fail "$name: $said messages: $(grep '^rankflash: ' "$work/err")"
    grep -q "^rankflash: .*$words" "$work/err" || fail "$name: no word of \"$words\": $(head -3 "$work/err")"
}

head -c 3000000 "$model" >"$work/short.gguf"
cp "$model" "$work/other.gguf"
at=$(grep -abo 'Factbook Tiny' "$model" | head -1 | cut -d: -f1)
printf 'X' | dd of="$work/other.gguf" bs=1 seek="$at" conv=notrunc status=none # another name in the header
expect "a shard that is cut off" 3 "rank 1 on .*short.gguf.*ends beyond the file" -- \
    -np 1 "$program" -m "$model" -p "$prompt" : -np 1 "$program" -m "$work/short.gguf" -p "$prompt"
expect "no file" 3 "rank 1 on .*none.gguf" -- \
    -np 1 "$program" -m "$model" -p "$prompt" : -np 1 "$program" -m "$work/none.gguf" -p "$prompt"
expect "no file on the leader" 3 "rank 0 on .*none.gguf" -- \
    -np 1 "$program" -m "$work/none.gguf" -p "$prompt" : -np 1 "$program" -m "$model" -p "$prompt"
expect "another file" 3 "rank 1 on .* another model file" -- \
    -np 1 "$program" -m "$model" -p "$prompt" : -np 1 "$program" -m "$work/other.gguf" -p "$prompt"
# AddressSanitizer reserves more address space than the limit leaves
[ -n "${ASAN_OPTIONS:-}" ] || expect "no memory" 4 "rank 1 on .*no memory" -- \
    -np 1 "$program" -m "$model" -p "$prompt" -c 8000000 --spec-type none --fit off : \
    -np 1 bash -c 'ulimit -v 1500000; exec "$@"' bash "$program" -m "$model" -p "$prompt" -c 8000000 --spec-type none --fit off
expect "too many ranks" 2 "at most 4 ranks" -- -np 5 "$program" -p "$prompt"
expect "a bad flag" 2 "temp" -- -np 2 "$program" --temp nonsense
expect "numbers of -ts" 2 "3 numbers" -- -np 2 "$program" -ts 1,2,3 -p "$prompt"

# pids of the ranks whose command line names $1
ranks_of() {
    pgrep -f "rankflash.*$1" | while read -r pid; do
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = rankflash ] && echo "$pid"
    done
}

# end_ranks WORDS: those ranks, by their pids
end_ranks() {
    local pid
    for pid in $(ranks_of "$1"); do kill -9 "$pid" 2>/dev/null; done
}

# until SECONDS COMMAND...: polls
until_true() {
    local end=$(($(date +%s) + $1))
    shift
    while ! "$@"; do
        [ "$(date +%s)" -lt "$end" ] || return 1
        sleep 0.1
    done
}

gone() {
    [ -z "$(ranks_of "$1")" ]
}

# killed NAME WHICH(1 leader, 2 follower) READY_FILE FLAGS...: waits for output in READY_FILE, kills -9, all must be gone in 5 s
killed() {
    local name=$1 which=$2 ready=$3 tag="$work/tag$RANDOM" job pid
    shift 3
    : >"$work/out"; : >"$work/err"
    mkfifo "$tag.in"
    (exec 3<>"$tag.in"; exec mpirun --oversubscribe -np 2 "$program" -m "$model" -sys "$tag" "$@" <"$tag.in" >"$work/out" 2>"$work/err") &
    job=$!
    until_true 30 test -s "$ready" || fail "$name: never got ready"
    until_true 10 grep -q "${ready_words:-.}" "$ready" || fail "$name: no \"$ready_words\""
    pid=$(ranks_of "$tag" | sed -n "${which}p")
    [ -n "$pid" ] || { fail "$name: no such rank"; kill -9 $job; return; }
    kill -9 "$pid"
    until_true 5 gone "$tag" || { fail "$name: ranks are still there after 5 s"; end_ranks "$tag"; }
    wait $job
    [ $? -ne 0 ] || fail "$name: exit code 0"
    [ "$(grep -c '^rankflash: ' "$work/err")" = 0 ] || fail "$name: a rank spoke: $(grep '^rankflash: ' "$work/err")"
}

yes "The economy of Norway is" | head -c 400000 >"$work/long.txt"
for which in 1 2; do
    ready_words=prefill killed "rank $which killed in prefill" $which "$work/err" -f "$work/long.txt" -c 200000 -b 1 --spec-type none
    ready_words=. killed "rank $which killed in decode" $which "$work/out" -p "$prompt" -n 100000 --ignore-eos -c 150000
    ready_words='>' killed "rank $which killed at the prompt" $which "$work/out"
done
finish
