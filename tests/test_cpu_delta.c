/* Gated DeltaNet: numbers against double, the order of a step, pending rows and their commit, export and import. */
#include "devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TAPS 4
#define EPS 1e-6f
#define MAX_ROWS 64

typedef struct {
    size_t n_k, n_v, d;
    const float *conv, *a, *dt; /* as in rf_delta_spec */
    const float *m, *alpha, *beta; /* rows of slot 0, then of slot 1 */
    const rf_batch_seq *steps; /* batches of one sequence each, run in turn; n_rows < 0: commit of -n_rows */
    size_t n_steps;
} job;

static size_t channels(const job *j)
{
    return (2 * j->n_k + j->n_v) * j->d;
}

static size_t o_width(const job *j)
{
    return j->n_v * j->d;
}

static size_t state_floats(const job *j)
{
    return j->n_v * j->d * j->d + channels(j) * (TAPS - 1);
}

/* out: o [MAX_ROWS of the steps, in turn], then states and window of slot 1 */
static size_t result_floats(const job *j)
{
    return MAX_ROWS * o_width(j) + state_floats(j);
}

static void export_slot(const device *d, const job *j, const rf_delta *delta, size_t slot, float *out)
{
    for (size_t h = 0; h < j->n_v; h++, out += j->d * j->d)
        d->ops->delta_export(d->b, delta, slot, h, out);
    d->ops->window_export(d->b, delta, slot, out);
}

static rf_delta *create(const device *d, const job *j)
{
    rf_error err = {0};
    rf_delta_spec spec = {.n_slots = 2,
                          .n_k_heads = j->n_k,
                          .n_v_heads = j->n_v,
                          .head_dim = j->d,
                          .conv_kernel = TAPS,
                          .eps = EPS,
                          .conv = j->conv,
                          .a = j->a,
                          .dt = j->dt};
    rf_delta *delta = d->ops->delta_create(d->b, &spec, &err);

    assert_non_null(delta);
    return delta;
}

typedef struct {
    rf_buf *m, *alpha, *beta, *o;
} buffers;

/* One batch: rows [at, at + n) of the inputs. Several sequences are adjacent there. */
static void run_batch(const device *d, const job *j, rf_delta *delta, const buffers *f, const rf_batch_seq *seqs,
                      size_t n_seqs, size_t at)
{
    rf_batch *batch = batch_of(d, seqs, n_seqs, NULL);

    d->ops->delta(d->b, batch, delta, (rf_mat){f->m, at * channels(j), channels(j)},
                  (rf_mat){f->alpha, at * j->n_v, j->n_v}, (rf_mat){f->beta, at * j->n_v, j->n_v},
                  (rf_mat){f->o, at * o_width(j), o_width(j)});
    d->ops->batch_destroy(batch);
}

static buffers upload_rows(const device *d, const job *j)
{
    return (buffers){buffer_of(d, j->m, MAX_ROWS * channels(j) * 4), buffer_of(d, j->alpha, MAX_ROWS * j->n_v * 4),
                     buffer_of(d, j->beta, MAX_ROWS * j->n_v * 4), zero_buffer(d, MAX_ROWS * o_width(j) * 4)};
}

static void free_rows(const device *d, buffers *f)
{
    d->ops->buf_destroy(f->m);
    d->ops->buf_destroy(f->alpha);
    d->ops->buf_destroy(f->beta);
    d->ops->buf_destroy(f->o);
}

static void run(const device *d, const void *input, void *out)
{
    const job *j = input;
    rf_delta *delta = create(d, j);
    buffers f = upload_rows(d, j);

    for (size_t i = 0; i < j->n_steps; i++) {
        rf_batch_seq s = j->steps[i];

        if (s.n_rows > 0) { /* first_pos: the row of the inputs */
            run_batch(d, j, delta, &f, &s, 1, (size_t)s.first_pos);
        } else {
            rf_batch *batch;

            s.n_rows = -s.n_rows;
            batch = batch_of(d, &s, 1, NULL);
            d->ops->delta_commit(d->b, batch, delta);
            d->ops->batch_destroy(batch);
        }
    }
    read_buffer(d, f.o, out, MAX_ROWS * o_width(j) * 4);
    export_slot(d, j, delta, 1, (float *)out + MAX_ROWS * o_width(j));
    free_rows(d, &f);
    d->ops->delta_destroy(delta);
}

static job make(size_t n_k, size_t n_v, size_t d)
{
    job j = {.n_k = n_k, .n_v = n_v, .d = d};
    float *a = random_floats(n_v, 1, 1);

    for (size_t h = 0; h < n_v; h++)
        a[h] = -0.05f - fabsf(a[h]);
    j.a = a;
    j.conv = random_floats(channels(&j) * TAPS, 2, 0.8f);
    j.dt = random_floats(n_v, 3, 1);
    j.m = random_floats(MAX_ROWS * channels(&j), 4, 2);
    j.alpha = random_floats(MAX_ROWS * n_v, 5, 3);
    j.beta = random_floats(MAX_ROWS * n_v, 6, 3);
    return j;
}

static void release(job *j)
{
    free((void *)(uintptr_t)j->a);
    free((void *)(uintptr_t)j->conv);
    free((void *)(uintptr_t)j->dt);
    free((void *)(uintptr_t)j->m);
    free((void *)(uintptr_t)j->alpha);
    free((void *)(uintptr_t)j->beta);
}

static float *result(const job *j)
{
    float *got = malloc(result_floats(j) * sizeof *got);

    assert_non_null(got);
    run_everywhere(run, j, got, result_floats(j) * sizeof *got, false);
    return got;
}

/* ---- in double */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void convolve(const job *j, size_t row, size_t first, double *y)
{
    for (size_t c = 0; c < j->d; c++) {
        double sum = 0;

        for (size_t t = 0; t < TAPS; t++)
            if (row + t >= TAPS - 1)
                sum += (double)j->conv[(first + c) * TAPS + t] *
                       (double)j->m[(row + t - (TAPS - 1)) * channels(j) + first + c];
        y[c] = sum * sigmoid(sum);
    }
}

static void normalize(double *x, size_t d, double factor)
{
    double sum = 0;

    for (size_t i = 0; i < d; i++)
        sum += x[i] * x[i];
    sum = sqrt(sum) > (double)EPS ? sqrt(sum) : (double)EPS;
    for (size_t i = 0; i < d; i++)
        x[i] *= factor / sum;
}

/* rows 0 .. n - 1 of value head h from an empty state: o [n][d], state [d][d] */
static void head_in_double(const job *j, size_t h, size_t n, double *o, double *state)
{
    size_t d = j->d, kh = h / (j->n_v / j->n_k);
    double q[64], k[64], v[64];

    memset(state, 0, d * d * sizeof *state);
    for (size_t row = 0; row < n; row++, o += d) {
        double x = (double)j->alpha[row * j->n_v + h] + (double)j->dt[h],
               beta = sigmoid((double)j->beta[row * j->n_v + h]);
        double decay = exp((double)j->a[h] * log1p(exp(x)));

        convolve(j, row, kh * d, q);
        convolve(j, row, (j->n_k + kh) * d, k);
        convolve(j, row, (2 * j->n_k + h) * d, v);
        normalize(q, d, 1 / sqrt((double)d));
        normalize(k, d, 1);
        for (size_t c = 0; c < d; c++) {
            double r = 0;

            for (size_t i = 0; i < d; i++)
                r += (state[i * d + c] *= decay) * k[i];
            o[c] = 0;
            for (size_t i = 0; i < d; i++)
                o[c] += (state[i * d + c] += k[i] * beta * (v[c] - r)) * q[i];
        }
    }
}

static void check_numbers(size_t n_k, size_t n_v, size_t d)
{
    static const rf_batch_seq steps[] = {{1, 5, 0, RF_ROLE_GIVEN, 0},
                                         {1, 1, 5, RF_ROLE_GIVEN, 0},
                                         {1, 34, 6, RF_ROLE_GIVEN, 0}};
    job j = make(n_k, n_v, d);
    double *o = malloc(40 * d * sizeof *o), *state = malloc(d * d * sizeof *state);
    float *got;

    j.steps = steps;
    j.n_steps = 3;
    got = result(&j);
    assert_non_null(o);
    assert_non_null(state);
    for (size_t h = 0; h < n_v; h++) {
        head_in_double(&j, h, 40, o, state);
        for (size_t row = 0; row < 40; row++)
            assert_near(got + row * o_width(&j) + h * d, o + row * d, d, 2e-6);
        assert_near(got + MAX_ROWS * o_width(&j) + h * d * d, state, d * d, 2e-6);
    }
    for (size_t c = 0; c < channels(&j); c++) /* the window: the last rows, oldest first */
        for (size_t t = 0; t < TAPS - 1; t++)
            assert_same_bits(&got[MAX_ROWS * o_width(&j) + n_v * d * d + c * (TAPS - 1) + t],
                             &j.m[(37 + t) * channels(&j) + c], 1, "window");
    free(o);
    free(state);
    free(got);
    release(&j);
}

static void numbers_are_those_of_the_recurrence(void **state)
{
    (void)state;
    check_numbers(1, 1, 16);
    check_numbers(2, 6, 16);
    check_numbers(3, 3, 32);
    check_numbers(2, 4, 64);
    check_numbers(1, 2, 24);
    check_numbers(2, 4, 5);
}

/* ---- bits */

/* Given rows, and as many of 16 generated rows committed: outputs and state, on one device or on all. */
static void check_commit(const device *d, job *j, int32_t accepted)
{
    rf_batch_seq given[] = {{1, 3, 0, RF_ROLE_GIVEN, 0}, {1, accepted, 3, RF_ROLE_GIVEN, 0}};
    rf_batch_seq generated[] = {{1, 3, 0, RF_ROLE_GIVEN, 0},
                                {1, RF_MAX_BLOCK, 3, RF_ROLE_GENERATED, 0},
                                {1, -accepted, 0, 0, 0}};
    size_t tail = MAX_ROWS * o_width(j), bytes = result_floats(j) * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);

    assert_non_null(want);
    assert_non_null(got);
    for (int side = 0; side < 2; side++) {
        j->steps = side ? generated : given;
        j->n_steps = (size_t)(side ? 2 : 1) + (accepted > 0);
        if (d)
            run(d, j, side ? got : want);
        else
            run_everywhere(run, j, side ? got : want, bytes, false);
    }
    assert_same_bits(got, want, (3 + (size_t)accepted) * o_width(j), "output of pending rows");
    assert_same_bits(got + tail, want + tail, state_floats(j), "committed state");
    free(want);
    free(got);
}

static void pending_rows_commit_as_if_given(void **state)
{
    static const struct {
        size_t n_k, n_v, d;
    } shapes[] = {{2, 6, 16}, {1, 2, 24}, {2, 2, 64}, {1, 1, 128}};
    device d = device_open("auto", 2);

    (void)state;
    for (size_t s = 0; s < 4; s++) {
        job j = make(shapes[s].n_k, shapes[s].n_v, shapes[s].d);

        for (int32_t accepted = 0; accepted <= RF_MAX_BLOCK; accepted++)
            check_commit(&d, &j, accepted);
        check_commit(NULL, &j, (int32_t)(2 + 3 * s));
        release(&j);
    }
    device_close(&d);
}

/* Rounds of generated rows and commits, then given rows that read what is due: as if all had been given. */
static void check_rounds(const device *d, job *j, int32_t first, int32_t second)
{
    int64_t then = 3 + first, last = then + second;
    rf_batch_seq given[] = {{1, 3, 0, RF_ROLE_GIVEN, 0},
                            {1, first, 3, RF_ROLE_GIVEN, 0},
                            {1, second, then, RF_ROLE_GIVEN, 0},
                            {1, 20, last, RF_ROLE_GIVEN, 0},
                            {1, 2, last + 20, RF_ROLE_GIVEN, 0}};
    rf_batch_seq rounds[] = {given[0], {1, RF_MAX_BLOCK, 3, RF_ROLE_GENERATED, 0}, {1, -first, 0, 0, 0},
                             {1, 8, then, RF_ROLE_GENERATED, 0}, {1, -second, 0, 0, 0}, given[3], given[4]};
    size_t bytes = result_floats(j) * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);

    assert_non_null(want);
    assert_non_null(got);
    j->steps = given;
    j->n_steps = 5;
    run(d, j, want);
    j->steps = rounds;
    j->n_steps = 7;
    run(d, j, got);
    assert_same_bits(got, want, result_floats(j), "rounds and commits");
    free(want);
    free(got);
}

static void rounds_follow_commits_as_if_given(void **state)
{
    static const int32_t accepted[][2] = {{1, 1}, {1, 5}, {2, 8}, {7, 1}, {RF_MAX_BLOCK, 8}};
    static const size_t widths[] = {16, 24, 64, 128};
    device d = device_open("auto", 2);

    (void)state;
    for (size_t s = 0; s < 4; s++) {
        job j = make(2, 6 - 2 * (s % 2), widths[s]);

        for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++)
            check_rounds(&d, &j, accepted[i][0], accepted[i][1]);
        release(&j);
    }
    device_close(&d);
}

static void chunks_give_the_same_bits(void **state)
{
    static const rf_batch_seq once[] = {{1, 60, 0, RF_ROLE_GIVEN, 0}};
    job j = make(2, 4, 32);
    float *want, *got;

    (void)state;
    j.steps = once;
    j.n_steps = 1;
    want = result(&j);
    for (int32_t chunk = 1; chunk < 40; chunk += chunk < 4 ? 1 : 9) {
        rf_batch_seq steps[60];

        j.steps = steps;
        j.n_steps = 0;
        for (int32_t at = 0; at < 60; at += chunk)
            steps[j.n_steps++] = (rf_batch_seq){1, 60 - at < chunk ? 60 - at : chunk, at, RF_ROLE_GIVEN, 0};
        got = result(&j);
        assert_same_bits(got, want, result_floats(&j), "chunks");
        free(got);
    }
    free(want);
    release(&j);
}

/* A given sequence of slot 0 and a generated one of slot 1 in one batch, against each alone. */
static void run_pair(const device *d, const void *input, void *out)
{
    const job *j = input;
    rf_delta *delta = create(d, j);
    buffers f = upload_rows(d, j);
    size_t skip = MAX_ROWS * o_width(j);

    run_batch(d, j, delta, &f, j->steps, j->n_steps, (size_t)j->steps[0].first_pos);
    read_buffer(d, f.o, out, skip * 4);
    export_slot(d, j, delta, 0, (float *)out + skip);
    export_slot(d, j, delta, 1, (float *)out + skip + state_floats(j));
    free_rows(d, &f);
    d->ops->delta_destroy(delta);
}

static void sequences_do_not_mix(void **state)
{
    static const rf_batch_seq both[] = {{0, 20, 0, RF_ROLE_GIVEN, 0}, {1, 7, 20, RF_ROLE_GENERATED, 0}};
    job j = make(2, 6, 16);
    size_t skip = MAX_ROWS * o_width(&j), states = state_floats(&j), floats = skip + 2 * states;
    float *together = malloc(floats * sizeof *together), *alone = malloc(floats * sizeof *alone);

    (void)state;
    assert_non_null(together);
    assert_non_null(alone);
    j.steps = both;
    j.n_steps = 2;
    run_everywhere(run_pair, &j, together, floats * sizeof(float), false);
    for (size_t i = 0; i < states; i++) /* pending rows leave the state alone */
        assert_true(together[skip + states + i] == 0);
    j.n_steps = 1;
    run_everywhere(run_pair, &j, alone, floats * sizeof(float), false);
    assert_same_bits(alone, together, 20 * o_width(&j), "the given rows");
    assert_same_bits(alone + skip, together + skip, states, "the given state");
    j.steps = both + 1;
    run_everywhere(run_pair, &j, alone, floats * sizeof(float), false);
    assert_same_bits(alone + 20 * o_width(&j), together + 20 * o_width(&j), 7 * o_width(&j), "the generated rows");
    free(together);
    free(alone);
    release(&j);
}

/* ---- slots */

static void export_import_and_reset(void **state)
{
    device d = device_open("auto", 2);
    job j = make(2, 4, 24);
    size_t d2 = j.d * j.d;
    float *first = malloc(state_floats(&j) * sizeof *first), *again = malloc(state_floats(&j) * sizeof *again);
    rf_delta *delta = create(&d, &j);
    buffers f = upload_rows(&d, &j);

    (void)state;
    assert_non_null(first);
    assert_non_null(again);
    run_batch(&d, &j, delta, &f, &(rf_batch_seq){0, 9, 0, RF_ROLE_GIVEN, 0}, 1, 0);
    export_slot(&d, &j, delta, 0, first);
    for (size_t h = 0; h < j.n_v; h++)
        d.ops->delta_import(d.b, delta, 1, h, first + h * d2);
    d.ops->window_import(d.b, delta, 1, first + j.n_v * d2);
    export_slot(&d, &j, delta, 1, again);
    assert_same_bits(again, first, state_floats(&j), "imported");
    d.ops->delta_reset(d.b, delta, 0);
    export_slot(&d, &j, delta, 0, again);
    for (size_t i = 0; i < state_floats(&j); i++)
        assert_true(again[i] == 0);
    export_slot(&d, &j, delta, 1, again); /* the other slot is left alone */
    assert_same_bits(again, first, state_floats(&j), "the other slot");
    free_rows(&d, &f);
    d.ops->delta_destroy(delta);
    free(first);
    free(again);
    release(&j);
    device_close(&d);
}

/* A row with beta 0 and decay 1 leaves the state alone, bit for bit, and o = S^T q, i ascending, is then known. */
static void the_step_has_the_written_order(void **state)
{
    enum { D = 16 };
    static const rf_batch_seq steps[] = {{1, 2, 0, RF_ROLE_GIVEN, 0}};
    job j = make(1, 1, D);
    size_t tail = MAX_ROWS * D;
    float *got, before[D * D], o[D] = {0};
    static const rf_batch_seq one[] = {{1, 1, 0, RF_ROLE_GIVEN, 0}};

    (void)state;
    ((float *)(uintptr_t)j.beta)[0] = 200; /* sigmoid is 1 */
    ((float *)(uintptr_t)j.beta)[1] = -200; /* sigmoid is 0: u = 0, the state only decays */
    ((float *)(uintptr_t)j.alpha)[1] = -200; /* softplus is 0, decay 1 */
    j.steps = one;
    j.n_steps = 1;
    got = result(&j);
    memcpy(before, got + tail, sizeof before);
    free(got);
    j.steps = steps;
    got = result(&j);
    assert_same_bits(got + tail, before, D * D, "a state that is left alone");
    { /* o = S^T q, i ascending: with q of row 1 made by the written order */
        float q[D], sum[D] = {0}, ss, y;

        for (size_t c = 0; c < D; c++) {
            float x = 0;

            for (size_t t = 2; t < TAPS; t++)
                x = fmaf(j.conv[c * TAPS + t], j.m[(t - 2) * channels(&j) + c], x);
            y = (float)((double)x / (1 + exp(-(double)x)));
            q[c] = y;
        }
        for (size_t c = 0; c < D; c++)
            sum[c] = q[c] * q[c];
        for (size_t w = 8; w; w /= 2)
            for (size_t l = 0; l < w; l++)
                sum[l] += sum[l + w];
        ss = sqrtf(sum[0]);
        for (size_t i = 0; i < D; i++)
            for (size_t c = 0; c < D; c++)
                o[c] = fmaf(before[i * D + c], q[i] / ss * (1.0f / sqrtf(D)), o[c]);
        for (size_t c = 0; c < D; c++) /* silu is rounded by another exponential: a few ulp */
            assert_true(fabsf(o[c] - got[D + c]) < 2e-6f);
    }
    free(got);
    release(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_the_recurrence),
        cmocka_unit_test(pending_rows_commit_as_if_given),
        cmocka_unit_test(rounds_follow_commits_as_if_given),
        cmocka_unit_test(chunks_give_the_same_bits),
        cmocka_unit_test(sequences_do_not_mix),
        cmocka_unit_test(export_import_and_reset),
        cmocka_unit_test(the_step_has_the_written_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
