#include "state.h"

#include <stdlib.h>

#include "half.h"

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

#define FILL_POSITIONS 256 /* of a piece that is imported again and again */

/* A piece's elements in the cache type: a fixed sequence of numbers within -1 and 1. */
static void *fill_piece(uint32_t type, size_t n, uint32_t seed)
{
    unsigned char *bytes = malloc(n * element_bytes(type));

    for (size_t i = 0; bytes && i < n; i++) {
        float x;

        seed = seed * 1664525u + 1013904223u;
        x = (float)(seed >> 8) * 0x1p-23f - 1.0f;
        if (type == RF_TYPE_F16)
            ((uint16_t *)(void *)bytes)[i] = rf_f32_to_f16(x);
        else
            ((float *)(void *)bytes)[i] = x;
    }
    return bytes;
}

int rf_kv_state_fill(const rf_kv_state *s, rf_kv *kv, size_t slot, int64_t n, rf_error *err)
{
    size_t floats = FILL_POSITIONS * s->head_dim;
    void *keys = fill_piece(s->type_k, floats, 1), *values = fill_piece(s->type_v, floats, 2);
    int failed = keys && values ? 0 : rf_fail(err, RF_ERR_MEMORY, "no memory to fill a cache with");

    for (size_t h = 0; !failed && h < s->kv_heads.count; h++)
        for (int64_t at = 0; at < n; at += FILL_POSITIONS) {
            size_t count = n - at < FILL_POSITIONS ? (size_t)(n - at) : FILL_POSITIONS;

            s->b->ops->kv_import(s->b, kv, slot, h, at, count, keys, values);
        }
    free(keys);
    free(values);
    return failed;
}
