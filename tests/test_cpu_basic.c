/* Elementwise ops, norms, rotary embedding, row copies, embedding, the DFlash2 convolution: numbers against double,
 * bits across levels. */
#include "devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "half.h"

#define R 17
#define MAX_COLS 300
#define STRIDE 307

typedef enum { RMS_NORM, RMS_NORM_IN_PLACE, ADD, SILU_MUL, SIGMOID_MUL, GATED_NORM, SANITIZE, COPY } op;

typedef struct {
    op what;
    size_t heads, dim; /* heads * dim columns */
    const float *x, *z, *w;
} job;

typedef float matrix[R * STRIDE];

static void run(const device *d, const void *input, void *out)
{
    const job *j = input;
    size_t cols = j->heads * j->dim;
    rf_buf *xb = buffer_of(d, j->x, sizeof(matrix)), *zb = buffer_of(d, j->z, sizeof(matrix)),
           *wb = buffer_of(d, j->w, MAX_COLS * 4);
    rf_buf *yb = zero_buffer(d, sizeof(matrix));
    rf_mat x = {xb, 2, STRIDE}, y = {yb, 2, STRIDE}, z = {zb, 2, STRIDE};

    switch (j->what) {
    case RMS_NORM: d->ops->rms_norm(d->b, R, cols, x, wb, 1e-6f, y); break;
    case RMS_NORM_IN_PLACE: d->ops->rms_norm(d->b, R, cols, x, wb, 1e-6f, x); break;
    case ADD: d->ops->add(d->b, R, cols, x, z); break;
    case SILU_MUL: d->ops->silu_mul(d->b, R, cols, x, z, x); break;
    case SIGMOID_MUL: d->ops->sigmoid_mul(d->b, R, j->heads, j->dim, x, z, j->dim + 1); break;
    case GATED_NORM: d->ops->gated_norm(d->b, R, j->heads, j->dim, x, wb, 1e-6f, z); break;
    case SANITIZE: d->ops->sanitize(d->b, R, cols, x, zb); break;
    case COPY: d->ops->copy(d->b, R, cols, x, y); break;
    }
    read_buffer(d, j->what == RMS_NORM || j->what == COPY ? yb : xb, out, sizeof(matrix));
    d->ops->buf_destroy(xb);
    d->ops->buf_destroy(zb);
    d->ops->buf_destroy(wb);
    d->ops->buf_destroy(yb);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double mean_square(const float *x, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum / (double)n;
}

/* element i of head h of a row */
static double expected(const job *j, const float *x, const float *z, size_t h, size_t i)
{
    size_t at = h * j->dim + i, cols = j->heads * j->dim;
    double v = (double)x[at], g = (double)z[at];

    switch (j->what) {
    case RMS_NORM:
    case RMS_NORM_IN_PLACE: return v * (double)j->w[at] / sqrt(mean_square(x, cols) + 1e-6);
    case ADD: return v + g;
    case SILU_MUL: return v * sigmoid(v) * g;
    case SIGMOID_MUL: return v * sigmoid((double)z[h * (j->dim + 1) + i]);
    case GATED_NORM: return v * (double)j->w[i] / sqrt(mean_square(x + h * j->dim, j->dim) + 1e-6) * g * sigmoid(g);
    default: return v;
    }
}

static void check_op(op what, size_t heads, size_t dim)
{
    float *x = random_floats(R * STRIDE, 1 + (uint64_t)what, 20), *z = random_floats(R * STRIDE, 2, 9),
          *w = random_floats(MAX_COLS, 3, 2);
    job j = {what, heads, dim, x, z, w};
    matrix got;

    run_everywhere(run, &j, got, sizeof got, false);
    for (size_t r = 0; r < R; r++) {
        const float *row = x + 2 + r * STRIDE;

        for (size_t h = 0; h < heads; h++)
            for (size_t i = 0; i < dim; i++) {
                double want = expected(&j, row, z + 2 + r * STRIDE, h, i);

                assert_near(&got[2 + r * STRIDE + h * dim + i], &want, 1, 1e-6);
            }
        if (what != RMS_NORM && what != COPY) /* nothing beside the matrix is touched */
            assert_same_bits(got + 2 + r * STRIDE + heads * dim, row + heads * dim, r + 1 < R ? 2 : 0,
                             "beside the row");
    }
    free(x);
    free(z);
    free(w);
}

static void ops_are_what_they_say(void **state)
{
    static const size_t dims[] = {1, 15, 16, 17, 32, 96, 100};

    (void)state;
    for (int what = RMS_NORM; what <= COPY; what++)
        for (size_t i = 0; i < 7; i++)
            for (size_t heads = 1; heads <= 2; heads++)
                check_op((op)what, heads, dims[i]);
}

/* ss by 16 lanes of fma, then the fixed tree */
static float lanes_of_squares(const float *x, size_t n)
{
    float lane[16] = {0};

    for (size_t i = 0; i < n; i++)
        lane[i % 16] = fmaf(x[i], x[i], lane[i % 16]);
    for (size_t width = 8; width; width /= 2)
        for (size_t l = 0; l < width; l++)
            lane[l] += lane[l + width];
    return lane[0];
}

static void rms_norm_has_the_written_order(void **state)
{
    float *x = random_floats(R * STRIDE, 5, 3), *z = random_floats(R * STRIDE, 6, 1),
          *w = random_floats(MAX_COLS, 7, 1);
    matrix got;

    (void)state;
    for (size_t n = 1; n <= 100; n += 9) {
        run_everywhere(run, &(job){RMS_NORM, 1, n, x, z, w}, got, sizeof got, false);
        for (size_t r = 0; r < R; r++) {
            const float *row = x + 2 + r * STRIDE;
            float s = 1.0f / sqrtf(lanes_of_squares(row, n) / (float)n + 1e-6f);

            for (size_t i = 0; i < n; i++) {
                float want = (row[i] * s) * w[i];

                assert_ordered(&got[2 + r * STRIDE + i], &want, 1, "rms norm");
            }
        }
    }
    free(x);
    free(z);
    free(w);
}

/* ---- the shared exponential, seen through silu_mul with up = 1: x * sigmoid(x) */

static void sigmoid_holds_at_the_ends(void **state)
{
    static const float at[] = {0,   -0.0f, 1e-40f, 20,  88,     89,  103,     104,     105,
                               200, 3e38f, -20,    -88, -88.8f, -90, -103.9f, -104.5f, -3e38f};
    float x[R * STRIDE] = {0}, z[R * STRIDE], w[MAX_COLS] = {0};
    matrix got;

    (void)state;
    for (size_t i = 0; i < R * STRIDE; i++)
        z[i] = 1;
    memcpy(x + 2, at, sizeof at);
    x[2 + STRIDE] = INFINITY;
    x[2 + STRIDE + 1] = NAN;
    run_everywhere(run, &(job){SILU_MUL, 1, 18, x, z, w}, got, sizeof got, true);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        double want = (double)at[i] * sigmoid((double)at[i]);

        assert_near(&got[2 + i], &want, 1, 3e-7);
    }
    assert_true(got[2 + STRIDE] == INFINITY);
    assert_true(isnan(got[2 + STRIDE + 1]));
}

static void exponential_is_within_two_ulp(void **state)
{
    enum { N = 300 };
    device d = device_open("reference", 1);
    float one = 1;

    (void)state;
    for (size_t step = 0; step < 400; step++) { /* sigmoid(x) for very negative x is exp(x) to the last bit or so */
        float x[N], gate[N], got[N];
        rf_buf *xb, *gb;

        for (size_t i = 0; i < N; i++) {
            gate[i] = -20.0f - (float)(step * N + i) * (67.0f / (400 * N));
            x[i] = one;
        }
        xb = buffer_of(&d, x, sizeof x);
        gb = buffer_of(&d, gate, sizeof gate);
        d.ops->sigmoid_mul(d.b, 1, 1, N, (rf_mat){xb, 0, N}, (rf_mat){gb, 0, N}, N);
        read_buffer(&d, xb, got, sizeof got);
        for (size_t i = 0; i < N; i++) {
            double want = sigmoid((double)gate[i]);

            assert_true(fabs((double)got[i] / want - 1) < 2.5 * 0x1p-24); /* 1.85 was seen */
        }
        d.ops->buf_destroy(xb);
        d.ops->buf_destroy(gb);
    }
    device_close(&d);
}

/* ---- sanitize */

static void run_flag(const device *d, const void *input, void *out)
{
    int32_t before = 0;
    rf_buf *x = buffer_of(d, input, 12 * sizeof(float)), *flag = buffer_of(d, &before, sizeof before);

    d->ops->sanitize(d->b, 2, 5, (rf_mat){x, 0, 6}, flag);
    read_buffer(d, x, out, 12 * sizeof(float));
    read_buffer(d, flag, (float *)out + 12, sizeof(int32_t));
    d->ops->buf_destroy(x);
    d->ops->buf_destroy(flag);
}

static void sanitize_replaces_and_tells(void **state)
{
    float bad[12] = {1, NAN, INFINITY, -INFINITY, 70000, NAN, -1, -0.0f, 3, 4, 5, NAN};
    float good[12] = {1, 2, 3, 4, 5, NAN, 7, -3e38f, 9, 10, 1e-45f, INFINITY};
    float got[13], want[12] = {1, 0, 65504, -65504, 70000, NAN, -1, -0.0f, 3, 4, 5, NAN};
    int32_t flag;

    (void)state;
    run_everywhere(run_flag, bad, got, sizeof got, true);
    for (size_t i = 0; i < 12; i++)
        if (i % 6 != 5)
            assert_same_bits(&got[i], &want[i], 1, "sanitize");
    assert_true(isnan(got[5]) && isnan(got[11])); /* outside the matrix */
    memcpy(&flag, &got[12], sizeof flag);
    assert_int_equal(flag, 1);
    run_everywhere(run_flag, good, got, sizeof got, true);
    memcpy(&flag, &got[12], sizeof flag);
    assert_int_equal(flag, 0);
}

/* ---- embedding */

typedef struct {
    rf_weight_spec table;
    float scale;
} lookup;

static const int32_t tokens[] = {7, 0, 63, 7};
static const rf_batch_seq token_rows[] = {{0, 3, 0, RF_ROLE_GIVEN, RF_LOGITS_NONE},
                                          {1, 1, 9, RF_ROLE_GIVEN, RF_LOGITS_NONE}};

static void run_embed(const device *d, const void *input, void *out)
{
    const lookup *l = input;
    rf_batch *batch = batch_of(d, token_rows, 2, tokens);
    rf_buf *x = zero_buffer(d, 4 * 100 * sizeof(float));

    d->ops->embed(d->b, batch, &l->table, l->scale, (rf_mat){x, 1, 99});
    read_buffer(d, x, out, 4 * 100 * sizeof(float));
    d->ops->buf_destroy(x);
    d->ops->batch_destroy(batch);
}

static void embed_reads_any_format(void **state)
{
    static const uint32_t types[] = {RF_TYPE_F32, RF_TYPE_F16, RF_TYPE_BF16, RF_TYPE_Q8_0};

    (void)state;
    for (size_t t = 0; t < 8; t++) {
        const rf_format *f = rf_format_find(types[t % 4]);
        lookup l = {{.name = "table", .type = types[t % 4], .n_cols = 96, .n_rows = 64}, t < 4 ? 1.0f : 3.3f};
        void *data = random_tensor(types[t % 4], 64, 96, t);
        float got[400], row[96];

        l.table.data = data;
        run_everywhere(run_embed, &l, got, sizeof got, false);
        for (size_t r = 0; r < 4; r++) {
            f->unpack((unsigned char *)data + (size_t)tokens[r] * 96 / f->block * f->bytes, row, 96);
            for (size_t i = 0; i < 96; i++) {
                row[i] = t < 4 ? row[i] : row[i] * 3.3f;
                assert_same_bits(&got[1 + r * 99 + i], &row[i], 1, "embed");
            }
        }
        free(data);
    }
}

/* ---- rows of a batch */

enum { COLS = 5, SLOTS = 3, ROWS = 9 };

static const rf_batch_seq ragged[] = {
    {2, 3, 10, RF_ROLE_GENERATED, RF_LOGITS_ALL},
    {0, 4, 0, RF_ROLE_GIVEN, RF_LOGITS_ALL_BUT_FIRST},
    {1, 2, 5, RF_ROLE_GENERATED, RF_LOGITS_LAST},
};

typedef struct {
    float gathered[7][COLS], store[SLOTS][RF_MAX_BLOCK][COLS], taken[ROWS][COLS], last[SLOTS][COLS],
        shifted[ROWS][COLS];
} moved;

static void run_rows(const device *d, const void *input, void *out)
{
    moved *m = out;
    rf_batch *batch = batch_of(d, ragged, 3, NULL);
    rf_buf *x = buffer_of(d, input, ROWS * COLS * sizeof(float)), *y = zero_buffer(d, sizeof m->taken);
    rf_buf *store = zero_buffer(d, sizeof m->store), *last = zero_buffer(d, sizeof m->last);
    rf_mat src = {x, 0, COLS}, dst = {y, 0, COLS};

    assert_int_equal(batch->n_rows, ROWS);
    assert_int_equal(batch->n_logit_rows, 7);
    d->ops->shift_rows(d->b, batch, COLS, last, src, dst);
    read_buffer(d, y, m->shifted, sizeof m->shifted);
    d->ops->keep_rows(d->b, batch, COLS, src, store);
    d->ops->keep_last(d->b, batch, COLS, src, last);
    d->ops->gather_logit_rows(d->b, batch, COLS, src, dst);
    read_buffer(d, y, m->gathered, sizeof m->gathered);
    d->ops->take_rows(d->b, batch, COLS, store, dst);
    read_buffer(d, y, m->taken, sizeof m->taken);
    read_buffer(d, store, m->store, sizeof m->store);
    read_buffer(d, last, m->last, sizeof m->last);
    d->ops->buf_destroy(x);
    d->ops->buf_destroy(y);
    d->ops->buf_destroy(store);
    d->ops->buf_destroy(last);
    d->ops->batch_destroy(batch);
}

static void rows_go_where_they_should(void **state)
{
    static const size_t gathered[] = {0, 1, 2, 4, 5, 6, 8};
    float x[ROWS][COLS], none[COLS] = {0};
    moved m;

    (void)state;
    for (size_t r = 0; r < ROWS; r++)
        for (size_t c = 0; c < COLS; c++)
            x[r][c] = (float)(100 * r + c + 1);
    run_everywhere(run_rows, x, &m, sizeof m, true);
    for (size_t i = 0; i < 7; i++)
        assert_memory_equal(m.gathered[i], x[gathered[i]], sizeof none);
    for (size_t i = 0; i < 3; i++)
        assert_memory_equal(m.store[2][i], x[i], sizeof none);
    for (size_t i = 0; i < 2; i++)
        assert_memory_equal(m.store[1][i], x[7 + i], sizeof none);
    assert_memory_equal(m.store[0][0], none, sizeof none); /* given rows are not kept */
    assert_memory_equal(m.taken[0], x[0], sizeof none);
    assert_memory_equal(m.taken[3], none, sizeof none);
    assert_memory_equal(m.taken[8], x[8], sizeof none);
    assert_memory_equal(m.last[0], x[6], sizeof none);
    assert_memory_equal(m.last[1], x[8], sizeof none);
    assert_memory_equal(m.last[2], x[2], sizeof none);
    assert_memory_equal(m.shifted[0], none, sizeof none); /* nothing was kept yet */
    assert_memory_equal(m.shifted[1], x[0], sizeof none);
    assert_memory_equal(m.shifted[3], none, sizeof none);
    assert_memory_equal(m.shifted[6], x[5], sizeof none);
}

/* ---- rotary embedding */

static const rf_batch_seq far[] = {{0, 2, 0, RF_ROLE_GIVEN, RF_LOGITS_NONE},
                                   {1, 3, 196600, RF_ROLE_GIVEN, RF_LOGITS_NONE}};

typedef struct {
    size_t heads, dim, stride, n_rot;
    const float *x, *w;
} rotation;

static void run_rope(const device *d, const void *input, void *out)
{
    const rotation *j = input;
    size_t floats = 5 * j->heads * j->stride;
    rf_error err = {0};
    rf_batch *batch = batch_of(d, far, 2, NULL);
    rf_rope *rope = d->ops->rope_create(d->b, j->n_rot, 1e7, 5, &err);
    rf_buf *x = buffer_of(d, j->x, floats * sizeof(float)), *w = buffer_of(d, j->w, j->dim * sizeof(float));

    assert_non_null(rope);
    d->ops->rope_prepare(d->b, batch, rope);
    d->ops->head_norm_rope(d->b, batch, rope, j->heads, j->dim, j->stride, w, 1e-6f,
                           (rf_mat){x, 0, j->heads * j->stride});
    read_buffer(d, x, out, floats * sizeof(float));
    d->ops->buf_destroy(x);
    d->ops->buf_destroy(w);
    d->ops->rope_destroy(rope);
    d->ops->batch_destroy(batch);
}

static void check_rotation(size_t dim, size_t stride, size_t n_rot)
{
    static const double positions[] = {0, 1, 196600, 196601, 196602};
    float *x = random_floats(5 * 2 * stride, dim, 2), *w = random_floats(dim, 3, 1), got[5 * 2 * 512];
    rotation j = {2, dim, stride, n_rot, x, w};

    run_everywhere(run_rope, &j, got, 5 * 2 * stride * sizeof(float), false);
    for (size_t r = 0; r < 10; r++) {
        const float *in = x + r * stride, *y = got + r * stride;
        double s = 1 / sqrt(mean_square(in, dim) + 1e-6);

        for (size_t i = 0; i < dim; i++) {
            size_t half = n_rot / 2, pair = i < half ? i + half : i - half;
            double want = (double)in[i] * s * (double)w[i],
                   angle = positions[r / 2] * pow(1e7, -2.0 * (double)(i % half) / (double)n_rot);

            if (i < n_rot)
                want = want * cos(angle) + (i < half ? -1 : 1) * (double)in[pair] * s * (double)w[pair] * sin(angle);
            assert_near(&y[i], &want, 1, 1e-6);
        }
        assert_same_bits(y + dim, in + dim, stride - dim, "between heads");
    }
    free(x);
    free(w);
}

static void rotary_embedding_is_exact_far_out(void **state)
{
    (void)state;
    check_rotation(256, 512, 64);
    check_rotation(64, 64, 64);
    check_rotation(24, 25, 20);
}

/* ---- DFlash2 convolution */

typedef struct {
    size_t cols, taps, group, side;
    const float *dyn, *base, *x;
} convolution;

static void run_conv(const device *d, const void *input, void *out)
{
    const convolution *j = input;
    size_t groups = j->cols / j->group, dyn_cols = 2 * j->taps * groups;
    rf_batch *batch = batch_of(d, ragged, 3, NULL);
    rf_buf *dyn = buffer_of(d, j->dyn, ROWS * dyn_cols * 4), *base = buffer_of(d, j->base, 2 * j->taps * j->cols * 4);
    rf_buf *x = buffer_of(d, j->x, ROWS * j->cols * 4), *y = zero_buffer(d, ROWS * j->cols * 4);

    d->ops->dynamic_conv(d->b, batch, j->cols, j->taps, j->group, j->side, (rf_mat){dyn, 0, dyn_cols}, base,
                         (rf_mat){x, 0, j->cols}, (rf_mat){y, 0, j->cols});
    read_buffer(d, y, out, ROWS * j->cols * 4);
    d->ops->buf_destroy(dyn);
    d->ops->buf_destroy(base);
    d->ops->buf_destroy(x);
    d->ops->buf_destroy(y);
    d->ops->batch_destroy(batch);
}

static void check_convolution(size_t cols, size_t taps, size_t group, size_t side)
{
    static const size_t before[] = {0, 1, 2, 0, 1, 2, 3, 0, 1}; /* rows of the sequence before this one */
    size_t groups = cols / group;
    float *dyn = random_floats(ROWS * 2 * taps * groups, 1, 1), *base = random_floats(2 * taps * cols, 2, 1);
    float *x = random_floats(ROWS * cols, 3, 1), *got = malloc(ROWS * cols * sizeof *got);
    convolution j = {cols, taps, group, side, dyn, base, x};

    run_everywhere(run_conv, &j, got, ROWS * cols * sizeof *got, false);
    for (size_t r = 0; r < ROWS; r++)
        for (size_t c = 0; c < cols; c++) {
            float want = 0;

            for (size_t t = 0; t < taps && t <= before[r]; t++)
                want = fmaf(dyn[r * 2 * taps * groups + (side * taps + t) * groups + c / group] +
                                base[(side * taps + t) * cols + c],
                            x[(r - t) * cols + c], want);
            assert_same_bits(&got[r * cols + c], &want, 1, "convolution");
        }
    free(dyn);
    free(base);
    free(x);
    free(got);
}

static void dynamic_convolution_stays_in_its_block(void **state)
{
    (void)state;
    for (size_t side = 0; side < 2; side++) {
        check_convolution(96, 2, 16, side);
        check_convolution(96, 3, 8, side);
        check_convolution(60, 4, 5, side);
        check_convolution(128, 2, 32, side);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_are_what_they_say),
        cmocka_unit_test(rms_norm_has_the_written_order),
        cmocka_unit_test(sigmoid_holds_at_the_ends),
        cmocka_unit_test(exponential_is_within_two_ulp),
        cmocka_unit_test(sanitize_replaces_and_tells),
        cmocka_unit_test(embed_reads_any_format),
        cmocka_unit_test(rows_go_where_they_should),
        cmocka_unit_test(rotary_embedding_is_exact_far_out),
        cmocka_unit_test(dynamic_convolution_stays_in_its_block),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
