#include "state.h"

#include <stdlib.h>

static uint64_t fnv1a(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;

    for (size_t i = 0; i < n; i++)
        hash = (hash ^ p[i]) * UINT64_C(0x100000001B3);
    return hash;
}

uint64_t rf_state_mix(rf_state_kind kind, size_t layer, size_t part, const void *bytes, size_t n)
{
    const uint64_t place[] = {(uint64_t)kind, layer, part};
    uint64_t z = fnv1a(fnv1a(UINT64_C(0xCBF29CE484222325), place, sizeof place), bytes, n);

    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static size_t element_bytes(uint32_t type)
{
    return type == RF_TYPE_F16 ? 2 : 4;
}

uint64_t rf_kv_state_hash(const rf_kv_state *s, rf_state_kind kind, size_t layer, size_t slot, int64_t first, int64_t n)
{
    size_t count = n > first ? (size_t)(n - first) : 0, floats = count * s->head_dim;
    size_t key_bytes = floats * element_bytes(s->type_k), value_bytes = floats * element_bytes(s->type_v);
    unsigned char *bytes = malloc(key_bytes + value_bytes + 1);
    uint64_t hash = 0;

    for (size_t h = 0; bytes && count && h < s->kv_heads.count; h++) {
        size_t head = s->kv_heads.first + h;

        if (head * s->heads_per_kv < s->heads.first)
            continue;
        s->b->ops->kv_export(s->b, s->kv, slot, h, first, count, bytes, bytes + key_bytes);
        hash += rf_state_mix(kind, layer, head, bytes, key_bytes + value_bytes);
    }
    free(bytes);
    return hash;
}
