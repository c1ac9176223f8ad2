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

for n in 1 2 3 5 8 16; do
    account "$target" -m "$work/t.gguf" --spec-type none --ranks "$n"
    account "$target" -m "$work/t.gguf" --spec-type draft-mtp --ranks "$n"
    account $((target + drafter)) -m "$work/t.gguf" -md "$work/d.gguf" --ranks "$n"
    account $((target + drafter)) -m "$work/t.gguf" -md "$work/d.gguf" --ranks "$n" -sm layer
done
account $((target + drafter)) -m "$work/t.gguf" -md "$work/d.gguf" --ranks 2 -ts 3,1
account $((target + drafter)) -m "$work/t.gguf" -md "$work/d.gguf" --ranks 5 -ts 1,2,3,2,1 -sm layer
"$top_builddir/rankflash" --plan -m "$work/t.gguf" -md "$work/d.gguf" --ranks 2
out=$("$top_builddir/rankflash" --plan -m "$work/t.gguf" --ranks 17 2>&1)
[ $? -eq 2 ] && [[ "$out" == *"at most 16 ranks"* ]] || fail "17 ranks: $out"
finish
