/* KV store and attention in spans of 256 absolute positions. Orders: backend.h.
 *
 * A task is a tile of queries (rows x query heads) that share a sequence and a KV head. Where there are enough tasks
 * for the threads, each walks its spans alone. Where there are few (one token, a long cache) the spans of a task are
 * divided over threads, a wave of them at a time, and combined in ascending order: the same sums in the same order. */
#include "config.h"

#include "../quant.h"
#include "attention.h"
#include "vec16.h"

typedef struct {
    rf_cpu *cpu;
    const cpu_batch *c;
    const rf_kv *kv;
    const rf_attention_spec *s;
    rf_mat q, k, v, out; /* k, v: attention_block */
    bool block;
    size_t first_kv, n_kv, width, n_tasks;
} job;

typedef struct {
    const rf_batch_seq *seq;
    size_t first_row, kv_head, first_head, n_heads; /* of the sequence; of the KV head */
    size_t first, n;                                /* queries: row first / n_heads, head first % n_heads, and so on */
    int64_t start, end;                             /* cached positions that any of them sees */
    size_t n_cached, n_spans;
} task;

static size_t kv_head_of(const rf_attention_spec *s, size_t head)
{
    return (s->first_head + head) / s->heads_per_kv - s->first_kv;
}

static int64_t first_seen(const rf_attention_spec *s, int64_t position)
{
    int64_t first = s->window && position - (int64_t)s->window + 1 > 0 ? position - (int64_t)s->window + 1 : 0;

    return first > (int64_t)s->first_pos ? first : (int64_t)s->first_pos;
}

static size_t query_row(const task *t, size_t i)
{
    return (t->first + i) / t->n_heads;
}

static size_t query_head(const task *t, size_t i)
{
    return t->first_head + (t->first + i) % t->n_heads;
}

/* Cached positions [.., end) that row `row` of the sequence sees */
static int64_t seen_end(const job *j, const task *t, size_t row)
{
    return t->seq->first_pos + (j->block ? 0 : (int64_t)row + 1);
}

static size_t tiles_of(const job *j, size_t seq)
{
    return ((size_t)j->c->seqs[seq].n_rows * j->s->heads_per_kv + QUERIES - 1) / QUERIES;
}

static job make_job(rf_backend *b, const rf_batch *batch, const rf_kv *kv, const rf_attention_spec *s, rf_mat q,
                    rf_mat out)
{
    job j = {.cpu = cpu_of(b), .c = cpu_batch_of(batch), .kv = kv, .s = s, .q = q, .out = out};

    j.first_kv = kv_head_of(s, 0);
    j.n_kv = kv_head_of(s, s->n_heads - 1) - j.first_kv + 1;
    j.width = round_to_lanes(s->head_dim);
    for (size_t seq = 0; seq < j.c->shape.n_seqs; seq++)
        j.n_tasks += j.n_kv * tiles_of(&j, seq);
    return j;
}

/* Task number `index`; n is 0 where the KV head has fewer query heads here than elsewhere. */
static task find_task(const job *j, size_t index)
{
    const rf_attention_spec *s = j->s;
    size_t seq = 0, end, queries;
    task t;

    while (index >= j->n_kv * tiles_of(j, seq))
        index -= j->n_kv * tiles_of(j, seq++);
    t.seq = &j->c->seqs[seq];
    t.first_row = j->c->first_row[seq];
    t.kv_head = j->first_kv + index / tiles_of(j, seq);
    t.first_head = (s->first_kv + t.kv_head) * s->heads_per_kv;
    end = t.first_head + s->heads_per_kv - s->first_head;
    t.first_head = t.first_head > s->first_head ? t.first_head - s->first_head : 0;
    t.n_heads = (end < s->n_heads ? end : s->n_heads) - t.first_head;
    queries = (size_t)t.seq->n_rows * t.n_heads;
    t.first = index % tiles_of(j, seq) * QUERIES;
    t.n = t.first >= queries ? 0 : queries - t.first < QUERIES ? queries - t.first : QUERIES;
    t.n_cached = t.n_spans = 0;
    if (!t.n)
        return t;
    t.start = first_seen(s, t.seq->first_pos + (int64_t)query_row(&t, 0));
    t.end = seen_end(j, &t, query_row(&t, t.n - 1));
    if (t.start < t.end)
        t.n_cached = (size_t)((t.end - 1) / SPAN - t.start / SPAN) + 1;
    t.n_spans = t.n_cached + j->block;
    return t;
}

/* ---- memory: every thread's scratch is q, p and block of a tile, then sums of a span; units are sums of spans that
 * threads share */

static query_tile load_queries(const job *j, const task *t, float *scratch)
{
    query_tile tile = {.n = t->n, .d = j->s->head_dim, .width = j->width, .scale = 1.0f / sqrtf((float)j->s->head_dim)};
    float *q = scratch;

    tile.p = scratch + QUERIES * j->width;
    tile.block = tile.p + QUERIES * SPAN;
    for (size_t i = 0; i < t->n; i++) {
        const float *from = mat_row(j->q, t->first_row + query_row(t, i)) + query_head(t, i) * j->s->head_stride;

        memcpy(q + i * j->width, from, tile.d * sizeof *q);
        memset(q + i * j->width + tile.d, 0, (j->width - tile.d) * sizeof *q);
    }
    tile.q = q;
    return tile;
}

static span_sums sums_at(float *memory)
{
    return (span_sums){memory, memory + QUERIES, memory + 2 * QUERIES};
}

static float *own_unit(const job *j, float *scratch)
{
    return scratch + QUERIES * j->width + QUERIES * SPAN + LANES * j->width;
}

static float *shared_unit(const job *j, size_t unit)
{
    return j->cpu->units + unit * attention_unit_floats(j->s->head_dim);
}

/* m and l of a task's queries over the spans so far: [2][QUERIES] */
static float *shared_totals(const job *j, size_t index)
{
    return shared_unit(j, j->cpu->n_units) + index * 2 * QUERIES;
}

/* ---- spans */

static void clamp_seen(const job *j, const task *t, int64_t start, query_tile *tile)
{
    for (size_t i = 0; i < t->n; i++) {
        int64_t from = first_seen(j->s, t->seq->first_pos + (int64_t)query_row(t, i)) - start,
                to = seen_end(j, t, query_row(t, i)) - start;

        from = from < 0 ? 0 : from > SPAN ? SPAN : from;
        to = to < 0 ? 0 : to > SPAN ? SPAN : to;
        tile->from[i] = (size_t)from;
        tile->to[i] = (size_t)(to > from ? to : from);
    }
}

/* Span number `index` of the task */
static void run_span(const job *j, const task *t, size_t index, query_tile *tile, span_sums sums)
{
    const rf_kv *kv = j->kv;
    size_t d = j->s->head_dim;
    span_rows rows;

    if (index < t->n_cached) {
        int64_t start = t->start / SPAN * SPAN + (int64_t)index * SPAN;
        size_t place = kv_place(kv, (size_t)t->seq->slot, t->kv_head, start);

        rows = (span_rows){kv->k + place * kv->k_size,
                           kv->v + place * kv->v_size,
                           d * kv->k_size,
                           d * kv->v_size,
                           kv->spec.type_k,
                           kv->spec.type_v};
        clamp_seen(j, t, start, tile);
    } else { /* the block itself: everyone sees all of it */
        rows = (span_rows){(const unsigned char *)(mat_row(j->k, t->first_row) + t->kv_head * d),
                           (const unsigned char *)(mat_row(j->v, t->first_row) + t->kv_head * d),
                           j->k.stride * sizeof(float),
                           j->v.stride * sizeof(float),
                           RF_TYPE_F32,
                           RF_TYPE_F32};
        for (size_t i = 0; i < t->n; i++) {
            tile->from[i] = 0;
            tile->to[i] = (size_t)t->seq->n_rows;
        }
    }
    RF_ISA_NAME(attend_span)(tile, &rows, sums);
    for (size_t i = 0; i < t->n; i++)
        if (tile->from[i] >= tile->to[i])
            sums.l[i] = -1; /* sees nothing here */
}

static float *out_of(const job *j, const task *t, size_t i)
{
    return mat_row(j->out, t->first_row + query_row(t, i)) + query_head(t, i) * j->s->head_dim;
}

/* M = max, a = exp(m1 - M), c = exp(m2 - M), l = fma(l2, c, l1 a), o = fma(o2, c, o1 a) */
static void combine(const job *j, const task *t, size_t i, span_sums sums, float *m, float *l)
{
    float *o = out_of(j, t, i), *span = sums.o + i * j->width;
    float most = *m > sums.m[i] ? *m : sums.m[i];
    size_t d = j->s->head_dim;
    v16 a, c;

    if (sums.l[i] < 0)
        return;
    a = v_exp(v_set1(*m - most));
    c = v_exp(v_set1(sums.m[i] - most));
    *l = fmaf(sums.l[i], v_first(c), *l * v_first(a));
    *m = most;
    for (size_t at = 0; at < d; at += LANES) {
        size_t n = d - at < LANES ? d - at : LANES;

        v_store_n(o + at, v_fma(v_load(span + at), c, v_mul(v_load_n(o + at, n), a)), n);
    }
}

static void begin(const job *j, const task *t, size_t i, float *m, float *l)
{
    *m = -INFINITY;
    *l = 0;
    memset(out_of(j, t, i), 0, j->s->head_dim * sizeof(float));
}

static void finish(const job *j, const task *t, size_t i, float m, float l)
{
    float *o = out_of(j, t, i);
    v16 by = v_set1(l);

    if (m == -INFINITY && l == 0) /* nothing seen: zeros */
        return;
    for (size_t at = 0; at < j->s->head_dim; at += LANES) {
        size_t n = j->s->head_dim - at < LANES ? j->s->head_dim - at : LANES;

        v_store_n(o + at, v_div(v_load_n(o + at, n), by), n);
    }
}

/* ---- many tasks: each alone */

static void run_alone(const job *j, size_t index)
{
    float *scratch = cpu_scratch(j->cpu), m[QUERIES], l[QUERIES];
    span_sums sums = sums_at(own_unit(j, scratch));
    task t = find_task(j, index);
    query_tile tile = load_queries(j, &t, scratch);

    for (size_t i = 0; i < t.n; i++)
        begin(j, &t, i, &m[i], &l[i]);
    for (size_t s = 0; s < t.n_spans; s++) {
        run_span(j, &t, s, &tile, sums);
        for (size_t i = 0; i < t.n; i++)
            combine(j, &t, i, sums, &m[i], &l[i]);
    }
    for (size_t i = 0; i < t.n; i++)
        finish(j, &t, i, m[i], l[i]);
}

/* ---- few tasks: waves of `wave` spans of each */

static void run_wave_span(const job *j, size_t index, size_t span, size_t unit)
{
    task t = find_task(j, index);
    query_tile tile;

    if (span >= t.n_spans)
        return;
    tile = load_queries(j, &t, cpu_scratch(j->cpu));
    run_span(j, &t, span, &tile, sums_at(shared_unit(j, unit)));
}

/* Query i of the task: the spans [first, first + wave) of its units */
static void combine_wave(const job *j, size_t index, size_t i, size_t first, size_t wave, bool last)
{
    task t = find_task(j, index);
    float *m = shared_totals(j, index) + i, *l = m + QUERIES;

    if (i >= t.n)
        return;
    if (first == 0)
        begin(j, &t, i, m, l);
    for (size_t s = 0; s < wave && first + s < t.n_spans; s++)
        combine(j, &t, i, sums_at(shared_unit(j, index * wave + s)), m, l);
    if (last)
        finish(j, &t, i, *m, *l);
}

typedef struct {
    const job *j;
    size_t first, wave;
    bool last;
} wave_work;

static void wave_spans_part(const void *work, size_t first, size_t end)
{
    const wave_work *k = work;

    for (size_t item = first; item < end; item++)
        run_wave_span(k->j, item / k->wave, k->first + item % k->wave, item);
}

static void wave_combine_part(const void *work, size_t first, size_t end)
{
    const wave_work *k = work;

    for (size_t item = first; item < end; item++)
        combine_wave(k->j, item / QUERIES, item % QUERIES, k->first, k->wave, k->last);
}

static void run_waves(const job *j)
{
    cpu_team *team = &j->cpu->team;
    size_t wave = j->cpu->n_units / j->n_tasks, most = 1;

    for (size_t index = 0; index < j->n_tasks; index++) {
        size_t spans = find_task(j, index).n_spans;

        most = spans > most ? spans : most;
    }
    for (size_t first = 0; first < most; first += wave) {
        wave_work k = {j, first, wave, first + wave >= most};

        cpu_team_each_free(team, j->n_tasks * wave, wave_spans_part, &k);
        cpu_team_each(team, j->n_tasks * QUERIES, wave_combine_part, &k);
    }
}

static void alone_part(const void *work, size_t first, size_t end)
{
    for (size_t index = first; index < end; index++)
        run_alone(work, index);
}

static void run_job(const job *j)
{
    size_t threads = (size_t)j->cpu->team.n_threads;

    if (threads > 1 && j->n_tasks < ATTENTION_MIN_TASKS * threads)
        run_waves(j);
    else
        cpu_team_each_free(&j->cpu->team, j->n_tasks, alone_part, j);
}

static void attention(rf_backend *b, const rf_batch *batch, const rf_kv *kv, const rf_attention_spec *s, rf_mat q,
                      rf_mat out)
{
    job j = make_job(b, batch, kv, s, q, out);

    run_job(&j);
}

/* ---- rows that are not stored, and rows that are */

/* What storing and loading again would give. */
static void round_to_cache(float *x, uint32_t type, size_t n)
{
    for (size_t i = 0; type == RF_TYPE_F16 && i < n; i += LANES) {
        size_t some = n - i < LANES ? n - i : LANES;
        uint16_t half[LANES];

        v_store_f16(half, v_load_n(x + i, some));
        v_store_n(x + i, v_load_f16(half), some);
    }
}

static void attention_block(rf_backend *b, const rf_batch *batch, const rf_kv *kv, const rf_attention_spec *s, rf_mat q,
                            rf_mat k, rf_mat v, rf_mat out)
{
    job j = make_job(b, batch, kv, s, q, out);

    j.k = k;
    j.v = v;
    j.block = true;
    for (size_t r = 0; r < j.c->shape.n_rows; r++) {
        round_to_cache(mat_row(k, r), kv->spec.type_k, kv->spec.n_heads * s->head_dim);
        round_to_cache(mat_row(v, r), kv->spec.type_v, kv->spec.n_heads * s->head_dim);
    }
    run_job(&j);
}

static void store_row(unsigned char *dst, uint32_t type, const float *src, size_t n)
{
    if (type == RF_TYPE_F32) {
        memcpy(dst, src, n * sizeof *src);
        return;
    }
    for (size_t i = 0; i < n; i += LANES) {
        size_t some = n - i < LANES ? n - i : LANES;
        uint16_t half[LANES];

        v_store_f16(half, v_load_n(src + i, some));
        memcpy(dst + i * sizeof *half, half, some * sizeof *half);
    }
}

typedef struct {
    const cpu_batch *c;
    rf_kv *kv;
    rf_mat k, v;
} store_work;

static void store_part(const void *work, size_t first, size_t end)
{
    const store_work *w = work;
    rf_kv *kv = w->kv;
    size_t d = kv->spec.head_dim;

    for (size_t r = first; r < end; r++)
        for (size_t h = 0; h < kv->spec.n_heads; h++) {
            size_t at = kv_place(kv, (size_t)w->c->seqs[w->c->seq[r]].slot, h, w->c->position[r]);

            store_row(kv->k + at * kv->k_size, kv->spec.type_k, mat_row(w->k, r) + h * d, d);
            store_row(kv->v + at * kv->v_size, kv->spec.type_v, mat_row(w->v, r) + h * d, d);
        }
}

static void kv_store(rf_backend *b, const rf_batch *batch, rf_kv *kv, rf_mat k, rf_mat v)
{
    store_work w = {cpu_batch_of(batch), kv, k, v};

    cpu_team_each_if(team_of(b), batch->n_rows >= 16, batch->n_rows, store_part, &w);
}

void RF_ISA_NAME(attention_ops)(rf_ops *ops)
{
    ops->attention = attention;
    ops->attention_block = attention_block;
    ops->kv_store = kv_store;
}
