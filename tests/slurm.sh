#!/usr/bin/env bash
# Rankflash in a real Slurm (tests/slurm-two-nodes): srun and mpirun on one and two nodes, signals, limits, preemption, dead tasks, drained nodes.
set -u
. "$(dirname "$0")/mpi.sh"
need_mpirun
if [ "${1:-}" != inside ]; then
    work=$(mktemp -d) || exit 1
    chmod 755 "$work"
    trap 'rm -rf "$work"' EXIT
    trap 'exit 143' TERM INT
    export top_builddir srcdir
    timeout -k 5 240 "$(dirname "$0")/slurm-two-nodes" "$work/s" "$0" inside "$work"
    exit
fi
work=$2
program=$(cd "$top_builddir" && pwd)/rankflash
batches=$(cd "$srcdir" && pwd)/scripts/slurm
cd "$work" || exit 1
srun --mpi=list 2>&1 | grep -q pmix || { echo "skipped: this Slurm has no PMIx plugin"; exit 77; }
# Two nodes of this machine would bind their ranks to the same core.
printf '#!/bin/bash\nn=$(hostname)\nexec taskset -c $(((${n#n} - 1) %% %d)) %s "$@"\n' "$(nproc --all)" "$program" >apart
chmod +x apart
alone() { RANKFLASH=$program; }
apart() { RANKFLASH=$work/apart; }
export RANKFLASH
alone
ask=(-p "Where is Kenya?" --temp 0 -s 1 --check -t 1)
queue() { # queue NAME FLAGS...: prints the job's number; output goes to NAME.log
    : >"$1.log"
    sbatch --parsable --open-mode=append -o "$1.log" "${@:2}"
}
state() { scontrol -o show job "$1" | grep -o " $2=[^ ]*" | cut -d= -f2; }
ended() { case $(state "$1" JobState) in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL | PREEMPTED) true ;; *) false ;; esac; }
running() { [ "$(state "$1" JobState)" = RUNNING ]; }
pending() { [ "$(state "$1" JobState)" = PENDING ]; }
again() { [ "$(state "$1" Restarts)" -ge 1 ]; }
lines() { [ "$(wc -l <"$1")" -ge "$2" ]; } 2>/dev/null
none() { ! pgrep -x rankflash >/dev/null; }
until_true() { # until_true SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    while ! "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}
exits() { # exits NAME JOB SECONDS CODE:SIGNAL
    until_true "$3" ended "$2" || { fail "$1: not ended after $3 s: $(state "$2" JobState)"; scancel "$2"; return; }
    [ "$(state "$2" ExitCode)" = "$4" ] || fail "$1: $(state "$2" JobState), exit code $(state "$2" ExitCode), not $4: $(tail -3 "$1.log")"
}
ranks_gone() { ! pgrep -f "^$program.*1000000" >/dev/null; }
runs() { # runs NAME CODE:SIGNAL FLAGS...: a job, to its end
    exits "$1" "$(queue "$1" "${@:3}")" 20 "$2"
}
part() { echo "$SECONDS s: $*"; }

part "sbatch --test-only"
for script in one-node several-nodes preemptible-batch; do
    sbatch --test-only --cpus-per-task=1 "$batches/$script.sbatch" 2>test-only || fail "$script: sbatch --test-only: $(cat test-only)"
done

part "srun and mpirun, one node and two: the bits of one rank"
"$program" "${ask[@]}" >alone.out 2>alone.err || fail "one rank: $(tail -1 alone.err)"
grep '^check' alone.err >alone.check
[ -s alone.check ] || fail "one rank: no hashes"
same() { # same NAME: output of a job in NAME.out, NAME.err
    # Open MPI's mpirun gives the ranks a terminal, where a text is ended with a newline.
    case $1 in mpirun*) { cat alone.out; echo; } ;; *) cat alone.out ;; esac | cmp -s - "$1.out" || fail "$1: other output than one rank's: $(tail -3 "$1.err")"
    grep '^check' "$1.err" | cmp -s - alone.check || fail "$1: other logits than one rank's"
}
for launch in srun mpirun; do
    for nodes in 1 2; do
        name=$launch-$nodes script=one-node
        alone
        [ $nodes = 1 ] || { script=several-nodes; apart; }
        LAUNCH=$launch runs $name 0:0 --nodes=$nodes --ntasks=2 --ntasks-per-node=$((2 / nodes)) --cpus-per-task=1 -o $name.out -e $name.err \
            "$batches/$script.sbatch" "${ask[@]}"
        same $name
        [ $nodes = 1 ] && words="transport shm" || words="transport mpi"
        grep -q "$words" $name.err || fail "$name: not $words: $(grep transport $name.err)"
        [ "$(grep -cE '^ +[01]  n[12] ' $name.err)" = 2 ] && grep -qE "^ +1  n$nodes " $name.err || fail "$name: ranks elsewhere: $(cat $name.err)"
    done
done
LAUNCH=none runs bad 2:0 --cpus-per-task=1 "$batches/one-node.sbatch"
grep -q 'LAUNCH is srun or mpirun' bad.log || fail "LAUNCH=none: $(cat bad.log)"

part "the prompt of a batch job reads /dev/null; launchers without PMIx"
runs null 0:0 -n2 --wrap "srun --mpi=pmix $program -c 1024 -t 1"
timeout 20 srun -n2 "$program" "${ask[@]}" >single.out 2>single.err
[ $? -eq 5 ] && grep -q '^rankflash: srun started 2 tasks, but each is alone: add --mpi=pmix' single.err && [ ! -s single.out ] ||
    fail "srun without PMIx: $(cat single.err)"
runs plain 5:0 -N2 --ntasks-per-node=1 --wrap "$program -p x"
grep -q '^rankflash: this Slurm job has 2 tasks, but the program was started as one' plain.log || fail "no launcher: $(cat plain.log)"

apart
long=(-p "Where is Kenya?" -n 1000000 --ignore-eos -c 200000 -s 1 -t 1)
# A job that only waits costs no time; its limit is looked at every half minute, so it runs beside all that follows.
limited=$(queue limit -n2 --time=1 --signal=USR1@55 --wrap "exec 3<>limit.in; srun --mpi=pmix $program -c 1024 -t 1 <&3")
mkfifo limit.in 2>/dev/null

part "scancel: SIGTERM, then all are gone"
printf '%s\n' '#!/bin/bash' 'srun --mpi=pmix "$RANKFLASH" "$@" >cancel.out 2>cancel.err; echo $? >cancel.code; sleep 60' >cancel.sh
job=$(queue cancel -N2 -n2 --export=ALL cancel.sh "${long[@]}")
until_true 20 test -s cancel.out || fail "scancel: no output: $(cat cancel.err)"
scancel -s TERM "$job" # tasks alone: what they do with it
until_true 5 test -s cancel.code || fail "SIGTERM: the step goes on after 5 s"
[ "$(cat cancel.code)" = 143 ] || fail "SIGTERM: exit code $(cat cancel.code), not 143: $(tail -3 cancel.err)"
grep -q 'tokens per' cancel.err || fail "SIGTERM: no statistics: $(tail -3 cancel.err)"
scancel "$job"
exits cancel "$job" 10 0:15
for launch in srun mpirun; do
    job=$(LAUNCH=$launch queue gone -N2 -n2 --ntasks-per-node=1 --cpus-per-task=1 "$batches/several-nodes.sbatch" "${long[@]}")
    until_true 20 grep -q context gone.log || fail "scancel, $launch: no start: $(cat gone.log)"
    scancel "$job"
    until_true 5 ranks_gone || fail "scancel, $launch: ranks are there after 5 s"
    until_true 5 ended "$job" || fail "scancel, $launch: the job is $(state "$job" JobState)"
done

part "a task killed with -9 ends the job, with a sentence"
for launch in srun mpirun; do
    job=$(LAUNCH=$launch queue dead -N2 -n2 --ntasks-per-node=1 --cpus-per-task=1 "$batches/several-nodes.sbatch" "${long[@]}")
    until_true 20 grep -q context dead.log || fail "kill -9, $launch: no start: $(cat dead.log)"
    kill -9 "$(pgrep -f "^$program.*1000000" | tail -1)"
    until_true 10 ended "$job" || { fail "kill -9, $launch: the job goes on after 10 s"; scancel "$job"; }
    [ "$(state "$job" JobState)" = FAILED ] || fail "kill -9, $launch: the job is $(state "$job" JobState)"
    grep -qE 'task [01]: Killed|signal 9 \(Killed\)' dead.log || fail "kill -9, $launch: nobody says so: $(tail -5 dead.log)"
done

part "a batch, preempted, and near its limit: each result once, with the bits of an uninterrupted run"
for i in $(seq 48); do
    echo "{\"id\": $i, \"prompt\": \"What borders country $i?\", \"temp\": $((i % 2)), \"n\": 250}"
done >in.jsonl
"$program" --batch in.jsonl --output whole.jsonl --ignore-eos --check -t 1 2>whole.err || fail "one rank's batch: $(tail -1 whole.err)"
results() { sed -e 's/"seconds":[^,}]*,*//' "$1" | sort; }
# Both at once: Slurm looks every half minute whether a grace time is over.
launchers="srun mpirun"
unset job
declare -A job
for launch in $launchers; do
    job[$launch]=$(LAUNCH=$launch queue preempt-$launch -p low -N2 -n2 --ntasks-per-node=1 --cpus-per-task=1 "$batches/preemptible-batch.sbatch" \
        in.jsonl preempt-$launch.jsonl --ignore-eos --check -t 1 -np 2)
done
for launch in $launchers; do
    until_true 20 lines preempt-$launch.jsonl 2 || fail "preemption, $launch: no results: $(tail -n 3 preempt-$launch.log)"
done
timeout 50 srun -p high -N2 -n2 --exclusive true 2>/dev/null || fail "preemption: the other job did not run"
for launch in $launchers; do
    out=preempt-$launch.jsonl
    until_true 5 again "${job[$launch]}" || fail "preemption, $launch: not queued again: $(tail -n 5 preempt-$launch.log)"
    n=$(wc -l <$out)
    [ "$n" -lt 48 ] || fail "preemption, $launch: nothing was left to do"
    until_true 30 lines $out $((n + 2)) || fail "preemption, $launch: does not go on: $(tail -n 3 preempt-$launch.log)"
    scancel -b -s USR1 "${job[$launch]}" # as --signal=B:USR1@120 does
    until_true 10 grep -q 'limit is near' preempt-$launch.log || fail "limit, $launch: $(tail -n 5 preempt-$launch.log)"
done
for launch in $launchers; do
    exits preempt-$launch "${job[$launch]}" 40 0:0
    [ "$(state "${job[$launch]}" Restarts)" = 2 ] || fail "$launch: $(state "${job[$launch]}" Restarts) restarts"
    cmp -s <(results whole.jsonl) <(results preempt-$launch.jsonl) ||
        fail "$launch: results differ from an uninterrupted run's: $(tail -n 3 preempt-$launch.log)"
done

part "a drained node"
scontrol update nodename=n2 state=drain reason=test
alone
LAUNCH=srun runs drain 0:0 --ntasks=2 --cpus-per-task=1 -o drain.out -e drain.err "$batches/one-node.sbatch" "${ask[@]}"
same drain
waiting=$(queue waiting -N2 -n2 --wrap "srun --mpi=pmix $program -p x -n 1 -t 1")
sleep 3
pending "$waiting" || fail "drained: a job of two nodes is $(state "$waiting" JobState)"
scontrol update nodename=n2 state=resume
exits waiting "$waiting" 20 0:0

part "--time and --signal"
exits limit "$limited" 45 138:0
grep -q '^rankflash: ' limit.log && fail "--signal: $(cat limit.log)"
part done
finish
