/* Gated DeltaNet, token by token. One task is a sequence's value head. It takes rows MAX_TILE_ROWS at a time: first the
 * inputs of all of them, then for each strip of columns of the state all rows in turn, so that a strip is read and
 * written once and stays in the nearest cache meanwhile; columns of a state never mix. Orders: backend.h. */
#include "config.h"

#include "isa.h"
#include "vec16.h"

/* of a strip: u and o of all its columns stay in registers */
#define STRIP_VECTORS (V_REGISTERS / 8 > 1 ? V_REGISTERS / 8 : 2)
#define STRIP (STRIP_VECTORS * LANES) /* at most MAX_STRIP */

typedef struct {
    const rf_delta *t;
    rf_mat m, alpha, beta, o;
    size_t slot, head, k_head, first_row, width; /* width: head_dim rounded up to whole vectors */
    float *q, *k, *v, *u;                        /* scratch: [MAX_TILE_ROWS][width] each */
    float *strip;                                /* scratch: [head_dim][STRIP] */
    float beta_of[MAX_TILE_ROWS], decay_of[MAX_TILE_ROWS];
} task;

static void place_scratch(task *w, float *scratch)
{
    size_t floats = MAX_TILE_ROWS * w->width;

    w->strip = scratch;
    w->q = w->strip + w->t->spec.head_dim * STRIP;
    w->k = w->q + floats;
    w->v = w->k + floats;
    w->u = w->v + floats;
}

static float *window_row(const rf_delta *t, size_t slot, size_t age)
{
    return t->window + (slot * (t->spec.conv_kernel - 1) + age) * t->n_channels;
}

static float *pending_at(float *part, size_t slot, size_t row, size_t width)
{
    return part + (slot * RF_MAX_BLOCK + row) * width;
}

/* ---- inputs of a row */

/* silu of the causal convolution at row i of the sequence, channels [first, first + d); lanes behind d become 0 */
static void convolve(const task *w, size_t i, size_t first, float *y)
{
    const rf_delta *t = w->t;
    size_t taps = t->spec.conv_kernel, d = t->spec.head_dim;

    for (size_t c = 0; c < d; c += LANES) {
        size_t n = d - c < LANES ? d - c : LANES;
        v16 sum = v_set1(0);

        for (size_t j = 0; j < taps; j++) {
            size_t back = taps - 1 - j; /* rows before row i */
            const float *x = back <= i ? mat_row(w->m, w->first_row + i - back) : window_row(t, w->slot, i + j);

            sum = v_fma(v_load_n(t->conv + j * t->n_channels + first + c, n), v_load_n(x + first + c, n), sum);
        }
        v_store(y + c, v_silu(sum));
    }
}

/* x / max(||x||, eps) * factor */
static void normalize(float *x, size_t n, float eps, float factor)
{
    float norm = sqrtf(v_dot(x, x, n));
    v16 by = v_set1(norm > eps ? norm : eps), times = v_set1(factor);

    for (size_t i = 0; i < n; i += LANES)
        v_store(x + i, v_mul(v_div(v_load(x + i), by), times));
}

/* Row i of the sequence becomes row r of the scratch. */
static void row_inputs(task *w, size_t i, size_t r)
{
    const rf_delta_spec *s = &w->t->spec;
    size_t d = s->head_dim, row = w->first_row + i;
    float *q = w->q + r * w->width, *k = w->k + r * w->width;

    convolve(w, i, w->k_head * d, q);
    convolve(w, i, (s->n_k_heads + w->k_head) * d, k);
    convolve(w, i, (2 * s->n_k_heads + w->head) * d, w->v + r * w->width);
    normalize(q, d, s->eps, 1.0f / sqrtf((float)d));
    normalize(k, d, s->eps, 1.0f);
    w->beta_of[r] = s_sigmoid(mat_row(w->beta, row)[w->head]);
    w->decay_of[r] = s_exp(w->t->a[w->head] * s_softplus(mat_row(w->alpha, row)[w->head] + w->t->dt[w->head]));
}

/* ---- a strip of the state, [d][STRIP] */

/* One token: S = decay S; r = S^T k; u = beta (v - r); S += k u^T; o = S^T q. `vectors` of the strip hold columns. */
static inline __attribute__((always_inline)) void step(const size_t vectors, float *strip, size_t d, const float *k,
                                                       const float *q, const float *v, float beta, float decay,
                                                       float *u_out, float *o_out)
{
    v16 g = v_set1(decay), u[STRIP_VECTORS], o[STRIP_VECTORS];

#pragma GCC unroll 4
    for (size_t j = 0; j < vectors; j++)
        u[j] = v_set1(0);
    for (size_t i = 0; i < d; i++) {
        v16 ki = v_set1(k[i]);

#pragma GCC unroll 4
        for (size_t j = 0; j < vectors; j++)
            u[j] = v_fma(v_mul(v_load(strip + i * STRIP + j * LANES), g), ki, u[j]); /* r */
    }
#pragma GCC unroll 4
    for (size_t j = 0; j < vectors; j++) {
        u[j] = v_mul(v_set1(beta), v_sub(v_load(v + j * LANES), u[j]));
        o[j] = v_set1(0);
        v_store(u_out + j * LANES, u[j]);
    }
    for (size_t i = 0; i < d; i++) {
        v16 ki = v_set1(k[i]), qi = v_set1(q[i]);

#pragma GCC unroll 4
        for (size_t j = 0; j < vectors; j++) {
            v16 s = v_fma(ki, u[j], v_mul(v_load(strip + i * STRIP + j * LANES), g));

            v_store(strip + i * STRIP + j * LANES, s);
            o[j] = v_fma(s, qi, o[j]);
        }
    }
#pragma GCC unroll 4
    for (size_t j = 0; j < vectors; j++)
        v_store(o_out + j * LANES, o[j]);
}

/* n rows, columns [at, at + columns) of the state; o of row r goes to its row of the output */
static inline __attribute__((always_inline)) void strip_rows(const size_t vectors, const task *w, size_t i, size_t n,
                                                             size_t at, size_t columns)
{
    size_t d = w->t->spec.head_dim;

    for (size_t r = 0; r < n; r++) {
        float o[STRIP];

        step(vectors, w->strip, d, w->k + r * w->width, w->q + r * w->width, w->v + r * w->width + at, w->beta_of[r],
             w->decay_of[r], w->u + r * w->width + at, o);
        memcpy(mat_row(w->o, w->first_row + i + r) + w->head * d + at, o, columns * sizeof *o);
    }
}

/* Between a strip and columns [at, at + columns) of the state */
static void load_strip(float *strip, const float *state, size_t d, size_t at, size_t columns)
{
    for (size_t i = 0; i < d; i++)
        for (size_t c = 0; c < columns; c += LANES)
            v_store(strip + i * STRIP + c, v_load_n(state + i * d + at + c, columns - c < LANES ? columns - c : LANES));
}

static void store_strip(const float *strip, float *state, size_t d, size_t at, size_t columns)
{
    for (size_t i = 0; i < d; i++)
        for (size_t c = 0; c < columns; c += LANES) {
            size_t n = columns - c < LANES ? columns - c : LANES;

            v_store_n(state + i * d + at + c, v_load(strip + i * STRIP + c), n);
        }
}

/* Rows [i, i + n) of the sequence, whose inputs are in the scratch. */
static void advance_state(const task *w, size_t i, size_t n, bool given)
{
    size_t d = w->t->spec.head_dim;
    float *state = w->t->state + (w->slot * w->t->spec.n_v_heads + w->head) * d * d;

    for (size_t at = 0; at < d; at += STRIP) {
        size_t columns = d - at < STRIP ? d - at : STRIP;

        load_strip(w->strip, state, d, at, columns);
        switch ((columns + LANES - 1) / LANES) {
        case 1: strip_rows(1, w, i, n, at, columns); break;
        case 2: strip_rows(2, w, i, n, at, columns); break;
        case 3: strip_rows(STRIP_VECTORS < 3 ? STRIP_VECTORS : 3, w, i, n, at, columns); break;
        default: strip_rows(STRIP_VECTORS, w, i, n, at, columns); break;
        }
        if (given)
            store_strip(w->strip, state, d, at, columns);
    }
}

/* ---- what delta_commit needs of generated rows */

static void copy_channels(const rf_delta *t, size_t first, float *dst, const float *src)
{
    memcpy(dst + first, src + first, t->spec.head_dim * sizeof *dst);
}

/* The channels a value head answers for: its own; of a key head's queries and keys, the first of its value heads. */
static void copy_task_channels(const rf_delta *t, size_t head, float *dst, const float *src)
{
    size_t d = t->spec.head_dim;

    copy_channels(t, (2 * t->spec.n_k_heads + head) * d, dst, src);
    if (head % t->tiles)
        return;
    copy_channels(t, head / t->tiles * d, dst, src);
    copy_channels(t, (t->spec.n_k_heads + head / t->tiles) * d, dst, src);
}

static void keep_pending(const task *w, size_t n)
{
    const rf_delta *t = w->t;
    size_t d = t->spec.head_dim;

    for (size_t r = 0; r < n; r++) {
        if (w->head % t->tiles == 0)
            memcpy(pending_at(t->pending_k, w->slot, r, t->spec.n_k_heads * d) + w->k_head * d, w->k + r * w->width,
                   d * sizeof(float));
        memcpy(pending_at(t->pending_u, w->slot, r, t->spec.n_v_heads * d) + w->head * d, w->u + r * w->width,
               d * sizeof(float));
        pending_at(t->pending_g, w->slot, r, t->spec.n_v_heads)[w->head] = w->decay_of[r];
        copy_task_channels(t, w->head, pending_at(t->pending_m, w->slot, r, t->n_channels),
                           mat_row(w->m, w->first_row + r));
    }
}

/* The window after n more rows: the last taps - 1 columns. Oldest first, so that no source is overwritten early. */
static void advance_window(const rf_delta *t, size_t slot, size_t head, size_t n, rf_mat rows, size_t first_row)
{
    size_t depth = t->spec.conv_kernel - 1;

    for (size_t age = 0; age < depth; age++) {
        size_t from = age + n; /* index into window ++ rows */
        const float *src = from < depth ? window_row(t, slot, from) : mat_row(rows, first_row + from - depth);

        copy_task_channels(t, head, window_row(t, slot, age), src);
    }
}

static void run_task(task *w, const rf_batch_seq *seq)
{
    size_t rows = (size_t)seq->n_rows;
    bool given = seq->role == RF_ROLE_GIVEN;

    for (size_t i = 0; i < rows; i += MAX_TILE_ROWS) {
        size_t n = rows - i < MAX_TILE_ROWS ? rows - i : MAX_TILE_ROWS;

        for (size_t r = 0; r < n; r++)
            row_inputs(w, i + r, r);
        advance_state(w, i, n, given);
        if (!given)
            keep_pending(w, n);
    }
}

/* Items are (sequence, value head). */
typedef struct {
    rf_cpu *cpu;
    const cpu_batch *c;
    rf_delta *t;
    rf_mat m, alpha, beta, o;
} delta_work;

static void delta_part(const void *work, size_t first, size_t end)
{
    const delta_work *k = work;

    for (size_t item = first; item < end; item++) {
        size_t s = item / k->t->spec.n_v_heads, head = item % k->t->spec.n_v_heads;
        task w = {.t = k->t, .m = k->m, .alpha = k->alpha, .beta = k->beta, .o = k->o, .head = head,
                  .k_head = head / k->t->tiles, .slot = (size_t)k->c->seqs[s].slot, .first_row = k->c->first_row[s],
                  .width = round_to_lanes(k->t->spec.head_dim)};

        place_scratch(&w, cpu_scratch(k->cpu));
        run_task(&w, &k->c->seqs[s]);
    }
}

static void window_part(const void *work, size_t first, size_t end)
{
    const delta_work *k = work;

    for (size_t item = first; item < end; item++) {
        size_t s = item / k->t->spec.n_v_heads, head = item % k->t->spec.n_v_heads;

        if (k->c->seqs[s].role == RF_ROLE_GIVEN)
            advance_window(k->t, (size_t)k->c->seqs[s].slot, head, (size_t)k->c->seqs[s].n_rows, k->m,
                           k->c->first_row[s]);
    }
}

static bool any_given(const cpu_batch *c)
{
    for (size_t s = 0; s < c->shape.n_seqs; s++)
        if (c->seqs[s].role == RF_ROLE_GIVEN)
            return true;
    return false;
}

static void delta(rf_backend *b, const rf_batch *batch, rf_delta *t, rf_mat m, rf_mat alpha, rf_mat beta, rf_mat o)
{
    delta_work k = {cpu_of(b), cpu_batch_of(batch), t, m, alpha, beta, o};
    size_t n = batch->n_seqs * t->spec.n_v_heads;

    cpu_team_each_free(team_of(b), n, delta_part, &k);
    if (any_given(k.c)) /* only now: value heads of one key head read the same window */
        cpu_team_each(team_of(b), n, window_part, &k);
}

/* ---- commit */

/* n pending rows on a row of the state, columns [at, at + vectors * LANES): the same decays and rank-one updates as
 * their steps made */
static inline __attribute__((always_inline)) void redo_row(const size_t vectors, const task *w, size_t n, size_t i,
                                                           size_t at, float *row)
{
    v16 s[STRIP_VECTORS];

#pragma GCC unroll 4
    for (size_t j = 0; j < vectors; j++)
        s[j] = v_load(row + j * LANES);
    for (size_t r = 0; r < n; r++) {
        v16 k = v_set1(w->k[r * w->width + i]), g = v_set1(w->decay_of[r]);

#pragma GCC unroll 4
        for (size_t j = 0; j < vectors; j++)
            s[j] = v_fma(k, v_load(w->u + r * w->width + at + j * LANES), v_mul(s[j], g));
    }
#pragma GCC unroll 4
    for (size_t j = 0; j < vectors; j++)
        v_store(row + j * LANES, s[j]);
}

/* The first n pending rows of a value head; they are gathered first, because their distance in memory is a power of two
 * or nearly so. */
static void redo(task *w, size_t n)
{
    const rf_delta *t = w->t;
    size_t d = t->spec.head_dim, whole = d / LANES * LANES;
    float *state = t->state + (w->slot * t->spec.n_v_heads + w->head) * d * d;

    for (size_t r = 0; r < n; r++) {
        memcpy(w->k + r * w->width, pending_at(t->pending_k, w->slot, r, t->spec.n_k_heads * d) + w->k_head * d,
               d * sizeof(float));
        memcpy(w->u + r * w->width, pending_at(t->pending_u, w->slot, r, t->spec.n_v_heads * d) + w->head * d,
               d * sizeof(float));
        w->decay_of[r] = pending_at(t->pending_g, w->slot, r, t->spec.n_v_heads)[w->head];
    }
    for (size_t i = 0; i < d; i++) {
        float *row = state + i * d, rest[LANES] = {0};
        size_t at = 0;

        for (; at + STRIP <= whole; at += STRIP)
            redo_row(STRIP_VECTORS, w, n, i, at, row + at);
        for (; at < whole; at += LANES)
            redo_row(1, w, n, i, at, row + at);
        if (whole == d)
            continue;
        memcpy(rest, row + whole, (d - whole) * sizeof *rest);
        redo_row(1, w, n, i, whole, rest);
        memcpy(row + whole, rest, (d - whole) * sizeof *rest);
    }
}

static void commit_part(const void *work, size_t first, size_t end)
{
    const delta_work *k = work;
    rf_delta *t = k->t;

    for (size_t item = first; item < end; item++) {
        size_t s = item / t->spec.n_v_heads, head = item % t->spec.n_v_heads, n = (size_t)k->c->seqs[s].n_rows;
        task w = {.t = t, .slot = (size_t)k->c->seqs[s].slot, .head = head, .k_head = head / t->tiles,
                  .width = round_to_lanes(t->spec.head_dim)};
        rf_buf pending = {t->cpu, 0, t->pending_m};
        rf_mat rows = {&pending, w.slot * RF_MAX_BLOCK * t->n_channels, t->n_channels};

        place_scratch(&w, cpu_scratch(k->cpu));
        redo(&w, n);
        advance_window(t, w.slot, head, n, rows, 0);
    }
}

static void delta_commit(rf_backend *b, const rf_batch *batch, rf_delta *t)
{
    delta_work k = {.cpu = cpu_of(b), .c = cpu_batch_of(batch), .t = t};

    cpu_team_each_free(team_of(b), batch->n_seqs * t->spec.n_v_heads, commit_part, &k);
}

void RF_ISA_NAME(delta_ops)(rf_ops *ops)
{
    ops->delta = delta;
    ops->delta_commit = delta_commit;
}
