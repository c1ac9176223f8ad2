/* Draft-verify rounds at the level of models, on the `micro` pairs: whatever was drafted and accepted, the state and
 * the logits are those of the plain run, by bits; and verifying costs what it should. */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

#define TARGET "micro/micro-F32.gguf"
#define DFLASH2 "micro/micro-DFlash2-F32.gguf"
#define DFLASH1 "micro/micro-DFlash1-F32.gguf"

enum { N_VOCAB = 384, N_TOKENS = 376, N_PROMPT = 11, N_TEXT = 400 };

/* Any tokens will do: acceptance is forced. */
static void fill_text(int32_t *text, size_t n, size_t seed)
{
    for (size_t i = 0; i < n; i++)
        text[i] = (int32_t)((i * i * 13 + i * 97 + seed * 31) % N_TOKENS);
}

static pair_spec spec_of(const char *drafter, bool with_mtp, size_t n_slots)
{
    return (pair_spec){TARGET, drafter, with_mtp, RF_TYPE_F16, n_slots, 512, 64};
}

static void reset(pair *p, int32_t slot)
{
    rf_qwen35_reset(p->target, (size_t)slot);
    if (p->drafter)
        rf_dflash_reset(p->drafter, (size_t)slot);
}

/* An empty slot, the prompt, and the entry of the first anchor: the state in which rounds begin. */
static void begin(pair *p, int32_t slot, const int32_t *text, size_t chunk)
{
    reset(p, slot);
    pair_prefill(p, slot, 0, text, N_PROMPT, chunk, NULL);
    if (!p->options.with_mtp)
        return;
    pair_batch(p, slot, N_PROMPT, text + N_PROMPT, 1, RF_ROLE_GENERATED, RF_LOGITS_NONE);
    rf_qwen35_mtp_first(p->target, p->batch);
}

/* ---- forced acceptance */

static const struct {
    size_t drafted, accepted;
} rounds[] = {{0, 0}, {1, 0}, {1, 1}, {4, 0}, {4, 2}, {4, 4}, {7, 0}, {7, 3}, {7, 7}};

enum { N_ROUNDS = sizeof rounds / sizeof *rounds, SEGMENT = 45 };

/* One round at n committed positions: m drafts, of which the first k are the text's and the next is wrong. What the
 * drafters write on their way must leave no trace. */
static void forced_round(pair *p, int32_t slot, const int32_t *text, size_t n, size_t m, size_t k)
{
    int32_t tokens[RF_MAX_BLOCK], unused[RF_MAX_BLOCK];

    if (m && p->drafter)
        pair_draft_dflash(p, slot, (int64_t)n, text[n], m < 5 ? m : 5, unused, NULL, NULL, 5);
    for (size_t i = 1; p->options.with_mtp && i < m; i++) {
        int32_t other = (int32_t)(i * 7);

        pair_batch(p, slot, (int64_t)(n + i), &other, 1, RF_ROLE_GENERATED, RF_LOGITS_LAST);
        rf_qwen35_mtp_next(p->target, p->batch);
    }
    tokens[0] = text[n];
    for (size_t i = 1; i <= m; i++)
        tokens[i] = i <= k ? text[n + i] : (text[n + i] + 1) % N_TOKENS;
    pair_verify(p, slot, (int64_t)n, tokens, m + 1, NULL);
    pair_commit(p, slot, (int64_t)n, k, text + n + 1);
}

/* hash[n]: the state at n positions of a run that never drafts. */
static void plain_hashes(pair *p, const int32_t *text, uint64_t *hash)
{
    begin(p, 0, text, 4);
    for (size_t n = N_PROMPT; n < N_TEXT; n++) {
        hash[n] = pair_state_hash(p, 0, (int64_t)n);
        pair_verify(p, 0, (int64_t)n, text + n, 1, NULL);
        pair_commit(p, 0, (int64_t)n, 0, text + n + 1);
    }
}

/* The de Bruijn sequence of order n over N_ROUNDS symbols (Fredricksen, Kessler, Maiorana): every order of n rounds
 * occurs in it once. out: [N_ROUNDS^n]. */
static size_t de_bruijn(size_t n, size_t t, size_t p, unsigned char *word, unsigned char *out, size_t at)
{
    if (t > n) {
        if (n % p == 0)
            for (size_t i = 1; i <= p; i++)
                out[at++] = word[i];
        return at;
    }
    word[t] = word[t - p];
    at = de_bruijn(n, t + 1, p, word, out, at);
    for (unsigned s = word[t - p] + 1u; s < N_ROUNDS; s++) {
        word[t] = (unsigned char)s;
        at = de_bruijn(n, t + 1, t, word, out, at);
    }
    return at;
}

/* Another turn after rounds: the anchor and more as a prompt chunk. */
static void check_next_turn(pair *p, const int32_t *text, const uint64_t *hash, size_t n)
{
    pair_prefill(p, 0, (int64_t)n, text + n, 6, 4, NULL);
    if (pair_state_hash(p, 0, (int64_t)n + 6) != hash[n + 6])
        fail_msg("a turn at %zu positions: the state differs from the plain run's", n);
}

/* Runs of at most SEGMENT rounds from the prompt, each starting with the last order - 1 rounds of the one before, so
 * that every order of rounds is met; the state is compared after every round. */
static void check_forced(pair_spec spec, size_t order)
{
    static int32_t text[N_TEXT + RF_MAX_BLOCK];
    static uint64_t hash[N_TEXT + RF_MAX_BLOCK];
    static unsigned char sequence[N_ROUNDS * N_ROUNDS * N_ROUNDS * N_ROUNDS + 4];
    unsigned char word[8] = {0};
    size_t length = de_bruijn(order, 1, 1, word, sequence, 0), n = 0;
    pair p;

    for (size_t i = 0; i + 1 < order; i++)
        sequence[length + i] = sequence[i];
    length += order - 1;
    fill_text(text, N_TEXT + RF_MAX_BLOCK, 1);
    pair_open(&p, &spec);
    plain_hashes(&p, text, hash);
    for (size_t i = 0, in_segment = SEGMENT; i < length; i++, in_segment++) {
        if (in_segment >= SEGMENT) {
            if (i)
                check_next_turn(&p, text, hash, n);
            i = i < order ? 0 : i - (order - 1);
            begin(&p, 0, text, 5);
            n = N_PROMPT;
            in_segment = 0;
        }
        forced_round(&p, 0, text, n, rounds[sequence[i]].drafted, rounds[sequence[i]].accepted);
        n += rounds[sequence[i]].accepted + 1;
        if (pair_state_hash(&p, 0, (int64_t)n) != hash[n])
            fail_msg("round %zu, %zu positions: the state differs from the plain run's", i, n);
    }
    pair_close(&p);
}

static void test_forced_dflash2_mtp(void **state)
{
    (void)state;
    check_forced(spec_of(DFLASH2, true, 1), 4);
}

static void test_forced_dflash1(void **state)
{
    (void)state;
    check_forced(spec_of(DFLASH1, false, 1), 2);
}

/* ---- several sequences */

enum { N_SLOTS = 3 };

typedef struct {
    float verify[16][N_VOCAB], draft[8][N_VOCAB], mtp[N_VOCAB];
    uint64_t hash;
} outcome;

static const size_t row_counts[N_SLOTS] = {8, 1, 5}, accepted[N_SLOTS] = {3, 0, 4};

static void drafter_rows(pair *p, size_t first, size_t n, float (*out)[N_VOCAB])
{
    rf_mat l = rf_dflash_logits(p->drafter);

    for (size_t i = 0; i < n; i++)
        p->b->ops->download(p->b, l.buf, (l.offset + (first + i) * l.stride) * sizeof(float), out[i], sizeof out[i]);
}

/* Verify, commit and drafts of the slots in `slots` together. */
static void round_of(pair *p, const size_t *slots, size_t n, int32_t text[N_SLOTS][N_TEXT], outcome *out)
{
    rf_batch_seq verify[N_SLOTS], commit[N_SLOTS], mtp[N_SLOTS], draft[N_SLOTS];
    int32_t tokens[64], fresh[64], noise[64];
    size_t rows = 0, fresh_rows = 0, noise_rows = 0, at = 0, drafts = 0;
    static float logits[64][N_VOCAB];

    for (size_t i = 0; i < n; i++) {
        size_t s = slots[i], m = s + 2;
        int64_t pos = N_PROMPT, next = pos + (int64_t)accepted[s] + 1;

        verify[i] = (rf_batch_seq){(int32_t)s, (int32_t)row_counts[s], pos, RF_ROLE_GENERATED, RF_LOGITS_ALL};
        commit[i] = (rf_batch_seq){(int32_t)s, (int32_t)accepted[s] + 1, pos, RF_ROLE_GENERATED, RF_LOGITS_NONE};
        mtp[i] = (rf_batch_seq){(int32_t)s, (int32_t)accepted[s] + 1, pos + 1, RF_ROLE_GENERATED, RF_LOGITS_LAST};
        draft[i] = (rf_batch_seq){(int32_t)s, (int32_t)m, next, RF_ROLE_GENERATED, RF_LOGITS_ALL_BUT_FIRST};
        memcpy(tokens + rows, text[s] + pos, row_counts[s] * sizeof *tokens);
        memcpy(fresh + fresh_rows, text[s] + pos + 1, (accepted[s] + 1) * sizeof *fresh);
        rows += row_counts[s];
        fresh_rows += accepted[s] + 1;
        noise[noise_rows++] = text[s][next];
        for (size_t j = 1; j < m; j++)
            noise[noise_rows++] = p->drafter_params.mask_token;
    }
    p->b->ops->batch_set(p->b, p->batch, n, verify, tokens);
    rf_qwen35_forward(p->target, p->batch);
    pair_logits(p, rows, logits[0]);
    for (size_t i = 0; i < n; at += row_counts[slots[i++]])
        memcpy(out[slots[i]].verify, logits[at], row_counts[slots[i]] * sizeof logits[0]);
    p->b->ops->batch_set(p->b, p->batch, n, commit, fresh);
    rf_qwen35_commit(p->target, p->batch);
    rf_dflash_inject_kept(p->drafter, p->batch);
    p->b->ops->batch_set(p->b, p->batch, n, mtp, fresh);
    rf_qwen35_mtp_commit(p->target, p->batch);
    pair_logits(p, n, logits[0]);
    for (size_t i = 0; i < n; i++)
        memcpy(out[slots[i]].mtp, logits[i], sizeof logits[i]);
    p->b->ops->batch_set(p->b, p->batch, n, draft, noise);
    rf_dflash_draft(p->drafter, p->batch);
    for (size_t i = 0; i < n; drafts += slots[i++] + 1)
        drafter_rows(p, drafts, slots[i] + 1, out[slots[i]].draft);
    for (size_t i = 0; i < n; i++)
        out[slots[i]].hash = pair_state_hash(p, (int32_t)slots[i], N_PROMPT + (int64_t)accepted[slots[i]] + 1);
}

static void test_interleaved(void **state)
{
    static const size_t every[N_SLOTS] = {0, 1, 2};
    static int32_t text[N_SLOTS][N_TEXT];
    static outcome alone[N_SLOTS], together[N_SLOTS];
    pair_spec spec = spec_of(DFLASH2, true, N_SLOTS);
    pair p;

    (void)state;
    pair_open(&p, &spec);
    for (size_t s = 0; s < N_SLOTS; s++) {
        fill_text(text[s], N_TEXT, s + 1);
        begin(&p, (int32_t)s, text[s], 5);
        round_of(&p, &every[s], 1, text, alone);
    }
    for (size_t s = 0; s < N_SLOTS; s++)
        begin(&p, (int32_t)s, text[s], 5);
    round_of(&p, every, N_SLOTS, text, together);
    pair_close(&p);
    assert_memory_equal(alone, together, sizeof alone);
    assert_true(alone[0].hash != alone[1].hash && alone[1].hash != alone[2].hash);
}

/* ---- prompts in chunks */

static void test_chunks(void **state)
{
    static const size_t chunks[] = {1, 7, 64};
    static int32_t text[N_TEXT];
    static float first[N_VOCAB], again[N_VOCAB];
    uint64_t hash = 0;
    pair_spec spec = spec_of(DFLASH2, true, 1);
    pair p;

    (void)state;
    fill_text(text, N_TEXT, 5);
    pair_open(&p, &spec);
    for (size_t i = 0; i < 3; i++) {
        reset(&p, 0);
        pair_prefill(&p, 0, 0, text, 300, chunks[i], NULL);
        pair_logits(&p, 1, i ? again : first);
        if (i) {
            assert_memory_equal(again, first, sizeof first);
            assert_true(pair_state_hash(&p, 0, 300) == hash);
        }
        hash = pair_state_hash(&p, 0, 300);
    }
    /* the same positions as generated rows */
    reset(&p, 0);
    pair_prefill(&p, 0, 0, text, 280, 64, NULL);
    for (size_t n = 280; n < 300; n += 4) {
        static float rows[4][N_VOCAB];

        pair_verify(&p, 0, (int64_t)n, text + n, 4, rows[0]);
        pair_commit(&p, 0, (int64_t)n, 3, text + n + 1);
        memcpy(again, rows[3], sizeof again);
    }
    assert_memory_equal(again, first, sizeof first);
    pair_close(&p);
}

/* ---- costs */

static uint64_t bytes_of_verify(pair *p, const int32_t *text, size_t n)
{
    uint64_t before = p->b->ops->stats(p->b).weight_bytes_read;

    pair_verify(p, 0, N_PROMPT, text + N_PROMPT, n, NULL);
    return p->b->ops->stats(p->b).weight_bytes_read - before;
}

static void test_weights_read_once(void **state)
{
    pair_spec spec = spec_of(NULL, false, 1);
    int32_t text[N_TEXT];
    rf_model_bytes bytes;
    rf_error err = {0};
    uint64_t one;
    pair p;

    (void)state;
    fill_text(text, N_TEXT, 3);
    pair_open(&p, &spec);
    begin(&p, 0, text, 5);
    one = bytes_of_verify(&p, text, 1);
    assert_true(bytes_of_verify(&p, text, 8) == one);
    assert_int_equal(rf_qwen35_bytes(&p.env, p.target_file, &p.target_params, &p.options, &bytes, &err), 0);
    assert_true(one <= bytes.weights && one >= bytes.weights / 10 * 9);
    pair_close(&p);
}

static size_t total(rf_model_bytes bytes)
{
    return bytes.weights + bytes.caches + bytes.states + bytes.scratch;
}

/* What the plan says is what is held, and rounds allocate nothing. */
static void test_memory(void **state)
{
    pair_spec spec = spec_of(DFLASH2, true, 2);
    static int32_t text[N_TEXT];
    rf_model_bytes target, drafter;
    rf_backend_stats held, later;
    rf_error err = {0};
    pair p;

    (void)state;
    fill_text(text, N_TEXT, 4);
    pair_open(&p, &spec);
    held = p.b->ops->stats(p.b);
    assert_int_equal(rf_qwen35_bytes(&p.env, p.target_file, &p.target_params, &p.options, &target, &err), 0);
    assert_int_equal(rf_dflash_bytes(&p.env, p.drafter_file, &p.drafter_params, &drafter, &err), 0);
    assert_true(held.allocated_bytes >= total(target) + total(drafter));
    assert_true(held.allocated_bytes <= (total(target) + total(drafter)) / 100 * 105);
    begin(&p, 0, text, 5);
    forced_round(&p, 0, text, N_PROMPT, 0, 0);
    held = p.b->ops->stats(p.b);
    pair_verify(&p, 0, N_PROMPT + 1, text + N_PROMPT + 1, 8, NULL);
    pair_commit(&p, 0, N_PROMPT + 1, 5, text + N_PROMPT + 2);
    pair_prefill(&p, 1, 0, text, 100, 64, NULL);
    later = p.b->ops->stats(p.b);
    assert_true(later.n_allocations == held.n_allocations && later.allocated_bytes == held.allocated_bytes);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forced_dflash2_mtp), cmocka_unit_test(test_forced_dflash1),
        cmocka_unit_test(test_interleaved),        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_weights_read_once),  cmocka_unit_test(test_memory),
    };

    return cmocka_run_group_tests_name("rounds", tests, NULL, NULL);
}
