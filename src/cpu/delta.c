/* Gated DeltaNet, token by token. One task is a sequence's key head with its value heads: it owns its channels, states and pending rows.
 * Orders: backend.h. */
#include "config.h"

#include "isa.h"
#include "vec16.h"

typedef struct {
    const rf_delta *t;
    rf_mat m, alpha, beta, o;
    size_t slot, k_head, first_row;
    float *q, *k, *v, *u, *r; /* scratch: [d] each, v [tiles][d] */
} task;

static const float *window_row(const rf_delta *t, size_t slot, size_t age)
{
    return t->window + (slot * (t->spec.conv_kernel - 1) + age) * t->n_channels;
}

/* silu of the causal convolution at row i of the sequence, channels [first, first + d); y may be unaligned */
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
        v_store_n(y + c, v_silu(sum), n);
    }
}

static void scale_by(float *x, size_t n, float divisor, float factor)
{
    v16 by = v_set1(divisor), times = v_set1(factor);

    for (size_t i = 0; i < n; i += LANES) {
        size_t k = n - i < LANES ? n - i : LANES;

        v_store_n(x + i, v_mul(v_div(v_load_n(x + i, k), by), times), k);
    }
}

/* x / max(||x||, eps) * factor */
static void normalize(float *x, size_t n, float eps, float factor)
{
    float norm = sqrtf(v_dot(x, x, n));

    scale_by(x, n, norm > eps ? norm : eps, factor);
}

static void row_inputs(task *w, size_t i)
{
    const rf_delta_spec *s = &w->t->spec;
    size_t d = s->head_dim, tiles = w->t->tiles;

    convolve(w, i, w->k_head * d, w->q);
    convolve(w, i, (s->n_k_heads + w->k_head) * d, w->k);
    for (size_t tile = 0; tile < tiles; tile++)
        convolve(w, i, (2 * s->n_k_heads + w->k_head * tiles + tile) * d, w->v + tile * d);
    normalize(w->q, d, s->eps, 1.0f / sqrtf((float)d));
    normalize(w->k, d, s->eps, 1.0f);
}

/* S = decay S; r = S^T k, i ascending */
static void decay_and_read(float *state, const float *k, float decay, size_t d, float *r)
{
    v16 g = v_set1(decay);

    memset(r, 0, d * sizeof *r);
    for (size_t i = 0; i < d; i++) {
        v16 ki = v_set1(k[i]);
        float *row = state + i * d;

        for (size_t j = 0; j < d; j += LANES) {
            size_t n = d - j < LANES ? d - j : LANES;
            v16 s = v_mul(v_load_n(row + j, n), g);

            v_store_n(row + j, s, n);
            v_store_n(r + j, v_fma(s, ki, v_load_n(r + j, n)), n);
        }
    }
}

/* S = fma(k, u, S); o = S^T q, i ascending */
static void write_and_read(float *state, const float *k, const float *u, const float *q, size_t d, float *o)
{
    memset(o, 0, d * sizeof *o);
    for (size_t i = 0; i < d; i++) {
        v16 ki = v_set1(k[i]), qi = v_set1(q[i]);
        float *row = state + i * d;

        for (size_t j = 0; j < d; j += LANES) {
            size_t n = d - j < LANES ? d - j : LANES;
            v16 s = v_fma(ki, v_load_n(u + j, n), v_load_n(row + j, n));

            v_store_n(row + j, s, n);
            v_store_n(o + j, v_fma(s, qi, v_load_n(o + j, n)), n);
        }
    }
}

/* One token of one value head; the state is advanced. Leaves u in w->u; returns exp(g). */
static float step(task *w, size_t i, size_t tile, float *state)
{
    const rf_delta *t = w->t;
    size_t d = t->spec.head_dim, head = w->k_head * t->tiles + tile, row = w->first_row + i;
    float beta = s_sigmoid(mat_row(w->beta, row)[head]);
    float decay = s_exp(t->a[head] * s_softplus(mat_row(w->alpha, row)[head] + t->dt[head]));
    const float *v = w->v + tile * d;

    decay_and_read(state, w->k, decay, d, w->r);
    for (size_t j = 0; j < d; j += LANES) {
        size_t n = d - j < LANES ? d - j : LANES;

        v_store_n(w->u + j, v_mul(v_set1(beta), v_sub(v_load_n(v + j, n), v_load_n(w->r + j, n))), n);
    }
    write_and_read(state, w->k, w->u, w->q, d, mat_row(w->o, row) + head * d);
    return decay;
}

static float *pending_at(float *part, size_t slot, size_t row, size_t width)
{
    return part + (slot * RF_MAX_BLOCK + row) * width;
}

/* What delta_commit needs of row i. */
static void keep_pending(const task *w, size_t i, size_t tile, float decay)
{
    const rf_delta *t = w->t;
    size_t d = t->spec.head_dim, head = w->k_head * t->tiles + tile;

    memcpy(pending_at(t->pending_u, w->slot, i, t->spec.n_v_heads * d) + head * d, w->u, d * sizeof(float));
    pending_at(t->pending_g, w->slot, i, t->spec.n_v_heads)[head] = decay;
    if (tile == 0)
        memcpy(pending_at(t->pending_k, w->slot, i, t->spec.n_k_heads * d) + w->k_head * d, w->k, d * sizeof(float));
}

/* Channels of a key head: its q, k, and value heads'. f(t, slot, first channel, count) for each run. */
static void copy_channels(const rf_delta *t, size_t k_head, float *dst, const float *src)
{
    size_t d = t->spec.head_dim, n_k = t->spec.n_k_heads, tiles = t->tiles;

    memcpy(dst + k_head * d, src + k_head * d, d * sizeof *dst);
    memcpy(dst + (n_k + k_head) * d, src + (n_k + k_head) * d, d * sizeof *dst);
    memcpy(dst + (2 * n_k + k_head * tiles) * d, src + (2 * n_k + k_head * tiles) * d, tiles * d * sizeof *dst);
}

/* The window after n more rows, row(i) being the i-th: the last taps - 1 columns. Oldest first, so that no source is overwritten early. */
static void advance_window(const rf_delta *t, size_t slot, size_t k_head, size_t n, rf_mat rows, size_t first_row)
{
    size_t depth = t->spec.conv_kernel - 1;

    for (size_t age = 0; age < depth; age++) {
        size_t from = age + n; /* index into window ++ rows */
        const float *src = from < depth ? window_row(t, slot, from) : mat_row(rows, first_row + from - depth);

        copy_channels(t, k_head, t->window + (slot * depth + age) * t->n_channels, src);
    }
}

static void run_task(task *w, const rf_batch_seq *seq, float *scratch)
{
    const rf_delta *t = w->t;
    size_t d = t->spec.head_dim, width = d + 16;
    size_t state_floats = t->tiles * d * d;
    float *state = t->state + (w->slot * t->spec.n_v_heads + w->k_head * t->tiles) * d * d;
    bool given = seq->role == RF_ROLE_GIVEN;

    w->q = scratch + state_floats;
    w->k = w->q + width;
    w->u = w->k + width;
    w->r = w->u + width;
    w->v = w->r + width;
    if (!given) {
        memcpy(scratch, state, state_floats * sizeof *state);
        state = scratch;
    }
    for (size_t i = 0; i < (size_t)seq->n_rows; i++) {
        row_inputs(w, i);
        for (size_t tile = 0; tile < t->tiles; tile++) {
            float decay = step(w, i, tile, state + tile * d * d);

            if (!given)
                keep_pending(w, i, tile, decay);
        }
        if (!given)
            copy_channels(t, w->k_head, pending_at(t->pending_m, w->slot, i, t->n_channels), mat_row(w->m, w->first_row + i));
    }
    if (given)
        advance_window(t, w->slot, w->k_head, (size_t)seq->n_rows, w->m, w->first_row);
}

static void delta(rf_backend *b, const rf_batch *batch, rf_delta *t, rf_mat m, rf_mat alpha, rf_mat beta, rf_mat o)
{
    const cpu_batch *c = cpu_batch_of(batch);

#pragma omp parallel for collapse(2) schedule(dynamic, 1) num_threads(cpu_of(b)->n_threads)
    for (size_t s = 0; s < c->shape.n_seqs; s++)
        for (size_t k_head = 0; k_head < t->spec.n_k_heads; k_head++) {
            task w = {.t = t, .m = m, .alpha = alpha, .beta = beta, .o = o, .slot = (size_t)c->seqs[s].slot, .k_head = k_head,
                      .first_row = c->first_row[s]};

            run_task(&w, &c->seqs[s], cpu_scratch(cpu_of(b)));
        }
}

/* Row i of the pending rows: the same decay and rank-one update as the step made. */
static void redo(const rf_delta *t, size_t slot, size_t head, size_t i)
{
    size_t d = t->spec.head_dim;
    float *state = t->state + (slot * t->spec.n_v_heads + head) * d * d;
    const float *k = pending_at(t->pending_k, slot, i, t->spec.n_k_heads * d) + head / t->tiles * d;
    const float *u = pending_at(t->pending_u, slot, i, t->spec.n_v_heads * d) + head * d;
    v16 decay = v_set1(pending_at(t->pending_g, slot, i, t->spec.n_v_heads)[head]);

    for (size_t row = 0; row < d; row++) {
        v16 kr = v_set1(k[row]);

        for (size_t j = 0; j < d; j += LANES) {
            size_t n = d - j < LANES ? d - j : LANES;
            float *s = state + row * d + j;

            v_store_n(s, v_fma(kr, v_load_n(u + j, n), v_mul(v_load_n(s, n), decay)), n);
        }
    }
}

static void delta_commit(rf_backend *b, const rf_batch *batch, rf_delta *t)
{
    const cpu_batch *c = cpu_batch_of(batch);

#pragma omp parallel for collapse(2) schedule(dynamic, 1) num_threads(cpu_of(b)->n_threads)
    for (size_t s = 0; s < c->shape.n_seqs; s++)
        for (size_t k_head = 0; k_head < t->spec.n_k_heads; k_head++) {
            size_t slot = (size_t)c->seqs[s].slot, n = (size_t)c->seqs[s].n_rows;
            rf_buf pending = {t->cpu, 0, t->pending_m};
            rf_mat rows = {&pending, slot * RF_MAX_BLOCK * t->n_channels, t->n_channels};

            for (size_t tile = 0; tile < t->tiles; tile++)
                for (size_t i = 0; i < n; i++)
                    redo(t, slot, k_head * t->tiles + tile, i);
            advance_window(t, slot, k_head, n, rows, 0);
        }
}

void RF_ISA_NAME(delta_ops)(rf_ops *ops)
{
    ops->delta = delta;
    ops->delta_commit = delta_commit;
}
