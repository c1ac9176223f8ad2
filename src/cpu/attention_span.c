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
#define TOGETHER (V_REGISTERS >= 32 ? 4 : 1)  /* queries that share what is loaded; AT_ONCE / TOGETHER vectors of each */
#define KV_LINES 1024                         /* most bytes of a row that are asked for */
#define KV_AHEAD 4096                         /* bytes, as Q8_AHEAD */

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

        for (size_t line = 0; line < stride && line < KV_LINES; line += 64)
            __builtin_prefetch(src + (at + i) * stride + KV_AHEAD + line);
        if (at + i >= from && at + i < to)
            load_row(src + (at + i) * stride, type, t->d, t->width, row);
        else
            memset(row, 0, t->width * sizeof *row);
    }
}

/* scores[n][position] = scale * q . k of n queries (a constant) with all positions of the block */
static inline __attribute__((always_inline)) void block_scores(const size_t n, const query_tile *t, const float *q,
                                                               float *scores)
{
    const size_t at_once = AT_ONCE / n;
    size_t width = t->width;
    v16 sums[TOGETHER][POSITIONS];

    for (size_t first = 0; first < POSITIONS; first += at_once) {
        const float *k = t->block + first * width;
        v16 acc[TOGETHER][AT_ONCE];

#pragma GCC unroll 4
        for (size_t j = 0; j < n; j++)
#pragma GCC unroll 16
            for (size_t r = 0; r < at_once; r++)
                acc[j][r] = v_set1(0);
        for (size_t i = 0; i < width; i += LANES) {
            v16 part[TOGETHER];

#pragma GCC unroll 4
            for (size_t j = 0; j < n; j++)
                part[j] = v_load(q + j * width + i);
#pragma GCC unroll 16
            for (size_t r = 0; r < at_once; r++) {
                v16 key = v_load(k + r * width + i);

#pragma GCC unroll 4
                for (size_t j = 0; j < n; j++)
                    acc[j][r] = v_fma(part[j], key, acc[j][r]);
            }
        }
#pragma GCC unroll 4
        for (size_t j = 0; j < n; j++)
#pragma GCC unroll 16
            for (size_t r = 0; r < at_once; r++)
                sums[j][first + r] = acc[j][r];
    }
    for (size_t j = 0; j < n; j++)
        v_store(scores + j * SPAN, v_mul(v_sums(sums[j]), v_set1(t->scale)));
}

/* o = fma(p, v, o) for n queries, positions [from, to) of the block ascending, `vectors` of o each; n and vectors are
 * constants */
static inline __attribute__((always_inline)) void add_vectors(const size_t n, const size_t vectors, float *o,
                                                              const float *p, const float *v, size_t width,
                                                              size_t from, size_t to)
{
    v16 acc[TOGETHER][AT_ONCE];

#pragma GCC unroll 4
    for (size_t q = 0; q < n; q++)
#pragma GCC unroll 16
        for (size_t j = 0; j < vectors; j++)
            acc[q][j] = v_load(o + q * width + j * LANES);
    for (size_t i = from; i < to; i++) {
        v16 weight[TOGETHER];

#pragma GCC unroll 4
        for (size_t q = 0; q < n; q++)
            weight[q] = v_set1(p[q * SPAN + i]);
#pragma GCC unroll 16
        for (size_t j = 0; j < vectors; j++) {
            v16 value = v_load(v + i * width + j * LANES);

#pragma GCC unroll 4
            for (size_t q = 0; q < n; q++)
                acc[q][j] = v_fma(weight[q], value, acc[q][j]);
        }
    }
#pragma GCC unroll 4
    for (size_t q = 0; q < n; q++)
#pragma GCC unroll 16
        for (size_t j = 0; j < vectors; j++)
            v_store(o + q * width + j * LANES, acc[q][j]);
}

static void add_values(const query_tile *t, float *o, const float *p, size_t from, size_t to)
{
    size_t at = 0, width = t->width;

    for (; at + AT_ONCE * LANES <= width; at += AT_ONCE * LANES)
        add_vectors(1, AT_ONCE, o + at, p, t->block + at, width, from, to);
    for (; at + 4 * LANES <= width; at += 4 * LANES)
        add_vectors(1, 4, o + at, p, t->block + at, width, from, to);
    for (; at < width; at += LANES)
        add_vectors(1, 1, o + at, p, t->block + at, width, from, to);
}

/* Of TOGETHER queries, all positions of the block */
static void add_values_together(const query_tile *t, float *o, const float *p)
{
    size_t at = 0, width = t->width;

    for (; at + 4 * LANES <= width; at += 4 * LANES)
        add_vectors(TOGETHER, 4, o + at, p, t->block + at, width, 0, POSITIONS);
    for (; at < width; at += LANES)
        add_vectors(TOGETHER, 1, o + at, p, t->block + at, width, 0, POSITIONS);
}

/* Whether queries [i, i + TOGETHER) see all positions of the block at `at` */
static bool all_see(const query_tile *t, size_t i, size_t at)
{
    if (TOGETHER == 1 || i + TOGETHER > t->n)
        return false;
    for (size_t j = i; j < i + TOGETHER; j++)
        if (t->from[j] > at || t->to[j] < at + POSITIONS)
            return false;
    return true;
}

static void score_block(const query_tile *t, size_t at)
{
    for (size_t i = 0; i < t->n;) {
        float *scores = t->p + i * SPAN + at;
        const float *q = t->q + i * t->width;

        if (all_see(t, i, at)) {
            block_scores(TOGETHER, t, q, scores);
            i += TOGETHER;
            continue;
        }
        if (t->from[i] < at + POSITIONS && t->to[i] > at)
            block_scores(1, t, q, scores);
        i++;
    }
}

static void value_block(const query_tile *t, size_t at, float *o)
{
    for (size_t i = 0; i < t->n;) {
        size_t first = MAX(t->from[i], at), end = MIN(t->to[i], at + POSITIONS);
        const float *p = t->p + i * SPAN + at;

        if (all_see(t, i, at)) {
            add_values_together(t, o + i * t->width, p);
            i += TOGETHER;
            continue;
        }
        if (first < end)
            add_values(t, o + i * t->width, p, first - at, end - at);
        i++;
    }
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
        score_block(t, at);
    }
    for (size_t i = 0; i < t->n; i++)
        if (t->from[i] < t->to[i]) {
            exponentials(t->p + i * SPAN, t->from[i], t->to[i], &out.m[i], &out.l[i]);
            memset(out.o + i * t->width, 0, t->width * sizeof *out.o);
        }
    for (size_t at = from / POSITIONS * POSITIONS; at < to; at += POSITIONS) {
        load_block(t, rows->v, rows->v_stride, rows->type_v, at, from, to);
        value_block(t, at, out.o);
    }
}
