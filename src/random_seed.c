#include "config.h"

#include "random_seed.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

uint64_t rf_random_seed(void)
{
    uint64_t seed;
    struct timespec now;

    if (getrandom(&seed, sizeof seed, 0) == (ssize_t)sizeof seed)
        return seed;
    /* A kernel without it: the clock differs from run to run, which is all that is asked. */
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000007) ^ (uint64_t)now.tv_nsec << 20 ^ (uint64_t)getpid();
}
