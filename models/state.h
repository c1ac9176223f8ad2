/* Hashes of committed state, made of parts that each belong to one (layer, global head), summed mod 2^64: so ranks add
 * up to the same number however the model is cut. For tests and checks; allocates. */
#ifndef RF_STATE_H
#define RF_STATE_H

#include "model.h"

typedef enum { RF_STATE_TRUNK, RF_STATE_DELTA, RF_STATE_WINDOW, RF_STATE_DRAFTER } rf_state_kind;

/* One part: 64-bit FNV-1a over (kind, layer, part, bytes), then a finaliser. */
uint64_t rf_state_mix(rf_state_kind kind, size_t layer, size_t part, const void *bytes, size_t n);

/* The keys and values of one layer on one rank. */
typedef struct {
    rf_backend *b;
    const rf_kv *kv;
    rf_range kv_heads, heads; /* held here */
    size_t heads_per_kv, head_dim;
    uint32_t type_k, type_v;
} rf_kv_state;

/* Positions [first, n) of the KV heads that no lower rank holds. 0 if memory runs out. */
uint64_t rf_kv_state_hash(const rf_kv_state *s, rf_state_kind kind, size_t layer, size_t slot, int64_t first,
                          int64_t n);

/* For measurements: positions [0, n) of every KV head held here become what a long prompt might have left, numbers
 * within -1 and 1 (memory that was never written would be read from one page of zeros). -1: no memory. */
int rf_kv_state_fill(const rf_kv_state *s, rf_kv *kv, size_t slot, int64_t n, rf_error *err);

#endif
