#include "config.h"

#include "signals.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t seen, interrupted;

static void note(int number)
{
    if (number == SIGINT && interrupted)
        _exit(128 + number);
    interrupted = interrupted || number == SIGINT;
    if (!seen)
        seen = number;
}

void rf_signals_install(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = note;
    action.sa_flags = SA_RESTART;
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction before;

        if (numbers[i] == SIGHUP && sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN)
            continue; /* nohup asked for that */
        sigaction(numbers[i], &action, NULL);
    }
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL);
}

int rf_signal_seen(void)
{
    return seen;
}
