/* Gated DeltaNet, token by token. One task is a sequence's value head. It takes rows MAX_TILE_ROWS at a time: first the
 * inputs of all of them, then for each strip of columns of the state all rows in turn, so that a strip is read once,
 * in the order it lies in memory, and stays in the nearest cache meanwhile; columns of a state never mix. A pass over a
 * strip finishes one row and reads what the next one needs. Rows that were committed since the last time are put into
 * the state by the same pass that reads it. Orders: backend.h. */
#include "config.h"

#include "isa.h"
#include "vec16.h"

/* of a strip: u and o of all its columns stay in registers */
#define STRIP_VECTORS (V_REGISTERS / 8 > 1 ? V_REGISTERS / 8 : 2)
#define STRIP (STRIP_VECTORS * LANES) /* at most MAX_STRIP */
#define STATE_AHEAD 4096              /* bytes: as Q8_AHEAD */
#define SHARED_CHANNELS 16384         /* channels below which one thread advances windows */

typedef struct {
    const rf_delta *t;
    rf_mat m, alpha, beta, o;
    size_t slot, head, k_head, first_row, width; /* width: head_dim rounded up to whole vectors */
    float *q, *k, *v, *u;                        /* scratch: [MAX_TILE_ROWS][width] each */
    float *due_k, *due_u;                        /* of rows committed, but not yet in the state: the same shape */
    float *strip;                                /* scratch: [head_dim][STRIP] */
    size_t n_due;
    float beta_of[MAX_TILE_ROWS], decay_of[MAX_TILE_ROWS], due_decay[MAX_TILE_ROWS];
} task;

static void place_scratch(task *w, float *scratch)
{
    size_t floats = MAX_TILE_ROWS * w->width;

    w->strip = scratch;
    w->q = w->strip + w->t->spec.head_dim * STRIP;
    w->k = w->q + floats;
    w->v = w->k + floats;
    w->u = w->v + floats;
    w->due_k = w->u + floats;
    w->due_u = w->due_k + floats;
}

static float *window_row(const rf_delta *t, size_t slot, size_t age)
{
    return t->window + (slot * (t->spec.conv_kernel - 1) + age) * t->n_channels;
}

/* Channels of a pending row, before the convolution */
static float *pending_row(const rf_delta *t, size_t slot, size_t row)
{
    return t->pending_m + (slot * RF_MAX_BLOCK + row) * t->n_channels;
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

/* ---- a strip of the state */

/* Where a pass reads and writes: rows of the strip are `stride` floats apart. */
typedef struct {
    float *at;
    size_t stride;
} strip_place;

/* Puts the committed rows into the strip: S = decay S; S += k u^T; and begins row 0: r = (decay S)^T k. */
static inline __attribute__((always_inline)) void begin_rows(const size_t vectors, const task *w, size_t at,
                                                             strip_place state, v16 *r)
{
    size_t d = w->t->spec.head_dim, width = w->width, n_due = w->n_due;
    v16 g = v_set1(w->decay_of[0]);

#pragma GCC unroll 4
    for (size_t j = 0; j < vectors; j++)
        r[j] = v_set1(0);
    for (size_t i = 0; i < d; i++) {
        float *row = state.at + i * state.stride;
        v16 s[STRIP_VECTORS], ki = v_set1(w->k[i]);

#pragma GCC unroll 4
        for (size_t j = 0; j < vectors; j++) {
            __builtin_prefetch((const char *)(row + j * LANES) + STATE_AHEAD);
            s[j] = v_load(row + j * LANES);
        }
        for (size_t n = 0; n < n_due; n++) {
            v16 k = v_set1(w->due_k[n * width + i]), decay = v_set1(w->due_decay[n]);

#pragma GCC unroll 4
            for (size_t j = 0; j < vectors; j++)
                s[j] = v_fma(k, v_load(w->due_u + n * width + at + j * LANES), v_mul(s[j], decay));
        }
#pragma GCC unroll 4
        for (size_t j = 0; j < vectors; j++) {
            if (n_due)
                v_store(row + j * LANES, s[j]);
            r[j] = v_fma(v_mul(s[j], g), ki, r[j]);
        }
    }
}

/* Finishes row n: u = beta (v - r); S += k u^T; o = S^T q. Where another row follows (more), it begins that: the strip
 * is written with its decay, r = S^T k. first: what is read has not been decayed yet. keep: the strip is written. */
static inline __attribute__((always_inline)) void finish_row(const size_t vectors, const bool first, const bool keep,
                                                             const bool more, const task *w, size_t n, size_t at,
                                                             strip_place from, strip_place to, v16 *r, float *out)
{
    const float *k = w->k + n * w->width, *q = w->q + n * w->width, *v = w->v + n * w->width + at;
    float *u_out = w->u + n * w->width + at;
    size_t d = w->t->spec.head_dim;
    v16 g = v_set1(w->decay_of[n]), next = v_set1(more ? w->decay_of[n + 1] : 0), u[STRIP_VECTORS], o[STRIP_VECTORS];

#pragma GCC unroll 4
    for (size_t j = 0; j < vectors; j++) {
        u[j] = v_mul(v_set1(w->beta_of[n]), v_sub(v_load(v + j * LANES), r[j]));
        v_store(u_out + j * LANES, u[j]);
        o[j] = r[j] = v_set1(0);
    }
    for (size_t i = 0; i < d; i++) {
        v16 ki = v_set1(k[i]), qi = v_set1(q[i]), after = v_set1(more ? k[w->width + i] : 0);

#pragma GCC unroll 4
        for (size_t j = 0; j < vectors; j++) {
            v16 s = v_load(from.at + i * from.stride + j * LANES);

            s = v_fma(ki, u[j], first ? v_mul(s, g) : s);
            o[j] = v_fma(s, qi, o[j]);
            if (more) {
                s = v_mul(s, next);
                r[j] = v_fma(s, after, r[j]);
            }
            if (keep)
                v_store(to.at + i * to.stride + j * LANES, s);
        }
    }
#pragma GCC unroll 4
    for (size_t j = 0; j < vectors; j++)
        v_store(out + j * LANES, o[j]);
}

/* Rows [i, i + n) of the sequence on columns [at, at + columns) of the state, whose inputs are in the scratch; given
 * rows change it. */
static inline __attribute__((always_inline)) void strip_rows(const size_t vectors, const task *w, size_t i, size_t n,
                                                             size_t at, size_t columns, bool given)
{
    strip_place state = {cpu_state_at(w->t, w->slot, w->head, at), cpu_state_stride(w->t, at)};
    strip_place strip = given ? state : (strip_place){w->strip, STRIP};
    v16 r[STRIP_VECTORS];
    float o[STRIP];

    begin_rows(vectors, w, at, state, r);
    for (size_t row = 0; row < n; row++) {
        bool first = row == 0, more = row + 1 < n;

        if (first && more)
            finish_row(vectors, true, true, true, w, row, at, state, strip, r, o);
        else if (more)
            finish_row(vectors, false, true, true, w, row, at, strip, strip, r, o);
        else if (first && given)
            finish_row(vectors, true, true, false, w, row, at, state, strip, r, o);
        else if (first)
            finish_row(vectors, true, false, false, w, row, at, state, strip, r, o);
        else if (given)
            finish_row(vectors, false, true, false, w, row, at, strip, strip, r, o);
        else
            finish_row(vectors, false, false, false, w, row, at, strip, strip, r, o);
        memcpy(mat_row(w->o, w->first_row + i + row) + w->head * w->t->spec.head_dim + at, o, columns * sizeof *o);
    }
}

static void advance_state(task *w, size_t i, size_t n, bool given)
{
    size_t d = w->t->spec.head_dim;

    for (size_t at = 0; at < d; at += STRIP) {
        size_t columns = d - at < STRIP ? d - at : STRIP;

        switch ((columns + LANES - 1) / LANES) {
        case 1: strip_rows(1, w, i, n, at, columns, given); break;
        case 2: strip_rows(2, w, i, n, at, columns, given); break;
        case 3: strip_rows(STRIP_VECTORS < 3 ? STRIP_VECTORS : 3, w, i, n, at, columns, given); break;
        default: strip_rows(STRIP_VECTORS, w, i, n, at, columns, given); break;
        }
    }
    w->n_due = 0;
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
        memcpy(cpu_pending_k(t, w->slot, w->head, r), w->k + r * w->width, d * sizeof(float));
        memcpy(cpu_pending_u(t, w->slot, w->head, r), w->u + r * w->width, d * sizeof(float));
        *cpu_pending_g(t, w->slot, w->head, r) = w->decay_of[r];
        copy_task_channels(t, w->head, pending_row(t, w->slot, r), mat_row(w->m, w->first_row + r));
    }
}

/* What was committed since the state was last read, gathered. */
static void take_due(task *w)
{
    const rf_delta *t = w->t;
    size_t d = t->spec.head_dim;
    int32_t *due = cpu_due(t, w->slot, w->head);

    w->n_due = (size_t)*due;
    *due = 0;
    for (size_t r = 0; r < w->n_due; r++) {
        memcpy(w->due_k + r * w->width, cpu_pending_k(t, w->slot, w->head, r), d * sizeof(float));
        memcpy(w->due_u + r * w->width, cpu_pending_u(t, w->slot, w->head, r), d * sizeof(float));
        w->due_decay[r] = *cpu_pending_g(t, w->slot, w->head, r);
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

    take_due(w);
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

    cpu_team_each(team_of(b), n, delta_part, &k);
    if (any_given(k.c)) /* only now: value heads of one key head read the same window */
        cpu_team_each(team_of(b), n, window_part, &k);
}

/* ---- commit: windows advance at once, states when they are read next */

static void commit_part(const void *work, size_t first, size_t end)
{
    const delta_work *k = work;
    rf_delta *t = k->t;

    for (size_t item = first; item < end; item++) {
        size_t s = item / t->spec.n_v_heads, head = item % t->spec.n_v_heads, n = (size_t)k->c->seqs[s].n_rows,
               slot = (size_t)k->c->seqs[s].slot;
        rf_buf pending = {t->cpu, 0, t->pending_m};
        rf_mat rows = {&pending, slot * RF_MAX_BLOCK * t->n_channels, t->n_channels};

        *cpu_due(t, slot, head) = (int32_t)n;
        advance_window(t, slot, head, n, rows, 0);
    }
}

static void delta_commit(rf_backend *b, const rf_batch *batch, rf_delta *t)
{
    delta_work k = {.cpu = cpu_of(b), .c = cpu_batch_of(batch), .t = t};

    cpu_team_each_if(team_of(b), batch->n_seqs * t->n_channels >= SHARED_CHANNELS, batch->n_seqs * t->spec.n_v_heads,
                     commit_part, &k);
}

void RF_ISA_NAME(delta_ops)(rf_ops *ops)
{
    ops->delta = delta;
    ops->delta_commit = delta_commit;
}
