/* Counter-based randomness for sampling that no drafter, draft length or rank count can change (docs/determinism.md).
 *
 * Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11), key = the 64-bit seed as
 * (low, high), counter = (token, position low, position high, 0), w = first output word, u = (w + 0.5) / 2^32,
 * G = -log(-log(u)), in double. */
#ifndef RF_GUMBEL_H
#define RF_GUMBEL_H

#include <stdint.h>

void rf_philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* w */
uint32_t rf_gumbel_word(uint64_t seed, int64_t position, int32_t token);
double rf_gumbel(uint64_t seed, int64_t position, int32_t token);

#endif
