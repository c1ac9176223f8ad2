#!/usr/bin/env bash
# The bit matrix: drafters x draft lengths x prefill chunks x samplings (inside matrix_run) on every number of ranks, split, ratio and thread
# count must give one list of hashes a model.  usage: matrix.sh [--full]
set -u
. "$(dirname "$0")/mpi.sh"
need_mpirun

full=${1:-}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
run="$top_builddir/tests/matrix_run"
[ "$full" = --full ] || run="$run --reduced"
data="$srcdir/tests/data/micro"
share="$srcdir/share/factbook-tiny"
cells=0

# cell MODEL NAME RANKS FLAGS...: the hash list must equal the model's first
cell() {
    local model=$1 name=$2 n=$3
    shift 3
    local out="$work/$model.$cells"
    cells=$((cells + 1))
    if ! ranks "$n" $run "${files[@]}" -c 512 "$@" >"$out" 2>"$out.err"; then
        fail "$model, $n ranks, $name: $(grep -v '^--\|^$' "$out.err" | head -5)"
        return
    fi
    [ -s "$out" ] || fail "$model, $n ranks, $name: no output"
    if [ -e "$work/$model.first" ]; then
        cmp -s "$work/$model.first" "$out" || fail "$model, $n ranks, $name: other bits: $(diff "$work/$model.first" "$out" | head -4)"
    else
        cp "$out" "$work/$model.first"
        echo "$model:"
        cat "$out"
    fi
}

# cells MODEL MOST_RANKS THREADS
cells_of() {
    local model=$1 most=$2 t=$3
    for n in $(seq 1 "$most"); do
        cell "$model" "tensor, $t threads" "$n" -sm tensor -t "$t"
        [ "$n" -gt 1 ] && cell "$model" "layer, $t threads" "$n" -sm layer -t "$t"
    done
    for split in tensor layer; do
        cell "$model" "$split 3,1, $t threads" 2 -sm "$split" -ts 3,1 -t "$t"
        cell "$model" "$split 1,3, $t threads" 2 -sm "$split" -ts 1,3 -t "$t"
        cell "$model" "$split 1,2,1, $t threads" 3 -sm "$split" -ts 1,2,1 -t "$t"
    done
}

demo=(-m "$share/factbook-tiny-Q8_0.gguf" -md "$share/factbook-tiny-DFlash2-Q8_0.gguf")
micro=(-m "$data/micro-F32.gguf" -md "$data/micro-DFlash2-F32.gguf" -ctk f32 -ctv f32)
micro1=(-m "$data/micro-F32.gguf" -md "$data/micro-DFlash1-F32.gguf" -ctk f32 -ctv f32)

if [ "$full" = --full ]; then
    for t in 1 2; do
        files=("${demo[@]}"); cells_of demo 4 "$t"
        files=("${micro[@]}"); cells_of micro 3 "$t"
        files=("${micro1[@]}"); cells_of micro-v1 3 "$t"
    done
else
    files=("${demo[@]}")
    cell demo "one rank, 1 thread" 1 -t 1
    cell demo "one rank, 2 threads" 1 -t 2
    cell demo tensor 2 -t 1
    cell demo "tensor 3,1" 2 -ts 3,1 -t 1
    cell demo layer 2 -sm layer -t 1
    cell demo "layer 1,2,1" 3 -sm layer -ts 1,2,1 -t 1
    cell demo tensor 4 -t 1
    files=("${micro[@]}")
    cell micro "one rank" 1 -t 2
    cell micro tensor 2 -t 1
    cell micro "tensor 1,2,1" 3 -ts 1,2,1 -t 1
    cell micro layer 3 -sm layer -t 1
    files=("${micro1[@]}")
    cell micro-v1 "one rank" 1 -t 1
    cell micro-v1 tensor 2 -t 1
fi
if [ -e "$work/micro.first" ] && [ -e "$work/micro-v1.first" ]; then
    cmp -s "$work/micro.first" "$work/micro-v1.first" || fail "DFlash and DFlash2 on the same target give other bits"
fi
echo "$cells cells"
finish
