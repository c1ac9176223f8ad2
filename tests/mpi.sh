# For tests that start ranks: source this. $top_builddir is where the programs are.
: "${top_builddir:=.}"
: "${srcdir:=.}"

# As root mpirun refuses unless told twice; only these tests are told.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# MPI's libraries have no frame pointers: without slow unwinding a leak report cannot name them, and tests/lsan.supp
# goes by names.
[ -z "${ASAN_OPTIONS:-}" ] || export ASAN_OPTIONS="$ASAN_OPTIONS:fast_unwind_on_malloc=0"
# No search for networks and no core binding: ranks share the cores there are.
ranks() { # ranks N PROGRAM ARGS...: under mpirun, with a time limit
    local n=$1
    shift
    timeout -k 5 "${RANKS_TIMEOUT:-300}" mpirun --oversubscribe -np "$n" "$@"
}

need_mpirun() {
    command -v mpirun >/dev/null 2>&1 || { echo "skipped: mpirun is not there (Debian: openmpi-bin)"; exit 77; }
    grep -q '^#define RF_HAVE_MPI 1' "$top_builddir/config.h" || { echo "skipped: built without MPI"; exit 77; }
}

failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

finish() {
    [ "$failures" -eq 0 ] || { echo "$failures failed"; exit 1; }
    exit 0
}
