#!/usr/bin/env bash
# The emulated GPU runs whole models: a small bit matrix (drafters x draft lengths x ranks, at both widths) gives one list
# of hashes a model, and the program itself speaks on two ranks.
set -u
. "$(dirname "$0")/mpi.sh"
need_mpirun
grep -q '^#define RF_HAVE_EMU 1' "$top_builddir/config.h" || { echo "skipped: built without a C++ compiler"; exit 77; }

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
data="$srcdir/tests/data/micro"
share="$srcdir/share/factbook-tiny"
cells=0

# cell MODEL RANKS BACKEND FLAGS...: the hash list must equal the model's first
cell() {
    local model=$1 n=$2 backend=$3 out="$work/$1.$cells"
    shift 3
    cells=$((cells + 1))
    ranks "$n" "$top_builddir/tests/matrix_run" --quick "${files[@]}" -c 256 -t 1 --backend "$backend" "$@" >"$out" 2>"$out.err" ||
        { fail "$model, $n ranks, $backend: $(grep -v '^--\|^$' "$out.err" | head -5)"; return; }
    [ -s "$out" ] || fail "$model, $n ranks, $backend: no output"
    [ -e "$work/$model.first" ] || { cp "$out" "$work/$model.first"; echo "$model:"; cat "$out"; }
    cmp -s "$work/$model.first" "$out" || fail "$model, $n ranks, $backend: other bits: $(diff "$work/$model.first" "$out" | head -4)"
}

files=(-m "$data/micro-F32.gguf" -md "$data/micro-DFlash2-F32.gguf" -ctk f32 -ctv f32)
cell micro 1 emu
cell micro 1 emu:64
cell micro 2 emu
cell micro 3 emu:64
cell micro 2 emu:64 -sm layer
files=(-m "$share/factbook-tiny-Q8_0.gguf" -md "$share/factbook-tiny-DFlash2-Q8_0.gguf")
cell demo 1 emu
cell demo 2 emu:64
cell demo 3 emu -ts 1,2,1

out=$(ranks 2 "$top_builddir/rankflash" "${files[@]}" --backend emu -t 1 --temp 0 -c 256 -n 24 -st -p 'What is the capital of France?' 2>"$work/err")
case $out in
*Paris*) ;;
*) fail "two ranks of emulated GPUs say '$out': $(grep -v '^--\|^$' "$work/err" | head -5)" ;;
esac
grep -q 'staged: device memory' "$work/err" || fail "the transport of device memory is not told"

echo "$cells cells"
finish
