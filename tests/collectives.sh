#!/usr/bin/env bash
# All transports on 1 to 4 ranks; then a rank, and the launcher, killed in the middle of sums: all ranks are gone within
# 5 seconds.
set -u
. "$(dirname "$0")/mpi.sh"
need_mpirun
program="$top_builddir/tests/collectives_run"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
RANKS_TIMEOUT=200
for n in 1 2 3 4; do
    ranks "$n" "$program" || fail "$n ranks"
done

# alive PID: runs, and is no zombie
alive() {
    local state
    state=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -c1)
    [ -n "$state" ] && [ "$state" != Z ]
}

# killed TRANSPORT VICTIM(rank or launcher): 3 ranks in endless sums
killed() {
    local transport=$1 victim=$2 folder="$work/$1-$2" launcher pid still end flag=
    mkdir "$folder"
    [ "$victim" = rank ] && flag=die
    mpirun --oversubscribe -np 3 "$program" --endless "$transport" "$folder" $flag >"$folder/said" 2>&1 &
    launcher=$!
    for _ in $(seq 600); do [ -s "$folder/going.2" ] && break; sleep 0.1; done
    if [ ! -s "$folder/going.2" ]; then
        fail "$transport, $victim killed: the sums never began: $(head -3 "$folder/said")"
        kill -9 "$launcher"
    fi
    [ "$victim" = launcher ] && kill -9 "$launcher"
    end=$(($(date +%s) + 5))
    while :; do
        still=
        for pid in $(cat "$folder"/pid.*); do alive "$pid" && still="$still $pid"; done
        [ -z "$still" ] && break
        [ "$(date +%s)" -lt "$end" ] || break
        sleep 0.1
    done
    [ -z "$still" ] || { fail "$transport, $victim killed: ranks are still there after 5 s"; kill -9 $still; }
    wait "$launcher" 2>/dev/null && fail "$transport, $victim killed: exit code 0"
}

for transport in shm mpi; do
    killed "$transport" rank
    killed "$transport" launcher
done
finish
