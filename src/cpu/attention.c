/* KV store and attention in spans of 256 absolute positions. Orders: backend.h. */
#include "config.h"

#include "../quant.h"
#include "isa.h"
#include "vec16.h"

/* One (row, head) under way: m largest score, l sum, o [D] weighted values, all over the spans so far. */
typedef struct {
    float m, l;
    float *o;    /* [D] */
    float *span; /* [D] this span's values */
    float *p;    /* [SPAN] scores, then probabilities, by offset in the span */
} partial;

static inline v16 load_cached(const unsigned char *p, uint32_t type, size_t i)
{
    return type == RF_TYPE_F32 ? v_load((const float *)(const void *)p + i) : v_load_f16((const uint16_t *)(const void *)p + i);
}

/* the last n < 16 elements */
static inline v16 load_cached_n(const unsigned char *p, uint32_t type, size_t i, size_t n)
{
    uint16_t half[LANES] = {0};

    if (type == RF_TYPE_F32)
        return v_load_n((const float *)(const void *)p + i, n);
    memcpy(half, (const uint16_t *)(const void *)p + i, n * sizeof *half);
    return v_load_f16(half);
}

static inline float dot_cached(const float *q, const unsigned char *k, uint32_t type, size_t d)
{
    v16 acc = v_set1(0);
    size_t i = 0;

    for (; i + LANES <= d; i += LANES)
        acc = v_fma(v_load(q + i), load_cached(k, type, i), acc);
    if (i < d)
        acc = v_fma(v_load_n(q + i, d - i), load_cached_n(k, type, i, d - i), acc);
    return v_sum(acc);
}

/* o = fma(p, v, o) */
static inline void add_cached(float *o, float p, const unsigned char *v, uint32_t type, size_t d)
{
    v16 weight = v_set1(p);
    size_t i = 0;

    for (; i + LANES <= d; i += LANES)
        v_store(o + i, v_fma(weight, load_cached(v, type, i), v_load(o + i)));
    if (i < d)
        v_store_n(o + i, v_fma(weight, load_cached_n(v, type, i, d - i), v_load_n(o + i, d - i)), d - i);
}

/* Scores p[from .. to) become exp(s - m), the rest of their lanes 0; returns their sum by 16 lanes. */
static float exponentials(float *p, size_t from, size_t to, float m)
{
    v16 sum = v_set1(0), max = v_set1(m);
    size_t first = from / LANES * LANES, end = (to + LANES - 1) / LANES * LANES;

    for (size_t i = first; i < from; i++)
        p[i] = -INFINITY;
    for (size_t i = to; i < end; i++)
        p[i] = -INFINITY;
    for (size_t i = first; i < end; i += LANES) {
        v16 e = v_exp(v_sub(v_load(p + i), max));

        v_store(p + i, e);
        sum = v_add(sum, e);
    }
    return v_sum(sum);
}

/* M = max, a = exp(m1 - M), c = exp(m2 - M), l = fma(l2, c, l1 a), o = fma(o2, c, o1 a) */
static void combine(partial *t, float m, float l, size_t d)
{
    float most = t->m > m ? t->m : m, a = s_exp(t->m - most), c = s_exp(m - most);
    v16 va = v_set1(a), vc = v_set1(c);

    t->l = fmaf(l, c, t->l * a);
    for (size_t i = 0; i < d; i += LANES) {
        size_t n = d - i < LANES ? d - i : LANES;

        v_store_n(t->o + i, v_fma(v_load_n(t->span + i, n), vc, v_mul(v_load_n(t->o + i, n), va)), n);
    }
    t->m = most;
}

typedef struct {
    const unsigned char *k, *v;  /* element (i, 0) at i * stride bytes */
    size_t k_stride, v_stride;
    uint32_t type_k, type_v;
} rows_of;

/* A span whose seen rows are [from, to). */
static void add_span(partial *t, const float *q, rows_of rows, size_t from, size_t to, size_t d)
{
    float scale = 1.0f / sqrtf((float)d), m = -INFINITY, l;

    for (size_t i = from; i < to; i++) {
        t->p[i] = dot_cached(q, rows.k + i * rows.k_stride, rows.type_k, d) * scale;
        m = t->p[i] > m ? t->p[i] : m;
    }
    l = exponentials(t->p, from, to, m);
    memset(t->span, 0, d * sizeof *t->span);
    for (size_t i = from; i < to; i++)
        add_cached(t->span, t->p[i], rows.v + i * rows.v_stride, rows.type_v, d);
    combine(t, m, l, d);
}

/* Cached positions [first, end), in spans. */
static void add_cache(partial *t, const float *q, const rf_kv *kv, size_t slot, size_t head, int64_t first, int64_t end)
{
    size_t d = kv->spec.head_dim;

    if (first >= end) /* the row sees nothing here */
        return;
    for (int64_t start = first / SPAN * SPAN; start < end; start += SPAN) {
        size_t place = kv_place(kv, slot, head, start);
        rows_of rows = {kv->k + place * kv->k_size, kv->v + place * kv->v_size, d * kv->k_size, d * kv->v_size, kv->spec.type_k, kv->spec.type_v};
        int64_t from = first > start ? first : start, to = end < start + SPAN ? end : start + SPAN;

        add_span(t, q, rows, (size_t)(from - start), (size_t)(to - start), d);
    }
}

static partial begin(rf_backend *b, float *out, size_t d)
{
    float *scratch = cpu_scratch(cpu_of(b));
    partial t = {-INFINITY, 0, out, scratch + SPAN, scratch};

    memset(out, 0, d * sizeof *out);
    return t;
}

static void finish(const partial *t, size_t d)
{
    v16 l = v_set1(t->l);

    if (t->m == -INFINITY && t->l == 0) /* nothing seen: zeros */
        return;
    for (size_t i = 0; i < d; i += LANES) {
        size_t n = d - i < LANES ? d - i : LANES;

        v_store_n(t->o + i, v_div(v_load_n(t->o + i, n), l), n);
    }
}

static size_t kv_head_of(const rf_attention_spec *s, size_t head)
{
    return (s->first_head + head) / s->heads_per_kv - s->first_kv;
}

static int64_t first_seen(const rf_attention_spec *s, int64_t position)
{
    int64_t first = s->window && position - (int64_t)s->window + 1 > 0 ? position - (int64_t)s->window + 1 : 0;

    return first > (int64_t)s->first_pos ? first : (int64_t)s->first_pos;
}

static void attention(rf_backend *b, const rf_batch *batch, const rf_kv *kv, const rf_attention_spec *s, rf_mat q, rf_mat out)
{
    const cpu_batch *c = cpu_batch_of(batch);

#pragma omp parallel for collapse(2) schedule(dynamic, 1) num_threads(cpu_of(b)->n_threads)
    for (size_t r = 0; r < c->shape.n_rows; r++)
        for (size_t h = 0; h < s->n_heads; h++) {
            partial t = begin(b, mat_row(out, r) + h * s->head_dim, s->head_dim);

            add_cache(&t, mat_row(q, r) + h * s->head_stride, kv, (size_t)c->seqs[c->seq[r]].slot, kv_head_of(s, h),
                      first_seen(s, c->position[r]), c->position[r] + 1);
            finish(&t, s->head_dim);
        }
}

/* What storing and loading again would give. */
static void round_to_cache(float *x, uint32_t type, size_t n)
{
    for (size_t i = 0; type == RF_TYPE_F16 && i < n; i++)
        x[i] = rf_f16_to_f32(rf_f32_to_f16(x[i]));
}

static void attention_block(rf_backend *b, const rf_batch *batch, const rf_kv *kv, const rf_attention_spec *s, rf_mat q, rf_mat k, rf_mat v,
                            rf_mat out)
{
    const cpu_batch *c = cpu_batch_of(batch);
    size_t d = s->head_dim;

    for (size_t r = 0; r < c->shape.n_rows; r++) {
        round_to_cache(mat_row(k, r), kv->spec.type_k, kv->spec.n_heads * d);
        round_to_cache(mat_row(v, r), kv->spec.type_v, kv->spec.n_heads * d);
    }
#pragma omp parallel for collapse(2) schedule(dynamic, 1) num_threads(cpu_of(b)->n_threads)
    for (size_t r = 0; r < c->shape.n_rows; r++)
        for (size_t h = 0; h < s->n_heads; h++) {
            const rf_batch_seq *seq = &c->seqs[c->seq[r]];
            size_t first = c->first_row[c->seq[r]], head = kv_head_of(s, h);
            partial t = begin(b, mat_row(out, r) + h * d, d);
            const float *query = mat_row(q, r) + h * s->head_stride;
            rows_of rows = {(const unsigned char *)(mat_row(k, first) + head * d), (const unsigned char *)(mat_row(v, first) + head * d),
                            k.stride * sizeof(float), v.stride * sizeof(float), RF_TYPE_F32, RF_TYPE_F32};

            add_cache(&t, query, kv, (size_t)seq->slot, head, first_seen(s, c->position[r]), seq->first_pos);
            add_span(&t, query, rows, 0, (size_t)seq->n_rows, d);
            finish(&t, d);
        }
}

static void store_row(unsigned char *dst, uint32_t type, const float *src, size_t n)
{
    if (type == RF_TYPE_F32) {
        memcpy(dst, src, n * sizeof *src);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t half = rf_f32_to_f16(src[i]);

        memcpy(dst + i * sizeof half, &half, sizeof half);
    }
}

static void kv_store(rf_backend *b, const rf_batch *batch, rf_kv *kv, rf_mat k, rf_mat v)
{
    const cpu_batch *c = cpu_batch_of(batch);
    size_t d = kv->spec.head_dim;

#pragma omp parallel for schedule(static) num_threads(cpu_of(b)->n_threads) if (c->shape.n_rows >= 16)
    for (size_t r = 0; r < c->shape.n_rows; r++)
        for (size_t h = 0; h < kv->spec.n_heads; h++) {
            size_t at = kv_place(kv, (size_t)c->seqs[c->seq[r]].slot, h, c->position[r]);

            store_row(kv->k + at * kv->k_size, kv->spec.type_k, mat_row(k, r) + h * d, d);
            store_row(kv->v + at * kv->v_size, kv->spec.type_v, mat_row(v, r) + h * d, d);
        }
}

void RF_ISA_NAME(attention_ops)(rf_ops *ops)
{
    ops->attention = attention;
    ops->attention_block = attention_block;
    ops->kv_store = kv_store;
}
