/* The end of a turn at every position inside a block (end of generation, stop string, token limit, context limit), then another turn: tokens,
 * the logits they were drawn from and the committed state are those of plain decoding, whatever drafts. One rank, the demo pair. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../rank/job.h"
#include "check.h"
#include "log.h"

#define MOST 64
#define BLOCK_ENDS 18 /* two DFlash blocks and a bit */

typedef struct {
    int32_t token[MOST];
    uint64_t hash[MOST];
    size_t n;
    size_t stop_at; /* tokens after which on_token stops the sequence; 0: never */
    rf_stop reason;
} record;

static rf_stop on_token(void *context, int32_t token, int64_t position, uint64_t hash)
{
    record *r = context;

    (void)position;
    assert_true(r->n < MOST);
    r->token[r->n] = token;
    r->hash[r->n++] = hash;
    return r->n == r->stop_at ? r->reason : RF_STOP_NONE;
}

static rf_options options;

static void start(rf_job *job, const char *n_ctx)
{
    char *argv[] = {(char *)"rankflash", (char *)"-c", (char *)n_ctx, (char *)"--temp", (char *)"0", (char *)"-t", (char *)"1", NULL};
    rf_error err;

    assert_int_equal(rf_options_parse(&options, 7, argv, &err), 0);
    options.check = true;
    if (rf_job_start(job, &options, 3, true, &err) != 0)
        fail_msg("%s", err.text);
}

static void stop(rf_job *job)
{
    rf_job_stop(job);
    rf_options_free(&options);
}

typedef struct {
    rf_drafter drafter;
    size_t n_max;
    double temperature;
} how;

static const how ways[] = {
    {RF_DRAFTER_NONE, 0, 0},   {RF_DRAFTER_MTP, 0, 0},      {RF_DRAFTER_MTP, 3, 0},   {RF_DRAFTER_MTP, 7, 0},
    {RF_DRAFTER_DFLASH, 1, 0}, {RF_DRAFTER_DFLASH, 7, 0}, {RF_DRAFTER_DFLASH, 0, 0},
};
#define N_WAYS (sizeof ways / sizeof *ways)

static void turn(rf_job *job, rf_sequence *s, const int32_t *tokens, size_t n, record *r)
{
    rf_error err;

    s->on_token = on_token;
    s->context = r;
    assert_int_equal(rf_round_prefill(job->leader, s, tokens, n, 7, NULL, NULL, &err), 0);
    while (s->stop == RF_STOP_NONE)
        assert_int_equal(rf_round_run(job->leader, &s, 1, &err), 0);
    rf_round_settle(job->leader, &s, 1);
}

static uint64_t target_state(rf_job *job, const rf_sequence *s)
{
    rf_sequence plain = *s;

    plain.drafter = RF_DRAFTER_NONE;
    return rf_leader_state_hash(job->leader, &plain);
}

static void encode(rf_job *job, const char *text, rf_tokens *out)
{
    rf_error err;

    assert_int_equal(rf_raw_first(job->tokenizer, (rf_text){text, strlen(text)}, true, out, &err), 0);
}

typedef struct {
    record first, second;
    int64_t n1, n2;
    uint64_t state1, state2, drafter_state;
    rf_stop stop;
} outcome;

/* A turn ended by `stop_at` (reason) or by the limit, then another of 6 tokens (unless the context is full). */
static void two_turns(rf_job *job, how w, size_t stop_at, rf_stop reason, int64_t limit, bool second, outcome *o)
{
    rf_sequence s = {.drafter = w.drafter, .n_max = w.n_max, .sampling = {w.temperature, 0, 1, 0, 3}, .n_predict = limit};
    rf_tokens prompt = {0}, more = {0};

    memset(o, 0, sizeof *o);
    o->first.stop_at = stop_at;
    o->first.reason = reason;
    encode(job, "<|im_start|>user\nTell me about climate in Peru.<|im_end|>\n<|im_start|>assistant\n", &prompt);
    rf_round_reset(job->leader, &s);
    turn(job, &s, prompt.id, prompt.count, &o->first);
    o->stop = s.stop;
    o->n1 = s.n;
    o->state1 = target_state(job, &s);
    o->drafter_state = rf_leader_state_hash(job->leader, &s);
    if (second) {
        rf_tokens_push(&more, s.anchor);
        encode(job, "<|im_end|>\n<|im_start|>user\nWhere is Kenya?<|im_end|>\n<|im_start|>assistant\n", &more);
        s.n_predict = 6;
        turn(job, &s, more.id, more.count, &o->second);
        o->n2 = s.n;
        o->state2 = target_state(job, &s);
    }
    rf_tokens_free(&prompt);
    rf_tokens_free(&more);
}

static void assert_same(const outcome *a, const outcome *b)
{
    assert_int_equal(a->stop, b->stop);
    assert_int_equal(a->first.n, b->first.n);
    assert_memory_equal(a->first.token, b->first.token, sizeof a->first.token);
    assert_memory_equal(a->first.hash, b->first.hash, sizeof a->first.hash);
    assert_int_equal(a->n1, b->n1);
    assert_true(a->state1 == b->state1);
    assert_memory_equal(a->second.token, b->second.token, sizeof a->second.token);
    assert_memory_equal(a->second.hash, b->second.hash, sizeof a->second.hash);
    assert_int_equal(a->n2, b->n2);
    assert_true(a->state2 == b->state2);
}

/* Drafters' own caches: the same whatever was accepted on the way. */
static void assert_drafter_states(const outcome *outcomes)
{
    for (size_t a = 0; a < N_WAYS; a++)
        for (size_t b = a + 1; b < N_WAYS; b++)
            if (ways[a].drafter == ways[b].drafter)
                assert_true(outcomes[a].drafter_state == outcomes[b].drafter_state);
}

static void ends(size_t stop_at, rf_stop reason, int64_t limit, rf_job *job, rf_stop want)
{
    outcome outcomes[N_WAYS];

    for (size_t w = 0; w < N_WAYS; w++) {
        two_turns(job, ways[w], stop_at, reason, limit, true, &outcomes[w]);
        assert_int_equal(outcomes[w].stop, want);
        assert_same(&outcomes[0], &outcomes[w]);
    }
    assert_drafter_states(outcomes);
}

static void a_token_or_a_string_ends_the_turn_anywhere(void **state)
{
    rf_job job;

    (void)state;
    start(&job, "300");
    for (size_t at = 1; at <= BLOCK_ENDS; at++)
        ends(at, at % 2 ? RF_STOP_END : RF_STOP_STRING, -1, &job, at % 2 ? RF_STOP_END : RF_STOP_STRING);
    stop(&job);
}

static void the_limit_ends_the_turn_anywhere(void **state)
{
    rf_job job;

    (void)state;
    start(&job, "300");
    for (int64_t limit = 1; limit <= BLOCK_ENDS; limit++)
        ends(0, RF_STOP_NONE, limit, &job, RF_STOP_LIMIT);
    stop(&job);
}

static void the_context_ends_the_turn_anywhere(void **state)
{
    rf_tokens prompt = {0};
    size_t n;
    rf_job job;

    (void)state;
    start(&job, "300");
    encode(&job, "<|im_start|>user\nTell me about climate in Peru.<|im_end|>\n<|im_start|>assistant\n", &prompt);
    n = prompt.count;
    rf_tokens_free(&prompt);
    stop(&job);
    for (size_t room = 0; room <= BLOCK_ENDS; room++) {
        outcome outcomes[N_WAYS];
        char n_ctx[24];

        snprintf(n_ctx, sizeof n_ctx, "%zu", n + room);
        start(&job, n_ctx);
        for (size_t w = 0; w < N_WAYS; w++) {
            two_turns(&job, ways[w], 0, RF_STOP_NONE, -1, false, &outcomes[w]);
            assert_int_equal(outcomes[w].stop, RF_STOP_CONTEXT);
            assert_int_equal(outcomes[w].first.n, room + 1); /* the last is drawn, but has no position to be processed at */
            assert_same(&outcomes[0], &outcomes[w]);
        }
        assert_drafter_states(outcomes);
        stop(&job);
    }
}

/* Three sequences with different drafters, lengths and samplings in the same rounds give the bits each gives alone. */
static void interleaved_sequences_do_not_touch(void **state)
{
    static const char *const texts[3] = {"# Norway\n\n## Geography\nLocation: ",
                                         "<|im_start|>user\nWhere is Kenya?<|im_end|>\n<|im_start|>assistant\n", "The quick brown fox"};
    static const how each[3] = {{RF_DRAFTER_DFLASH, 7, 0}, {RF_DRAFTER_MTP, 3, 0.8}, {RF_DRAFTER_DFLASH, 3, 1.2}};
    record alone[3], together[3];
    uint64_t state_alone[3];
    rf_job job;

    (void)state;
    start(&job, "300");
    memset(alone, 0, sizeof alone);
    memset(together, 0, sizeof together);
    for (int mode = 0; mode < 2; mode++) {
        rf_sequence s[3], *all[3];
        rf_error err;

        for (int i = 0; i < 3; i++) {
            rf_tokens prompt = {0};

            s[i] = (rf_sequence){.slot = i, .drafter = each[i].drafter, .n_max = each[i].n_max,
                                 .sampling = {each[i].temperature, 20, 0.95, 0, (uint64_t)i}, .n_predict = 20 + 5 * i,
                                 .on_token = on_token, .context = mode ? &together[i] : &alone[i]};
            all[i] = &s[i];
            encode(&job, texts[i], &prompt);
            rf_round_reset(job.leader, &s[i]);
            assert_int_equal(rf_round_prefill(job.leader, &s[i], prompt.id, prompt.count, 512, NULL, NULL, &err), 0);
            while (!mode && s[i].stop == RF_STOP_NONE)
                assert_int_equal(rf_round_run(job.leader, &all[i], 1, &err), 0);
            rf_tokens_free(&prompt);
        }
        while (mode && (s[0].stop == RF_STOP_NONE || s[1].stop == RF_STOP_NONE || s[2].stop == RF_STOP_NONE))
            assert_int_equal(rf_round_run(job.leader, all, 3, &err), 0);
        rf_round_settle(job.leader, all, 3);
        for (int i = 0; i < 3; i++) {
            uint64_t hash = rf_leader_state_hash(job.leader, &s[i]);

            if (mode)
                assert_true(hash == state_alone[i]);
            state_alone[i] = hash;
        }
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(alone[i].n, 20 + 5 * i);
        assert_memory_equal(&alone[i], &together[i], sizeof alone[i]);
    }
    stop(&job);
}

/* p-min and n-min change what is drafted, never what is said. */
static void thresholds_change_no_bit(void **state)
{
    static const double p_min[] = {0, 0.3, 0.9, 1.0};
    outcome plain, o;
    rf_job job;

    (void)state;
    start(&job, "300");
    two_turns(&job, ways[0], 0, RF_STOP_NONE, 24, false, &plain);
    for (size_t p = 0; p < 4; p++)
        for (size_t n_min = 0; n_min <= 6; n_min += 3)
            for (int d = RF_DRAFTER_MTP; d <= RF_DRAFTER_DFLASH; d++) {
                rf_sequence s = {.drafter = (rf_drafter)d, .n_max = 6, .n_min = n_min, .p_min = p_min[p], .n_predict = 24};
                rf_tokens prompt = {0};

                memset(&o, 0, sizeof o);
                encode(&job, "<|im_start|>user\nTell me about climate in Peru.<|im_end|>\n<|im_start|>assistant\n", &prompt);
                rf_round_reset(job.leader, &s);
                turn(&job, &s, prompt.id, prompt.count, &o.first);
                assert_memory_equal(o.first.hash, plain.first.hash, sizeof o.first.hash);
                if (p_min[p] >= 1.0 && n_min) /* nothing is ever certain: fewer drafts than n-min, so none */
                    assert_true(s.stats.drafted < s.stats.rounds * n_min + 1);
                rf_tokens_free(&prompt);
            }
    stop(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_or_a_string_ends_the_turn_anywhere),
        cmocka_unit_test(the_limit_ends_the_turn_anywhere),
        cmocka_unit_test(the_context_ends_the_turn_anywhere),
        cmocka_unit_test(interleaved_sequences_do_not_touch),
        cmocka_unit_test(thresholds_change_no_bit),
    };

    rf_log_set_speaker(false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
