#!/usr/bin/env bash
# The stdin prompt on ranks: ends, partial lines, long and hostile input, a conversation, idle ranks.
set -u
. "$(dirname "$0")/mpi.sh"
need_mpirun
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
program="$top_builddir/rankflash"

# ask NAME RANKS FLAGS...: standard input from the pipe; exit code must be 0
ask() {
    local name=$1 n=$2
    shift 2
    timeout -k 5 120 mpirun --oversubscribe -np "$n" "$program" -c 4096 --temp 0 "$@" >"$work/out" 2>"$work/err" ||
        fail "$name: exit code $?: $(tail -3 "$work/err")"
}
says() {
    grep -q "$2" "$work/out" || fail "$1: \"$2\" is not in: $(cat "$work/out")"
}
mentions() {
    grep -q "$2" "$work/err" || fail "$1: \"$2\" is not in: $(tail -5 "$work/err")"
}

ask "no input" 2 </dev/null
printf 'What is the capital of France?' | ask "no final newline" 2
says "no final newline" "The capital of France is Paris."
echo "Where is Kenya?" | ask "four ranks" 4
says "four ranks" "Kenya"
printf 'What is the\\\ncapital of France?\n\n\n/stats\n/quit\nWhere is Kenya?\n' | ask "continuation, empty lines, commands" 2
mentions "continuation, empty lines, commands" "turn 1: "
grep -q "turn 2: " "$work/err" && fail "/quit went on"

# a second turn sees the first, and only new tokens are processed
printf 'What is the capital of France?\nWhere is Kenya?\n/reset\nWhat is the capital of France?\n' | ask "conversation" 2
mentions conversation "turn 2: .* new tokens"
[ "$(grep -c 'The capital of France is Paris.' "$work/out")" = 2 ] || fail "conversation: $(cat "$work/out")"
first=$(sed -n 's/^turn 1: \([0-9]*\) new.*/\1/p' "$work/err")
third=$(sed -n 's/^turn 3: \([0-9]*\) new.*/\1/p' "$work/err")
[ -n "$first" ] && [ "$first" = "$third" ] || fail "/reset: $first and $third new tokens"

# 200 KB in one line do not fit: one sentence, and the next line is answered
{ head -c 200000 /dev/zero | tr '\0' 'x'; printf '\nWhat is the capital of France?\n'; } | ask "200 KB" 2
mentions "200 KB" "^rankflash: the prompt has .* tokens"
says "200 KB" "The capital of France is Paris."
printf 'caf\351 \377\376 \0 what?\n' | ask "invalid UTF-8" 2
mentions "invalid UTF-8" "turn 1: "

# a control token written by the user is text: more tokens than the token itself, and the answer does not see a new turn
echo '<|im_end|>' | ask "control token" 2
text=$(sed -n 's/^turn 1: \([0-9]*\) new.*/\1/p' "$work/err")
echo '<|im_end|>' | ask "control token, --special" 2 --special
token=$(sed -n 's/^turn 1: \([0-9]*\) new.*/\1/p' "$work/err")
[ "$text" -gt "$token" ] || fail "control token: $text and $token tokens"
grep -q '<|' "$work/out" && fail "a control token was written"

# stop strings and limits reach the text
printf 'What is the capital of France?' | ask "stop string" 2 -r "Paris"
[ "$(head -c 26 "$work/out" | tail -c 24)" != "" ] || fail "stop string: nothing was said"
grep -q Paris "$work/out" && fail "stop string: $(cat "$work/out")"

# idle ranks at a waiting prompt use under 2 % of a core
ticks() { # user + system ticks of all ranks
    local sum=0 t
    for pid in $(pgrep -P "$job" -x rankflash); do
        t=$(awk '{print $14 + $15}' "/proc/$pid/stat" 2>/dev/null) && sum=$((sum + t))
    done
    echo $sum
}
mkfifo "$work/in"
mpirun --oversubscribe -np 2 "$program" -c 1024 --temp 0 <"$work/in" >"$work/out" 2>"$work/err" &
job=$!
exec 3>"$work/in"
echo "Where is Kenya?" >&3
for _ in $(seq 100); do grep -q "turn 1" "$work/err" && break; sleep 0.1; done
sleep 0.5
before=$(ticks)
sleep 4
used=$(($(ticks) - before))
limit=$((4 * $(getconf CLK_TCK) * 2 * 2 / 100)) # 4 s, 2 ranks, 2 %
[ "$used" -le "$limit" ] || fail "idle ranks used $used ticks in 4 s (at most $limit)"
exec 3>&-
wait $job || fail "end of input after waiting: exit code $?"
finish
