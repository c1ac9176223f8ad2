#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "log.h"

#define BAR_EVERY 0.1  /* seconds between redraws */
#define LINE_EVERY 5.0 /* seconds between lines */
#define BAR_WIDTH 30

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void rf_progress_begin(rf_progress *p, const char *what, const char *unit)
{
    memset(p, 0, sizeof *p);
    p->what = what;
    p->unit = unit;
    p->start = p->shown = now();
    p->terminal = isatty(STDERR_FILENO) != 0;
}

static void draw(rf_progress *p, size_t done, size_t all)
{
    char line[160], bar[BAR_WIDTH + 1];
    size_t full = all ? done * BAR_WIDTH / all : 0;
    int n;

    memset(bar, '#', BAR_WIDTH);
    memset(bar + full, '.', BAR_WIDTH - full);
    bar[BAR_WIDTH] = 0;
    n = snprintf(line, sizeof line, "\r%s [%s] %zu/%zu %s\033[K", p->what, bar, done, all, p->unit);
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n) == n)
        p->drawn = true;
}

void rf_progress_step(rf_progress *p, size_t done, size_t all)
{
    double t = now();

    if (t - p->shown < (p->terminal ? BAR_EVERY : LINE_EVERY))
        return;
    p->shown = t;
    if (p->terminal)
        draw(p, done, all);
    else
        rf_log_info("%s: %zu of %zu %s, %.0f s", p->what, done, all, p->unit, t - p->start);
}

void rf_progress_end(rf_progress *p)
{
    if (p->drawn && write(STDERR_FILENO, "\r\033[K", 4) != 4)
        p->drawn = false;
}
