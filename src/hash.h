/* Hashes of logits (--check) and of bytes. */
#ifndef RF_HASH_H
#define RF_HASH_H

#include <stddef.h>
#include <stdint.h>

#ifndef RF_DEVICE_FN
#define RF_DEVICE_FN /* what a GPU's compiler needs before functions that kernels use too */
#endif

/* The finaliser of SplitMix64 over (token id, bits of the logit): a row's hash is the sum mod 2^64 over its tokens, so
 * shards of the vocabulary add up in any order. */
RF_DEVICE_FN static inline uint64_t rf_hash_mix(int32_t token, uint32_t logit_bits)
{
    uint64_t z = ((uint64_t)(uint32_t)token << 32 | logit_bits) + UINT64_C(0x9E3779B97F4A7C15);

    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

#define RF_HASH_START UINT64_C(14695981039346656037)

/* FNV-1a over n more bytes; the first call starts from RF_HASH_START. */
static inline uint64_t rf_hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(1099511628211);
    return hash;
}

#endif
