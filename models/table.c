#include "table.h"

#include <stdio.h>
#include <stdlib.h>

static rf_tensor_want nowhere; /* what is added after a failure goes here; never read */

static rf_tensor_want *add(rf_table *t, size_t id, const char *suffix, rf_cut cut)
{
    rf_tensor_want *w;
    int length;

    if (t->n == t->capacity && !t->failed) {
        size_t capacity = t->capacity ? 2 * t->capacity : 64;
        rf_tensor_want *wants = realloc(t->wants, capacity * sizeof *wants);

        t->failed = !wants;
        if (wants) {
            t->wants = wants;
            t->capacity = capacity;
        }
    }
    if (t->failed)
        return &nowhere;
    w = &t->wants[t->n++];
    *w = (rf_tensor_want){.cut = t->unused ? RF_CUT_UNUSED : cut, .part = t->part, .layer = t->layer, .id = id};
    length = snprintf(w->name, sizeof w->name, "%s%s", t->prefix, suffix);
    t->failed = length < 0 || (size_t)length >= sizeof w->name;
    return w;
}

static rf_tensor_want *add_matrix(rf_table *t, size_t id, const char *suffix, rf_cut cut, size_t in, size_t out)
{
    rf_tensor_want *w = add(t, id, suffix, cut);

    w->n_dims = 2;
    w->dims[0] = in;
    w->dims[1] = out;
    return w;
}

static void cut_by(rf_tensor_want *w, rf_axis_id axis, rf_layout layout, size_t width)
{
    w->axis = axis;
    w->layout = layout;
    w->width = width;
}

void rf_table_block(rf_table *t, size_t block)
{
    int length = snprintf(t->prefix, sizeof t->prefix, "blk.%zu.", block);

    t->layer = block;
    if (length < 0 || (size_t)length >= sizeof t->prefix)
        t->failed = true;
}

void rf_table_vector(rf_table *t, size_t id, const char *suffix, size_t n)
{
    rf_tensor_want *w = add(t, id, suffix, RF_CUT_REPLICATED);

    w->n_dims = 1;
    w->dims[0] = n;
    w->vector = true;
}

void rf_table_vector_rows(rf_table *t, size_t id, const char *suffix, size_t cols, size_t rows, rf_axis_id axis,
                          rf_layout layout, size_t width)
{
    rf_tensor_want *w = add_matrix(t, id, suffix, RF_CUT_ROWS, cols, rows);

    if (cols == 1) {
        w->n_dims = 1;
        w->dims[0] = rows;
        w->dims[1] = 0;
    }
    w->vector = true;
    cut_by(w, axis, layout, width);
}

void rf_table_whole(rf_table *t, size_t id, const char *suffix, size_t in, size_t out)
{
    add_matrix(t, id, suffix, RF_CUT_REPLICATED, in, out);
}

void rf_table_mapped(rf_table *t, size_t id, const char *suffix, size_t in, size_t out)
{
    add_matrix(t, id, suffix, RF_CUT_MAPPED, in, out);
}

void rf_table_rows(rf_table *t, size_t id, const char *suffix, size_t in, size_t out, rf_axis_id axis, rf_layout layout,
                   size_t width)
{
    cut_by(add_matrix(t, id, suffix, RF_CUT_ROWS, in, out), axis, layout, width);
}

void rf_table_cols(rf_table *t, size_t id, const char *suffix, size_t in, size_t out, rf_axis_id axis, rf_layout layout,
                   size_t width)
{
    cut_by(add_matrix(t, id, suffix, RF_CUT_COLS, in, out), axis, layout, width);
}

rf_tensor_want *rf_table_last(rf_table *t)
{
    return t->failed || !t->n ? &nowhere : &t->wants[t->n - 1];
}

rf_tensor_want *rf_table_finish(rf_table *t, size_t *n, rf_error *err)
{
    if (t->failed) {
        free(t->wants);
        t->wants = NULL;
        rf_fail(err, RF_ERR_MEMORY, "no memory for a table of %zu tensors", t->n);
    }
    *n = t->n;
    return t->wants;
}

const rf_tensor_want *rf_table_find(const rf_tensor_want *wants, size_t n, size_t id, size_t layer)
{
    for (size_t i = 0; i < n; i++)
        if (wants[i].id == id && wants[i].layer == layer)
            return &wants[i];
    return NULL;
}
