#!/usr/bin/env bash
# --plan on the 27B shape: the account adds up to the size of the files, exactly, for every cut; and it reads like docs/plan.md says.
set -u
. "$(dirname "$0")/mpi.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"$top_builddir/tests/make_27b" "$work/t.gguf" "$work/d.gguf" || fail "make_27b"
target=$(stat -c %s "$work/t.gguf")
drafter=$(stat -c %s "$work/d.gguf")
[ "$target" -gt 27000000000 ] || fail "the 27B file is only $target bytes"

# account SIZE FLAGS...: adds up the printed numbers itself
account() {
    local size=$1 sum
    shift
    "$top_builddir/rankflash" --plan "$@" >"$work/out" 2>"$work/err" || { fail "--plan $*: $(cat "$work/err")"; return; }
    sum=$(awk '/^rank [0-9]+: sharded/ {gsub(",", ""); s += $4; if (r == 0) r = $6}
               /^KV heads held twice:/ {s -= $5} /^read through the map:/ {s += $5} /^not loaded:/ {s += $3}
               /^header and padding:/ {s += $4} END {printf "%.0f", s + r}' "$work/out")
    [ "$sum" = "$size" ] || { fail "--plan $*: the numbers add up to $sum, the files have $size"; cat "$work/out"; }
    grep -q "): $size of $size$" "$work/out" || fail "--plan $*: the sum line disagrees: $(tail -1 "$work/out")"
}

# said WORDS: a line that the last output must have
said() {
    grep -qxF -e "$1" "$work/out" || { fail "no line \"$1\""; cat "$work/out"; }
}

# By hand: E 5120, 248320 tokens, 64 layers (16 with attention of head size 256, 48 with states of 128), Q8_0 is 34 bytes per 32.
embedding=$((5120 * 248320 / 32 * 34)) codebooks=$((2 * 256 * 248320 * 2)) vision=$((1152 * 1152 * 2))
norms=$(((64 * 2 * 5120 + 16 * 2 * 256 + 48 * 128 + 5120) * 4))
mtp=$(((12288 * 5120 + 2 * 1024 * 5120 + 6144 * 5120 + 3 * 5120 * 17408 + 10240 * 5120) / 32 * 34 + (5 * 5120 + 2 * 256) * 4))
account "$target" -m "$work/t.gguf" --spec-type none --ranks 2
said "read through the map: $embedding"
said "not loaded: $((vision + mtp))"
said "KV heads held twice: 0"
half=$(awk '/^rank 0: sharded/ {gsub(",", ""); print $4}' "$work/out")
said "rank 0: sharded $half, replicated $norms" # everything divides by two
said "rank 1: sharded $half, replicated $norms"
account $((target + drafter)) -m "$work/t.gguf" -md "$work/d.gguf" --ranks 2
said "read through the map: $((embedding + codebooks))"
account "$target" -m "$work/t.gguf" --spec-type none --ranks 5 # 6,6,6,3,3 heads: the last two share a KV head
said "KV heads held twice: $((16 * 2 * 256 * 5120 / 32 * 34))"
grep -Eq '^ +4 +21-24 +3-4\* ' "$work/out" || { fail "rank 4 does not say that its KV head is held twice"; cat "$work/out"; }

# predicts STEP MS FLAGS...: the time of a step, to 0.0001 ms
predicts() {
    local step=$1 ms=$2 got
    shift 2
    got=$("$top_builddir/rankflash" --plan "$@" 2>&1 | sed -nE "s/^$step +[0-9]+ +[0-9]+ +([0-9.]+) .*/\1/p")
    awk -v a="$got" -v b="$ms" 'BEGIN {exit !(a > 0 && (a > b ? a - b : b - a) < 0.0002)}' || fail "--plan $*: $step $got ms, expected $ms"
}

# Times by hand, where only one thing takes time: 1 GB/s is a nanosecond a byte.
delta=$((48 * ((5120 * (10240 + 6144 + 96) + 6144 * 5120) / 32 * 34 + (4 * 10240 + 96) * 4)))
attention=$((16 * (5120 * (12288 + 2048) + 6144 * 5120) / 32 * 34))
ffn=$((64 * 3 * 5120 * 17408 / 32 * 34))
states=$((48 * 48 * 128 * 128 * 4)) position=$((16 * 2 * 4 * 256 * 2))
bytes=$((embedding + delta + attention + ffn + norms + 2 * states + position))
predicts decode "$(awk "BEGIN {printf \"%.4f\", $bytes * 1e-6}")" -m "$work/t.gguf" --spec-type none --cost-read 1 --cost-products 1e9 --cost-reached 100
products=$((5120 * 248320 + 48 * (5120 * (10240 + 6144 + 96) + 6144 * 5120) + 16 * (5120 * (12288 + 2048) + 6144 * 5120) + 64 * 3 * 5120 * 17408))
predicts decode "$(awk "BEGIN {printf \"%.4f\", $products * 1e-6}")" -m "$work/t.gguf" --spec-type none --cost-read 1e9 --cost-products 1
# 128 sums of 20 KB to one other, a command and an answer, of 1 us each, and 1 ns a byte
predicts decode "$(awk "BEGIN {printf \"%.4f\", (130 * 1000 + 128 * 20480) * 1e-6}")" -m "$work/t.gguf" --spec-type none --ranks 2 \
    --cost-read 1e9 --cost-products 1e9 --cost-latency 1 --cost-link 1
# A drafter's round is more than a step and less than two of these.
"$top_builddir/rankflash" --plan -m "$work/t.gguf" -md "$work/d.gguf" >"$work/out"
grep -Eq '^a round is 1\.[0-9]+ decode steps: DFlash2 drafts pay above that many tokens a round$' "$work/out" || { fail "no round"; cat "$work/out"; }
grep -q "numbers of no particular machine" "$work/out" || fail "defaults are not said to be such"
echo '{"program": "rankflash-bench"}' >"$work/bad.json"
out=$("$top_builddir/rankflash" --plan -m "$work/t.gguf" --cost-bench "$work/bad.json" 2>&1 >/dev/null)
[ $? -eq 3 ] && [[ "$out" == *"bad.json: expected what rankflash-bench --json printed"* ]] || fail "a report that is none: $out"

# The same words each time, but for the memory that happens to be free.
steady() { "$top_builddir/rankflash" --plan -m "$work/t.gguf" --ranks 3 | sed -E 's/ +(fits|does not fit)$//; /^available/d'; }
[ "$(steady)" = "$(steady)" ] || fail "two plans differ"

for n in 1 2 3 5 8 16; do
    account "$target" -m "$work/t.gguf" --spec-type none --ranks "$n"
    account "$target" -m "$work/t.gguf" --spec-type draft-mtp --ranks "$n"
    account $((target + drafter)) -m "$work/t.gguf" -md "$work/d.gguf" --ranks "$n"
    account $((target + drafter)) -m "$work/t.gguf" -md "$work/d.gguf" --ranks "$n" -sm layer
done
account $((target + drafter)) -m "$work/t.gguf" -md "$work/d.gguf" --ranks 2 -ts 3,1
account $((target + drafter)) -m "$work/t.gguf" -md "$work/d.gguf" --ranks 5 -ts 1,2,3,2,1 -sm layer
out=$("$top_builddir/rankflash" --plan -m "$work/t.gguf" --ranks 17 2>&1)
[ $? -eq 2 ] && [[ "$out" == *"at most 16 ranks"* ]] || fail "17 ranks: $out"
finish
