#!/usr/bin/env bash
# A batch job: the results are the same bits however many requests run together, on any ranks, and however often the job is killed on the way.
set -u
. "$(dirname "$0")/mpi.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
program="$top_builddir/rankflash"
questions=("Where is Kenya?" "What is the capital of France?" "Tell me about climate in Peru." "What borders Italy?")
n_requests=200

for ((i = 0; i < n_requests; i++)); do
    temps=(0 0.8 1.5)
    echo "{\"id\": \"r$i\", \"prompt\": \"${questions[i % 4]}\", \"temp\": ${temps[i % 3]}, \"n\": $((24 + i % 40))}"
done >"$work/in.jsonl"
head -40 "$work/in.jsonl" >"$work/few.jsonl"

# what must be equal, sorted: everything but the times; with a drafter's name as $2 = any, also without what it did
results() {
    sed -e 's/"seconds":[^,}]*,*//' "$1" | if [ "${2:-same}" = any ]; then sed -e 's/"rounds":[0-9]*,"drafted":[0-9]*,"accepted":[0-9]*,//'; else cat; fi | sort
}

# batch NAME CODE IN FLAGS...: into $work/NAME.jsonl, anew
batch() {
    local name=$1 code=$2 in=$3 got
    shift 3
    timeout -k 5 300 "$program" --batch "$in" --output "$work/$name.jsonl" --ignore-eos --check "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ $got -eq "$code" ] || fail "$name: exit code $got, not $code: $(tail -3 "$work/err")"
    [ ! -s "$work/out" ] || fail "$name: something on standard output: $(head -c 200 "$work/out")"
}

same() { # same NAME OTHER [any]: results of two jobs
    cmp -s <(results "$work/$1.jsonl" "${3:-same}") <(results "$work/$2.jsonl" "${3:-same}") || fail "$1 and $2 differ"
}

batch whole 0 "$work/in.jsonl" -np 1
[ "$(wc -l <"$work/whole.jsonl")" -eq $n_requests ] || fail "not $n_requests results"
batch eight 0 "$work/in.jsonl" -np 8
same whole eight
head -40 "$work/whole.jsonl" >"$work/first.jsonl" # one at a time, so in order
batch plain 0 "$work/few.jsonl" -np 64 --spec-type none -b 7
same first plain any
batch mtp 0 "$work/few.jsonl" -np 3 --spec-type draft-mtp
same first mtp any

# ---- one request of it is what -p gives with the seed that the result names
for i in 0 4 9 14; do
    line=$(sed -n "$((i + 1))p" "$work/whole.jsonl")
    seed=$(grep -o '"seed":[0-9]*' <<<"$line" | cut -d: -f2)
    temps=(0 0.8 1.5)
    hashes=$("$program" -p "${questions[i % 4]}" --temp "${temps[i % 3]}" -n $((24 + i % 40)) -s "${seed:-0}" --ignore-eos --check 2>&1 >"$work/text" |
        sed -n 's/^check [0-9]* [0-9]* \([0-9a-f]*\)$/"\1"/p' | paste -sd,)
    grep -qF "\"hashes\":[$hashes]" <<<"$line" || fail "request $i: other bits than alone"
    # the text, where JSON changes nothing in it
    text=$(cat "$work/text")
    [[ "$text" =~ [^[:print:]] || "$text" == *[\"\\]* ]] || grep -qF "\"text\":\"$text\"," <<<"$line" || fail "request $i: another text than alone"
done

# ---- killed at 20 moments
touch "$work/killed.jsonl"
lines() { wc -l <"$work/killed.jsonl"; }
kills=0
while [ $kills -lt 20 ]; do
    until_lines=$(($(lines) + RANDOM % 9))
    "$program" --batch "$work/in.jsonl" --output "$work/killed.jsonl" --ignore-eos --check -np $((1 + RANDOM % 8)) 2>"$work/err" &
    pid=$!
    while [ "$(lines)" -lt $until_lines ] && kill -0 $pid 2>/dev/null; do sleep 0.01; done
    sleep "0.0$((RANDOM % 10))"
    kill -9 $pid 2>/dev/null || fail "the job ended before kill $kills: $(tail -1 "$work/err")"
    wait $pid 2>/dev/null
    kills=$((kills + 1))
done
[ "$(lines)" -lt $n_requests ] || fail "nothing was left to do after the last kill"
printf '{"id":"r7","te' >>"$work/killed.jsonl" # as a power failure leaves it
batch killed 0 "$work/in.jsonl"
grep -q 'last line was unfinished' "$work/err" || fail "the torn line was not spoken of"
same whole killed

# ---- SIGTERM: what is finished is there, the rest is left
rm -f "$work/term.jsonl"
"$program" --batch "$work/in.jsonl" --output "$work/term.jsonl" --ignore-eos --check 2>"$work/err" &
pid=$!
while [ ! -s "$work/term.jsonl" ] && kill -0 $pid; do sleep 0.01; done
kill -TERM $pid
wait $pid
[ $? -eq 143 ] || fail "SIGTERM: exit code is not 143: $(tail -1 "$work/err")"
[ "$(tail -c 1 "$work/term.jsonl" | od -An -c | tr -d ' ')" = '\n' ] || fail "SIGTERM: the last line is not whole"
batch term 0 "$work/in.jsonl"
same whole term

# ---- no room: nothing is torn, and the same command goes on
rm -f "$work/full.jsonl"
(ulimit -f 80 && "$program" --batch "$work/in.jsonl" --output "$work/full.jsonl" --ignore-eos --check 2>"$work/err")
[ $? -eq 3 ] || fail "a full disk: exit code is not 3: $(tail -1 "$work/err")"
grep -q '^rankflash: cannot append to .*File too large' "$work/err" || fail "a full disk: $(tail -1 "$work/err")"
batch full 0 "$work/in.jsonl"
same whole full
(ulimit -f 8 && "$program" --batch "$work/in.jsonl" --output "$work/none.jsonl" 2>"$work/err")
[ $? -eq 3 ] || fail "no room at the start: exit code is not 3: $(tail -1 "$work/err")"
grep -q 'no room for results' "$work/err" || fail "no room at the start: $(tail -1 "$work/err")"

# ---- a request of the input's pipe, and errors
printf '{"id": 1, "prompt": "Where is Kenya?"}\n{"id": 2}\n' >"$work/pipe-in"
cat "$work/pipe-in" | batch pipe 1 - -n 5
grep -q '^{"id":2,"line":2,"error":"no ' "$work/pipe.jsonl" || fail "no error for request 2: $(cat "$work/pipe.jsonl")"
batch pipe 1 "$work/pipe-in" -n 5
[ "$(wc -l <"$work/pipe.jsonl")" -eq 2 ] || fail "results were written twice"

# ---- more ranks
if command -v mpirun >/dev/null 2>&1 && grep -q '^#define RF_HAVE_MPI 1' "$top_builddir/config.h"; then
    for flags in "2 -sm tensor" "2 -sm layer" "3 -sm tensor"; do
        rm -f "$work/ranks.jsonl"
        # shellcheck disable=SC2086
        ranks ${flags%% *} "$program" --batch "$work/few.jsonl" --output "$work/ranks.jsonl" --ignore-eos --check -t 1 ${flags#* } 2>"$work/err" ||
            fail "$flags: $(tail -1 "$work/err")"
        same first ranks
    done
fi
finish
