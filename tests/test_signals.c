/* Signals: each case in a process of its own, whose exit code says how it went. */
#include "config.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../rank/signals.h"
#include "check.h"

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
#define N_NUMBERS (sizeof numbers / sizeof *numbers)

/* Exit code of a child that ran body; 128 + signal if one ended it. */
static int outcome(int (*body)(void))
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        for (size_t i = 0; i < N_NUMBERS; i++) /* whatever started this test may ignore some */
            signal(numbers[i], SIG_DFL);
        _exit(body());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int each;

static int sees_it(void)
{
    rf_signals_install();
    if (rf_signal_seen() != 0)
        return 1;
    raise(each);
    return rf_signal_seen() == each ? 0 : 2;
}

static void each_is_seen(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NUMBERS; i++) {
        each = numbers[i];
        assert_int_equal(outcome(sees_it), 0);
    }
}

static int keeps_the_first(void)
{
    rf_signals_install();
    raise(SIGTERM);
    raise(SIGUSR1);
    raise(SIGINT); /* the first SIGINT: no hurry yet */
    return rf_signal_seen() == SIGTERM ? 0 : 1;
}

static void the_first_is_kept(void **state)
{
    (void)state;
    assert_int_equal(outcome(keeps_the_first), 0);
}

static int two_interrupts(void)
{
    rf_signals_install();
    raise(SIGINT);
    if (rf_signal_seen() != SIGINT)
        return 1;
    raise(SIGINT);
    return 2; /* not reached */
}

static int twice_another(void)
{
    rf_signals_install();
    raise(SIGTERM);
    raise(SIGTERM);
    return rf_signal_seen() == SIGTERM ? 0 : 1;
}

static void a_second_interrupt_ends(void **state)
{
    (void)state;
    assert_int_equal(outcome(two_interrupts), 128 + SIGINT);
    assert_int_equal(outcome(twice_another), 0);
}

/* A write into a pipe that nobody reads fails, and does not end the process. */
static int closed_pipe(void)
{
    int ends[2];

    rf_signals_install();
    if (pipe(ends) != 0)
        return 1;
    close(ends[0]);
    return write(ends[1], "x", 1) == -1 && rf_signal_seen() == 0 ? 0 : 2;
}

static int hangup_under_nohup(void)
{
    signal(SIGHUP, SIG_IGN);
    rf_signals_install();
    raise(SIGHUP);
    return rf_signal_seen() == 0 ? 0 : 1;
}

static void what_is_ignored(void **state)
{
    (void)state;
    assert_int_equal(outcome(closed_pipe), 0);
    assert_int_equal(outcome(hangup_under_nohup), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_seen),
        cmocka_unit_test(the_first_is_kept),
        cmocka_unit_test(a_second_interrupt_ends),
        cmocka_unit_test(what_is_ignored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
