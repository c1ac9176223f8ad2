#!/usr/bin/env bash
# All transports on 1 to 4 ranks.
set -u
. "$(dirname "$0")/mpi.sh"
need_mpirun
for n in 1 2 3 4; do
    ranks "$n" "$top_builddir/tests/collectives_run" || fail "$n ranks"
done
finish
