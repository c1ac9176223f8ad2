/* Philox 4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11. */
#ifndef RF_PHILOX_H
#define RF_PHILOX_H

#include <stdint.h>

#ifndef RF_DEVICE_FN
#define RF_DEVICE_FN /* what a GPU's compiler needs before functions that kernels use too */
#endif

RF_DEVICE_FN static inline void rf_philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    const uint32_t multiplier_0 = UINT32_C(0xD2511F53), multiplier_1 = UINT32_C(0xCD9E8D57);
    const uint32_t weyl_0 = UINT32_C(0x9E3779B9), weyl_1 = UINT32_C(0xBB67AE85);
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)multiplier_0 * c0, p1 = (uint64_t)multiplier_1 * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += weyl_0;
        k1 += weyl_1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* w: the word that decides about a token at a position (gumbel.h) */
RF_DEVICE_FN static inline uint32_t rf_gumbel_word(uint64_t seed, int64_t position, int32_t token)
{
    uint64_t p = (uint64_t)position;
    uint32_t counter[4] = {(uint32_t)token, (uint32_t)p, (uint32_t)(p >> 32), 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, out[4];

    rf_philox4x32_10(counter, key, out);
    return out[0];
}

#endif
