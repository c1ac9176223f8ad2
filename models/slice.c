#include "slice.h"

#include <stdlib.h>

bool rf_slice_held(const rf_tensor_want *want, const rf_shard *shard)
{
    if (want->cut == RF_CUT_MAPPED || want->cut == RF_CUT_UNUSED)
        return false;
    if (want->part == RF_PART_TAIL)
        return shard->tail;
    return want->layer >= shard->first_layer && want->layer - shard->first_layer < shard->n_layers;
}

void rf_slice_free(rf_slice *s)
{
    free(s->row_runs);
    free(s->col_runs);
    free(s->unit_end);
    *s = (rf_slice){0};
}

/* Runs put together in local order; a run that goes on where the last one ended extends it. */
typedef struct {
    rf_range *runs;
    size_t n, total;
} run_list;

static void add_run(run_list *l, size_t first, size_t count)
{
    if (l->n && l->runs[l->n - 1].first + l->runs[l->n - 1].count == first)
        l->runs[l->n - 1].count += count;
    else
        l->runs[l->n++] = (rf_range){first, count};
    l->total += count;
}

/* Value heads of key heads `heads`, tiled by n_key: unit-major, rising inside a unit. */
static void add_tiled(run_list *l, rf_range heads, size_t n_key, size_t n_value, size_t base, size_t width)
{
    for (size_t u = heads.first; u < heads.first + heads.count; u++)
        for (size_t h = u; h < n_value; h += n_key)
            add_run(l, base + h * width, width);
}

/* Value heads of a tensor whose rows (columns) are laid out by DeltaNet heads. */
static size_t value_heads(const rf_tensor_want *want, size_t extent, size_t n_key)
{
    size_t heads = extent / want->width;

    return want->layout == RF_LAYOUT_QKV ? heads - 2 * n_key : heads;
}

static size_t most_runs(const rf_tensor_want *want, size_t extent, const rf_axis *axis)
{
    if (want->layout != RF_LAYOUT_QKV && want->layout != RF_LAYOUT_TILED)
        return 1;
    return value_heads(want, extent, axis->size) + 2;
}

static void fill_runs(const rf_tensor_want *want, size_t extent, const rf_axis *axis, rf_range own, run_list *l)
{
    size_t w = want->width, n_key = axis->size;

    switch (want->layout) {
    case RF_LAYOUT_PLAIN:
        add_run(l, own.first * w, own.count * w);
        break;
    case RF_LAYOUT_KV:
        own = rf_kv_heads(own, axis->size, extent / w);
        add_run(l, own.first * w, own.count * w);
        break;
    case RF_LAYOUT_QKV:
        add_run(l, own.first * w, own.count * w);
        add_run(l, (n_key + own.first) * w, own.count * w);
        add_tiled(l, own, n_key, value_heads(want, extent, n_key), 2 * n_key * w, w);
        break;
    case RF_LAYOUT_TILED:
        add_tiled(l, own, n_key, value_heads(want, extent, n_key), 0, w);
        break;
    }
}

/* Columns of unit u of the axis, which all its pieces add up to. */
static size_t unit_columns(const rf_tensor_want *want, const rf_axis *axis, size_t u)
{
    size_t first = u * axis->unit, end = first + axis->unit < axis->size ? first + axis->unit : axis->size;

    if (want->layout == RF_LAYOUT_TILED)
        return value_heads(want, rf_want_cols(want), axis->size) / axis->size * want->width;
    return (end - first) * want->width;
}

static int cut_columns(const rf_tensor_want *want, const rf_shard *shard, rf_slice *s)
{
    const rf_axis *axis = &shard->axis[want->axis];
    rf_range units = rf_shard_units(shard, want->axis);
    size_t at = 0;

    s->n_units = units.count;
    s->unit_end = malloc(units.count * sizeof *s->unit_end);
    if (!s->unit_end)
        return -1;
    for (size_t u = 0; u < units.count; u++)
        s->unit_end[u] = at += unit_columns(want, axis, units.first + u);
    s->n_nodes = rf_tree_nodes(axis->n_units, units, s->nodes);
    for (size_t i = 0; i < s->n_nodes; i++)
        s->nodes[i].first -= units.first;
    return 0;
}

/* A KV head that starts before this rank's first query head was read by the rank before, too. */
static size_t repeated_rows(const rf_tensor_want *want, const rf_shard *shard)
{
    const rf_axis *axis = &shard->axis[want->axis];
    size_t share;

    if (want->layout != RF_LAYOUT_KV)
        return 0;
    share = axis->size / (rf_want_rows(want) / want->width);
    return rf_shard_elements(shard, want->axis).first % share ? want->width : 0;
}

int rf_slice_make(const rf_tensor_want *want, const rf_shard *shard, rf_slice *s, rf_error *err)
{
    bool cols = want->cut == RF_CUT_COLS;
    size_t extent = cols ? rf_want_cols(want) : rf_want_rows(want);
    const rf_axis *axis = &shard->axis[want->axis];
    run_list l = {0};

    *s = (rf_slice){.n_rows = rf_want_rows(want), .n_cols = rf_want_cols(want)};
    if (want->cut != RF_CUT_ROWS && !cols)
        return 0;
    l.runs = malloc(most_runs(want, extent, axis) * sizeof *l.runs);
    if (!l.runs || (cols && cut_columns(want, shard, s) != 0)) {
        free(l.runs);
        rf_slice_free(s);
        return rf_fail(err, RF_ERR_MEMORY, "no memory to cut %s", want->name);
    }
    fill_runs(want, extent, axis, rf_shard_elements(shard, want->axis), &l);
    *(cols ? &s->col_runs : &s->row_runs) = l.runs;
    *(cols ? &s->n_col_runs : &s->n_row_runs) = l.n;
    *(cols ? &s->n_cols : &s->n_rows) = l.total;
    s->n_rows_repeated = repeated_rows(want, shard);
    return 0;
}

size_t rf_slice_uneven_columns(const rf_tensor_want *want, const rf_axis *axis)
{
    size_t run = axis->unit * want->width, last;

    if (want->cut != RF_CUT_COLS)
        return 0;
    if (want->layout == RF_LAYOUT_TILED)
        return want->width % 32 ? want->width : 0;
    last = rf_want_cols(want) - (axis->n_units - 1) * run;
    if (axis->n_units > 1 && run % 32)
        return run;
    return last % 32 ? last : 0;
}
