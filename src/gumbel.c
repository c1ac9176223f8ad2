#include "gumbel.h"

#include <math.h>

#define ROUNDS 10
#define MULTIPLIER_0 UINT32_C(0xD2511F53)
#define MULTIPLIER_1 UINT32_C(0xCD9E8D57)
#define WEYL_0 UINT32_C(0x9E3779B9)
#define WEYL_1 UINT32_C(0xBB67AE85)

void rf_philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t p0 = (uint64_t)MULTIPLIER_0 * c0, p1 = (uint64_t)MULTIPLIER_1 * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += WEYL_0;
        k1 += WEYL_1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint32_t rf_gumbel_word(uint64_t seed, int64_t position, int32_t token)
{
    uint64_t p = (uint64_t)position;
    uint32_t counter[4] = {(uint32_t)token, (uint32_t)p, (uint32_t)(p >> 32), 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, out[4];

    rf_philox4x32_10(counter, key, out);
    return out[0];
}

double rf_gumbel(uint64_t seed, int64_t position, int32_t token)
{
    return -log(-log(((double)rf_gumbel_word(seed, position, token) + 0.5) / 4294967296.0));
}
