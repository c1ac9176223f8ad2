#include "hash_index.h"

#include <stdlib.h>
#include <string.h>

#include "random_seed.h"

int rf_hash_index_init(rf_hash_index *index, size_t count)
{
    size_t slots = 16;

    while (slots < count + count / 2 + 1) /* at most two thirds full: there is always a free slot to stop at */
        slots *= 2;
    index->slot = malloc(slots * sizeof *index->slot);
    if (!index->slot)
        return -1;
    for (size_t i = 0; i < slots; i++)
        index->slot[i] = (struct rf_hash_slot){0, -1};
    index->mask = slots - 1;
    index->seed = rf_random_seed();
    return 0;
}

void rf_hash_index_free(rf_hash_index *index)
{
    free(index->slot);
    *index = (rf_hash_index){0};
}

/* The finaliser of SplitMix64. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

uint64_t rf_hash_index_hash(const rf_hash_index *index, const void *key, size_t length)
{
    const char *bytes = key;
    uint64_t hash = index->seed ^ (uint64_t)length;

    while (length > 0) {
        size_t n = length < 8 ? length : 8;
        uint64_t word = 0;

        memcpy(&word, bytes, n);
        hash = mix((hash ^ word) + UINT64_C(0x9E3779B97F4A7C15));
        bytes += n;
        length -= n;
    }
    return hash;
}

void rf_hash_index_add(rf_hash_index *index, uint64_t hash, int32_t number)
{
    size_t at = (size_t)hash & index->mask;

    while (index->slot[at].number >= 0)
        at = (at + 1) & index->mask;
    index->slot[at] = (struct rf_hash_slot){(uint32_t)(hash >> 32), number};
}
