/* Key-value caches and attention: numbers against double, bits across levels, batches, chunks and rings. */
#include "devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "half.h"

typedef struct {
    rf_kv_spec kv;
    rf_attention_spec spec;
    const rf_batch_seq *seqs; /* the rows that ask */
    size_t n_seqs, n_rows;
    size_t n_past;            /* positions 0 .. n_past - 1 of every slot are stored first */
    bool block;               /* attention_block */
    const float *past_k, *past_v; /* [n_slots][n_past][n_kv * D] */
    const float *q, *k, *v;   /* [n_rows][...] */
} job;

static size_t kv_width(const job *j)
{
    return j->kv.n_heads * j->kv.head_dim;
}

static size_t q_width(const job *j)
{
    return j->spec.n_heads * j->spec.head_stride;
}

static size_t out_width(const job *j)
{
    return j->spec.n_heads * j->spec.head_dim;
}

static void store_past(const device *d, const job *j, rf_kv *kv, size_t chunk)
{
    size_t width = kv_width(j);

    for (size_t slot = 0; slot < j->kv.n_slots; slot++)
        for (size_t at = 0; at < j->n_past; at += chunk) {
            size_t n = j->n_past - at < chunk ? j->n_past - at : chunk, from = (slot * j->n_past + at) * width;
            rf_batch *batch = batch_of(d, &(rf_batch_seq){(int32_t)slot, (int32_t)n, (int64_t)at, 0, 0}, 1, NULL);
            rf_buf *k = buffer_of(d, j->past_k + from, n * width * 4),
                   *v = buffer_of(d, j->past_v + from, n * width * 4);

            d->ops->kv_store(d->b, batch, kv, (rf_mat){k, 0, width}, (rf_mat){v, 0, width});
            d->ops->buf_destroy(k);
            d->ops->buf_destroy(v);
            d->ops->batch_destroy(batch);
        }
}

static void run(const device *d, const void *input, void *out)
{
    const job *j = input;
    size_t width = kv_width(j);
    rf_error err = {0};
    rf_kv *kv = d->ops->kv_create(d->b, &j->kv, &err);
    rf_batch *batch = batch_of(d, j->seqs, j->n_seqs, NULL);
    rf_buf *qb = buffer_of(d, j->q, j->n_rows * q_width(j) * 4), *kb = buffer_of(d, j->k, j->n_rows * width * 4);
    rf_buf *vb = buffer_of(d, j->v, j->n_rows * width * 4), *ob = zero_buffer(d, j->n_rows * (out_width(j) + 1) * 4);
    rf_mat q = {qb, 0, q_width(j)}, k = {kb, 0, width}, v = {vb, 0, width}, o = {ob, 0, out_width(j) + 1};

    assert_non_null(kv);
    store_past(d, j, kv, 300);
    if (j->block) {
        d->ops->attention_block(d->b, batch, kv, &j->spec, q, k, v, o);
    } else {
        d->ops->kv_store(d->b, batch, kv, k, v);
        d->ops->attention(d->b, batch, kv, &j->spec, q, o);
    }
    read_buffer(d, ob, out, j->n_rows * (out_width(j) + 1) * 4);
    d->ops->buf_destroy(qb);
    d->ops->buf_destroy(kb);
    d->ops->buf_destroy(vb);
    d->ops->buf_destroy(ob);
    d->ops->batch_destroy(batch);
    d->ops->kv_destroy(kv);
}

/* ---- the same in double */

static double cached(const float *x, uint32_t type)
{
    return (double)(type == RF_TYPE_F16 ? rf_f16_to_f32(rf_f32_to_f16(*x)) : *x);
}

/* Row of past or of the batch at a position of a sequence that starts at row `first`; NULL: neither. */
static const float *row_at(const job *j, const rf_batch_seq *s, size_t first, int64_t position, const float *past,
                           const float *rows)
{
    if (position >= s->first_pos)
        return rows + (first + (size_t)(position - s->first_pos)) * kv_width(j);
    return past + ((size_t)s->slot * j->n_past + (size_t)position) * kv_width(j);
}

static bool sees(const job *j, const rf_batch_seq *s, int64_t row, int64_t at)
{
    if (at >= s->first_pos && j->block)
        return true;
    return at <= row && at >= (int64_t)j->spec.first_pos && (!j->spec.window || row - at < (int64_t)j->spec.window);
}

static void attend(const job *j, const rf_batch_seq *s, size_t first, size_t r, size_t h, double *out)
{
    size_t d = j->spec.head_dim, head = (j->spec.first_head + h) / j->spec.heads_per_kv - j->spec.first_kv;
    const float *q = j->q + (first + r) * q_width(j) + h * j->spec.head_stride;
    int64_t row = s->first_pos + (int64_t)r, end = s->first_pos + s->n_rows;
    double sum = 0, largest = -INFINITY;

    memset(out, 0, d * sizeof *out);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t at = 0; at < end; at++) {
            const float *k = row_at(j, s, first, at, j->past_k, j->k) + head * d,
                        *v = row_at(j, s, first, at, j->past_v, j->v) + head * d;
            double score = 0, p;

            if (!sees(j, s, row, at))
                continue;
            for (size_t i = 0; i < d; i++)
                score += (double)q[i] * cached(&k[i], j->kv.type_k);
            score /= sqrt((double)d);
            if (pass == 0) {
                largest = score > largest ? score : largest;
                continue;
            }
            p = exp(score - largest);
            sum += p;
            for (size_t i = 0; i < d; i++)
                out[i] += p * cached(&v[i], j->kv.type_v);
        }
    for (size_t i = 0; i < d && sum > 0; i++)
        out[i] /= sum;
}

static void compare(const job *j, const float *got)
{
    size_t d = j->spec.head_dim, first = 0;
    double *want = malloc(d * sizeof *want);

    assert_non_null(want);
    for (size_t s = 0; s < j->n_seqs; first += (size_t)j->seqs[s].n_rows, s++)
        for (size_t r = 0; r < (size_t)j->seqs[s].n_rows; r++) {
            const float *row = got + (first + r) * (out_width(j) + 1);

            for (size_t h = 0; h < j->spec.n_heads; h++) {
                attend(j, &j->seqs[s], first, r, h, want);
                assert_near(row + h * d, want, d, 3e-6);
            }
            assert_true(row[out_width(j)] == 0); /* nothing behind the row is written */
        }
    free(want);
}

static void fill(job *j, uint64_t seed)
{
    size_t past = j->kv.n_slots * j->n_past * kv_width(j);

    j->n_rows = 0;
    for (size_t s = 0; s < j->n_seqs; s++)
        j->n_rows += (size_t)j->seqs[s].n_rows;
    j->past_k = random_floats(past, seed, 2);
    j->past_v = random_floats(past, seed + 1, 2);
    j->q = random_floats(j->n_rows * q_width(j), seed + 2, 3);
    j->k = random_floats(j->n_rows * kv_width(j), seed + 3, 2);
    j->v = random_floats(j->n_rows * kv_width(j), seed + 4, 2);
}

static void release(job *j)
{
    free((void *)(uintptr_t)j->past_k);
    free((void *)(uintptr_t)j->past_v);
    free((void *)(uintptr_t)j->q);
    free((void *)(uintptr_t)j->k);
    free((void *)(uintptr_t)j->v);
}

static float *result(const job *j)
{
    float *got = calloc(j->n_rows * (out_width(j) + 1), sizeof *got);

    assert_non_null(got);
    run_everywhere(run, j, got, j->n_rows * (out_width(j) + 1) * sizeof *got, false);
    return got;
}

static void check(job j, uint64_t seed)
{
    float *got;

    fill(&j, seed);
    got = result(&j);
    compare(&j, got);
    free(got);
    release(&j);
}

static const rf_batch_seq ragged[] = {{1, 3, 511, 0, 0}, {0, 1, 256, 0, 0}, {2, 16, 500, 0, 0}, {3, 2, 0, 0, 0}};

static job shape(size_t head_dim, uint32_t type_k, uint32_t type_v, bool block)
{
    return (job){.kv = {4, 600, 2, head_dim, type_k, type_v, false},
                 .spec = {.n_heads = 6, .head_dim = head_dim, .head_stride = head_dim, .heads_per_kv = 3},
                 .seqs = ragged, .n_seqs = 4, .n_past = 511, .block = block};
}

static void every_head_width_and_type(void **state)
{
    static const size_t dims[] = {16, 32, 24, 64, 40, 128, 256};

    (void)state;
    for (size_t i = 0; i < 7; i++)
        for (int block = 0; block < 2; block++)
            check(shape(dims[i], i % 2 ? RF_TYPE_F16 : RF_TYPE_F32, i % 3 ? RF_TYPE_F16 : RF_TYPE_F32, block), i);
}

static void heads_of_a_shard(void **state)
{
    (void)state;
    for (int block = 0; block < 2; block++) {
        job j = shape(32, RF_TYPE_F16, RF_TYPE_F16, block);

        j.spec.n_heads = 4; /* global query heads 5..8 of 3 a KV head: KV heads 1 and 2 */
        j.spec.first_head = 5;
        j.spec.first_kv = 1;
        j.spec.head_stride = 64;
        check(j, 20);
        j.spec.n_heads = 1;
        check(j, 21);
        j.spec.n_heads = 4;
        j.seqs = &ragged[2]; /* few tasks: threads divide the spans */
        j.n_seqs = 1;
        check(j, 22);
    }
}

static void windows_and_late_starts(void **state)
{
    static const size_t windows[] = {1, 2, 16, 255, 256, 257, 300}, starts[] = {0, 1, 255, 505};

    (void)state;
    for (size_t w = 0; w < 7; w++)
        for (size_t s = w % 2; s < 4; s += 2) {
            job j = shape(16, RF_TYPE_F16, RF_TYPE_F16, (w / 2 + s / 2) % 2);

            j.spec.window = windows[w];
            j.spec.first_pos = starts[s];
            check(j, 30 + w);
        }
}

static void a_row_that_sees_nothing_is_zero(void **state)
{
    static const rf_batch_seq one = {0, 1, 0, 0, 0};
    job j = shape(32, RF_TYPE_F32, RF_TYPE_F32, false);
    float *got;

    (void)state;
    j.seqs = &one;
    j.n_seqs = 1;
    j.spec.first_pos = 1;
    fill(&j, 3);
    got = result(&j);
    for (size_t i = 0; i < out_width(&j); i++)
        assert_true(got[i] == 0 && !signbit(got[i]));
    free(got);
    release(&j);
}

/* ---- bits */

static void a_row_does_not_know_its_neighbours(void **state)
{
    (void)state;
    for (int block = 0; block < 2; block++) {
        job j = shape(64, RF_TYPE_F16, RF_TYPE_F16, block), one;
        size_t first = 0;
        float *together;

        fill(&j, 40);
        together = result(&j);
        for (size_t s = 0; s < j.n_seqs; s++) {
            float *alone;

            one = j;
            one.seqs = &j.seqs[s];
            one.n_seqs = 1;
            one.n_rows = (size_t)j.seqs[s].n_rows;
            one.q = j.q + first * q_width(&j);
            one.k = j.k + first * kv_width(&j);
            one.v = j.v + first * kv_width(&j);
            alone = result(&one);
            assert_same_bits(alone, together + first * (out_width(&j) + 1), one.n_rows * (out_width(&j) + 1),
                             "a sequence alone");
            free(alone);
            first += one.n_rows;
        }
        free(together);
        release(&j);
    }
}

/* rows [0, n) of one sequence, stored and asked in chunks */
static void in_chunks(const device *d, const job *j, size_t n, size_t chunk, float *out)
{
    rf_error err = {0};
    rf_kv *kv = d->ops->kv_create(d->b, &j->kv, &err);
    rf_buf *q = buffer_of(d, j->q, n * q_width(j) * 4), *k = buffer_of(d, j->k, n * kv_width(j) * 4);
    rf_buf *v = buffer_of(d, j->v, n * kv_width(j) * 4), *o = zero_buffer(d, n * out_width(j) * 4);

    assert_non_null(kv);
    for (size_t at = 0; at < n; at += chunk) {
        rf_batch_seq seq = {1, (int32_t)(n - at < chunk ? n - at : chunk), (int64_t)at, 0, 0};
        rf_batch *batch = batch_of(d, &seq, 1, NULL);

        d->ops->kv_store(d->b, batch, kv, (rf_mat){k, at * kv_width(j), kv_width(j)},
                         (rf_mat){v, at * kv_width(j), kv_width(j)});
        d->ops->attention(d->b, batch, kv, &j->spec, (rf_mat){q, at * q_width(j), q_width(j)},
                          (rf_mat){o, at * out_width(j), out_width(j)});
        d->ops->batch_destroy(batch);
    }
    read_buffer(d, o, out, n * out_width(j) * 4);
    d->ops->buf_destroy(q);
    d->ops->buf_destroy(k);
    d->ops->buf_destroy(v);
    d->ops->buf_destroy(o);
    d->ops->kv_destroy(kv);
}

static void chunks_and_rings_give_the_same_bits(void **state)
{
    const size_t N = slow_devices ? 560 : 1400;
    const rf_batch_seq all = {1, (int32_t)N, 0, 0, 0};
    static const size_t chunks[] = {1, 7, 96, 256, 300};
    device d = device_open("auto", 2);

    (void)state;
    for (int ring = 0; ring < 2; ring++) {
        job j = shape(32, RF_TYPE_F16, RF_TYPE_F32, false);
        float *want, *got;

        j.kv.n_positions = N;
        j.kv.n_slots = 2;
        j.seqs = &all;
        j.n_seqs = 1;
        j.n_past = 0;
        j.spec.window = ring ? 200 : 0;
        fill(&j, 50);
        want = malloc(N * out_width(&j) * sizeof *want);
        got = malloc(N * out_width(&j) * sizeof *got);
        in_chunks(&d, &j, N, N, want);
        if (ring) { /* the window and a chunk fit */
            j.kv.ring = true;
            j.kv.n_positions = 500;
        }
        for (size_t c = slow_devices; c < 5; c++) {
            in_chunks(&d, &j, N, chunks[c], got);
            assert_same_bits(got, want, N * out_width(&j), ring ? "a ring" : "chunks");
        }
        free(want);
        free(got);
        release(&j);
    }
    device_close(&d);
}

/* The order of sums for one head of 16 and up to 256 positions, by hand, with scores of 0: p = 1 everywhere. */
static void sums_have_the_written_order(void **state)
{
    enum { D = 16, N = 300 };
    static const rf_batch_seq last = {0, 1, N - 1, 0, 0};
    job j = {.kv = {1, N, 1, D, RF_TYPE_F32, RF_TYPE_F32, false},
             .spec = {.n_heads = 1, .head_dim = D, .head_stride = D, .heads_per_kv = 1},
             .seqs = &last,
             .n_seqs = 1,
             .n_past = N - 1};
    float *got, want[D];

    (void)state;
    fill(&j, 60);
    memset((void *)(uintptr_t)j.q, 0, D * sizeof *j.q);
    got = result(&j);
    for (size_t i = 0; i < D; i++) {
        float span[2] = {0, 0};

        for (size_t at = 0; at < N; at++)
            span[at / 256] += at < N - 1 ? j.past_v[at * D + i] : j.v[i];
        want[i] = fmaf(span[1], 1, fmaf(span[0], 1, 0)) / 300.0f;
    }
    assert_ordered(got, want, D, "o");
    free(got);
    release(&j);
}

/* ---- export and import */

static void exported_positions_come_back(void **state)
{
    enum { D = 32, FIRST = 250, N = 20 };
    device d = device_open("auto", 1);
    job j = shape(D, RF_TYPE_F16, RF_TYPE_F32, false);
    rf_error err = {0};
    rf_kv *a = d.ops->kv_create(d.b, &j.kv, &err), *b = d.ops->kv_create(d.b, &j.kv, &err);
    uint16_t keys[N * D], keys_again[N * D];
    float values[N * D], values_again[N * D];

    (void)state;
    assert_non_null(a);
    assert_non_null(b);
    fill(&j, 70);
    store_past(&d, &j, a, 100);
    d.ops->kv_export(d.b, a, 2, 1, FIRST, N, keys, values);
    for (size_t i = 0; i < N * D; i++) {
        size_t at = (2 * j.n_past + FIRST + i / D) * kv_width(&j) + D + i % D;

        assert_int_equal(keys[i], rf_f32_to_f16(j.past_k[at]));
        assert_same_bits(&values[i], &j.past_v[at], 1, "exported value");
    }
    d.ops->kv_import(d.b, b, 0, 0, FIRST, N, keys, values);
    d.ops->kv_export(d.b, b, 0, 0, FIRST, N, keys_again, values_again);
    assert_memory_equal(keys, keys_again, sizeof keys);
    assert_memory_equal(values, values_again, sizeof values);
    d.ops->kv_destroy(a);
    d.ops->kv_destroy(b);
    release(&j);
    device_close(&d);
}

static void positions_not_seen_are_never_read(void **state)
{
    static const rf_batch_seq one = {0, 2, 300, 0, 0};

    (void)state;
    for (int block = 0; block < 2; block++) {
        job j = shape(32, RF_TYPE_F32, RF_TYPE_F32, block);
        float *got;

        j.seqs = &one;
        j.n_seqs = 1;
        j.spec.window = 40;
        fill(&j, 80);
        for (size_t i = 0; i < j.n_past * kv_width(&j); i++)
            if (i < 261 * kv_width(&j) || i >= 302 * kv_width(&j)) { /* row 300 sees 261.., row 301 sees ..301 */
                ((float *)(uintptr_t)j.past_k)[i] = NAN;
                ((float *)(uintptr_t)j.past_v)[i] = NAN;
            }
        got = result(&j);
        compare(&j, got);
        free(got);
        release(&j);
    }
}

/* Row 300 sees 261, row 301 does not, though both are in one tile: what is wrong there stays in row 300. */
static void a_masked_position_is_never_multiplied(void **state)
{
    static const rf_batch_seq one = {0, 2, 300, 0, 0};

    (void)state;
    for (int side = 0; side < 2; side++) {
        job j = shape(32, RF_TYPE_F32, RF_TYPE_F32, false);
        float *bad, *got;
        size_t row = out_width(&j) + 1;

        j.seqs = &one;
        j.n_seqs = 1;
        j.spec.window = 40;
        fill(&j, 90);
        bad = (float *)(uintptr_t)(side ? j.past_k : j.past_v) + 261 * kv_width(&j);
        for (size_t i = 0; i < kv_width(&j); i++)
            bad[i] = i % 2 ? NAN : INFINITY;
        got = calloc(j.n_rows * row, sizeof *got);
        assert_non_null(got);
        run_everywhere(run, &j, got, j.n_rows * row * sizeof *got, true);
        for (size_t i = 0; i < out_width(&j); i++)
            assert_true(!isfinite(got[i]) && isfinite(got[row + i]));
        free(got);
        release(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_head_width_and_type),
        cmocka_unit_test(heads_of_a_shard),
        cmocka_unit_test(windows_and_late_starts),
        cmocka_unit_test(a_row_that_sees_nothing_is_zero),
        cmocka_unit_test(a_row_does_not_know_its_neighbours),
        cmocka_unit_test(chunks_and_rings_give_the_same_bits),
        cmocka_unit_test(sums_have_the_written_order),
        cmocka_unit_test(exported_positions_come_back),
        cmocka_unit_test(positions_not_seen_are_never_read),
        cmocka_unit_test(a_masked_position_is_never_multiplied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
