/* What blocks of every architecture are made of: regions of scratch, a row-parallel product with its sum over ranks,
 * the feed-forward. */
#ifndef RF_PARTS_H
#define RF_PARTS_H

#include "model.h"

typedef struct {
    rf_backend *b;
    const rf_ops *ops;
    rf_comm *inner;
    rf_act *act;    /* the activations being multiplied; one product at a time */
    rf_buf *nodes;  /* [node][row][E] */
    rf_buf *sum;    /* [row][E] */
    size_t n_embd;  /* E */
} rf_parts;

/* A row-parallel matrix [n_cols local, E]. */
typedef struct {
    rf_weight *w;
    const rf_sum_plan *plan;
    size_t n_cols;
} rf_row_parallel;

typedef struct {
    rf_weight *gate, *up;   /* [E, F local] */
    unsigned wants;         /* of both */
    rf_row_parallel down;
    size_t n_ff;            /* local */
} rf_ffn;

/* Scratch shared by phases that never overlap: regions are laid one after the other, n_rows * n_cols floats each
 * (64-byte steps). */
typedef struct {
    rf_buf *buf;
    size_t n_rows, end, most; /* floats laid in this phase, and in the largest */
} rf_regions;

void rf_regions_phase(rf_regions *r); /* start again at 0 */
rf_mat rf_region(rf_regions *r, size_t n_cols);

static inline rf_mat rf_whole(rf_buf *buf, size_t n_cols)
{
    return (rf_mat){buf, 0, n_cols};
}

/* The same rows, from column `first` on. */
static inline rf_mat rf_from_column(rf_mat m, size_t first)
{
    return (rf_mat){m.buf, m.offset + first, m.stride};
}

/* p->sum [n_rows][E] = W x, on every rank. Returns it. */
rf_mat rf_reduce(const rf_parts *p, size_t n_rows, rf_mat x, const rf_row_parallel *w);
/* down(silu(gate y) * (up y)), in p->sum. gate, up: scratch [n_rows][F local]. */
rf_mat rf_ffn_forward(const rf_parts *p, size_t n_rows, rf_mat y, const rf_ffn *f, rf_mat gate, rf_mat up);

#endif
