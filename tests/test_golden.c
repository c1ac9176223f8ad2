/* The demo pair against a reference in float32 on the same dequantised weights: layers, logits, greedy text, drafts,
 * and how many drafts are accepted along the reference's own text. The bands are those of int8 activations. */
#include "pair.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_PROMPTS = 10,
    N_VOCAB = 4096,
    N_EMBD = 256,
    MAX_TEXT = 160,
    N_DRAFTS = 7,
    N_MTP = 3,
    N_CANDIDATES = 8,
    END_OF_TURN = 4092
};

#define TARGET RF_SHARE "/factbook-tiny/factbook-tiny-Q8_0.gguf"
#define DFLASH2 RF_SHARE "/factbook-tiny/factbook-tiny-DFlash2-Q8_0.gguf"

typedef struct {
    json_t *entry;
    int32_t text[MAX_TEXT]; /* the prompt, then the greedy tokens */
    size_t n_ids, n_greedy;
    size_t first_row; /* in golden-logits.f32 */
} prompt;

static json_t *golden;
static prompt prompts[N_PROMPTS];
static float *golden_logits;
static pair p;

static size_t take_tokens(json_t *list, int32_t *out)
{
    size_t n = json_array_size(list);

    for (size_t i = 0; i < n; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return n;
}

static double number_at(json_t *list, size_t i)
{
    return json_number_value(json_array_get(list, i));
}

static int load(void **state)
{
    json_error_t where;
    FILE *f = fopen(RF_TEST_DATA "/golden-logits.f32", "rb");
    pair_spec spec = {TARGET, DFLASH2, true, RF_TYPE_F16, 1, 512, 64};
    size_t rows = 0;

    (void)state;
    golden = json_load_file(RF_TEST_DATA "/golden.json", 0, &where);
    if (!golden || !f || json_array_size(golden) != N_PROMPTS)
        return -1;
    for (size_t i = 0; i < N_PROMPTS; i++) {
        prompt *q = &prompts[i];

        q->entry = json_array_get(golden, i);
        q->n_ids = take_tokens(json_object_get(q->entry, "ids"), q->text);
        q->n_greedy = take_tokens(json_object_get(q->entry, "greedy"), q->text + q->n_ids);
        q->first_row = rows;
        rows += q->n_ids;
    }
    golden_logits = malloc(rows * N_VOCAB * sizeof *golden_logits);
    if (!golden_logits || fread(golden_logits, N_VOCAB * sizeof *golden_logits, rows, f) != rows || fgetc(f) != EOF)
        return -1;
    fclose(f);
    pair_open(&p, &spec);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    pair_close(&p);
    free(golden_logits);
    json_decref(golden);
    return 0;
}

static void begin(const prompt *q, float *logits)
{
    rf_qwen35_reset(p.target, 0);
    rf_dflash_reset(p.drafter, 0);
    pair_prefill(&p, 0, 0, q->text, q->n_ids, RF_MAX_BLOCK, logits);
}

/* ---- the target */

/* Norms within 2 %, each first value within 6 % of the layer's rms, at the last position. */
static void test_layers(void **state)
{
    double worst_norm = 0, worst_value = 0;

    (void)state;
    rf_qwen35_trace(p.target, true);
    for (size_t i = 0; i < N_PROMPTS; i++) {
        json_t *layers = json_object_get(prompts[i].entry, "layers");

        begin(&prompts[i], NULL);
        assert_int_equal(json_array_size(layers), p.target_params.n_layer);
        for (size_t layer = 0; layer < p.target_params.n_layer; layer++) {
            json_t *wanted = json_array_get(layers, layer), *first = json_object_get(wanted, "first");
            const float *x = rf_qwen35_trace_rows(p.target, layer, (prompts[i].n_ids - 1) % RF_MAX_BLOCK);
            double norm = json_number_value(json_object_get(wanted, "norm")), ours = 0;

            for (size_t j = 0; j < N_EMBD; j++)
                ours += (double)x[j] * (double)x[j];
            worst_norm = fmax(worst_norm, fabs(sqrt(ours) / norm - 1));
            for (size_t j = 0; j < 8; j++)
                worst_value = fmax(worst_value, fabs((double)x[j] - number_at(first, j)) / (norm / sqrt(N_EMBD)));
        }
    }
    rf_qwen35_trace(p.target, false);
    print_message("worst norm off by %.2f %%, worst value by %.2f %% of the rms\n", 100 * worst_norm,
                  100 * worst_value);
    assert_true(worst_norm <= 0.02);
    assert_true(worst_value <= 0.06);
}

static double log_sum_exp(const float *row)
{
    double max = row[argmax(row, N_VOCAB)], sum = 0;

    for (size_t i = 0; i < N_VOCAB; i++)
        sum += exp((double)row[i] - max);
    return max + log(sum);
}

/* KL(reference || ours) */
static double divergence(const float *reference, const float *ours)
{
    double a = log_sum_exp(reference), b = log_sum_exp(ours), sum = 0;

    for (size_t i = 0; i < N_VOCAB; i++)
        sum += exp((double)reference[i] - a) * (((double)reference[i] - a) - ((double)ours[i] - b));
    return sum;
}

static void test_logits(void **state)
{
    static float ours[MAX_TEXT][N_VOCAB];
    double total = 0, worst = 0;
    size_t rows = 0;

    (void)state;
    for (size_t i = 0; i < N_PROMPTS; i++) {
        json_t *positions = json_object_get(prompts[i].entry, "positions");

        begin(&prompts[i], ours[0]);
        for (size_t j = 0; j < prompts[i].n_ids; j++, rows++) {
            const float *reference = golden_logits + (prompts[i].first_row + j) * N_VOCAB;
            json_t *best = json_array_get(positions, j), *values = json_object_get(best, "logits");
            double kl = divergence(reference, ours[j]);

            total += kl;
            worst = fmax(worst, kl);
            if (number_at(values, 0) - number_at(values, 1) > 0.5)
                assert_int_equal(argmax(ours[j], N_VOCAB),
                                 json_integer_value(json_array_get(json_object_get(best, "ids"), 0)));
        }
    }
    print_message("KL: mean %.2e, worst %.2e over %zu positions\n", total / (double)rows, worst, rows);
    assert_true(total / (double)rows < 2e-4);
    assert_true(worst < 5e-3);
}

/* The best token wherever the reference's margin is over 0.5, along its own text: so greedy text is equal up to the
 * first margin that is not. */
static void test_greedy(void **state)
{
    static float row[N_VOCAB];
    size_t compared = 0;

    (void)state;
    for (size_t i = 0; i < N_PROMPTS; i++) {
        const prompt *q = &prompts[i];
        json_t *margins = json_object_get(q->entry, "margins");

        begin(q, NULL);
        pair_logits(&p, 1, row);
        for (size_t j = 0; j < q->n_greedy; j++) {
            size_t n = q->n_ids + j;

            if (number_at(margins, j) > 0.5) {
                assert_int_equal(argmax(row, N_VOCAB), q->text[n]);
                compared++;
            }
            pair_verify(&p, 0, (int64_t)n, &q->text[n], 1, row);
            pair_commit(&p, 0, (int64_t)n, 0, &q->text[n + 1]);
        }
    }
    print_message("%zu tokens compared\n", compared);
    assert_true(compared > 200);
}

/* ---- drafts */

static bool among(const rf_candidate *cand, int64_t id, size_t *at)
{
    for (*at = 0; *at < N_CANDIDATES; ++*at)
        if (cand[*at].id == id)
            return true;
    return false;
}

static double gap_of_two_best(json_t *scores)
{
    double first = -INFINITY, second = -INFINITY;

    for (size_t i = 0; i < json_array_size(scores); i++) {
        double v = number_at(scores, i);

        second = v > first ? first : fmax(second, v);
        first = fmax(first, v);
    }
    return first - second;
}

/* Golden candidates well above the last are among ours; what both have agrees. */
static void check_row(json_t *row, const rf_candidate *cand, const float *scores)
{
    json_t *ids = json_object_get(row, "ids"), *logits = json_object_get(row, "logits");
    json_t *scored = json_object_get(row, "scores");

    for (size_t j = 0; j < N_CANDIDATES; j++) {
        size_t at;
        bool found = among(cand, json_integer_value(json_array_get(ids, j)), &at);

        assert_true(found || number_at(logits, j) - number_at(logits, N_CANDIDATES - 1) <= 0.5);
        if (!found)
            continue;
        assert_true(fabs((double)cand[at].logit - number_at(logits, j)) <= 0.4);
        assert_true(fabs((double)scores[at] - number_at(scored, j)) <= 0.4);
    }
}

static void test_dflash2(void **state)
{
    size_t compared = 0;

    (void)state;
    for (size_t i = 0; i < N_PROMPTS; i++) {
        const prompt *q = &prompts[i];
        json_t *wanted = json_object_get(q->entry, "dflash2"), *rows = json_object_get(wanted, "candidates");
        int32_t anchor = (int32_t)json_integer_value(json_object_get(wanted, "anchor")), drafts[N_DRAFTS];
        rf_candidate cand[N_DRAFTS * N_CANDIDATES];
        float scores[N_DRAFTS * N_CANDIDATES];

        begin(q, NULL);
        pair_draft_dflash(&p, 0, (int64_t)q->n_ids, anchor, N_DRAFTS, drafts, cand, scores, N_CANDIDATES);
        for (size_t j = 0; j < N_DRAFTS; j++, compared++) {
            json_t *row = json_array_get(rows, j);

            if (gap_of_two_best(json_object_get(row, "scores")) < 0.4)
                break;
            check_row(row, cand + j * N_CANDIDATES, scores + j * N_CANDIDATES);
            assert_int_equal(drafts[j], json_integer_value(json_array_get(json_object_get(wanted, "draft"), j)));
        }
    }
    print_message("%zu rows compared\n", compared);
    assert_true(compared > 30);
}

static void test_mtp(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_PROMPTS; i++) {
        const prompt *q = &prompts[i];
        json_t *draft = json_object_get(json_object_get(q->entry, "mtp"), "draft");
        int32_t drafts[N_MTP];

        begin(q, NULL);
        pair_draft_mtp(&p, 0, (int64_t)q->n_ids, q->text[q->n_ids], N_MTP, true, drafts);
        assert_int_equal(json_array_size(draft), N_MTP);
        for (size_t j = 0; j < N_MTP; j++)
            assert_int_equal(drafts[j], json_integer_value(json_array_get(draft, j)));
    }
}

/* ---- acceptance along the reference's own text */

/* The reference does not count a drafted end of generation as accepted. */
static size_t leading_equal(const int32_t *drafts, size_t n, const prompt *q, size_t at)
{
    size_t k = 0;

    while (k < n && at + k < q->n_greedy && drafts[k] == q->text[q->n_ids + at + k] && drafts[k] != END_OF_TURN)
        k++;
    return k;
}

/* One prompt: at the start of every golden round, draft; count what the text confirms; go on as the reference did. */
static void along_text(const prompt *q, bool mtp, size_t *rounds, size_t *accepted)
{
    json_t *golden_rounds = json_object_get(json_object_get(q->entry, mtp ? "mtp" : "dflash2"), "accepted_per_round");

    begin(q, NULL);
    for (size_t r = 0, at = 1; r < json_array_size(golden_rounds); r++, ++*rounds) {
        size_t k = (size_t)json_integer_value(json_array_get(golden_rounds, r)), n = q->n_ids + at - 1;
        int32_t drafts[N_DRAFTS];

        if (mtp)
            pair_draft_mtp(&p, 0, (int64_t)n, q->text[n], N_MTP, r == 0, drafts);
        else
            pair_draft_dflash(&p, 0, (int64_t)n, q->text[n], N_DRAFTS, drafts, NULL, NULL, N_CANDIDATES);
        *accepted += leading_equal(drafts, mtp ? N_MTP : N_DRAFTS, q, at);
        if (at + k >= q->n_greedy)
            continue;
        pair_verify(&p, 0, (int64_t)n, q->text + n, k + 1, NULL);
        pair_commit(&p, 0, (int64_t)n, k, q->text + n + 1);
        at += k + 1;
    }
}

static void check_acceptance(bool mtp, size_t golden_rounds, size_t golden_accepted)
{
    size_t rounds = 0, accepted = 0;

    for (size_t i = 0; i < N_PROMPTS; i++)
        along_text(&prompts[i], mtp, &rounds, &accepted);
    print_message("%zu accepted in %zu rounds, the reference %zu\n", accepted, rounds, golden_accepted);
    assert_int_equal(rounds, golden_rounds);
    assert_true(fabs((double)accepted / (double)golden_accepted - 1) <= 0.05);
}

static void test_acceptance_dflash2(void **state)
{
    (void)state;
    check_acceptance(false, 128, 140);
}

static void test_acceptance_mtp(void **state)
{
    (void)state;
    check_acceptance(true, 120, 149);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),  cmocka_unit_test(test_logits), cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_dflash2), cmocka_unit_test(test_mtp),    cmocka_unit_test(test_acceptance_dflash2),
        cmocka_unit_test(test_acceptance_mtp),
    };

    return cmocka_run_group_tests_name("golden", tests, load, unload);
}
