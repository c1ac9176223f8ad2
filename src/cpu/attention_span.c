/* One span for a tile of queries: 16 positions at a time are converted to float32 once and serve all queries of the
 * tile. */
#include "config.h"

#include "../quant.h"
#include "attention.h"
#include "vec16.h"

#define POSITIONS LANES /* of a block */
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define AT_ONCE (V_REGISTERS >= 32 ? 16 : 4) /* vectors that stay in registers */

/* Row of d cached elements to float32, zeros up to width */
static void load_row(const unsigned char *src, uint32_t type, size_t d, size_t width, float *dst)
{
    size_t i = 0;
    uint16_t half[LANES] = {0};

    if (type == RF_TYPE_F32) {
        for (; i + LANES <= d; i += LANES)
            v_store(dst + i, v_load((const float *)(const void *)src + i));
        if (i < width)
            v_store(dst + i, v_load_n((const float *)(const void *)src + i, d - i));
        return;
    }
    for (; i + LANES <= d; i += LANES)
        v_store(dst + i, v_load_f16((const uint16_t *)(const void *)src + i));
    if (i < width) {
        memcpy(half, (const uint16_t *)(const void *)src + i, (d - i) * sizeof *half);
        v_store(dst + i, v_load_f16(half));
    }
}

/* Positions [at, at + POSITIONS) of the span, those of [from, to); the others are not read and become 0. */
static void load_block(const query_tile *t, const unsigned char *src, size_t stride, uint32_t type, size_t at,
                       size_t from, size_t to)
{
    for (size_t i = 0; i < POSITIONS; i++) {
        float *row = t->block + i * t->width;

        if (at + i >= from && at + i < to)
            load_row(src + (at + i) * stride, type, t->d, t->width, row);
        else
            memset(row, 0, t->width * sizeof *row);
    }
}

/* q . k of all positions of the block */
static inline v16 block_scores(const query_tile *t, const float *q)
{
    v16 sums[POSITIONS];

    for (size_t first = 0; first < POSITIONS; first += AT_ONCE) {
        const float *k = t->block + first * t->width;
        v16 acc[AT_ONCE];

#pragma GCC unroll 16
        for (size_t r = 0; r < AT_ONCE; r++)
            acc[r] = v_set1(0);
        for (size_t i = 0; i < t->width; i += LANES) {
            v16 part = v_load(q + i);

#pragma GCC unroll 16
            for (size_t r = 0; r < AT_ONCE; r++)
                acc[r] = v_fma(part, v_load(k + r * t->width + i), acc[r]);
        }
#pragma GCC unroll 16
        for (size_t r = 0; r < AT_ONCE; r++)
            sums[first + r] = acc[r];
    }
    return v_sums(sums);
}

/* o = fma(p, v, o), positions [from, to) of the block ascending, `vectors` (a constant) of o */
static inline __attribute__((always_inline)) void add_vectors(const size_t vectors, float *o, const float *p,
                                                              const float *v, size_t width, size_t from, size_t to)
{
    v16 acc[AT_ONCE];

#pragma GCC unroll 16
    for (size_t j = 0; j < vectors; j++)
        acc[j] = v_load(o + j * LANES);
    for (size_t i = from; i < to; i++) {
        v16 weight = v_set1(p[i]);

#pragma GCC unroll 16
        for (size_t j = 0; j < vectors; j++)
            acc[j] = v_fma(weight, v_load(v + i * width + j * LANES), acc[j]);
    }
#pragma GCC unroll 16
    for (size_t j = 0; j < vectors; j++)
        v_store(o + j * LANES, acc[j]);
}

static void add_values(const query_tile *t, float *o, const float *p, size_t from, size_t to)
{
    size_t at = 0, width = t->width;

    for (; at + AT_ONCE * LANES <= width; at += AT_ONCE * LANES)
        add_vectors(AT_ONCE, o + at, p, t->block + at, width, from, to);
    for (; at + 4 * LANES <= width; at += 4 * LANES)
        add_vectors(4, o + at, p, t->block + at, width, from, to);
    for (; at < width; at += LANES)
        add_vectors(1, o + at, p, t->block + at, width, from, to);
}

/* Scores p[from .. to) become exp(p - m), the rest of their lanes 0. */
static void exponentials(float *p, size_t from, size_t to, float *m, float *l)
{
    v16 most = v_set1(-INFINITY), sum = v_set1(0);
    size_t first = from / LANES * LANES, end = (to + LANES - 1) / LANES * LANES;

    for (size_t i = first; i < from; i++)
        p[i] = -INFINITY;
    for (size_t i = to; i < end; i++)
        p[i] = -INFINITY;
    for (size_t i = first; i < end; i += LANES)
        most = v_max(v_load(p + i), most);
    *m = v_largest(most);
    most = v_set1(*m);
    for (size_t i = first; i < end; i += LANES) {
        v16 e = v_exp(v_sub(v_load(p + i), most));

        v_store(p + i, e);
        sum = v_add(sum, e);
    }
    *l = v_sum(sum);
}

void RF_ISA_NAME(attend_span)(const query_tile *t, const span_rows *rows, span_sums out)
{
    size_t from = SPAN, to = 0;

    for (size_t i = 0; i < t->n; i++)
        if (t->from[i] < t->to[i]) {
            from = MIN(from, t->from[i]);
            to = MAX(to, t->to[i]);
        }
    for (size_t at = from / POSITIONS * POSITIONS; at < to; at += POSITIONS) {
        load_block(t, rows->k, rows->k_stride, rows->type_k, at, from, to);
        for (size_t i = 0; i < t->n; i++)
            if (t->from[i] < at + POSITIONS && t->to[i] > at)
                v_store(t->p + i * SPAN + at, v_mul(block_scores(t, t->q + i * t->width), v_set1(t->scale)));
    }
    for (size_t i = 0; i < t->n; i++)
        if (t->from[i] < t->to[i]) {
            exponentials(t->p + i * SPAN, t->from[i], t->to[i], &out.m[i], &out.l[i]);
            memset(out.o + i * t->width, 0, t->width * sizeof *out.o);
        }
    for (size_t at = from / POSITIONS * POSITIONS; at < to; at += POSITIONS) {
        load_block(t, rows->v, rows->v_stride, rows->type_v, at, from, to);
        for (size_t i = 0; i < t->n; i++) {
            size_t first = MAX(t->from[i], at), end = MIN(t->to[i], at + POSITIONS);

            if (first < end)
                add_values(t, out.o + i * t->width, t->p + i * SPAN + at, first - at, end - at);
        }
    }
}
