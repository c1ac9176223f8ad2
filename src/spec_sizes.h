/* What backends size alike: memory that follows from a spec. A size that is too large is SIZE_MAX, and stays it through
 * products and sums; alloc_bytes says what a backend's allocation of so many bytes holds. */
#ifndef RF_SPEC_SIZES_H
#define RF_SPEC_SIZES_H

#include <stdint.h>

#include "backend.h"
#include "quant.h"

#define SPAN 256    /* positions of a cache block and of an attention span */
#define Q8_BLOCK 32 /* weights of a block along a row */

static inline size_t rf_size_product(size_t a, size_t b)
{
    return b && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

static inline size_t rf_size_sum(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

/* ---- weights: rows and columns of the shard; no runs: all */

static inline size_t rf_run_total(const rf_range *runs, size_t n, size_t all)
{
    size_t sum = n ? 0 : all;

    for (size_t i = 0; i < n; i++)
        sum += runs[i].count;
    return sum;
}

static inline size_t rf_shard_rows(const rf_weight_spec *s)
{
    return rf_run_total(s->row_runs, s->n_row_runs, s->n_rows);
}

static inline size_t rf_shard_cols(const rf_weight_spec *s)
{
    return rf_run_total(s->col_runs, s->n_col_runs, s->n_cols);
}

/* ---- activations: blocks of Q8_BLOCK */

static inline size_t rf_act_blocks(size_t max_rows, size_t max_cols)
{
    return rf_size_product(max_rows, max_cols / Q8_BLOCK + (max_cols % Q8_BLOCK != 0));
}

/* ---- keys and values */

/* Cache blocks of a slot */
static inline size_t rf_kv_blocks(const rf_kv_spec *s)
{
    return s->n_positions / SPAN + (s->n_positions % SPAN != 0);
}

/* Keys, or values, of all slots */
static inline size_t rf_kv_side_bytes(const rf_kv_spec *s, uint32_t type)
{
    size_t block = SPAN * s->n_heads * s->head_dim * rf_format_find(type)->bytes;

    return rf_size_product(rf_size_product(s->n_slots, rf_kv_blocks(s)), block);
}

/* The table from a slot's blocks to those of the pool */
static inline size_t rf_kv_table_bytes(const rf_kv_spec *s)
{
    return rf_size_product(rf_size_product(s->n_slots, rf_kv_blocks(s)), sizeof(uint32_t));
}

static inline size_t rf_kv_bytes(const rf_kv_spec *s, size_t (*alloc_bytes)(size_t bytes))
{
    size_t keys = alloc_bytes(rf_kv_side_bytes(s, s->type_k)), values = alloc_bytes(rf_kv_side_bytes(s, s->type_v));

    return rf_size_sum(rf_size_sum(keys, values), alloc_bytes(rf_kv_table_bytes(s)));
}

#endif
