/* Free greedy runs over the golden prompts with each drafter: the text of all is the plain run's; acceptance is printed beside the reference's
 * (no band: one text leaves the golden one at a margin of 0.001). */
#include "config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../rank/job.h"
#include "check.h"
#include "log.h"

#define PREDICT 96

typedef struct {
    const rf_tokenizer *tokenizer;
    int32_t token[PREDICT];
    size_t n;
} text;

static rf_stop on_token(void *context, int32_t token, int64_t position, uint64_t hash)
{
    text *t = context;

    (void)position;
    (void)hash;
    t->token[t->n++] = token;
    return rf_tokenizer_is_eog(t->tokenizer, token) ? RF_STOP_END : RF_STOP_NONE;
}

static void free_run(rf_job *job, rf_drafter drafter, size_t n_max, const int32_t *ids, size_t n, text *t, rf_stats *total)
{
    rf_sequence s = {.drafter = drafter, .n_max = n_max, .n_predict = PREDICT, .on_token = on_token, .context = t}, *one = &s;
    rf_error err;

    *t = (text){.tokenizer = job->tokenizer};
    rf_round_reset(job->leader, &s);
    assert_int_equal(rf_round_prefill(job->leader, &s, ids, n, 512, NULL, NULL, &err), 0);
    while (s.stop == RF_STOP_NONE)
        assert_int_equal(rf_round_run(job->leader, &one, 1, &err), 0);
    rf_stats_add(total, &s.stats);
}

static void drafters_say_what_plain_decoding_says(void **state)
{
    char *argv[] = {(char *)"rankflash", (char *)"-c", (char *)"512", (char *)"-t", (char *)"1", NULL};
    json_t *golden = json_load_file(RF_TEST_DATA "/golden.json", 0, NULL);
    rf_stats plain_stats = {0}, mtp_stats = {0}, dflash_stats = {0};
    rf_options options;
    rf_error err;
    rf_job job;

    (void)state;
    assert_non_null(golden);
    assert_int_equal(rf_options_parse(&options, 5, argv, &err), 0);
    if (rf_job_start(&job, &options, 1, true, &err) != 0)
        fail_msg("%s", err.text);
    for (size_t p = 0; p < json_array_size(golden); p++) {
        json_t *list = json_object_get(json_array_get(golden, p), "ids");
        size_t n = json_array_size(list);
        int32_t *ids = malloc(n * sizeof *ids);
        text plain, mtp, dflash;

        for (size_t i = 0; i < n; i++)
            ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
        free_run(&job, RF_DRAFTER_NONE, 0, ids, n, &plain, &plain_stats);
        free_run(&job, RF_DRAFTER_MTP, 3, ids, n, &mtp, &mtp_stats);
        free_run(&job, RF_DRAFTER_DFLASH, 7, ids, n, &dflash, &dflash_stats);
        assert_int_equal(plain.n, mtp.n);
        assert_int_equal(plain.n, dflash.n);
        assert_memory_equal(plain.token, mtp.token, sizeof plain.token);
        assert_memory_equal(plain.token, dflash.token, sizeof plain.token);
        free(ids);
    }
    printf("free runs: DFlash2 accepted %llu in %llu rounds, MTP %llu in %llu, plain %llu rounds (along the reference's text: 140 in 128, 149 in 120)\n",
           (unsigned long long)dflash_stats.accepted, (unsigned long long)dflash_stats.rounds, (unsigned long long)mtp_stats.accepted,
           (unsigned long long)mtp_stats.rounds, (unsigned long long)plain_stats.rounds);
    assert_true(dflash_stats.accepted > 0 && mtp_stats.accepted > 0 && plain_stats.accepted == 0);
    rf_job_stop(&job);
    rf_options_free(&options);
    json_decref(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(drafters_say_what_plain_decoding_says)};

    rf_log_set_speaker(false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
