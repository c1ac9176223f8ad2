/* The cuts: examples of the design, and properties over many shapes, rank counts and ratios. */
#include <math.h>
#include <string.h>

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
    for (size_t i = 0; i < 8; i++)
        bytes[i] = 100;
    rf_plan_cut_layers(bytes, 8, 0, 2, (double[]){3, 1}, begin);
    assert_counts(begin, 2, (size_t[]){6, 2});
    rf_plan_cut_layers(bytes, 8, 800, 2, NULL, begin);
    assert_counts(begin, 2, (size_t[]){8, 0});
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

static void assert_refused(rf_plan_spec spec, const char *words)
{
    rf_error err = {RF_OK, ""};

    assert_null(rf_plan_create(&spec, &err));
    assert_int_equal(err.code, RF_ERR_USAGE);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" is not in \"%s\"", words, err.text);
}

static void limits_are_said(void **state)
{
    static const double two[2] = {1, 2};
    rf_plan_spec spec = spec_of(*state, RF_SPLIT_TENSOR, 5);

    assert_refused(spec, "at most 4 ranks");
    spec = spec_of(*state, RF_SPLIT_LAYER, 10);
    assert_refused(spec, "at most 9 ranks");
    assert_refused(spec_of(*state, RF_SPLIT_NONE, 2), "one rank");
    spec = spec_of(*state, RF_SPLIT_TENSOR, 3);
    spec.ratios = two;
    spec.n_ratios = 2;
    assert_refused(spec, "2 numbers");
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
                assert_int_equal(sharded - a.repeated + a.replicated_once + a.mapped + a.unused + a.header, a.file_size);
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
        cmocka_unit_test(demo_by_layers),
        cmocka_unit_test(limits_are_said),
        cmocka_unit_test(equal_ratios_are_no_ratios),
        cmocka_unit_test(account_adds_up),
        cmocka_unit_test(fit_finds_the_largest_context),
    };

    return cmocka_run_group_tests(tests, open_pair, close_pair);
}
