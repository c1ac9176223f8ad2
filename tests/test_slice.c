/* Cuts of tensors, every rank played in one process: whatever the boundaries, rows and columns are held once (KV heads
 * that two ranks need: counted as repeated), value heads stay with their key heads, and a unit's columns are the same
 * on whichever rank it lies. */
#include "../models/slice.h"

#include <stdlib.h>
#include <string.h>

#include "../models/dflash.h"
#include "../models/qwen35.h"
#include "check.h"

enum { MAX_RANKS = 6 };

static const unsigned char layers[] = {0, 0, 1, 0};

/* Shapes of published and of awkward models, four layers of each. */
static const rf_qwen35_params targets[] = {
    {4, 1, 5120, 17408, 248320, 262144, 24, 4, 256, 64, 1e7, 4, 128, 16, 48, 1e-6f, false, true, true, true, NULL},
    {4, 1, 1024, 3584, 151936, 262144, 8, 2, 256, 64, 1e7, 4, 128, 16, 16, 1e-6f, true, false, false, false, NULL},
    {4, 1, 96, 160, 384, 8192, 6, 2, 32, 8, 1e4, 3, 16, 3, 6, 1e-6f, false, false, false, true, NULL},
    {4, 0, 100, 1000, 1000, 8192, 12, 4, 10, 8, 1e4, 3, 8, 6, 18, 1e-6f, false, false, false, false, NULL},
};

enum { N_TARGETS = sizeof targets / sizeof *targets };

static unsigned draw(unsigned *seed, unsigned n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

/* Random boundaries, no rank empty. */
static void cut(size_t n_units, size_t n_ranks, unsigned *seed, size_t *begin)
{
    begin[0] = 0;
    begin[n_ranks] = n_units;
    for (size_t r = 1; r < n_ranks; r++) {
        size_t most = n_units - (n_ranks - r) - begin[r - 1];

        begin[r] = begin[r - 1] + 1 + draw(seed, (unsigned)most);
        if (begin[r] > n_units - (n_ranks - r))
            begin[r] = n_units - (n_ranks - r);
    }
}

static size_t *expand(const rf_range *runs, size_t n_runs, size_t count)
{
    size_t *out = malloc((count + 1) * sizeof *out), at = 0;

    assert_non_null(out);
    for (size_t i = 0; i < n_runs; i++)
        for (size_t j = 0; j < runs[i].count; j++) {
            assert_true(at < count);
            out[at++] = runs[i].first + j;
        }
    assert_int_equal(at, count);
    return out;
}

/* Local value heads are key-head major: head j belongs to local key head j / share, and value head h to key head h mod
 * n_key. */
static void check_value_heads(const rf_tensor_want *want, const rf_shard *shard, const size_t *index, size_t count,
                              size_t extent)
{
    rf_range own = rf_shard_elements(shard, want->axis);
    size_t n_key = shard->axis[want->axis].size,
           first = want->layout == RF_LAYOUT_QKV ? 2 * own.count * want->width : 0;
    size_t base = want->layout == RF_LAYOUT_QKV ? 2 * n_key * want->width : 0;
    size_t share = (extent - base) / want->width / n_key;

    assert_int_equal(count - first, own.count * share * want->width);
    for (size_t i = first; i < count; i++) {
        size_t local = (i - first) / want->width, head = (index[i] - base) / want->width;

        assert_int_equal(head % n_key, own.first + local / share);
        assert_int_equal(head / n_key, local % share);
    }
    for (size_t i = 0; i < first; i++)
        assert_int_equal(index[i] / want->width % n_key, own.first + i / want->width % own.count);
}

/* Columns of every unit, as the rank that owns it holds them, against those of one rank that owns all. */
static void check_units(const rf_tensor_want *want, const rf_shard *shard, const rf_slice *s, const size_t *columns)
{
    rf_shard whole = *shard;
    rf_range units = rf_shard_units(shard, want->axis);
    rf_slice all;
    size_t *expected, start = 0, covered = 0;

    whole.split = RF_SPLIT_NONE;
    assert_int_equal(rf_slice_make(want, &whole, &all, NULL), 0);
    expected = expand(all.col_runs, all.n_col_runs, all.n_cols);
    assert_int_equal(s->n_units, units.count);
    for (size_t u = 0; u < units.count; u++) {
        size_t there = units.first + u ? all.unit_end[units.first + u - 1] : 0;

        assert_int_equal(s->unit_end[u] - start, all.unit_end[units.first + u] - there);
        assert_memory_equal(columns + start, expected + there, (s->unit_end[u] - start) * sizeof *columns);
        start = s->unit_end[u];
    }
    assert_int_equal(start, s->n_cols);
    for (size_t i = 0; i < s->n_nodes; covered += s->nodes[i++].count)
        assert_int_equal(s->nodes[i].first, covered);
    assert_int_equal(covered, units.count);
    free(expected);
    rf_slice_free(&all);
}

/* All ranks of one tensor. */
static void check_tensor(const rf_tensor_want *want, const rf_shard *shard, size_t n_ranks)
{
    bool cols = want->cut == RF_CUT_COLS;
    size_t extent = cols ? rf_want_cols(want) : rf_want_rows(want), repeated = 0, held = 0;
    unsigned char *times = calloc(extent, 1);

    assert_non_null(times);
    for (size_t r = 0; r < n_ranks; r++) {
        rf_shard mine = *shard;
        rf_slice s;
        size_t *index, count;

        mine.rank = (int)r;
        assert_int_equal(rf_slice_make(want, &mine, &s, NULL), 0);
        count = cols ? s.n_cols : s.n_rows;
        assert_int_equal(cols ? s.n_rows : s.n_cols, cols ? rf_want_rows(want) : rf_want_cols(want));
        index = expand(cols ? s.col_runs : s.row_runs, cols ? s.n_col_runs : s.n_row_runs, count);
        for (size_t i = 0; i < count; i++)
            times[index[i]]++;
        if (want->layout == RF_LAYOUT_QKV || want->layout == RF_LAYOUT_TILED)
            check_value_heads(want, &mine, index, count, extent);
        if (cols)
            check_units(want, &mine, &s, index);
        held += count;
        repeated += s.n_rows_repeated;
        free(index);
        rf_slice_free(&s);
    }
    assert_int_equal(held, extent + repeated);
    for (size_t i = 0; i < extent; i++)
        assert_true(want->layout == RF_LAYOUT_KV ? times[i] >= 1 : times[i] == 1);
    free(times);
}

static void check_table(rf_tensor_want *wants, size_t n, const rf_axis axes[RF_N_AXES], unsigned seed)
{
    size_t begin[RF_N_AXES][MAX_RANKS + 1], n_ranks = 1 + seed % MAX_RANKS;
    rf_shard shard = {.split = RF_SPLIT_TENSOR, .n_ranks = (int)n_ranks, .n_layers = 4, .tail = true};

    memcpy(shard.axis, axes, sizeof shard.axis);
    for (size_t a = 0; a < RF_N_AXES; a++) {
        if (axes[a].n_units && axes[a].n_units < n_ranks)
            return; /* too many ranks for this model */
        if (axes[a].n_units)
            cut(axes[a].n_units, n_ranks, &seed, begin[a]);
        shard.axis[a].begin = begin[a];
    }
    for (size_t i = 0; i < n; i++)
        if (wants[i].cut == RF_CUT_ROWS || wants[i].cut == RF_CUT_COLS)
            check_tensor(&wants[i], &shard, n_ranks);
}

static void test_target(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_TARGETS; t++) {
        rf_qwen35_params p = targets[t];
        rf_axis axes[RF_N_AXES] = {0};
        rf_tensor_want *wants;
        size_t n;

        p.full_attention = (unsigned char *)(uintptr_t)layers;
        wants = rf_qwen35_tensors(&p, p.n_mtp > 0, &n, NULL);
        assert_non_null(wants);
        rf_qwen35_axes(&p, p.n_mtp > 0, axes);
        for (unsigned seed = 1; seed <= (p.n_vocab > 10000 ? 6 : 60); seed++)
            check_table(wants, n, axes, seed);
        free(wants);
    }
}

static void test_drafter(void **state)
{
    rf_dflash_params p = {.n_layer = 2,
                          .n_embd = 96,
                          .n_ff = 144,
                          .n_vocab = 384,
                          .n_head = 12,
                          .n_head_kv = 4,
                          .head_dim = 32,
                          .n_rot = 16,
                          .block_size = 6,
                          .n_taps = 3,
                          .v2 = true,
                          .conv_kernel = 3,
                          .conv_group = 8,
                          .selector_rank = 32,
                          .selector_top_k = 5,
                          .own_output = true,
                          .n_draft_vocab = 384,
                          .n_target_vocab = 384};
    rf_axis axes[RF_N_AXES] = {0};
    rf_tensor_want *wants;
    size_t n;

    (void)state;
    wants = rf_dflash_tensors(&p, &n, NULL);
    assert_non_null(wants);
    rf_dflash_axes(&p, axes);
    for (unsigned seed = 1; seed <= 60; seed++)
        check_table(wants, n, axes, seed);
    free(wants);
}

/* Which rank of layer mode holds what. */
static void test_layers(void **state)
{
    const rf_tensor_want layer = {.cut = RF_CUT_REPLICATED, .part = RF_PART_LAYER, .layer = 2};
    const rf_tensor_want tail = {.cut = RF_CUT_REPLICATED, .part = RF_PART_TAIL};
    const rf_tensor_want mapped = {.cut = RF_CUT_MAPPED, .part = RF_PART_TAIL};
    const rf_shard first = {.split = RF_SPLIT_LAYER, .first_layer = 0, .n_layers = 2};
    const rf_shard second = {.split = RF_SPLIT_LAYER, .first_layer = 2, .n_layers = 2};
    const rf_shard last = {.split = RF_SPLIT_LAYER, .first_layer = 4, .n_layers = 0, .tail = true};

    (void)state;
    assert_false(rf_slice_held(&layer, &first));
    assert_true(rf_slice_held(&layer, &second));
    assert_false(rf_slice_held(&layer, &last));
    assert_false(rf_slice_held(&tail, &second));
    assert_true(rf_slice_held(&tail, &last));
    assert_false(rf_slice_held(&mapped, &last));
}

static size_t uneven(rf_layout layout, size_t columns, size_t width, size_t unit, size_t size)
{
    const rf_tensor_want want = {
        .n_dims = 2, .dims = {columns, 64}, .cut = RF_CUT_COLS, .layout = layout, .width = width};
    const rf_axis axis = {(size + unit - 1) / unit, unit, size, NULL};

    return rf_slice_uneven_columns(&want, &axis);
}

static void test_uneven(void **state)
{
    (void)state;
    assert_int_equal(uneven(RF_LAYOUT_PLAIN, 17408, 1, 256, 17408), 0);
    assert_int_equal(uneven(RF_LAYOUT_PLAIN, 800, 1, 256, 800), 0);    /* the last unit: 32 */
    assert_int_equal(uneven(RF_LAYOUT_PLAIN, 784, 1, 256, 784), 16);   /* the last unit: 16 */
    assert_int_equal(uneven(RF_LAYOUT_PLAIN, 6 * 80, 80, 1, 6), 80);   /* heads of 80 */
    assert_int_equal(uneven(RF_LAYOUT_PLAIN, 6 * 256, 256, 1, 6), 0);
    assert_int_equal(uneven(RF_LAYOUT_TILED, 6 * 16, 16, 1, 3),
                     16); /* value heads of 16, two a unit: not side by side */
    assert_int_equal(uneven(RF_LAYOUT_TILED, 48 * 128, 128, 1, 16), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_target), cmocka_unit_test(test_drafter),
                                       cmocka_unit_test(test_layers), cmocka_unit_test(test_uneven)};

    return cmocka_run_group_tests_name("slice", tests, NULL, NULL);
}
