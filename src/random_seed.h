/* A 64-bit number that differs from run to run. */
#ifndef RF_RANDOM_SEED_H
#define RF_RANDOM_SEED_H

#include <stdint.h>

uint64_t rf_random_seed(void);

#endif
