/* Speed of the CPU ops that matter, as time and as bytes a second beside what plain reading of memory gives.
 * usage: bench_cpu [threads [isa]]      (make tests/bench_cpu) */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend.h"
#include "quant.h"

static rf_backend *backend;
static const rf_ops *ops;
static int n_threads = 1;

/* with one thread, its own time: other programs on a busy machine count less */
static double now(void)
{
    struct timespec t;

    clock_gettime(n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *need(void *p, const rf_error *err)
{
    if (!p) {
        fprintf(stderr, "bench_cpu: %s\n", err->text);
        exit(1);
    }
    return p;
}

static rf_buf *buffer(size_t floats)
{
    rf_error err = {0};
    rf_buf *buf = need(ops->buf_create(backend, floats * sizeof(float), &err), &err);
    float *x = ops->buf_host(buf);

    for (size_t i = 0; i < floats; i++)
        x[i] = (float)((double)(i * 2654435761u % 1000) / 500 - 1);
    return buf;
}

typedef struct {
    rf_weight **w;
    rf_act *act;
    rf_mat y;
    size_t n_rows, n_weights;
    rf_batch *batch;
    rf_kv *kv;
    rf_attention_spec spec;
    rf_delta *delta;
    rf_mat q, m, alpha, out;
    rf_buf *small, *draws;
    size_t n_cols;
} work;

/* the best of several runs, in seconds */
static double best_of(void (*f)(const work *w), const work *w)
{
    double best = 1e9, start = now();

    for (int i = 0; i < 5 || (now() - start < 0.5 && i < 1000); i++) {
        double t = now();

        f(w);
        t = now() - t;
        best = t < best ? t : best;
    }
    return best;
}

/* ---- plain reading */

/* 24 MiB at a time, in turn, of more than a cache holds */
static double read_speed(void)
{
    size_t piece = (size_t)3 << 20, n = 16;
    rf_buf *buf = buffer(piece * n * 2);
    const uint64_t *x = ops->buf_host(buf);
    uint64_t sum = 0;
    double best = 0;

    for (size_t i = 0; i < 20 * n; i++) {
        const uint64_t *from = x + i % n * piece;
        double t = now(), speed;

#pragma omp parallel for num_threads(n_threads) reduction(+ : sum)
        for (size_t k = 0; k < piece; k++)
            sum += from[k];
        speed = (double)(piece * sizeof *x) / (now() - t);
        best = speed > best ? speed : best;
    }
    ops->buf_destroy(buf);
    return sum > 0 ? best : 0;
}

/* ---- matmul: as many matrices in turn as do not fit in a cache */

static void run_matmul(const work *w)
{
    static size_t turn;

    ops->matmul(backend, w->n_rows, w->w[turn++ % w->n_weights], w->act, w->y);
}

static void bench_matmul(uint32_t type, size_t n_out, size_t n_in, double peak)
{
    static const size_t rows[] = {1, 2, 4, 8, 16, 64, 512};
    const rf_format *f = rf_format_find(type);
    size_t bytes = n_out * n_in / f->block * f->bytes, n = ((size_t)300 << 20) / bytes + 1;
    unsigned char *data = malloc(bytes);
    rf_weight_spec spec = {.name = "w", .data = data, .type = type, .n_cols = n_in, .n_rows = n_out};
    rf_error err = {0};
    rf_weight **weights = calloc(n, sizeof *weights);
    rf_buf *x = buffer(512 * n_in), *y = buffer(512 * n_out);
    double one = 0;

    if (!data || !weights)
        exit(1);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 13 & 0x3b);
    for (size_t i = 0; i < n; i++)
        weights[i] = need(ops->weight_create(backend, &spec, &err), &err);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        work w = {.w = weights,
                  .act = need(ops->act_create(backend, rows[r], n_in, &err), &err),
                  .y = {y, 0, n_out},
                  .n_rows = rows[r],
                  .n_weights = n};
        double t;

        ops->quantize(backend, rows[r], n_in, (rf_mat){x, 0, n_in}, 3, w.act);
        t = best_of(run_matmul, &w);
        one = r ? one : t;
        printf("%s %zu x %zu, %3zu rows: %8.1f us, %5.1f GB/s (%3.0f%% of reading), %6.1f GMAC/s, %.2f x 1 row\n",
               f->name, n_out, n_in, rows[r], t * 1e6, (double)bytes / t * 1e-9, (double)bytes / t / peak * 100,
               (double)(n_out * n_in * rows[r]) / t * 1e-9, t / one);
        ops->act_destroy(w.act);
    }
    for (size_t i = 0; i < n; i++)
        ops->weight_destroy(weights[i]);
    ops->buf_destroy(x);
    ops->buf_destroy(y);
    free(weights);
    free(data);
}

/* ---- attention: 24 query heads on 4 KV heads of 256, f16 */

static void run_attention(const work *w)
{
    ops->attention(backend, w->batch, w->kv, &w->spec, w->q, w->out);
}

static void bench_attention(size_t past, size_t n_rows)
{
    rf_kv_spec spec = {1, past + n_rows, 4, 256, RF_TYPE_F16, RF_TYPE_F16, false};
    rf_batch_seq seq = {0, (int32_t)n_rows, (int64_t)past, RF_ROLE_GIVEN, RF_LOGITS_NONE};
    int32_t *tokens = calloc(n_rows, sizeof *tokens);
    rf_error err = {0};
    rf_buf *q = buffer(n_rows * 24 * 256), *out = buffer(n_rows * 24 * 256);
    work w = {.spec = {.n_heads = 24, .head_dim = 256, .head_stride = 256, .heads_per_kv = 6},
              .q = {q, 0, 24 * 256},
              .out = {out, 0, 24 * 256}};
    double t, bytes = (double)(past + n_rows) * 4 * 256 * 2 * 2,
              macs = ((double)past + (double)n_rows / 2) * (double)n_rows * 24 * 256 * 2;
    uint16_t some[256];

    for (size_t i = 0; i < 256; i++)
        some[i] = (uint16_t)(0x2c00 + i);
    w.kv = need(ops->kv_create(backend, &spec, &err), &err);
    w.batch = need(ops->batch_create(backend, 1, n_rows, &err), &err);
    for (size_t p = 0; p < past + n_rows; p++)
        for (size_t h = 0; h < 4; h++)
            ops->kv_import(backend, w.kv, 0, h, (int64_t)p, 1, some, some);
    ops->batch_set(backend, w.batch, 1, &seq, tokens);
    t = best_of(run_attention, &w);
    printf("attention %zu rows after %zu: %9.1f us, cache once %5.1f GB/s, %6.1f GMAC/s\n", n_rows, past, t * 1e6,
           bytes / t * 1e-9, macs / t * 1e-9);
    ops->kv_destroy(w.kv);
    ops->batch_destroy(w.batch);
    ops->buf_destroy(q);
    ops->buf_destroy(out);
    free(tokens);
}

/* ---- DeltaNet: 16 key heads, 48 value heads of 128 */

static void run_delta(const work *w)
{
    ops->delta(backend, w->batch, w->delta, w->m, w->alpha, w->alpha, w->out);
}

static void run_commit(const work *w)
{
    ops->delta_commit(backend, w->batch, w->delta);
}

static void bench_delta(size_t n_rows, int role)
{
    size_t channels = (2 * 16 + 48) * 128;
    float *zeros = calloc(channels * 4, sizeof *zeros);
    rf_delta_spec spec = {1, 16, 48, 128, 4, 1e-6f, zeros, zeros, zeros};
    rf_batch_seq seq = {0, (int32_t)n_rows, 0, role, RF_LOGITS_NONE};
    int32_t *tokens = calloc(n_rows, sizeof *tokens);
    rf_error err = {0};
    rf_buf *m = buffer(n_rows * channels), *alpha = buffer(n_rows * 48), *out = buffer(n_rows * 48 * 128);
    work w = {.m = {m, 0, channels}, .alpha = {alpha, 0, 48}, .out = {out, 0, 48 * 128}};
    double t, bytes = 48.0 * 128 * 128 * 4;

    w.delta = need(ops->delta_create(backend, &spec, &err), &err);
    w.batch = need(ops->batch_create(backend, 1, n_rows, &err), &err);
    ops->batch_set(backend, w.batch, 1, &seq, tokens);
    t = best_of(run_delta, &w);
    printf("delta %3zu %s rows: %8.1f us, state once %5.1f GB/s\n", n_rows,
           role == RF_ROLE_GIVEN ? "given" : "generated", t * 1e6, bytes / t * 1e-9);
    if (role == RF_ROLE_GENERATED) {
        t = best_of(run_commit, &w);
        printf("delta %3zu rows committed: %8.1f us, state once %5.1f GB/s\n", n_rows, t * 1e6, bytes / t * 1e-9);
    }
    ops->delta_destroy(w.delta);
    ops->batch_destroy(w.batch);
    ops->buf_destroy(m);
    ops->buf_destroy(alpha);
    ops->buf_destroy(out);
    free(tokens);
    free(zeros);
}

/* ---- logits: a vocabulary of 248320 */

static void run_top_k(const work *w)
{
    ops->top_k(backend, w->n_rows, w->n_cols, w->out, 0, 16, w->small);
}

static void run_gumbel(const work *w)
{
    ops->gumbel_argmax(backend, w->n_rows, w->n_cols, w->out, 0, w->draws, w->small);
}

static void run_mass(const work *w)
{
    ops->log_mass(backend, w->n_rows, w->n_cols, w->out, w->draws, w->small);
}

static void run_hash(const work *w)
{
    ops->row_hash(backend, w->n_rows, w->n_cols, w->out, 0, w->small);
}

static void bench_logits(size_t n_rows)
{
    size_t n_cols = 248320;
    work w = {.n_rows = n_rows,
              .n_cols = n_cols,
              .out = {buffer(n_rows * n_cols), 0, n_cols},
              .small = buffer(n_rows * 64),
              .draws = buffer(n_rows * 8)};
    float *l = ops->buf_host(w.out.buf);
    rf_gumbel_row *rows = ops->buf_host(w.draws);

    for (size_t i = 0; i < n_rows * n_cols; i++)
        l[i] = 12 * (float)((double)(i * 2654435761u % 100003) / 50000 - 1);
    for (size_t i = 0; i < n_rows; i++)
        rows[i] = (rf_gumbel_row){i, 9, 0.8};
    printf("%zu rows of %zu logits: top 16 %8.1f us, ", n_rows, n_cols, best_of(run_top_k, &w) * 1e6);
    printf("coupled argmax %8.1f us, hash %8.1f us, ", best_of(run_gumbel, &w) * 1e6, best_of(run_hash, &w) * 1e6);
    for (size_t i = 0; i < n_rows; i++)
        ((float *)ops->buf_host(w.draws))[i] = 12;
    printf("mass %8.1f us\n", best_of(run_mass, &w) * 1e6);
    ops->buf_destroy(w.out.buf);
    ops->buf_destroy(w.small);
    ops->buf_destroy(w.draws);
}

int main(int argc, char **argv)
{
    rf_error err = {0};
    double peak;

    n_threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    if (n_threads < 1)
        n_threads = 1;
    backend = need(rf_cpu_create(n_threads, true, argc > 2 ? argv[2] : "auto", &err), &err);
    ops = backend->ops;
    peak = read_speed();
    printf("%s, %d threads, plain reading %.1f GB/s\n", ops->device_name(backend), n_threads, peak * 1e-9);
    bench_matmul(RF_TYPE_Q8_0, 2560, 9216, peak);
    bench_matmul(RF_TYPE_F16, 1024, 2560, peak);
    bench_matmul(RF_TYPE_F32, 1024, 2560, peak);
    bench_attention(4096, 1);
    bench_attention(4096, 8);
    bench_attention(65536, 1);
    bench_attention(2048, 256);
    for (size_t n = 1; n <= 16; n += n == 1 ? 7 : 8)
        bench_delta(n, RF_ROLE_GENERATED);
    bench_delta(512, RF_ROLE_GIVEN);
    bench_logits(1);
    bench_logits(8);
    ops->destroy(backend);
    return 0;
}
