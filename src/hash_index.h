/* An open-addressing hash index: finds the numbers of things whose keys the caller keeps. It stores 8 bytes an entry
 * and never sees a key: the caller walks the entries with the key's hash and compares.
 *
 *     size_t cursor = rf_hash_index_start(&index, hash);
 *     for (int32_t i; (i = rf_hash_index_next(&index, hash, &cursor)) >= 0;)
 *         if (key of i equals ...)
 *             return i;
 */
#ifndef RF_HASH_INDEX_H
#define RF_HASH_INDEX_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    struct rf_hash_slot {
        uint32_t hash;
        int32_t number; /* -1: free */
    } * slot;           /* owned; mask + 1 of them, a power of two */
    size_t mask;
    uint64_t seed; /* random: a hostile file cannot choose keys that collide */
} rf_hash_index;

/* For at most `count` entries. 0, or -1 when memory runs out. */
int rf_hash_index_init(rf_hash_index *index, size_t count);
void rf_hash_index_free(rf_hash_index *index);

uint64_t rf_hash_index_hash(const rf_hash_index *index, const void *key, size_t length);
void rf_hash_index_add(rf_hash_index *index, uint64_t hash, int32_t number);

static inline size_t rf_hash_index_start(const rf_hash_index *index, uint64_t hash)
{
    return (size_t)hash & index->mask;
}

/* The next number whose hash may be this one, or -1 when there is no other. */
static inline int32_t rf_hash_index_next(const rf_hash_index *index, uint64_t hash, size_t *cursor)
{
    for (;;) {
        const struct rf_hash_slot *s = &index->slot[*cursor];

        if (s->number < 0)
            return -1;
        *cursor = (*cursor + 1) & index->mask;
        if (s->hash == (uint32_t)(hash >> 32))
            return s->number;
    }
}

#endif
