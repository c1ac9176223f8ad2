/* What part of one tensor a rank holds: runs of rows and columns, units and tree nodes. Pure data made from (tensor
 * want, shard): binding cuts the file with it, the plan counts bytes with it, tests play every rank with it.
 *
 * A vector [n] is n rows of one column. Rows are outputs, columns inputs (contiguous in the file). */
#ifndef RF_SLICE_H
#define RF_SLICE_H

#include "model.h"

typedef struct {
    size_t n_rows, n_cols;              /* of the slice */
    rf_range *row_runs, *col_runs;      /* in local order; owned */
    size_t n_row_runs, n_col_runs;      /* 0: all of them */
    size_t *unit_end;                   /* row-parallel: local column where unit u ends; owned */
    size_t n_units;
    rf_range nodes[RF_TREE_MAX_NODES];  /* row-parallel: tree nodes in local units */
    size_t n_nodes;
    size_t n_rows_repeated;             /* rows that a lower rank holds too (a KV head cut by query heads) */
} rf_slice;

/* Whether this rank holds any of the tensor: its layer's or the tail's rank, and neither read through the map nor
 * unused. */
bool rf_slice_held(const rf_tensor_want *want, const rf_shard *shard);

/* The slice of a held tensor. -1: no memory. Pair with rf_slice_free (a failed or zeroed slice is legal). */
int rf_slice_make(const rf_tensor_want *want, const rf_shard *shard, rf_slice *s, rf_error *err);
void rf_slice_free(rf_slice *s);

/* Block types need every contiguous column run of a unit to be a multiple of 32. Units are never cut, so this holds for
 * every cut or for none. Returns the length of a run that is not, or 0. */
size_t rf_slice_uneven_columns(const rf_tensor_want *want, const rf_axis *axis);

/* KV heads that the query heads [heads.first, + count) of n_heads read, where n_kv divides n_heads. */
static inline rf_range rf_kv_heads(rf_range heads, size_t n_heads, size_t n_kv)
{
    size_t share = n_heads / n_kv, first = heads.first / share;

    return (rf_range){first, (heads.first + heads.count - 1) / share + 1 - first};
}

static inline size_t rf_want_rows(const rf_tensor_want *want)
{
    size_t rows = want->n_dims == 1 ? want->dims[0] : 1;

    for (size_t i = 1; i < want->n_dims; i++)
        rows *= want->dims[i];
    return rows;
}

static inline size_t rf_want_cols(const rf_tensor_want *want)
{
    return want->n_dims == 1 ? 1 : want->dims[0];
}

#endif
