/* KV store and attention in spans of 256 absolute positions.
 *
 * A block of the span kernel takes a tile of Q queries (rows x query heads) that share a sequence and a KV head, and one
 * span; its sums m, l and o wait in memory (a unit each) until the combine kernel adds those of a query up in ascending
 * order. Spans go in waves where their units do not fit at once. So a long cache is spread over the device, and neither
 * Q nor the wave changes a bit.
 *
 * Orders. q.k: 8 lanes, chunks of 8 elements in turn, fma ascending, then the sum of 8 lanes; times 1 / sqrtf(D). m: the
 * largest; p = exp(s - m); l: position i in lane i mod 32, ascending, then the sum of a group. o: positions in four parts
 * of 64, each fma(p, v, o) ascending from +0, parts added ascending. Combining: as backend.h says. */
#include "gpu_internal.h"

#include "device.h"

namespace RT_SPACE {

#define THREADS 256
#define LANES 8 /* of a position in q.k */
#define PARTS 4 /* of a span in p.v */
#define PART (SPAN / PARTS)
#define DIMS (THREADS / PARTS) /* elements of o that are worked on at a time */

typedef struct {
    rt_batch_view batch;
    const uint32_t *table;
    const unsigned char *k, *v;
    unsigned n_blocks, n_cached_heads, d;
    bool ring, half_k, half_v;
    /* rf_attention_spec */
    unsigned n_heads, head_stride, first_head, heads_per_kv, first_kv, first_head_kv; /* the KV head of query head 0 */
    int64_t window, first_pos;
    rt_mat q, out;
    /* attention_block: rows that are not stored make a span of their own behind the cached ones */
    bool block;
    rt_mat block_k, block_v;
    /* This wave: spans [first_span, first_span + wave) of n_spans, span_zero is absolute span number `span_zero`. */
    int64_t span_zero;
    unsigned first_span, wave, n_cached_spans;
    unsigned first_row, end_row; /* rows of the batch that have units now */
    float *units;                /* [query][wave][2 + d] */
    float *totals;               /* [turn of 2][query][2] */
    unsigned turn;
    bool last;
} attention_view;

/* Where the keys or values of a span lie. */
typedef struct {
    const unsigned char *p;
    size_t stride; /* bytes a position */
    bool half;
} span_rows;

RT_DEVICE void seen_of(const attention_view &a, const rf_batch_seq &seq, unsigned row, unsigned span, int *from, int *to)
{
    int64_t position = seq.first_pos + row, first = a.window && position - a.window + 1 > 0 ? position - a.window + 1 : 0,
            end = a.block ? seq.first_pos : position + 1, start = (a.span_zero + span) * SPAN;

    if (a.block && span == a.n_cached_spans) { /* the block itself: everyone sees all of it */
        *from = 0;
        *to = seq.n_rows;
        return;
    }
    first = (first > a.first_pos ? first : a.first_pos) - start;
    end -= start;
    *from = (int)(first < 0 ? 0 : first > SPAN ? SPAN : first);
    *to = (int)(end < 0 ? 0 : end > SPAN ? SPAN : end);
}

RT_DEVICE span_rows rows_of(const attention_view &a, uint32_t seq, unsigned kv_head, unsigned span, bool values)
{
    size_t block, element;
    span_rows rows;

    if (a.block && span == a.n_cached_spans) {
        const rt_mat &m = values ? a.block_v : a.block_k;

        rows.p = reinterpret_cast<const unsigned char *>(m.p + a.batch.first_row[seq] * m.stride + kv_head * a.d);
        rows.stride = m.stride * sizeof(float);
        rows.half = false;
        return rows;
    }
    block = (size_t)(a.span_zero + span);
    block = a.ring ? block % a.n_blocks : block;
    rows.half = values ? a.half_v : a.half_k;
    element = rows.half ? sizeof(uint16_t) : sizeof(float);
    rows.stride = a.d * element;
    rows.p = (values ? a.v : a.k) +
             ((size_t)a.table[(size_t)a.batch.seqs[seq].slot * a.n_blocks + block] * a.n_cached_heads + kv_head) * SPAN *
                 rows.stride;
    return rows;
}

/* x[0 .. 8) = elements [i, i + 8) of a row of d, zeros behind its end. */
RT_DEVICE void load_eight(const unsigned char *row, bool half, size_t i, size_t d, float (&x)[8])
{
    if (d % 8) {
        for (size_t j = 0; j < 8; j++)
            x[j] = i + j < d ? rt_load(row, half, i + j) : 0.0f;
    } else if (half) {
        four_words w = *reinterpret_cast<const four_words *>(row + i * sizeof(uint16_t));

        RT_UNROLL
        for (int j = 0; j < 4; j++) {
            x[2 * j] = rt_f16_to_f32((uint16_t)(uint32_t)w.v[j]);
            x[2 * j + 1] = rt_f16_to_f32((uint16_t)((uint32_t)w.v[j] >> 16));
        }
    } else {
        RT_UNROLL
        for (int j = 0; j < 8; j++)
            x[j] = reinterpret_cast<const float *>(row)[i + j];
    }
}

/* Scores of all queries at the positions of the span that any of them sees: p[query][SPAN]. */
template <int Q>
RT_DEVICE void score(const attention_view &a, const span_rows &k, rt_shared<float> q, rt_shared<float> p, int low, int high)
{
    unsigned lane = rt_thread() % LANES, d = a.d;
    float scale = 1.0f / sqrtf((float)d);

    for (int base = 0; base < SPAN; base += THREADS / LANES) {
        int position = base + (int)(rt_thread() / LANES);
        bool there = position >= low && position < high;
        unsigned index;
        float acc[Q];

        if (base + THREADS / LANES <= low || base >= high) /* the same for the whole block */
            continue;
        RT_UNROLL
        for (int i = 0; i < Q; i++)
            acc[i] = 0;
        for (unsigned at = lane * 8; there && at < d; at += LANES * 8) {
            unsigned n = d - at < 8 ? d - at : 8;
            float x[8];

            load_eight(k.p + (size_t)position * k.stride, k.half, at, d, x);
            for (unsigned j = 0; j < n; j++)
                RT_UNROLL
                for (int i = 0; i < Q; i++)
                    acc[i] = fmaf(q[i * d + at + j], x[j], acc[i]);
        }
        if (share_sums<LANES, Q>(acc, &index) && there)
            for (int i = 0; i < sums_held<LANES, Q>::COUNT; i++)
                p[(index + i) * SPAN + position] = acc[i] * scale;
    }
}

/* Scores [from, to) of a query become exp(s - m), all others -1: nothing to be multiplied. */
RT_DEVICE void soften(rt_shared<float> p, int from, int to, float *m, float *l)
{
    unsigned lane = rt_thread() % RT_GROUP;
    float most = rt_bits_to_f32(0xff800000u), sum = 0;

    for (int i = (int)lane; i < SPAN; i += RT_GROUP)
        if (i >= from && i < to) {
            float s = p[i];

            most = s > most || s != s ? s : most; /* NaN is passed on */
        }
    for (unsigned mask = RT_GROUP / 2; mask; mask /= 2) {
        float other = rt_shuffle_xor(most, mask);

        most = other > most || other != other ? other : most;
    }
    for (int i = (int)lane; i < SPAN; i += RT_GROUP) {
        float e = -1;

        if (i >= from && i < to) {
            e = rt_exp(p[i] - most);
            sum = sum + e;
        }
        p[i] = e;
    }
    *m = most;
    *l = rt_group_sum(sum);
}

/* o of all queries; parts: [PARTS][Q][DIMS] */
template <int Q>
RT_DEVICE void add_values(const attention_view &a, const span_rows &v, rt_shared<float> p, rt_shared<float> parts, int low,
                          int high, float *const (&unit)[Q])
{
    unsigned part = rt_thread() / DIMS, column = rt_thread() % DIMS;
    int from = (int)part * PART > low ? (int)part * PART : low, end = ((int)part + 1) * PART < high ? ((int)part + 1) * PART : high;

    for (unsigned first = 0; first < a.d; first += DIMS) {
        float acc[Q];

        RT_UNROLL
        for (int i = 0; i < Q; i++)
            acc[i] = 0;
        for (int at = from; first + column < a.d && at < end; at++) {
            float x = rt_load(v.p + (size_t)at * v.stride, v.half, first + column);

            RT_UNROLL
            for (int i = 0; i < Q; i++) {
                float e = p[i * SPAN + at];

                acc[i] = e < 0 ? acc[i] : fmaf(e, x, acc[i]);
            }
        }
        RT_UNROLL
        for (int i = 0; i < Q; i++)
            parts[(part * Q + i) * DIMS + column] = acc[i];
        rt_sync();
        RT_UNROLL
        for (int i = 0; i < Q; i++) /* queries are dealt out to the four teams */
            if (i % PARTS == (int)part && unit[i] && first + column < a.d) {
                float sum = parts[i * DIMS + column];

                for (int j = 1; j < PARTS; j++)
                    sum = sum + parts[(j * Q + i) * DIMS + column];
                unit[i][2 + first + column] = sum;
            }
        rt_sync();
    }
}

/* grid: query tiles of a sequence and KV head, KV heads * sequences, spans of the wave.
 * Dynamic shared memory: q, later parts of o, [Q * max(d, SPAN)]; p [Q][SPAN]. */
template <int Q> RT_KERNEL span_kernel(attention_view a)
{
    unsigned n_kv = (a.first_head + a.n_heads - 1) / a.heads_per_kv - a.first_kv - a.first_head_kv + 1;
    uint32_t seq = rt_block_y() / n_kv;
    unsigned kv_head = a.first_head_kv + rt_block_y() % n_kv, span = a.first_span + rt_block_z();
    unsigned begin = (a.first_kv + kv_head) * a.heads_per_kv, end = begin + a.heads_per_kv, n_heads;
    const rf_batch_seq s = a.batch.seqs[seq];
    int low = SPAN, high = 0, from[Q], to[Q];
    float *unit[Q];
    RT_SHARED_DYNAMIC(float, memory);
    rt_shared<float> p = memory + Q * (a.d > SPAN ? a.d : SPAN);

    begin = begin > a.first_head ? begin - a.first_head : 0;
    end = end - a.first_head < a.n_heads ? end - a.first_head : a.n_heads;
    n_heads = end - begin;
    RT_UNROLL
    for (int i = 0; i < Q; i++) { /* the same in all threads */
        unsigned query = rt_block() * Q + i, row = query / n_heads, head = begin + query % n_heads,
                 in_batch = a.batch.first_row[seq] + row;
        bool there = row < (unsigned)s.n_rows && in_batch >= a.first_row && in_batch < a.end_row;

        from[i] = to[i] = 0;
        unit[i] = NULL;
        if (there)
            seen_of(a, s, row, span, &from[i], &to[i]);
        if (from[i] < to[i]) {
            unit[i] = a.units + (((size_t)(in_batch - a.first_row) * a.n_heads + head) * a.wave + rt_block_z()) * (2 + a.d);
            low = from[i] < low ? from[i] : low;
            high = to[i] > high ? to[i] : high;
        }
        for (unsigned e = rt_thread(); e < a.d; e += THREADS)
            memory[i * a.d + e] = there ? a.q.p[in_batch * a.q.stride + head * a.head_stride + e] : 0.0f;
    }
    if (low >= high)
        return; /* nobody sees anything here */
    rt_sync();
    score<Q>(a, rows_of(a, seq, kv_head, span, false), memory, p, low, high);
    rt_sync();
    for (int base = 0; base < Q; base += THREADS / RT_GROUP) { /* a query a group */
        int own = base + (int)(rt_thread() / RT_GROUP), own_from = 0, own_to = 0;
        float *own_unit = NULL, m, l;

        RT_UNROLL
        for (int i = 0; i < Q; i++)
            if (i == own) {
                own_from = from[i];
                own_to = to[i];
                own_unit = unit[i];
            }
        soften(p + own * SPAN, own_from, own_to, &m, &l);
        if (own_unit && rt_thread() % RT_GROUP == 0) {
            own_unit[0] = m;
            own_unit[1] = l;
        }
    }
    rt_sync();
    add_values<Q>(a, rows_of(a, seq, kv_head, span, true), p, memory, low, high, unit);
}

/* grid: query heads, rows of the wave. A thread takes elements of o; m and l are the same for all. */
RT_KERNEL combine_kernel(attention_view a)
{
    unsigned head = rt_block(), row = a.first_row + rt_block_y(), query = rt_block_y() * a.n_heads + head;
    uint32_t seq = a.batch.seq_of[row];
    float *out = a.out.p + row * a.out.stride + head * a.d;
    float *before = a.totals + ((size_t)a.turn * ATTENTION_UNITS + query) * 2,
          *after = a.totals + ((size_t)(a.turn ^ 1) * ATTENTION_UNITS + query) * 2;
    float none = rt_bits_to_f32(0xff800000u), m = none, l = 0;

    for (unsigned at = rt_thread(); at < a.d; at += rt_n_threads()) {
        float o = a.first_span ? out[at] : 0.0f;

        m = a.first_span ? before[0] : none;
        l = a.first_span ? before[1] : 0.0f;
        for (unsigned s = 0; s < a.wave; s++) {
            const float *unit = a.units + ((size_t)query * a.wave + s) * (2 + a.d);
            float most, keep, scale;
            int from, to;

            seen_of(a, a.batch.seqs[seq], row - a.batch.first_row[seq], a.first_span + s, &from, &to);
            if (from >= to)
                continue;
            most = m > unit[0] ? m : unit[0];
            keep = rt_exp(m - most);
            scale = rt_exp(unit[0] - most);
            l = fmaf(unit[1], scale, l * keep);
            o = fmaf(unit[2 + at], scale, o * keep);
            m = most;
        }
        out[at] = a.last && !(m == none && l == 0) ? o / l : o;
    }
    if (rt_thread() == 0) {
        after[0] = m;
        after[1] = l;
    }
}

/* ---- rows that are stored, and rows that are not */

typedef struct {
    rt_batch_view batch;
    const uint32_t *table;
    unsigned char *k, *v;
    unsigned n_blocks, n_heads, d;
    bool ring, half_k, half_v;
} store_view;

RT_DEVICE void store(unsigned char *to, bool half, size_t i, float x)
{
    if (half)
        reinterpret_cast<uint16_t *>(to)[i] = rt_f32_to_f16(x);
    else
        reinterpret_cast<float *>(to)[i] = x;
}

/* grid: columns of a row, rows */
RT_KERNEL store_kernel(store_view c, rt_mat k, rt_mat v)
{
    size_t i = (size_t)rt_block() * rt_n_threads() + rt_thread(), row = rt_block_y();
    uint32_t seq = c.batch.seq_of[row];
    const rf_batch_seq s = c.batch.seqs[seq];
    size_t position = (size_t)s.first_pos + (row - c.batch.first_row[seq]), block = position / SPAN, place;

    if (i >= (size_t)c.n_heads * c.d)
        return;
    block = c.ring ? block % c.n_blocks : block;
    place = (((size_t)c.table[(size_t)s.slot * c.n_blocks + block] * c.n_heads + i / c.d) * SPAN + position % SPAN) * c.d +
            i % c.d;
    store(c.k, c.half_k, place, k.p[row * k.stride + i]);
    store(c.v, c.half_v, place, v.p[row * v.stride + i]);
}

/* What storing and loading again would give. */
RT_KERNEL round_kernel(size_t n, rt_mat k, bool half_k, rt_mat v, bool half_v)
{
    size_t i = (size_t)rt_block() * rt_n_threads() + rt_thread(), row = rt_block_y();

    if (i < n && half_k)
        k.p[row * k.stride + i] = rt_f16_to_f32(rt_f32_to_f16(k.p[row * k.stride + i]));
    if (i < n && half_v)
        v.p[row * v.stride + i] = rt_f16_to_f32(rt_f32_to_f16(v.p[row * v.stride + i]));
}

/* ---- host */

static attention_view view_of(const gpu_batch *c, const rf_kv *kv, const rf_attention_spec *s, rf_mat q, rf_mat out)
{
    attention_view a = {};

    a.batch = c->view;
    a.table = kv->table;
    a.k = kv->k;
    a.v = kv->v;
    a.n_blocks = (unsigned)kv->n_blocks;
    a.n_cached_heads = (unsigned)kv->spec.n_heads;
    a.d = (unsigned)s->head_dim;
    a.ring = kv->spec.ring;
    a.half_k = kv->spec.type_k == RF_TYPE_F16;
    a.half_v = kv->spec.type_v == RF_TYPE_F16;
    a.n_heads = (unsigned)s->n_heads;
    a.head_stride = (unsigned)s->head_stride;
    a.first_head = (unsigned)s->first_head;
    a.heads_per_kv = (unsigned)s->heads_per_kv;
    a.first_kv = (unsigned)s->first_kv;
    a.first_head_kv = a.first_head / a.heads_per_kv - a.first_kv;
    a.window = (int64_t)s->window;
    a.first_pos = (int64_t)s->first_pos;
    a.q = mat_of(q);
    a.out = mat_of(out);
    a.units = kv->gpu->units;
    a.totals = kv->gpu->units + (size_t)ATTENTION_UNITS * (2 + s->head_dim);
    return a;
}

/* Spans that any row sees: absolute numbers [*zero, *zero + the result). */
static unsigned count_spans(const gpu_batch *c, const attention_view *a, int64_t *zero)
{
    int64_t first = INT64_MAX, end = 0;

    for (size_t i = 0; i < c->shape.n_seqs; i++) {
        const rf_batch_seq *s = &c->here.seqs[i];
        int64_t start = a->window && s->first_pos - a->window + 1 > 0 ? s->first_pos - a->window + 1 : 0,
                stop = a->block ? s->first_pos : s->first_pos + s->n_rows;

        start = start > a->first_pos ? start : a->first_pos;
        if (start >= stop)
            continue;
        first = start / SPAN < first ? start / SPAN : first;
        end = (stop - 1) / SPAN + 1 > end ? (stop - 1) / SPAN + 1 : end;
    }
    *zero = first < end ? first : 0;
    return first < end ? (unsigned)(end - first) : 0;
}

static void run_wave(rf_gpu *gpu, const attention_view &a, unsigned n_kv, unsigned n_seqs, unsigned most_rows)
{
    bool wide = a.d <= SPAN && most_rows * a.heads_per_kv > 8;
    unsigned queries = wide ? 16 : 8;
    size_t bytes = queries * ((a.d > SPAN ? a.d : SPAN) + SPAN) * sizeof(float);
    rt_grid grid = grid_of(divide_up(most_rows * a.heads_per_kv, queries), (size_t)n_kv * n_seqs, a.wave);

    launch(gpu, {"attention", grid, THREADS, bytes, true}, wide ? span_kernel<16> : span_kernel<8>, a);
    launch(gpu, {"attention_combine", grid_of(a.n_heads, a.end_row - a.first_row), 128, 0, false}, combine_kernel, a);
}

static void run(rf_gpu *gpu, const gpu_batch *c, attention_view a)
{
    unsigned n_rows = (unsigned)c->shape.n_rows, most_rows = 1, n_spans, at_once = ATTENTION_UNITS / a.n_heads, rows;
    unsigned n_kv = (a.first_head + a.n_heads - 1) / a.heads_per_kv - a.first_kv - a.first_head_kv + 1;

    for (size_t i = 0; i < c->shape.n_seqs; i++)
        most_rows = (unsigned)c->here.seqs[i].n_rows > most_rows ? (unsigned)c->here.seqs[i].n_rows : most_rows;
    a.n_cached_spans = count_spans(c, &a, &a.span_zero);
    n_spans = a.n_cached_spans + a.block;
    n_spans = n_spans ? n_spans : 1; /* zeros have to be written where nothing is seen */
    for (a.first_row = 0; a.first_row < n_rows; a.first_row = a.end_row) {
        a.end_row = n_rows - a.first_row < at_once ? n_rows : a.first_row + at_once;
        rows = a.end_row - a.first_row;
        a.turn = 0;
        for (a.first_span = 0; a.first_span < n_spans; a.first_span += a.wave) {
            a.wave = ATTENTION_UNITS / (rows * a.n_heads);
            a.wave = n_spans - a.first_span < a.wave ? n_spans - a.first_span : a.wave;
            a.last = a.first_span + a.wave == n_spans;
            run_wave(gpu, a, n_kv, (unsigned)c->shape.n_seqs, most_rows);
            a.turn ^= 1;
        }
    }
}

static void attention(rf_backend *b, const rf_batch *batch, const rf_kv *kv, const rf_attention_spec *s, rf_mat q,
                      rf_mat out)
{
    run(gpu_of(b), batch_of(batch), view_of(batch_of(batch), kv, s, q, out));
}

static void attention_block(rf_backend *b, const rf_batch *batch, const rf_kv *kv, const rf_attention_spec *s, rf_mat q,
                            rf_mat k, rf_mat v, rf_mat out)
{
    attention_view a = view_of(batch_of(batch), kv, s, q, out);
    size_t n = kv->spec.n_heads * s->head_dim;

    a.block = true;
    a.block_k = mat_of(k);
    a.block_v = mat_of(v);
    launch(gpu_of(b), {"round_to_cache", grid_of(divide_up(n, THREADS), batch->n_rows), THREADS, 0, false}, round_kernel, n,
           a.block_k, a.half_k, a.block_v, a.half_v);
    run(gpu_of(b), batch_of(batch), a);
}

static void kv_store(rf_backend *b, const rf_batch *batch, rf_kv *kv, rf_mat k, rf_mat v)
{
    size_t n = kv->spec.n_heads * kv->spec.head_dim;
    store_view view = {batch_of(batch)->view,
                       kv->table,
                       kv->k,
                       kv->v,
                       (unsigned)kv->n_blocks,
                       (unsigned)kv->spec.n_heads,
                       (unsigned)kv->spec.head_dim,
                       kv->spec.ring,
                       kv->spec.type_k == RF_TYPE_F16,
                       kv->spec.type_v == RF_TYPE_F16};

    launch(gpu_of(b), {"kv_store", grid_of(divide_up(n, THREADS), batch->n_rows), THREADS, 0, false}, store_kernel, view,
           mat_of(k), mat_of(v));
}

void attention_ops(rf_ops *ops)
{
    ops->attention = attention;
    ops->attention_block = attention_block;
    ops->kv_store = kv_store;
}

} /* namespace */
