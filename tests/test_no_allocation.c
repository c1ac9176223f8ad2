/* Between the first and the last round nothing is allocated: every allocating call of our own code goes through a counter (the linker wraps
 * them), and the backend counts its own. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../rank/generate.h"
#include "../rank/job.h"
#include "check.h"
#include "log.h"

static size_t n_calls;
static bool guarded;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size)
{
    n_calls += guarded;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    n_calls += guarded;
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    n_calls += guarded;
    return __real_realloc(p, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    n_calls += guarded;
    return __real_aligned_alloc(alignment, size);
}

static rf_stop on_token(void *context, int32_t token, int64_t position, uint64_t hash)
{
    (void)context;
    (void)token;
    (void)position;
    (void)hash;
    return RF_STOP_NONE;
}

static void rounds_allocate_nothing(void **state)
{
    static const struct {
        rf_drafter drafter;
        rf_sampling sampling;
    } cases[] = {
        {RF_DRAFTER_NONE, {0, 0, 1, 0, 0}},   {RF_DRAFTER_MTP, {0.8, 40, 0.95, 0.05, 3}}, {RF_DRAFTER_DFLASH, {0, 0, 1, 0, 0}},
        {RF_DRAFTER_DFLASH, {0.8, 0, 1, 0, 3}}, {RF_DRAFTER_DFLASH, {1.5, 0, 0.97, 0, 3}}, /* masses and widening */
    };
    char *argv[] = {(char *)"rankflash", (char *)"-c", (char *)"600", (char *)"-t", (char *)"2", NULL};
    rf_options options;
    rf_error err;
    rf_job job;

    (void)state;
    assert_int_equal(rf_options_parse(&options, 5, argv, &err), 0);
    if (rf_job_start(&job, &options, 1, true, &err) != 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rf_sequence s = {.drafter = cases[i].drafter, .n_max = 7, .sampling = cases[i].sampling, .n_predict = 80, .on_token = on_token}, *one = &s;
        static const char text[] = "# Norway\n\n## Geography\nLocation: ";
        rf_tokens prompt = {0};
        uint64_t before;

        assert_int_equal(rf_raw_first(job.tokenizer, (rf_text){text, sizeof text - 1}, false, &prompt, &err), 0);
        rf_round_reset(job.leader, &s);
        assert_int_equal(rf_round_prefill(job.leader, &s, prompt.id, prompt.count, 512, NULL, NULL, &err), 0);
        before = job.backend->ops->stats(job.backend).n_allocations;
        n_calls = 0;
        guarded = true;
        while (s.stop == RF_STOP_NONE)
            assert_int_equal(rf_round_run(job.leader, &one, 1, &err), 0);
        rf_round_settle(job.leader, &one, 1);
        guarded = false;
        assert_int_equal(s.generated, 80);
        assert_int_equal(n_calls, 0);
        assert_true(job.backend->ops->stats(job.backend).n_allocations == before);
        rf_tokens_free(&prompt);
    }
    rf_job_stop(&job);
    rf_options_free(&options);
}

/* The guard itself sees an allocation. */
static void the_guard_sees(void **state)
{
    rf_tokens list = {0};

    (void)state;
    n_calls = 0;
    guarded = true;
    rf_tokens_push(&list, 1);
    guarded = false;
    rf_tokens_free(&list);
    assert_true(n_calls > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_allocate_nothing),
        cmocka_unit_test(the_guard_sees),
    };

    rf_log_set_speaker(false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
