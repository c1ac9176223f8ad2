/* Counter-based randomness for sampling that no drafter, draft length or rank count can change (docs/determinism.md).
 *
 * Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11), key = the 64-bit seed as
 * (low, high), counter = (token, position low, position high, 0), w = first output word, u = (w + 0.5) / 2^32,
 * G = -log(-log(u)), in double. */
#ifndef RF_GUMBEL_H
#define RF_GUMBEL_H

#include <stdint.h>

#include "philox.h"

double rf_gumbel(uint64_t seed, int64_t position, int32_t token);

#endif
