/* The `micro` pairs (F32, awkward shapes, every norm perturbed, taps out of order, a window shorter than the context)
 * against values of an independent reference: logits of the target, drafts and candidates of DFlash2 and DFlash, drafts
 * of the MTP head. */
#include "pair.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_IDS = 24, N_VOCAB = 384 };

#define TARGET "micro/micro-F32.gguf"
#define DFLASH2 "micro/micro-DFlash2-F32.gguf"
#define DFLASH1 "micro/micro-DFlash1-F32.gguf"

static json_t *golden;
static int32_t ids[N_IDS];
static float logits[N_IDS][N_VOCAB];

static int load(void **state)
{
    json_error_t where;
    json_t *list;
    FILE *f;

    (void)state;
    golden = json_load_file(RF_TEST_DATA "/micro/micro.json", 0, &where);
    f = fopen(RF_TEST_DATA "/micro/micro-logits.f32", "rb");
    if (!golden || !f || fread(logits, sizeof logits, 1, f) != 1)
        return -1;
    fclose(f);
    list = json_object_get(golden, "ids");
    if (json_array_size(list) != N_IDS)
        return -1;
    for (size_t i = 0; i < N_IDS; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return 0;
}

static int unload(void **state)
{
    (void)state;
    json_decref(golden);
    return 0;
}

static pair_spec spec_of(const char *drafter, bool with_mtp, uint32_t type_kv)
{
    return (pair_spec){TARGET, drafter, with_mtp, type_kv, 1, 256, 64};
}

/* ||ours - reference|| / ||reference|| */
static double distance(const float *ours, const float *reference, size_t n)
{
    double difference = 0, norm = 0;

    for (size_t i = 0; i < n; i++) {
        difference += pow((double)ours[i] - (double)reference[i], 2);
        norm += pow((double)reference[i], 2);
    }
    return sqrt(difference / norm);
}

static void check_logits(uint32_t type_kv, double most)
{
    pair_spec spec = spec_of(NULL, false, type_kv);
    static float ours[N_IDS][N_VOCAB];
    double worst = 0;
    pair p;

    pair_open(&p, &spec);
    pair_prefill(&p, 0, 0, ids, N_IDS, 8, ours[0]);
    pair_close(&p);
    for (size_t i = 0; i < N_IDS; i++)
        worst = fmax(worst, distance(ours[i], logits[i], N_VOCAB));
    print_message("worst relative distance %.2e\n", worst);
    assert_true(worst <= most);
}

static void test_logits_f32(void **state)
{
    (void)state;
    check_logits(RF_TYPE_F32, 1e-4);
}

static void test_logits_f16(void **state)
{
    (void)state;
    check_logits(RF_TYPE_F16, 1e-3);
}

/* First values of the residual stream after every block, at every position. */
static void test_layers(void **state)
{
    json_t *layers = json_object_get(golden, "layers_first8_by_position");
    pair_spec spec = spec_of(NULL, false, RF_TYPE_F32);
    pair p;

    (void)state;
    pair_open(&p, &spec);
    rf_qwen35_trace(p.target, true);
    pair_prefill(&p, 0, 0, ids, N_IDS, N_IDS, NULL);
    assert_int_equal(json_array_size(layers), p.target_params.n_layer);
    for (size_t layer = 0; layer < p.target_params.n_layer; layer++)
        for (size_t i = 0; i < N_IDS; i++) {
            json_t *row = json_array_get(json_array_get(layers, layer), i);
            const float *ours = rf_qwen35_trace_rows(p.target, layer, i);

            for (size_t j = 0; j < 8; j++)
                assert_true(fabs((double)ours[j] - json_number_value(json_array_get(row, j))) < 1e-4);
        }
    pair_close(&p);
}

/* ---- drafts */

static size_t size_at(json_t *entry, const char *key)
{
    return (size_t)json_integer_value(json_object_get(entry, key));
}

/* The drafter's logits of all candidates, and (DFlash2) their scores. */
static void check_candidates(json_t *row, const rf_candidate *cand, const float *scores, size_t k)
{
    json_t *wanted = json_object_get(row, "ids"), *values = json_object_get(row, "logits");
    json_t *scored = json_object_get(row, "scores");

    assert_int_equal(json_array_size(wanted), k);
    for (size_t j = 0; j < k; j++) {
        assert_int_equal(cand[j].id, json_integer_value(json_array_get(wanted, j)));
        assert_true(fabs((double)cand[j].logit - json_number_value(json_array_get(values, j))) < 2e-3);
        if (scored)
            assert_true(fabs((double)scores[j] - json_number_value(json_array_get(scored, j))) < 2e-3);
    }
}

static void check_draft(pair *p, json_t *entry)
{
    size_t n = size_at(entry, "processed"), m = size_at(entry, "n"), k = 5;
    json_t *draft = json_object_get(entry, "draft"), *rows = json_object_get(entry, "candidates");
    int32_t drafts[RF_MAX_BLOCK];
    rf_candidate cand[RF_MAX_BLOCK * 5];
    float scores[RF_MAX_BLOCK * 5];

    rf_qwen35_reset(p->target, 0);
    rf_dflash_reset(p->drafter, 0);
    pair_prefill(p, 0, 0, ids, n, 5, NULL);
    pair_draft_dflash(p, 0, (int64_t)n, (int32_t)size_at(entry, "anchor"), m, drafts, cand, scores, k);
    for (size_t i = 0; i < m; i++) {
        check_candidates(json_array_get(rows, i), cand + i * k, scores + i * k, k);
        assert_int_equal(drafts[i], json_integer_value(json_array_get(draft, i)));
    }
}

static void check_drafts(const char *drafter, const char *key, size_t count)
{
    json_t *entries = json_object_get(golden, key);
    pair_spec spec = spec_of(drafter, false, RF_TYPE_F32);
    pair p;

    assert_int_equal(json_array_size(entries), count);
    pair_open(&p, &spec);
    for (size_t i = 0; i < count; i++)
        check_draft(&p, json_array_get(entries, i));
    pair_close(&p);
}

static void test_dflash2(void **state)
{
    (void)state;
    check_drafts(DFLASH2, "drafts", 18);
}

static void test_dflash1(void **state)
{
    (void)state;
    check_drafts(DFLASH1, "drafts_v1", 6);
}

static void test_mtp(void **state)
{
    json_t *entries = json_object_get(golden, "mtp");
    pair_spec spec = spec_of(NULL, true, RF_TYPE_F32);
    pair p;

    (void)state;
    assert_int_equal(json_array_size(entries), 6);
    pair_open(&p, &spec);
    for (size_t i = 0; i < 6; i++) {
        json_t *entry = json_array_get(entries, i), *draft = json_object_get(entry, "draft");
        size_t n = size_at(entry, "processed"), m = json_array_size(draft);
        int32_t drafts[RF_MAX_BLOCK];

        rf_qwen35_reset(p.target, 0);
        pair_prefill(&p, 0, 0, ids, n, 5, NULL);
        pair_draft_mtp(&p, 0, (int64_t)n, (int32_t)size_at(entry, "anchor"), m, true, drafts);
        for (size_t j = 0; j < m; j++)
            assert_int_equal(drafts[j], json_integer_value(json_array_get(draft, j)));
    }
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_f32), cmocka_unit_test(test_logits_f16), cmocka_unit_test(test_layers),
        cmocka_unit_test(test_dflash2),    cmocka_unit_test(test_dflash1),    cmocka_unit_test(test_mtp),
    };

    return cmocka_run_group_tests_name("micro", tests, load, unload);
}
