/* Norms, elementwise ops, row copies, rotary embedding, the DFlash2 convolution. Orders: backend.h. */
#include "config.h"

#include "../quant.h"
#include "isa.h"
#include "vec16.h"

#define PARALLEL_FROM 16384 /* elements: below this a parallel region costs more than it saves */

static void embed(rf_backend *b, const rf_batch *batch, const rf_weight_spec *table, float scale, rf_mat x)
{
    const cpu_batch *c = cpu_batch_of(batch);
    const rf_format *f = rf_format_find(table->type);
    size_t row_bytes = table->n_cols / f->block * f->bytes;

#pragma omp parallel for schedule(static) \
    num_threads(cpu_of(b)->n_threads) if (c->shape.n_rows * table->n_cols >= PARALLEL_FROM)
    for (size_t r = 0; r < c->shape.n_rows; r++) {
        float *y = mat_row(x, r);

        f->unpack((const unsigned char *)table->data + (size_t)c->tokens[r] * row_bytes, y, table->n_cols);
        for (size_t i = 0; scale != 1.0f && i < table->n_cols; i++)
            y[i] *= scale;
    }
}

/* y = (x * s) * w with s = 1 / sqrtf(mean square + eps) */
static void norm_row(const float *x, const float *w, size_t n, float eps, float *y)
{
    v16 s = v_set1(1.0f / sqrtf(v_dot(x, x, n) / (float)n + eps));
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        v_store(y + i, v_mul(v_mul(v_load(x + i), s), v_load(w + i)));
    if (i < n)
        v_store_n(y + i, v_mul(v_mul(v_load_n(x + i, n - i), s), v_load_n(w + i, n - i)), n - i);
}

static void rms_norm(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat x, const rf_buf *w, float eps, rf_mat y)
{
#pragma omp parallel for schedule(static) num_threads(cpu_of(b)->n_threads) if (n_rows * n_cols >= PARALLEL_FROM)
    for (size_t r = 0; r < n_rows; r++)
        norm_row(mat_row(x, r), w->data, n_cols, eps, mat_row(y, r));
}

typedef v16 (*binary)(v16, v16);

/* y = f(x, z) over a matrix, lane by lane */
static inline __attribute__((always_inline)) void each(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat x, rf_mat z,
                                                       rf_mat y, binary f)
{
#pragma omp parallel for schedule(static) num_threads(cpu_of(b)->n_threads) if (n_rows * n_cols >= PARALLEL_FROM)
    for (size_t r = 0; r < n_rows; r++) {
        const float *p = mat_row(x, r), *q = mat_row(z, r);
        float *o = mat_row(y, r);
        size_t i = 0;

        for (; i + LANES <= n_cols; i += LANES)
            v_store(o + i, f(v_load(p + i), v_load(q + i)));
        if (i < n_cols)
            v_store_n(o + i, f(v_load_n(p + i, n_cols - i), v_load_n(q + i, n_cols - i)), n_cols - i);
    }
}

static void add(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat x, rf_mat y)
{
    each(b, n_rows, n_cols, x, y, x, v_add);
}

static inline v16 gated(v16 g, v16 up)
{
    return v_mul(v_silu(g), up);
}

static void silu_mul(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat gate, rf_mat up, rf_mat y)
{
    each(b, n_rows, n_cols, gate, up, y, gated);
}

static void sigmoid_mul(rf_backend *b, size_t n_rows, size_t n_heads, size_t head_dim, rf_mat x, rf_mat gate,
                        size_t gate_stride)
{
#pragma omp parallel for schedule(static) \
    num_threads(cpu_of(b)->n_threads) if (n_rows * n_heads * head_dim >= PARALLEL_FROM)
    for (size_t r = 0; r < n_rows; r++)
        for (size_t h = 0; h < n_heads; h++) {
            float *p = mat_row(x, r) + h * head_dim;
            const float *g = mat_row(gate, r) + h * gate_stride;

            for (size_t i = 0; i < head_dim; i += LANES) {
                size_t n = head_dim - i < LANES ? head_dim - i : LANES;

                v_store_n(p + i, v_mul(v_load_n(p + i, n), v_sigmoid(v_load_n(g + i, n))), n);
            }
        }
}

static void gated_norm(rf_backend *b, size_t n_rows, size_t n_heads, size_t head_dim, rf_mat x, const rf_buf *w,
                       float eps, rf_mat z)
{
#pragma omp parallel for schedule(static) \
    num_threads(cpu_of(b)->n_threads) if (n_rows * n_heads * head_dim >= PARALLEL_FROM)
    for (size_t r = 0; r < n_rows; r++)
        for (size_t h = 0; h < n_heads; h++) {
            float *p = mat_row(x, r) + h * head_dim;
            const float *g = mat_row(z, r) + h * head_dim;

            norm_row(p, w->data, head_dim, eps, p);
            for (size_t i = 0; i < head_dim; i += LANES) {
                size_t n = head_dim - i < LANES ? head_dim - i : LANES;

                v_store_n(p + i, v_mul(v_load_n(p + i, n), v_silu(v_load_n(g + i, n))), n);
            }
        }
}

static void sanitize(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat x, rf_buf *flag)
{
    int32_t replaced = 0;

    (void)b;
    for (size_t r = 0; r < n_rows; r++) {
        float *p = mat_row(x, r);

        for (size_t i = 0; i < n_cols; i++) {
            if (isfinite(p[i]))
                continue;
            p[i] = isnan(p[i]) ? 0.0f : copysignf(65504.0f, p[i]);
            replaced = 1;
        }
    }
    if (replaced)
        memcpy(flag->data, &replaced, sizeof replaced);
}

/* ---- rows */

static void copy_row(float *dst, const float *src, size_t n)
{
    memcpy(dst, src, n * sizeof *dst);
}

static void copy(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat src, rf_mat dst)
{
#pragma omp parallel for schedule(static) num_threads(cpu_of(b)->n_threads) if (n_rows * n_cols >= PARALLEL_FROM)
    for (size_t r = 0; r < n_rows; r++)
        copy_row(mat_row(dst, r), mat_row(src, r), n_cols);
}

static void gather_logit_rows(rf_backend *b, const rf_batch *batch, size_t n_cols, rf_mat src, rf_mat dst)
{
    const cpu_batch *c = cpu_batch_of(batch);

    (void)b;
    for (size_t i = 0; i < c->shape.n_logit_rows; i++)
        copy_row(mat_row(dst, i), mat_row(src, c->logit_rows[i]), n_cols);
}

static float *kept(const rf_buf *store, const rf_batch_seq *s, size_t row, size_t n_cols)
{
    return (float *)store->data + ((size_t)s->slot * RF_MAX_BLOCK + row) * n_cols;
}

static void keep_rows(rf_backend *b, const rf_batch *batch, size_t n_cols, rf_mat src, rf_buf *store)
{
    const cpu_batch *c = cpu_batch_of(batch);

    (void)b;
    for (size_t s = 0; s < c->shape.n_seqs; s++)
        for (size_t i = 0; c->seqs[s].role == RF_ROLE_GENERATED && i < (size_t)c->seqs[s].n_rows; i++)
            copy_row(kept(store, &c->seqs[s], i, n_cols), mat_row(src, c->first_row[s] + i), n_cols);
}

static void take_rows(rf_backend *b, const rf_batch *batch, size_t n_cols, const rf_buf *store, rf_mat dst)
{
    const cpu_batch *c = cpu_batch_of(batch);

    (void)b;
    for (size_t s = 0; s < c->shape.n_seqs; s++)
        for (size_t i = 0; i < (size_t)c->seqs[s].n_rows; i++)
            copy_row(mat_row(dst, c->first_row[s] + i), kept(store, &c->seqs[s], i, n_cols), n_cols);
}

static void keep_last(rf_backend *b, const rf_batch *batch, size_t n_cols, rf_mat src, rf_buf *store)
{
    const cpu_batch *c = cpu_batch_of(batch);

    (void)b;
    for (size_t s = 0; s < c->shape.n_seqs; s++)
        copy_row((float *)store->data + (size_t)c->seqs[s].slot * n_cols,
                 mat_row(src, c->first_row[s] + (size_t)c->seqs[s].n_rows - 1), n_cols);
}

static void shift_rows(rf_backend *b, const rf_batch *batch, size_t n_cols, const rf_buf *store, rf_mat src, rf_mat dst)
{
    const cpu_batch *c = cpu_batch_of(batch);

    (void)b;
    for (size_t s = 0; s < c->shape.n_seqs; s++) {
        size_t first = c->first_row[s];

        copy_row(mat_row(dst, first), (const float *)store->data + (size_t)c->seqs[s].slot * n_cols, n_cols);
        for (size_t i = 1; i < (size_t)c->seqs[s].n_rows; i++)
            copy_row(mat_row(dst, first + i), mat_row(src, first + i - 1), n_cols);
    }
}

/* ---- rotary embedding */

static void rope_prepare(rf_backend *b, const rf_batch *batch, rf_rope *rope)
{
    const cpu_batch *c = cpu_batch_of(batch);

#pragma omp parallel for schedule(static) num_threads(cpu_of(b)->n_threads) if (c->shape.n_rows >= 16)
    for (size_t r = 0; r < c->shape.n_rows; r++)
        for (size_t i = 0; i < rope->half; i++) {
            double angle = (double)c->position[r] * rope->frequency[i];

            rope->cosine[r * rope->half + i] = (float)cos(angle);
            rope->sine[r * rope->half + i] = (float)sin(angle);
        }
}

/* pairs (i, i + half): (a, b) -> (fma(a, c, -(b s)), fma(a, s, b c)) */
static void rotate(float *x, const float *cosine, const float *sine, size_t half)
{
    for (size_t i = 0; i < half; i += LANES) {
        size_t n = half - i < LANES ? half - i : LANES;
        v16 a = v_load_n(x + i, n), z = v_load_n(x + half + i, n), c = v_load_n(cosine + i, n),
            s = v_load_n(sine + i, n);

        v_store_n(x + i, v_fma(a, c, v_sub(v_set1(-0.0f), v_mul(z, s))), n);
        v_store_n(x + half + i, v_fma(a, s, v_mul(z, c)), n);
    }
}

static void head_norm_rope(rf_backend *b, const rf_batch *batch, const rf_rope *rope, size_t n_heads, size_t head_dim,
                           size_t head_stride, const rf_buf *w, float eps, rf_mat x)
{
    size_t n_rows = batch->n_rows;

#pragma omp parallel for schedule(static) \
    num_threads(cpu_of(b)->n_threads) if (n_rows * n_heads * head_dim >= PARALLEL_FROM)
    for (size_t r = 0; r < n_rows; r++)
        for (size_t h = 0; h < n_heads; h++) {
            float *p = mat_row(x, r) + h * head_stride;

            norm_row(p, w->data, head_dim, eps, p);
            rotate(p, rope->cosine + r * rope->half, rope->sine + r * rope->half, rope->half);
        }
}

/* ---- DFlash2 */

/* Columns [at, at + n) of a row, n <= LANES. coefficients: [taps][n_groups]; base: [taps][n_cols]; x: this row, those
 * of `seen` rows before it at distances of `stride`. */
static v16 convolved(const float *coefficients, size_t n_groups, size_t group, const float *base, size_t n_cols,
                     size_t taps, size_t seen, const float *x, size_t stride, size_t at, size_t n)
{
    v16 sum = v_set1(0);

    for (size_t t = 0; t < taps && t <= seen; t++) {
        const float *of_groups = coefficients + t * n_groups;
        float spread[LANES] = {0};
        v16 w;

        if (at / group == (at + n - 1) / group) {
            w = v_set1(of_groups[at / group]);
        } else {
            for (size_t i = 0; i < n; i++)
                spread[i] = of_groups[(at + i) / group];
            w = v_load(spread);
        }
        w = v_add(w, v_load_n(base + t * n_cols + at, n));
        sum = v_fma(w, v_load_n(x - t * stride + at, n), sum);
    }
    return sum;
}

static void dynamic_conv(rf_backend *b, const rf_batch *batch, size_t n_cols, size_t taps, size_t group, size_t side,
                         rf_mat dyn, const rf_buf *base, rf_mat x, rf_mat y)
{
    const cpu_batch *c = cpu_batch_of(batch);
    const float *constant = (const float *)base->data + side * taps * n_cols;
    size_t n_groups = n_cols / group;

#pragma omp parallel for schedule(static) \
    num_threads(cpu_of(b)->n_threads) if (c->shape.n_rows * n_cols >= PARALLEL_FROM)
    for (size_t r = 0; r < c->shape.n_rows; r++) {
        size_t seen = r - c->first_row[c->seq[r]];
        const float *coefficients = mat_row(dyn, r) + side * taps * n_groups;

        for (size_t at = 0; at < n_cols; at += LANES) {
            size_t n = n_cols - at < LANES ? n_cols - at : LANES;

            v_store_n(mat_row(y, r) + at,
                      convolved(coefficients, n_groups, group, constant, n_cols, taps, seen, mat_row(x, r), x.stride,
                                at, n),
                      n);
        }
    }
}

void RF_ISA_NAME(basic_ops)(rf_ops *ops)
{
    ops->embed = embed;
    ops->rms_norm = rms_norm;
    ops->add = add;
    ops->silu_mul = silu_mul;
    ops->sigmoid_mul = sigmoid_mul;
    ops->gated_norm = gated_norm;
    ops->sanitize = sanitize;
    ops->copy = copy;
    ops->gather_logit_rows = gather_logit_rows;
    ops->keep_rows = keep_rows;
    ops->take_rows = take_rows;
    ops->keep_last = keep_last;
    ops->shift_rows = shift_rows;
    ops->rope_prepare = rope_prepare;
    ops->head_norm_rope = head_norm_rope;
    ops->dynamic_conv = dynamic_conv;
}
