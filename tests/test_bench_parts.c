/* What rankflash-bench asks of others: timers around ops, caches filled without a prompt, simulated acceptance. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "../rank/job.h"
#include "check.h"
#include "log.h"
#include "op_timers.h"

/* ---- timers */

static int n_adds, n_copies;

static void count_add(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat x, rf_mat y)
{
    (void)b, (void)x, (void)y;
    n_adds += (int)(n_rows * n_cols);
}

static void count_copy(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat src, rf_mat dst)
{
    (void)b, (void)src, (void)dst;
    n_copies += (int)(n_rows * n_cols);
}

static void timers_are_there_only_while_they_run(void **state)
{
    rf_ops table = {.name = "counting", .add = count_add, .copy = count_copy};
    rf_backend b = {&table};
    rf_mat none = {0};
    rf_error err;
    rf_op_timers *t = rf_op_timers_create(&b, &err);
    const rf_ops *ops = b.ops; /* as a model keeps it */

    (void)state;
    assert_non_null(t);
    assert_string_equal(ops->name, "counting");
    assert_true(ops->add == count_add && ops->copy == count_copy);
    ops->add(&b, 1, 2, none, none);
    rf_op_timers_start(t);
    assert_true(ops->add != count_add);
    ops->add(&b, 3, 5, none, none);
    ops->add(&b, 1, 1, none, none);
    ops->copy(&b, 7, 1, none, none);
    rf_op_timers_stop(t);
    assert_true(ops->add == count_add && ops->copy == count_copy);
    ops->add(&b, 1, 100, none, none);
    assert_int_equal(n_adds, 2 + 15 + 1 + 100);
    assert_int_equal(n_copies, 7);
    assert_int_equal(rf_op_timers_calls(t, RF_TIMED_ELEMENTWISE), 2);
    assert_int_equal(rf_op_timers_calls(t, RF_TIMED_COPY), 1);
    assert_int_equal(rf_op_timers_calls(t, RF_TIMED_MATMUL), 0);
    assert_true(rf_op_timers_seconds(t, RF_TIMED_ELEMENTWISE) > 0);
    rf_op_timers_start(t); /* from zero */
    assert_int_equal(rf_op_timers_calls(t, RF_TIMED_ELEMENTWISE), 0);
    rf_op_timers_destroy(t);
    assert_true(b.ops == &table);
}

/* ---- the demo pair on one rank */

static rf_options options;
static rf_job job;

static int start(void **state)
{
    char *argv[] = {(char *)"rankflash", (char *)"-c", (char *)"512", (char *)"-t", (char *)"1", NULL};
    rf_error err;

    (void)state;
    if (rf_options_parse(&options, 5, argv, &err) == 0) {
        options.time_ops = true;
        if (rf_job_start(&job, &options, 1, true, &err) == 0)
            return 0;
    }
    print_error("%s\n", err.text);
    return -1;
}

static int stop(void **state)
{
    (void)state;
    rf_job_stop(&job);
    rf_options_free(&options);
    return 0;
}

static uint64_t hash_at(rf_drafter drafter, int64_t n)
{
    rf_sequence s = {.drafter = drafter, .n = n};

    return rf_leader_state_hash(job.leader, &s);
}

static void filled_caches_hold_numbers(void **state)
{
    static const rf_drafter drafters[] = {RF_DRAFTER_NONE, RF_DRAFTER_MTP, RF_DRAFTER_DFLASH};
    const int64_t n = 300;
    rf_error err;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        uint64_t empty = hash_at(drafters[i], n), filled, longer;

        assert_int_equal(rf_qwen35_fill(rf_engine_target(job.engine), 0, n, &err), 0);
        assert_int_equal(rf_dflash_fill(rf_engine_drafter(job.engine), 0, n, &err), 0);
        filled = hash_at(drafters[i], n);
        longer = hash_at(drafters[i], n + 1);
        if (i == 0)
            assert_true(filled != empty);
        assert_int_equal(rf_qwen35_fill(rf_engine_target(job.engine), 0, n + 1, &err), 0);
        assert_int_equal(rf_dflash_fill(rf_engine_drafter(job.engine), 0, n + 1, &err), 0);
        assert_true(hash_at(drafters[i], n) == filled); /* the same numbers, and no more than asked for */
        if (i == 0)
            assert_true(hash_at(drafters[i], n + 1) != longer);
    }
}

/* Each drafter's cache is filled by itself: its part of the hash changes. */
static void drafters_caches_are_filled(void **state)
{
    rf_error err;
    uint64_t mtp, dflash, plain;

    (void)state;
    plain = hash_at(RF_DRAFTER_NONE, 400);
    mtp = hash_at(RF_DRAFTER_MTP, 400) - plain;
    dflash = hash_at(RF_DRAFTER_DFLASH, 400) - plain;
    assert_int_equal(rf_qwen35_fill(rf_engine_target(job.engine), 0, 400, &err), 0);
    assert_int_equal(rf_dflash_fill(rf_engine_drafter(job.engine), 0, 400, &err), 0);
    plain = hash_at(RF_DRAFTER_NONE, 400);
    assert_true(hash_at(RF_DRAFTER_MTP, 400) - plain != mtp);
    assert_true(hash_at(RF_DRAFTER_DFLASH, 400) - plain != dflash);
}

static rf_stop go_on(void *context, int32_t token, int64_t position, uint64_t hash)
{
    (void)context, (void)token, (void)position, (void)hash;
    return RF_STOP_NONE;
}

static void simulated_drafts_are_accepted_as_told(void **state)
{
    static const rf_drafter drafters[] = {RF_DRAFTER_MTP, RF_DRAFTER_DFLASH};
    int32_t ids[] = {10, 20, 30, 40};
    rf_error err;

    (void)state;
    for (size_t d = 0; d < 2; d++)
        for (size_t k = 0; k <= 3; k++) {
            rf_sequence s = {.drafter = drafters[d], .n_max = 3, .n_predict = -1, .on_token = go_on,
                             .simulated = true, .simulated_accepts = k};
            rf_sequence *one = &s;

            rf_round_reset(job.leader, &s);
            assert_int_equal(rf_round_prefill(job.leader, &s, ids, 4, 512, NULL, NULL, &err), 0);
            for (int64_t round = 1; round <= 3; round++) {
                assert_int_equal(rf_round_run(job.leader, &one, 1, &err), 0);
                assert_int_equal(s.n_commit, k + 1);
                assert_int_equal(s.n + (int64_t)s.n_commit, 4 + round * (int64_t)(k + 1));
                for (size_t i = 0; i < k; i++)
                    assert_int_equal(s.fresh[i], s.drafts[i]);
            }
            assert_int_equal(s.stats.accepted, 3 * k);
        }
}

static void ops_of_a_step_are_counted(void **state)
{
    int32_t ids[] = {10, 20, 30};
    rf_sequence s = {.n_predict = -1, .on_token = go_on}, *one = &s;
    rf_error err;

    (void)state;
    rf_round_reset(job.leader, &s);
    assert_int_equal(rf_round_prefill(job.leader, &s, ids, 3, 512, NULL, NULL, &err), 0);
    rf_op_timers_start(job.timers);
    assert_int_equal(rf_round_run(job.leader, &one, 1, &err), 0);
    rf_op_timers_stop(job.timers);
    /* 8 layers: the inputs' products and the output's in the mixer, the same in the feed-forward; the output matrix */
    assert_int_equal(rf_op_timers_calls(job.timers, RF_TIMED_MATMUL), 8 * (2 + 2) + 1);
    assert_int_equal(rf_op_timers_calls(job.timers, RF_TIMED_DELTA), 6);
    assert_int_equal(rf_op_timers_calls(job.timers, RF_TIMED_ATTENTION), 2 * 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_are_there_only_while_they_run),
        cmocka_unit_test(filled_caches_hold_numbers),
        cmocka_unit_test(drafters_caches_are_filled),
        cmocka_unit_test(simulated_drafts_are_accepted_as_told),
        cmocka_unit_test(ops_of_a_step_are_counted),
    };

    rf_log_set_speaker(false);
    return cmocka_run_group_tests(tests, start, stop);
}
