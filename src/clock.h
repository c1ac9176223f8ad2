/* Time for measuring. */
#ifndef RF_CLOCK_H
#define RF_CLOCK_H

#include <time.h>

/* Seconds since some moment; never goes back. */
static inline double rf_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
