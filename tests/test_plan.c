/* The cuts: examples of the design, and properties over many shapes, rank counts and ratios. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../models/slice.h"
#include "../rank/plan.h"
#include "check.h"

static void assert_counts(const size_t *begin, int n, const size_t *counts)
{
    for (int r = 0; r < n; r++)
        assert_int_equal(begin[r + 1] - begin[r], counts[r]);
}

static void equal_attention_examples(void **state)
{
    size_t begin[17];
    rf_error err;

    (void)state;
    assert_int_equal(rf_plan_cut_heads(24, 4, 5, begin, &err), 0);
    assert_counts(begin, 5, (size_t[]){6, 6, 6, 3, 3});
    assert_int_equal(rf_plan_cut_heads(24, 4, 3, begin, &err), 0);
    assert_counts(begin, 3, (size_t[]){8, 8, 8});
    assert_int_equal(rf_plan_cut_heads(4, 2, 3, begin, &err), 0);
    assert_counts(begin, 3, (size_t[]){2, 1, 1});
    assert_int_equal(rf_plan_cut_heads(6, 2, 3, begin, &err), 0);
    assert_counts(begin, 3, (size_t[]){3, 2, 1});
    assert_int_equal(rf_plan_cut_heads(24, 4, 4, begin, &err), 0);
    assert_counts(begin, 4, (size_t[]){6, 6, 6, 6});
}

typedef struct {
    size_t most, squares;
    size_t count[8];
} quality;

static int compare_quality(const quality *a, const quality *b, int n)
{
    if (a->most != b->most)
        return a->most < b->most ? -1 : 1;
    if (a->squares != b->squares)
        return a->squares < b->squares ? -1 : 1;
    for (int r = 0; r < n; r++)
        if (a->count[r] != b->count[r])
            return a->count[r] > b->count[r] ? -1 : 1;
    return 0;
}

static quality measure(const size_t *begin, int n, size_t share)
{
    quality q = {0};

    for (int r = 0; r < n; r++) {
        size_t kv = (begin[r + 1] - 1) / share - begin[r] / share + 1;

        q.count[r] = begin[r + 1] - begin[r];
        q.squares += q.count[r] * q.count[r];
        q.most = kv > q.most ? kv : q.most;
    }
    return q;
}

/* Every cut, tried one by one. */
static void search(size_t *begin, int r, int n, size_t heads, size_t share, quality *best, int *any)
{
    if (r == n) {
        quality q;

        begin[n] = heads;
        q = measure(begin, n, share);
        if (!*any || compare_quality(&q, best, n) < 0)
            *best = q;
        *any = 1;
        return;
    }
    for (size_t at = begin[r - 1] + 1; at <= heads - (size_t)(n - r); at++) {
        begin[r] = at;
        search(begin, r + 1, n, heads, share, best, any);
    }
}

static void equal_attention_is_the_best_of_all_cuts(void **state)
{
    (void)state;
    for (size_t heads = 1; heads <= 12; heads++)
        for (size_t kv = 1; kv <= heads; kv++)
            for (int n = 1; heads % kv == 0 && n <= 6 && (size_t)n <= heads; n++) {
                size_t begin[9] = {0}, tried[9] = {0};
                quality best = {0}, got;
                int any = 0;
                rf_error err;

                assert_int_equal(rf_plan_cut_heads(heads, kv, n, begin, &err), 0);
                search(tried, 1, n, heads, heads / kv, &best, &any);
                got = measure(begin, n, heads / kv);
                assert_int_equal(compare_quality(&got, &best, n), 0);
            }
}

/* The largest shapes that a header may claim, also where a search of all cuts would never end. */
static void large_shapes_are_cut_at_once(void **state)
{
    static const size_t shapes[][3] = {{64, 8, 16},       {64, 1, 16},    {1024, 1024, 1},
                                       {1024, 1024, 700}, {1024, 1, 512}, {1024, 32, 48}};
    size_t begin[1025];
    rf_error err;

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        size_t heads = shapes[i][0], n = shapes[i][2];

        assert_int_equal(rf_plan_cut_heads(heads, shapes[i][1], (int)n, begin, &err), 0);
        assert_int_equal(begin[n], heads);
        for (size_t r = 0; r < n; r++)
            assert_true(begin[r + 1] > begin[r]);
    }
}

static void cuts_follow_the_formula(void **state)
{
    static const double ratios[][4] = {{1, 1, 1, 1}, {3, 1, 1, 1}, {1, 1000, 1, 1}, {0.001, 1, 1, 0.001}, {1, 3, 7, 2}};

    (void)state;
    for (size_t units = 1; units <= 80; units++)
        for (int n = 1; n <= 4 && (size_t)n <= units; n++)
            for (size_t k = 0; k < sizeof ratios / sizeof *ratios; k++) {
                size_t begin[5];
                double all = 0, sum = 0;

                rf_plan_cut(units, n, ratios[k], begin);
                for (int r = 0; r < n; r++)
                    all += ratios[k][r];
                assert_int_equal(begin[0], 0);
                assert_int_equal(begin[n], units);
                for (int r = 1; r <= n; r++) {
                    size_t wanted, most = units - (size_t)(n - r);

                    assert_true(begin[r] > begin[r - 1]); /* none is empty */
                    sum += ratios[k][r - 1];
                    wanted = (size_t)floor((double)units * sum / all + 0.5);
                    wanted = wanted < most ? wanted : most;
                    if (r < n)
                        assert_int_equal(begin[r], wanted > begin[r - 1] + 1 ? wanted : begin[r - 1] + 1);
                }
            }
}

static uint64_t random_state = 99;

static size_t below(size_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(random_state >> 33) % n;
}

static void random_ratios(double *ratios, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ratios[i] = 0.25 * (double)(1 + below(below(3) ? 12 : 400));
}

/* Boundary r: layers whose middle lies below the share; where every rank but the last gets a layer by that alone,
 * nothing is moved. */
static void layers_follow_the_definition(void)
{
    size_t untouched = 0;

    for (int round = 0; round < 3000; round++) {
        size_t bytes[12], begin[6], wanted[6], n = 1 + below(12), tail = below(3) ? below(60) : 0,
                                               ranks = 1 + below(n + 1 < 5 ? n + 1 : 5);
        double ratios[5], total = (double)tail, all = 0, sum = 0;
        bool plain = true;

        random_ratios(ratios, ranks);
        for (size_t i = 0; i < n; i++)
            total += (double)(bytes[i] = 1 + below(30));
        for (size_t r = 0; r < ranks; r++)
            all += ratios[r];
        wanted[0] = 0;
        for (size_t r = 1; r < ranks; r++) {
            double end = 0;

            sum += ratios[r - 1];
            wanted[r] = 0;
            for (size_t i = 0; i < n; i++) {
                end += (double)bytes[i];
                wanted[r] += end - (double)bytes[i] / 2 < total * sum / all;
            }
            plain = plain && wanted[r] > wanted[r - 1];
        }
        wanted[ranks] = n;
        rf_plan_cut_layers(bytes, n, tail, (int)ranks, ratios, begin);
        for (size_t r = 0; r < ranks; r++)
            assert_true(begin[r + 1] > begin[r] || (r + 1 == ranks && begin[r + 1] == begin[r]));
        assert_true(begin[0] == 0 && begin[ranks] == n);
        if (!plain)
            continue;
        untouched++;
        assert_memory_equal(begin, wanted, (ranks + 1) * sizeof *begin);
    }
    assert_true(untouched > 500);
}

static void layers_are_cut_by_bytes(void **state)
{
    size_t bytes[64], begin[66];

    (void)state;
    for (size_t layers = 1; layers <= 40; layers++)
        for (size_t tail = 0; tail <= 40; tail += 5)
            for (int n = 1; n <= (int)layers + 1; n++) {
                for (size_t i = 0; i < layers; i++)
                    bytes[i] = 10 + i % 3;
                rf_plan_cut_layers(bytes, layers, tail * 10, n, NULL, begin);
                assert_int_equal(begin[0], 0);
                assert_int_equal(begin[n], layers);
                for (int r = 0; r + 1 < n; r++)
                    assert_true(begin[r + 1] > begin[r]); /* every rank but the last has a layer */
                assert_true(begin[n] >= begin[n - 1]);
            }
    layers_follow_the_definition();
    for (size_t i = 0; i < 8; i++)
        bytes[i] = 100;
    rf_plan_cut_layers(bytes, 8, 0, 2, (double[]){3, 1}, begin);
    assert_counts(begin, 2, (size_t[]){6, 2});
    rf_plan_cut_layers(bytes, 8, 800, 2, NULL, begin);
    assert_counts(begin, 2, (size_t[]){8, 0});
}

/* ---- whole plans over random shapes */

typedef struct {
    rf_qwen35_params target;
    rf_dflash_params drafter;
    unsigned char full[16];
    size_t window[4];
    bool with_mtp, with_drafter;
} shape;

static void random_shape(shape *s)
{
    static const size_t ff[] = {96, 100, 768, 2048, 2300, 3584, 4096, 6144, 17408};
    size_t kv = 1 + below(5), draft_kv = 1 + below(4), key = 1 + below(20);

    memset(s, 0, sizeof *s);
    s->with_mtp = below(2);
    s->with_drafter = below(2);
    s->target = (rf_qwen35_params){.n_layer = 1 + below(12),
                                   .n_mtp = 1,
                                   .n_embd = 32 * (1 + below(40)),
                                   .n_ff = ff[below(9)],
                                   .n_vocab = 1 + below(3000),
                                   .n_head = kv * (1 + below(8)),
                                   .n_head_kv = kv,
                                   .head_dim = 32,
                                   .conv_kernel = 4,
                                   .state_size = 32,
                                   .n_key_heads = key,
                                   .n_value_heads = key * (1 + below(3)),
                                   .tied = below(2),
                                   .full_attention = s->full};
    for (size_t i = 0; i < s->target.n_layer; i++)
        s->full[i] = (unsigned char)below(2);
    s->drafter = (rf_dflash_params){.n_layer = 1 + below(4),
                                    .n_embd = s->target.n_embd,
                                    .n_ff = ff[below(9)],
                                    .n_vocab = s->target.n_vocab,
                                    .n_head = draft_kv * (1 + below(5)),
                                    .n_head_kv = draft_kv,
                                    .head_dim = 32,
                                    .n_taps = 1 + below(5),
                                    .v2 = below(2),
                                    .conv_kernel = 2,
                                    .conv_group = 16,
                                    .selector_rank = 64,
                                    .selector_top_k = 8,
                                    .window = s->window,
                                    .own_output = below(2),
                                    .n_draft_vocab = s->target.n_vocab,
                                    .n_target_vocab = s->target.n_vocab};
}

static rf_plan_spec spec_of_shape(const shape *s, int n_ranks)
{
    return (rf_plan_spec){NULL,    NULL, &s->target, s->with_drafter ? &s->drafter : NULL, s->with_mtp, RF_SPLIT_TENSOR,
                          n_ranks, NULL, 0};
}

/* The least number of units: what the plan must say the limit is. */
static size_t limit_of(const shape *s)
{
    rf_axis axes[RF_N_AXES] = {0};
    size_t least = SIZE_MAX;

    rf_qwen35_axes(&s->target, s->with_mtp, axes);
    if (s->with_drafter)
        rf_dflash_axes(&s->drafter, axes);
    for (int a = 0; a < RF_N_AXES; a++)
        if (axes[a].n_units && axes[a].n_units < least)
            least = axes[a].n_units;
    return least;
}

static void check_axes(const rf_plan *plan, int n, const double *ratios)
{
    for (int a = 0; a < RF_N_AXES; a++) {
        size_t at = 0, cut[64];
        rf_shard shard;

        rf_plan_shard(plan, 0, &shard);
        if (!shard.axis[a].n_units)
            continue;
        rf_plan_cut(shard.axis[a].n_units, n, ratios, cut);
        for (int r = 0; r < n; r++) {
            rf_range units;

            rf_plan_shard(plan, r, &shard);
            units = rf_shard_units(&shard, (rf_axis_id)a);
            assert_int_equal(units.first, at);
            assert_true(units.count > 0);
            at += units.count;
            if (ratios || (a != RF_AXIS_HEADS && a != RF_AXIS_DRAFT_HEADS))
                assert_int_equal(at, cut[r + 1]);
        }
        assert_int_equal(at, shard.axis[a].n_units);
    }
}

/* Every row (column) of a tensor is held once, but for what a lower rank holds too. */
static void check_tensor(const rf_plan *plan, int n, const rf_tensor_want *want)
{
    bool cols = want->cut == RF_CUT_COLS;
    size_t extent = cols ? rf_want_cols(want) : rf_want_rows(want), repeated = 0, total = 0,
           *held = calloc(extent, sizeof *held);

    assert_non_null(held);
    for (int r = 0; r < n; r++) {
        rf_shard shard;
        rf_slice slice;
        rf_error err;

        rf_plan_shard(plan, r, &shard);
        assert_int_equal(rf_slice_make(want, &shard, &slice, &err), 0);
        for (size_t i = 0; i < (cols ? slice.n_col_runs : slice.n_row_runs); i++) {
            rf_range run = cols ? slice.col_runs[i] : slice.row_runs[i];

            assert_true(run.first + run.count <= extent);
            for (size_t k = 0; k < run.count; k++)
                held[run.first + k]++;
        }
        repeated += slice.n_rows_repeated;
        rf_slice_free(&slice);
    }
    for (size_t i = 0; i < extent; i++) {
        assert_true(held[i] >= 1);
        assert_true(held[i] == 1 || want->layout == RF_LAYOUT_KV);
        total += held[i];
    }
    assert_int_equal(total - repeated, extent);
    free(held);
}

static void check_tensors(const rf_plan *plan, int n, rf_tensor_want *wants, size_t n_wants)
{
    assert_non_null(wants);
    for (size_t i = 0; i < n_wants; i++)
        if (wants[i].cut == RF_CUT_ROWS || wants[i].cut == RF_CUT_COLS)
            check_tensor(plan, n, &wants[i]);
    free(wants);
}

static void assert_refused(rf_plan_spec spec, const char *words)
{
    rf_error err = {RF_OK, ""};

    assert_null(rf_plan_create(&spec, &err));
    assert_int_equal(err.code, RF_ERR_USAGE);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" is not in \"%s\"", words, err.text);
}

static void random_plans_cover_everything_once(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        shape s;
        size_t limit, n_wants;
        char words[64];
        double ratios[64];
        rf_error err;

        random_shape(&s);
        limit = limit_of(&s);
        assert_true(limit >= 1 && limit < 64);
        for (size_t n = 1; n <= limit; n++) {
            rf_plan_spec spec = spec_of_shape(&s, (int)n);
            rf_tensor_want *wants;
            rf_plan *plan;

            if (round % 2 && n > 1) {
                random_ratios(ratios, n);
                ratios[0] = 3 * ratios[1]; /* not all alike */
                spec.ratios = ratios;
                spec.n_ratios = n;
            }
            plan = rf_plan_create(&spec, &err);
            assert_non_null(plan);
            check_axes(plan, (int)n, spec.ratios);
            wants = rf_qwen35_tensors(&s.target, s.with_mtp, &n_wants, &err);
            check_tensors(plan, (int)n, wants, n_wants);
            if (s.with_drafter) {
                wants = rf_dflash_tensors(&s.drafter, &n_wants, &err);
                check_tensors(plan, (int)n, wants, n_wants);
            }
            rf_plan_destroy(plan);
        }
        snprintf(words, sizeof words, "at most %zu ranks", limit);
        assert_refused(spec_of_shape(&s, (int)limit + 1), words);
    }
}

/* ---- whole plans over the demo pair */

typedef struct {
    rf_gguf *target_file, *drafter_file;
    rf_qwen35_params target;
    rf_dflash_params drafter;
} pair;

static int open_pair(void **state)
{
    static pair p;
    rf_error err;

    p.target_file = rf_gguf_open(RF_SHARE "/factbook-tiny/factbook-tiny-Q8_0.gguf", &err);
    p.drafter_file = rf_gguf_open(RF_SHARE "/factbook-tiny/factbook-tiny-DFlash2-Q8_0.gguf", &err);
    if (!p.target_file || !p.drafter_file || rf_qwen35_params_read(p.target_file, true, &p.target, &err) != 0 ||
        rf_dflash_params_read(p.drafter_file, &p.target, &p.drafter, &err) != 0)
        return -1;
    *state = &p;
    return 0;
}

static int close_pair(void **state)
{
    pair *p = *state;

    rf_dflash_params_free(&p->drafter);
    rf_qwen35_params_free(&p->target);
    rf_gguf_close(p->drafter_file);
    rf_gguf_close(p->target_file);
    return 0;
}

static rf_plan_spec spec_of(const pair *p, rf_split split, int n_ranks)
{
    return (rf_plan_spec){p->target_file, p->drafter_file, &p->target, &p->drafter, false, split, n_ranks, NULL, 0};
}

static void demo_by_layers(void **state)
{
    rf_plan_spec spec = spec_of(*state, RF_SPLIT_LAYER, 4);
    rf_error err;
    rf_plan *plan = rf_plan_create(&spec, &err);
    size_t n[4];

    assert_non_null(plan);
    for (int r = 0; r < 4; r++) {
        rf_shard shard;

        rf_plan_shard(plan, r, &shard);
        n[r] = shard.n_layers;
        assert_int_equal(shard.tail, r == 3);
    }
    assert_int_equal(n[0], 3);
    assert_int_equal(n[1], 3);
    assert_int_equal(n[2], 2);
    assert_int_equal(n[3], 0);
    rf_plan_destroy(plan);
}

static void limits_are_said(void **state)
{
    static const double two[2] = {1, 2}, bad[] = {0, -1, 1e300, INFINITY, NAN, 1e-300};
    rf_plan_spec spec = spec_of(*state, RF_SPLIT_TENSOR, 5);

    assert_refused(spec, "at most 4 ranks");
    spec = spec_of(*state, RF_SPLIT_LAYER, 10);
    assert_refused(spec, "at most 9 ranks");
    assert_refused(spec_of(*state, RF_SPLIT_NONE, 2), "one rank");
    spec = spec_of(*state, RF_SPLIT_TENSOR, 3);
    spec.ratios = two;
    spec.n_ratios = 2;
    assert_refused(spec, "2 numbers");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double ratios[3] = {1, bad[i], 1};

        spec.ratios = ratios;
        spec.n_ratios = 3;
        assert_refused(spec, "is no share");
    }
}

/* Equal numbers in -ts are no ratios at all. */
static void equal_ratios_are_no_ratios(void **state)
{
    static const double fives[3] = {5, 5, 5};
    rf_plan_spec plain = spec_of(*state, RF_SPLIT_TENSOR, 3), given = plain;
    rf_error err;
    rf_plan *a, *b;

    given.ratios = fives;
    given.n_ratios = 3;
    a = rf_plan_create(&plain, &err);
    b = rf_plan_create(&given, &err);
    for (int r = 0; r < 3; r++) {
        rf_shard x, y;

        rf_plan_shard(a, r, &x);
        rf_plan_shard(b, r, &y);
        for (int axis = 0; axis < RF_N_AXES; axis++) {
            rf_range p = rf_shard_units(&x, (rf_axis_id)axis), q = rf_shard_units(&y, (rf_axis_id)axis);

            assert_int_equal(p.first, q.first);
            assert_int_equal(p.count, q.count);
        }
    }
    rf_plan_destroy(a);
    rf_plan_destroy(b);
}

static void account_adds_up(void **state)
{
    for (int split = RF_SPLIT_LAYER; split <= RF_SPLIT_TENSOR; split++)
        for (int n = 1; n <= 4; n++)
            for (int mtp = 0; mtp < 2; mtp++) {
                rf_plan_spec spec = spec_of(*state, (rf_split)split, n);
                rf_plan_account a;
                rf_error err;
                size_t sharded = 0;
                rf_plan *plan;

                spec.with_mtp = mtp;
                plan = rf_plan_create(&spec, &err);
                assert_non_null(plan);
                assert_int_equal(rf_plan_account_make(plan, &a, &err), 0);
                for (int r = 0; r < n; r++)
                    sharded += a.sharded[r];
                assert_int_equal(sharded - a.repeated + a.replicated_once + a.mapped + a.unused + a.header,
                                 a.file_size);
                assert_int_equal(mtp == 0, a.unused > 0);
                rf_plan_account_free(&a);
                rf_plan_destroy(plan);
            }
}

static void fit_finds_the_largest_context(void **state)
{
    rf_plan_spec spec = spec_of(*state, RF_SPLIT_TENSOR, 2);
    rf_model_sizes sizes = {1, 8192, 512, RF_TYPE_F16, RF_TYPE_F16}, at;
    rf_plan_bytes bytes, more;
    rf_error err;
    rf_plan *plan = rf_plan_create(&spec, &err);
    const rf_ops *ops = rf_cpu_traits();
    size_t n = 0;

    for (size_t blocks = 1; blocks < 32; blocks += 5) {
        at = sizes;
        at.n_ctx = blocks * 256;
        assert_int_equal(rf_plan_memory(plan, 0, ops, &at, &at, 256, &bytes, &err), 0);
        assert_int_equal(rf_plan_fit(plan, ops, &sizes, &sizes, 256, bytes.total, &n, &err), 0);
        at.n_ctx = n;
        assert_int_equal(rf_plan_memory(plan, 0, ops, &at, &at, 256, &more, &err), 0);
        assert_true(more.total <= bytes.total && n >= blocks * 256);
        at.n_ctx = n + 256;
        assert_int_equal(rf_plan_memory(plan, 0, ops, &at, &at, 256, &more, &err), 0);
        assert_true(more.total > bytes.total);
    }
    assert_int_equal(rf_plan_fit(plan, ops, &sizes, &sizes, 256, 1000, &n, &err), 0);
    assert_int_equal(n, 0);
    rf_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_attention_examples),
        cmocka_unit_test(equal_attention_is_the_best_of_all_cuts),
        cmocka_unit_test(cuts_follow_the_formula),
        cmocka_unit_test(layers_are_cut_by_bytes),
        cmocka_unit_test(random_plans_cover_everything_once),
        cmocka_unit_test(large_shapes_are_cut_at_once),
        cmocka_unit_test(demo_by_layers),
        cmocka_unit_test(limits_are_said),
        cmocka_unit_test(equal_ratios_are_no_ratios),
        cmocka_unit_test(account_adds_up),
        cmocka_unit_test(fit_finds_the_largest_context),
    };

    return cmocka_run_group_tests(tests, open_pair, close_pair);
}
