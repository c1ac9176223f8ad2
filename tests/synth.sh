#!/usr/bin/env bash
# rankflash-synth: what it writes loads and runs, alike on any number of ranks; the same flags give the same bytes; what cannot be is one
# sentence and leaves nothing behind.
set -u
. "$(dirname "$0")/mpi.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
synth="$top_builddir/rankflash-synth"
small=(--layers 4 --embd 128 --ffn 256 --heads 4 --kv-heads 2 --head-dim 32 --key-heads 2 --value-heads 4 --state-size 32 --draft-layers 1
    --draft-heads 2 --draft-kv-heads 1 --draft-head-dim 32 --selector-rank 32)

# wrote FLAGS...: into $work/t.gguf
wrote() {
    "$synth" -o "$work/t.gguf" "$@" 2>"$work/err" || { fail "synth $*: $(cat "$work/err")"; return 1; }
}

# hashes RANKS FLAGS...: the logits behind every token
hashes() {
    local n=$1 launch=()
    shift
    [ "$n" -eq 1 ] || launch=(ranks "$n")
    "${launch[@]}" "$top_builddir/rankflash" -p "Where is Kenya?" -n 12 --temp 0 -c 256 --check --ignore-eos "$@" 2>&1 >/dev/null | grep '^check'
}

# refused CODE WORDS FLAGS...: exit code, one line that has these words, nothing left in the folder
refused() {
    local code=$1 words=$2 rc
    shift 2
    mkdir -p "$work/empty"
    "$synth" "$@" >"$work/out" 2>&1
    rc=$?
    [ $rc -eq "$code" ] && [ "$(wc -l <"$work/out")" -eq 1 ] && grep -qF -e "$words" "$work/out" || fail "synth $*: $rc, $(cat "$work/out")"
    [ -z "$(ls -A "$work/empty")" ] || fail "synth $* left $(ls -A "$work/empty")"
}

# ---- The pair runs, and one rank and two agree on every bit.
wrote "${small[@]}" -d "$work/d.gguf" --seed 7 || finish
plain=$(hashes 1 -m "$work/t.gguf" --spec-type none)
[ "$(wc -l <<<"$plain")" -eq 12 ] || fail "one rank generated: $plain"
[ "$(hashes 1 -m "$work/t.gguf" -md "$work/d.gguf")" = "$plain" ] || fail "DFlash2 changes the hashes"
[ "$(hashes 1 -m "$work/t.gguf" --spec-type draft-mtp)" = "$plain" ] || fail "MTP changes the hashes"
if command -v mpirun >/dev/null 2>&1 && grep -q '^#define RF_HAVE_MPI 1' "$top_builddir/config.h"; then
    [ "$(hashes 2 -m "$work/t.gguf" -md "$work/d.gguf")" = "$plain" ] || fail "two ranks with DFlash2 have other hashes"
fi

# ---- The plan counts the bytes that are there.
size=$(($(stat -c %s "$work/t.gguf") + $(stat -c %s "$work/d.gguf")))
"$top_builddir/rankflash" --plan --ranks 2 -m "$work/t.gguf" -md "$work/d.gguf" >"$work/out" 2>&1 || fail "--plan: $(cat "$work/out")"
grep -q "): $size of $size$" "$work/out" || fail "--plan does not add up to $size: $(cat "$work/out")"

# ---- Bytes follow from the seed, not from the threads.
cp "$work/t.gguf" "$work/first.gguf"
cp "$work/d.gguf" "$work/first-d.gguf"
wrote "${small[@]}" -d "$work/d.gguf" --seed 7 --threads 3
cmp -s "$work/t.gguf" "$work/first.gguf" && cmp -s "$work/d.gguf" "$work/first-d.gguf" || fail "3 threads wrote other bytes"
wrote "${small[@]}" --seed 8
cmp -s "$work/t.gguf" "$work/first.gguf" && fail "two seeds gave the same bytes"

# ---- Types and forms.
for flags in "--type F32" "--type F16" "--type BF16" "--type Q8_0 --embd-type F16" "--tied off" "--mtp off" "--interval 2 --vocab 5000"; do
    # shellcheck disable=SC2086 # words of flags
    wrote "${small[@]}" $flags || continue
    [ "$(hashes 1 -m "$work/t.gguf" --spec-type none | wc -l)" -eq 12 ] || fail "a model of $flags does not run"
done

# ---- Refusals.
out=("-o" "$work/empty/x.gguf")
refused 2 "no file to write: add -o FILE"
refused 2 "unknown flag --sahpe" "${out[@]}" --sahpe 4B
refused 2 "--shape 5B: expected tiny, 0.8B, 2B, 4B, 9B or 27B" "${out[@]}" --shape 5B
refused 2 "--layers 0: expected a whole number from 1 to 1000" "${out[@]}" --layers 0
refused 2 "--kv-heads 3 does not divide --heads 4" "${out[@]}" --kv-heads 3
refused 2 "--head-dim 12: expected a multiple of 8" "${out[@]}" --head-dim 12
refused 2 "--type Q9_9: expected one of F32, F16, " "${out[@]}" --type Q9_9
refused 2 "has rows of 100 weights, Q8_0 has blocks of 32" "${out[@]}" --ffn 100
refused 2 "no model of this shape and type can be loaded: " "${out[@]}" --state-size 16 --value-heads 16
refused 2 "--vocab 100: the vocabulary alone has 4096 tokens" "${out[@]}" --vocab 100
refused 2 "the drafter is a file of its own" "${out[@]}" -d "$work/empty/x.gguf"
refused 2 "--embd 40: with a drafter, expected a multiple of 16" "${out[@]}" -d "$work/empty/d.gguf" --type F32 --embd 40
refused 3 "cannot be written there: No such file or directory" -o "$work/nowhere/x.gguf"
refused 3 "cannot be written there: No such file or directory" "${out[@]}" -d "$work/nowhere/d.gguf"
refused 3 "missing.gguf" "${out[@]}" --vocabulary "$work/missing.gguf"
refused 3 "tokenizer.ggml.tokens: missing" "${out[@]}" --vocabulary "$work/first-d.gguf"
(ulimit -f 2000; refused 3 "bytes could not be written: File too large" "${out[@]}"; exit "$failures") || failures=$((failures + 1))
"$synth" --help | grep -q '^  --shape NAME$' || fail "--help does not list --shape"
"$synth" --version | grep -q '^rankflash-synth [0-9]' || fail "--version"

# ---- Interrupted, it takes its unfinished file with it, and it never held much memory.
"$synth" --shape 0.8B -t 1 "${out[@]}" 2>/dev/null &
pid=$!
while kill -0 $pid 2>/dev/null && [ -z "$(ls -A "$work/empty")" ]; do sleep 0.05; done
sleep 0.2
anonymous=$(awk '/^RssAnon/ {print $2}' /proc/$pid/status 2>/dev/null)
kill -TERM $pid
wait $pid
rc=$?
[ $rc -eq 143 ] && [ -z "$(ls -A "$work/empty")" ] || fail "interrupted: $rc, left $(ls -A "$work/empty")"
[ "${anonymous:-0}" -lt 100000 ] || fail "$anonymous KiB for a piece at a time"
finish
