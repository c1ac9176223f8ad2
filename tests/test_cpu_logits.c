/* Logits: best candidates, coupled argmax, masses, hashes; and the counter-based generator. */
#include "devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gumbel.h"
#include "half.h"
#include "hash.h"

#define MAX_ROWS 5

typedef struct {
    size_t n_rows, n_cols, k;
    int32_t first_id;
    const float *logits;
    float max[MAX_ROWS];
    rf_gumbel_row draw[MAX_ROWS];
    float scale, cap;
} job;

static void run_top_k(const device *d, const void *input, void *out)
{
    const job *j = input;
    rf_buf *l = buffer_of(d, j->logits, j->n_rows * j->n_cols * 4),
           *y = zero_buffer(d, j->n_rows * j->k * sizeof(rf_candidate));

    d->ops->top_k(d->b, j->n_rows, j->n_cols, (rf_mat){l, 0, j->n_cols}, j->first_id, j->k, y);
    read_buffer(d, y, out, j->n_rows * j->k * sizeof(rf_candidate));
    d->ops->buf_destroy(l);
    d->ops->buf_destroy(y);
}

static void run_rest(const device *d, const void *input, void *out)
{
    const job *j = input;
    unsigned char *to = out;
    rf_buf *l = buffer_of(d, j->logits, j->n_rows * j->n_cols * 4), *max = buffer_of(d, j->max, j->n_rows * 4);
    rf_buf *rows = buffer_of(d, j->draw, j->n_rows * sizeof *j->draw),
           *y = zero_buffer(d, j->n_rows * sizeof(rf_gumbel_best));
    rf_mat logits = {l, 0, j->n_cols};

    d->ops->log_mass(d->b, j->n_rows, j->n_cols, logits, max, y);
    read_buffer(d, y, to, j->n_rows * 8);
    to += j->n_rows * 8;
    d->ops->row_hash(d->b, j->n_rows, j->n_cols, logits, j->first_id, y);
    read_buffer(d, y, to, j->n_rows * 8);
    to += j->n_rows * 8;
    d->ops->gumbel_argmax(d->b, j->n_rows, j->n_cols, logits, j->first_id, rows, y);
    read_buffer(d, y, to, j->n_rows * sizeof(rf_gumbel_best));
    d->ops->buf_destroy(l);
    d->ops->buf_destroy(max);
    d->ops->buf_destroy(rows);
    d->ops->buf_destroy(y);
}

static float ordered(float l)
{
    return isnan(l) ? -INFINITY : l;
}

static int by_rank(const void *a, const void *b)
{
    const rf_candidate *x = a, *y = b;

    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* many ties, some NaN and infinities */
static float *coarse_logits(size_t n, uint64_t seed)
{
    float *l = random_floats(n, seed, 12);

    for (size_t i = 0; i < n; i++) {
        l[i] = i % 3 ? rintf(l[i]) : l[i];
        if (i % 29 == 4)
            l[i] = NAN;
        if (i % 31 == 8)
            l[i] = -INFINITY;
    }
    return l;
}

static void check_top_k(size_t n_rows, size_t n_cols, size_t k)
{
    job j = {.n_rows = n_rows, .n_cols = n_cols, .k = k, .first_id = 640};
    float *l = coarse_logits(n_rows * n_cols, n_cols + k);
    rf_candidate *got = malloc(n_rows * k * sizeof *got), *all = malloc(n_cols * sizeof *all);

    assert_non_null(got);
    assert_non_null(all);
    j.logits = l;
    run_everywhere(run_top_k, &j, got, n_rows * k * sizeof *got, false);
    for (size_t r = 0; r < n_rows; r++) {
        for (size_t i = 0; i < n_cols; i++)
            all[i] = (rf_candidate){ordered(l[r * n_cols + i]), 640 + (int32_t)i};
        qsort(all, n_cols, sizeof *all, by_rank);
        for (size_t i = 0; i < k; i++) {
            assert_int_equal(got[r * k + i].id, i < n_cols ? all[i].id : -1);
            assert_true(got[r * k + i].logit == (i < n_cols ? all[i].logit : -INFINITY));
        }
    }
    free(l);
    free(got);
    free(all);
}

static void top_k_is_a_sort(void **state)
{
    static const size_t cols[] = {1, 5, 16, 63, 64, 257, 4096}, ks[] = {1, 2, 10, 16, 256};

    (void)state;
    for (size_t c = 0; c < 7; c++)
        for (size_t k = 0; k < 5; k++)
            check_top_k(1 + c % MAX_ROWS, cols[c], ks[k]);
    check_top_k(1, 9000, 9000);
}

static void top_k_of_nothing_but_nan(void **state)
{
    float l[70];
    job j = {.n_rows = 1, .n_cols = 70, .k = 3, .logits = l};
    rf_candidate got[3];

    (void)state;
    for (size_t i = 0; i < 70; i++)
        l[i] = i == 66 ? -INFINITY : NAN;
    run_everywhere(run_top_k, &j, got, sizeof got, false);
    for (int32_t i = 0; i < 3; i++)
        assert_true(got[i].id == i && got[i].logit == -INFINITY);
}

/* ---- draws, masses, hashes */

static rf_gumbel_best draw(const float *l, size_t n, int32_t first_id, const rf_gumbel_row *row)
{
    rf_gumbel_best best = {-INFINITY, -INFINITY, -1};

    for (size_t i = 0; i < n; i++) {
        int32_t id = first_id + (int32_t)i;
        double score = (double)ordered(l[i]) / row->temperature + rf_gumbel(row->seed, row->position, id);

        if (score > best.score)
            best = (rf_gumbel_best){score, l[i], id};
    }
    return best;
}

static void check_rest(size_t n_rows, size_t n_cols, double temperature)
{
    job j = {.n_rows = n_rows, .n_cols = n_cols, .first_id = 64};
    float *l = coarse_logits(n_rows * n_cols, n_cols);
    unsigned char got[MAX_ROWS * (16 + sizeof(rf_gumbel_best))];

    for (size_t r = 0; r < n_rows; r++) {
        j.max[r] = -INFINITY;
        for (size_t i = 0; i < n_cols; i++)
            j.max[r] = ordered(l[r * n_cols + i]) > j.max[r] ? l[r * n_cols + i] : j.max[r];
        j.draw[r] = (rf_gumbel_row){UINT64_C(0x123456789abcdef0) + r, ((int64_t)1 << 33) + (int64_t)r, temperature};
    }
    j.logits = l;
    run_everywhere(run_rest, &j, got, n_rows * (16 + sizeof(rf_gumbel_best)), false);
    for (size_t r = 0; r < n_rows; r++) {
        const float *row = l + r * n_cols;
        uint64_t mass = 0, hash = 0, m, h;
        rf_gumbel_best want = draw(row, n_cols, 64, &j.draw[r]), best;

        for (size_t i = 0; i < n_cols; i++) {
            mass += (uint64_t)floor(exp((double)ordered(row[i]) - (double)j.max[r]) * 0x1p40);
            hash += rf_hash_mix(64 + (int32_t)i, rf_f32_to_bits(row[i]));
        }
        memcpy(&m, got + r * 8, 8);
        memcpy(&h, got + (n_rows + r) * 8, 8);
        memcpy(&best, got + n_rows * 16 + r * sizeof best, sizeof best);
        assert_int_equal(m, mass);
        assert_int_equal(h, hash);
        assert_int_equal(best.id, want.id);
        assert_true(best.score == want.score && best.logit == want.logit);
    }
    free(l);
}

static void draws_masses_and_hashes(void **state)
{
    (void)state;
    for (size_t rows = 1; rows <= MAX_ROWS; rows += 2) {
        check_rest(rows, 17, 1);
        check_rest(rows, 64, 0.7);
        check_rest(rows, 9001, 1.5);
        check_rest(rows, 9001, 40);
        check_rest(rows, 9001, 0.01);
    }
}

static void masses_of_far_logits_are_exact(void **state)
{
    enum { N = 200 };
    float l[N];
    job j = {.n_rows = 1, .n_cols = N, .logits = l, .max = {3}, .draw = {{1, 2, 1}}};
    unsigned char got[16 + sizeof(rf_gumbel_best)];
    uint64_t mass = 0, m;

    (void)state;
    for (size_t i = 0; i < N; i++) { /* around 40 ln 2 below the largest, where a mass becomes 0 */
        l[i] = 3 - 27.6f - 0.002f * (float)i;
        mass += (uint64_t)floor(exp((double)l[i] - 3) * 0x1p40);
    }
    run_everywhere(run_rest, &j, got, sizeof got, false);
    memcpy(&m, got, 8);
    assert_true(mass > 0 && mass < N);
    assert_int_equal(m, mass);
}

static void a_draw_from_nothing_has_no_token(void **state)
{
    float l[20];
    job j = {.n_rows = 1, .n_cols = 20, .logits = l, .draw = {{1, 2, 0.5}}};
    unsigned char got[16 + sizeof(rf_gumbel_best)];
    rf_gumbel_best best;

    (void)state;
    for (size_t i = 0; i < 20; i++)
        l[i] = i % 2 ? NAN : -INFINITY;
    run_everywhere(run_rest, &j, got, sizeof got, false);
    memcpy(&best, got + 16, sizeof best);
    assert_int_equal(best.id, -1);
    assert_true(best.score == -INFINITY);
}

/* ---- scaling */

static void run_scale(const device *d, const void *input, void *out)
{
    const job *j = input;
    rf_buf *l = buffer_of(d, j->logits, j->n_rows * j->n_cols * 4);

    d->ops->logit_scale(d->b, j->n_rows, j->n_cols, j->scale, j->cap, (rf_mat){l, 0, j->n_cols});
    read_buffer(d, l, out, j->n_rows * j->n_cols * 4);
    d->ops->buf_destroy(l);
}

static void scale_then_cap(void **state)
{
    float *l = random_floats(3 * 77, 9, 100), got[3 * 77];

    (void)state;
    for (int c = 0; c < 4; c++) {
        job j = {.n_rows = 3, .n_cols = 77, .logits = l, .scale = c & 1 ? 0.37f : 1, .cap = c & 2 ? 30.0f : 0};

        run_everywhere(run_scale, &j, got, sizeof got, false);
        for (size_t i = 0; i < 3 * 77; i++) {
            float want = c & 1 ? l[i] * 0.37f : l[i];

            want = c & 2 ? 30.0f * tanhf(want / 30.0f) : want;
            assert_same_bits(&got[i], &want, 1, "scaled");
        }
    }
    free(l);
}

/* ---- the generator: vectors of the Random123 distribution (kat_vectors, philox4x32 10) */

static void philox_known_answers(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        uint32_t out[4];

        rf_philox4x32_10(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static void gumbel_is_made_from_the_first_word(void **state)
{
    uint64_t seed = UINT64_C(0xfedcba9876543210);
    int64_t position = (int64_t)7 << 32 | 5;
    uint32_t counter[4] = {123456, 5, 7, 0}, key[2] = {0x76543210, 0xfedcba98}, out[4];
    double sum = 0, g;

    (void)state;
    rf_philox4x32_10(counter, key, out);
    g = -log(-log(((double)out[0] + 0.5) / 4294967296.0));
    assert_true(rf_gumbel(seed, position, 123456) == g);
    for (int32_t i = 0; i < 100000; i++)
        sum += rf_gumbel(1, 2, i);
    assert_true(fabs(sum / 100000 - 0.57721566) < 0.02); /* the mean is Euler's constant; 5 sigma */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_k_is_a_sort),
        cmocka_unit_test(top_k_of_nothing_but_nan),
        cmocka_unit_test(draws_masses_and_hashes),
        cmocka_unit_test(masses_of_far_logits_are_exact),
        cmocka_unit_test(a_draw_from_nothing_has_no_token),
        cmocka_unit_test(scale_then_cap),
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(gumbel_is_made_from_the_first_word),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
