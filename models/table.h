/* Builds a tensor table: one call an entry, in the words of the architecture's documentation.
 *
 * Names are prefix + suffix; prefix, part, layer and unused stay set until changed and go into every entry. Start from
 * zeroes. */
#ifndef RF_TABLE_H
#define RF_TABLE_H

#include "model.h"

typedef struct {
    rf_tensor_want *wants; /* malloc'd; taken over by the caller at the end */
    size_t n, capacity;
    bool failed;           /* no memory, or a name too long */
    char prefix[32];
    rf_part part;
    size_t layer;
    bool unused;           /* entries are RF_CUT_UNUSED */
} rf_table;

/* entries of block i from now on: prefix "blk.i.", layer i */
void rf_table_block(rf_table *t, size_t block);
/* small float vector [n], held whole */
void rf_table_vector(rf_table *t, size_t id, const char *suffix, size_t n);
/* small float vector or matrix [cols, rows] cut by rows (n_dims 1: cols is 1) */
void rf_table_vector_rows(rf_table *t, size_t id, const char *suffix, size_t cols, size_t rows, rf_axis_id axis,
                          rf_layout layout, size_t width);
/* matrices [in, out] */
void rf_table_whole(rf_table *t, size_t id, const char *suffix, size_t in, size_t out);
void rf_table_mapped(rf_table *t, size_t id, const char *suffix, size_t in, size_t out);
void rf_table_rows(rf_table *t, size_t id, const char *suffix, size_t in, size_t out, rf_axis_id axis, rf_layout layout,
                   size_t width);
void rf_table_cols(rf_table *t, size_t id, const char *suffix, size_t in, size_t out, rf_axis_id axis, rf_layout layout,
                   size_t width);
/* the entry added last, to change what is special about it; never NULL */
rf_tensor_want *rf_table_last(rf_table *t);
/* The finished table, or NULL with *err. */
rf_tensor_want *rf_table_finish(rf_table *t, size_t *n, rf_error *err);

/* The entry with this id and layer, or NULL. */
const rf_tensor_want *rf_table_find(const rf_tensor_want *wants, size_t n, size_t id, size_t layer);

#endif
