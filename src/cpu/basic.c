/* Norms, elementwise ops, row copies, rotary embedding, the DFlash2 convolution. Orders: backend.h. */
#include "config.h"

#include "../quant.h"
#include "isa.h"
#include "vec16.h"

#define SHARED_FROM 8192 /* elements: below this handing work to other threads costs more than it saves */

/* Rows (or heads x rows) of an op, as its parts see them. */
typedef struct {
    size_t n_rows, n_cols, shares;
    size_t stride_x, stride_z; /* of a head, in x and in z */
    rf_mat x, y, z;
    const float *w;
    float eps;
} rows_work;

typedef struct {
    const cpu_batch *c;
    const rf_weight_spec *table;
    float scale;
    rf_mat x;
} embed_work;

static void embed_part(const void *work, size_t first, size_t end)
{
    const embed_work *e = work;
    const rf_format *f = rf_format_find(e->table->type);
    size_t n_cols = e->table->n_cols, row_bytes = n_cols / f->block * f->bytes;

    for (size_t r = first; r < end; r++) {
        float *y = mat_row(e->x, r);

        f->unpack((const unsigned char *)e->table->data + (size_t)e->c->tokens[r] * row_bytes, y, n_cols);
        for (size_t i = 0; e->scale != 1.0f && i < n_cols; i++)
            y[i] *= e->scale;
    }
}

static void embed(rf_backend *b, const rf_batch *batch, const rf_weight_spec *table, float scale, rf_mat x)
{
    embed_work e = {cpu_batch_of(batch), table, scale, x};

    cpu_team_each_if(team_of(b), batch->n_rows * table->n_cols >= SHARED_FROM, batch->n_rows, embed_part, &e);
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

static void rms_norm_part(const void *work, size_t first, size_t end)
{
    const rows_work *k = work;

    for (size_t r = first; r < end; r++)
        norm_row(mat_row(k->x, r), k->w, k->n_cols, k->eps, mat_row(k->y, r));
}

static void rms_norm(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat x, const rf_buf *w, float eps, rf_mat y)
{
    rows_work k = {.n_cols = n_cols, .x = x, .y = y, .w = w->data, .eps = eps};

    cpu_team_each_if(team_of(b), n_rows * n_cols >= SHARED_FROM, n_rows, rms_norm_part, &k);
}

typedef v16 (*binary)(v16, v16);

/* y = f(x, z), lane by lane: columns [from, to) of rows [first, end) */
static inline __attribute__((always_inline)) void each(const rows_work *k, size_t first, size_t end, size_t from,
                                                       size_t to, binary f)
{
    for (size_t r = first; r < end; r++) {
        const float *p = mat_row(k->x, r), *q = mat_row(k->z, r);
        float *o = mat_row(k->y, r);
        size_t i = from;

        for (; i + LANES <= to; i += LANES)
            v_store(o + i, f(v_load(p + i), v_load(q + i)));
        if (i < to)
            v_store_n(o + i, f(v_load_n(p + i, to - i), v_load_n(q + i, to - i)), to - i);
    }
}

static void add_part(const void *work, size_t first, size_t end)
{
    const rows_work *k = work;

    each(k, first, end, 0, k->n_cols, v_add);
}

static void add(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat x, rf_mat y)
{
    rows_work k = {.n_cols = n_cols, .x = x, .z = y, .y = x};

    cpu_team_each_if(team_of(b), n_rows * n_cols >= SHARED_FROM, n_rows, add_part, &k);
}

static inline v16 gated(v16 g, v16 up)
{
    return v_mul(v_silu(g), up);
}

/* Items are shares of the columns, in whole vectors. */
static void silu_mul_part(const void *work, size_t first, size_t end)
{
    const rows_work *k = work;
    size_t vectors = (k->n_cols + LANES - 1) / LANES, from = cpu_share_first(vectors, first, k->shares) * LANES,
           to = cpu_share_first(vectors, end, k->shares) * LANES;

    each(k, 0, k->n_rows, from, to < k->n_cols ? to : k->n_cols, gated);
}

static void silu_mul(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat gate, rf_mat up, rf_mat y)
{
    size_t shares = cpu_team_shares(team_of(b), n_rows * n_cols >= SHARED_FROM);
    rows_work k = {.n_rows = n_rows, .n_cols = n_cols, .shares = shares, .x = gate, .z = up, .y = y};

    cpu_team_each(team_of(b), shares, silu_mul_part, &k);
}

/* x *= f(z) over a head */
static inline __attribute__((always_inline)) void multiply_by(float *x, const float *z, size_t n, v16 (*f)(v16))
{
    for (size_t i = 0; i < n; i += LANES) {
        size_t some = n - i < LANES ? n - i : LANES;

        v_store_n(x + i, v_mul(v_load_n(x + i, some), f(v_load_n(z + i, some))), some);
    }
}

static void sigmoid_mul_part(const void *work, size_t first, size_t end)
{
    const rows_work *k = work;

    for (size_t i = first; i < end; i++) {
        size_t r = i % k->n_rows, h = i / k->n_rows;

        multiply_by(mat_row(k->x, r) + h * k->stride_x, mat_row(k->z, r) + h * k->stride_z, k->n_cols, v_sigmoid);
    }
}

static void sigmoid_mul(rf_backend *b, size_t n_rows, size_t n_heads, size_t head_dim, rf_mat x, rf_mat gate,
                        size_t gate_stride)
{
    rows_work k = {.n_rows = n_rows, .n_cols = head_dim, .stride_x = head_dim, .stride_z = gate_stride, .x = x,
                   .z = gate};

    cpu_team_each_if(team_of(b), n_rows * n_heads * head_dim >= SHARED_FROM, n_rows * n_heads, sigmoid_mul_part, &k);
}

static void gated_norm_part(const void *work, size_t first, size_t end)
{
    const rows_work *k = work;

    for (size_t i = first; i < end; i++) {
        size_t r = i % k->n_rows, at = i / k->n_rows * k->n_cols;
        float *p = mat_row(k->x, r) + at;

        norm_row(p, k->w, k->n_cols, k->eps, p);
        multiply_by(p, mat_row(k->z, r) + at, k->n_cols, v_silu);
    }
}

static void gated_norm(rf_backend *b, size_t n_rows, size_t n_heads, size_t head_dim, rf_mat x, const rf_buf *w,
                       float eps, rf_mat z)
{
    rows_work k = {.n_rows = n_rows, .n_cols = head_dim, .x = x, .z = z, .w = w->data, .eps = eps};

    cpu_team_each_if(team_of(b), n_rows * n_heads * head_dim >= SHARED_FROM, n_rows * n_heads, gated_norm_part, &k);
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

static void copy_part(const void *work, size_t first, size_t end)
{
    const rows_work *k = work;

    for (size_t r = first; r < end; r++)
        copy_row(mat_row(k->y, r), mat_row(k->x, r), k->n_cols);
}

static void copy(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat src, rf_mat dst)
{
    rows_work k = {.n_cols = n_cols, .x = src, .y = dst};

    cpu_team_each_if(team_of(b), n_rows * n_cols >= SHARED_FROM, n_rows, copy_part, &k);
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

typedef struct {
    const cpu_batch *c;
    rf_rope *rope;
} rope_work;

static void rope_part(const void *work, size_t first, size_t end)
{
    const rope_work *k = work;
    rf_rope *rope = k->rope;

    for (size_t r = first; r < end; r++)
        for (size_t i = 0; i < rope->half; i++) {
            double angle = (double)k->c->position[r] * rope->frequency[i];

            rope->cosine[r * rope->half + i] = (float)cos(angle);
            rope->sine[r * rope->half + i] = (float)sin(angle);
        }
}

static void rope_prepare(rf_backend *b, const rf_batch *batch, rf_rope *rope)
{
    rope_work k = {cpu_batch_of(batch), rope};

    cpu_team_each_if(team_of(b), batch->n_rows >= 8, batch->n_rows, rope_part, &k);
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

typedef struct {
    rows_work rows;
    const rf_rope *rope;
} head_work;

static void head_norm_rope_part(const void *work, size_t first, size_t end)
{
    const head_work *k = work;
    const rf_rope *rope = k->rope;

    for (size_t i = first; i < end; i++) {
        size_t r = i % k->rows.n_rows;
        float *p = mat_row(k->rows.x, r) + i / k->rows.n_rows * k->rows.stride_x;

        norm_row(p, k->rows.w, k->rows.n_cols, k->rows.eps, p);
        rotate(p, rope->cosine + r * rope->half, rope->sine + r * rope->half, rope->half);
    }
}

static void head_norm_rope(rf_backend *b, const rf_batch *batch, const rf_rope *rope, size_t n_heads, size_t head_dim,
                           size_t head_stride, const rf_buf *w, float eps, rf_mat x)
{
    head_work k = {
        {.n_rows = batch->n_rows, .n_cols = head_dim, .stride_x = head_stride, .x = x, .w = w->data, .eps = eps}, rope};
    size_t n = batch->n_rows * n_heads;

    cpu_team_each_if(team_of(b), n * head_dim >= SHARED_FROM, n, head_norm_rope_part, &k);
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

typedef struct {
    const cpu_batch *c;
    size_t n_cols, taps, group, side;
    rf_mat dyn, x, y;
    const float *constant; /* [taps][n_cols] */
} conv_work;

static void dynamic_conv_part(const void *work, size_t first, size_t end)
{
    const conv_work *k = work;
    size_t n_groups = k->n_cols / k->group;

    for (size_t r = first; r < end; r++) {
        size_t seen = r - k->c->first_row[k->c->seq[r]];
        const float *coefficients = mat_row(k->dyn, r) + k->side * k->taps * n_groups;

        for (size_t at = 0; at < k->n_cols; at += LANES) {
            size_t n = k->n_cols - at < LANES ? k->n_cols - at : LANES;

            v_store_n(mat_row(k->y, r) + at,
                      convolved(coefficients, n_groups, k->group, k->constant, k->n_cols, k->taps, seen,
                                mat_row(k->x, r), k->x.stride, at, n),
                      n);
        }
    }
}

static void dynamic_conv(rf_backend *b, const rf_batch *batch, size_t n_cols, size_t taps, size_t group, size_t side,
                         rf_mat dyn, const rf_buf *base, rf_mat x, rf_mat y)
{
    conv_work k = {cpu_batch_of(batch), n_cols, taps, group, side, dyn, x, y,
                   (const float *)base->data + side * taps * n_cols};

    cpu_team_each_if(team_of(b), batch->n_rows * n_cols >= SHARED_FROM, batch->n_rows, dynamic_conv_part, &k);
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
