/* Gated DeltaNet, token by token. A block takes 32 columns of the state of one value head of one sequence; 8 lanes share
 * a column, whose elements stay in their registers: lane l holds elements l, l + 8, .. Inputs of a tile of tokens are put
 * into shared memory first, then the tokens follow each other without a barrier.
 *
 * Orders. Convolution, gates and updates: as backend.h says. ||q||, ||k||: a group, element i in lane i mod 32, ascending
 * fma, then the sum of the group. S^T k and S^T q: the elements of a lane ascending by fma from +0, then the sum of 8
 * lanes. */
#include "gpu_internal.h"

#include "device.h"

namespace RT_SPACE {

#define THREADS 256
#define LANES 8
#define COLUMNS (THREADS / LANES)

typedef struct {
    delta_view t;
    rt_batch_view batch;
    rt_mat m, alpha, beta, o;
    unsigned tile; /* tokens that shared memory holds the inputs of */
} delta_job;

/* silu of the causal convolution of a channel at row i of the sequence */
RT_DEVICE float convolve(const delta_job &j, uint32_t slot, unsigned first_row, unsigned i, unsigned channel)
{
    const delta_view &t = j.t;
    float sum = 0;

    for (unsigned tap = 0; tap < t.taps; tap++) {
        unsigned back = t.taps - 1 - tap;
        float x = back <= i ? j.m.p[(size_t)(first_row + i - back) * j.m.stride + channel]
                            : t.window[((size_t)slot * (t.taps - 1) + i + tap) * t.n_channels + channel];

        sum = fmaf(t.conv[(size_t)tap * t.n_channels + channel], x, sum);
    }
    return rt_silu(sum);
}

/* What a block works on, and where its inputs lie in shared memory: q and k [tile][d], v [tile][COLUMNS], beta and decay
 * [tile]. */
typedef struct {
    unsigned head, k_head, first_column;
    uint32_t slot, first_row;
    rt_shared<float> q, k, v, beta, decay;
} delta_place;

/* Inputs of rows [i, i + n), not yet normalised. */
RT_DEVICE void load_inputs(const delta_job &j, const delta_place &p, unsigned i, unsigned n)
{
    const delta_view &t = j.t;
    unsigned d = t.d, width = 2 * d + COLUMNS;

    for (unsigned at = rt_thread(); at < n * width; at += THREADS) {
        unsigned r = at / width, c = at % width, column = p.first_column + c - 2 * d;

        if (c < d)
            p.q[r * d + c] = convolve(j, p.slot, p.first_row, i + r, p.k_head * d + c);
        else if (c < 2 * d)
            p.k[r * d + c - d] = convolve(j, p.slot, p.first_row, i + r, (t.n_k_heads + p.k_head) * d + c - d);
        else
            p.v[r * COLUMNS + c - 2 * d] =
                column < d ? convolve(j, p.slot, p.first_row, i + r, (2 * t.n_k_heads + p.head) * d + column) : 0.0f;
    }
    for (unsigned r = rt_thread(); r < n; r += THREADS) {
        size_t row = p.first_row + i + r;

        p.beta[r] = rt_sigmoid(j.beta.p[row * j.beta.stride + p.head]);
        p.decay[r] = rt_exp(t.a[p.head] * rt_softplus(j.alpha.p[row * j.alpha.stride + p.head] + t.dt[p.head]));
    }
}

/* x / max(||x||, eps) * factor for the queries and keys of n rows, a vector a group */
RT_DEVICE void normalize(const delta_job &j, const delta_place &p, unsigned n)
{
    unsigned d = j.t.d, lane = rt_thread() % RT_GROUP, own = rt_thread() / RT_GROUP;

    for (unsigned base = 0; base < 2 * n; base += THREADS / RT_GROUP) {
        unsigned vector = base + own, r = vector / 2;
        bool there = vector < 2 * n, query = vector % 2 == 0;
        rt_shared<float> x = query ? p.q : p.k;
        float sum = 0, by, factor = query ? 1.0f / sqrtf((float)d) : 1.0f;

        for (unsigned e = lane; there && e < d; e += RT_GROUP) {
            float v = x[r * d + e];

            sum = fmaf(v, v, sum);
        }
        by = sqrtf(rt_group_sum(sum));
        by = by > j.t.eps || by != by ? by : j.t.eps;
        for (unsigned e = lane; there && e < d; e += RT_GROUP)
            x[r * d + e] = (x[r * d + e] / by) * factor;
    }
}

/* One token on this lane's elements of a column: S = decay S; u = beta (v - S^T k); S += k u^T; o = S^T q. */
template <int M>
RT_DEVICE void step(const delta_place &p, unsigned d, unsigned r, float (&s)[M], float *u_out, float *o_out)
{
    unsigned lane = rt_thread() % LANES, column = rt_thread() / LANES;
    float decay = p.decay[r], sum = 0, u;

    RT_UNROLL
    for (int m = 0; m < M; m++) {
        unsigned e = (unsigned)m * LANES + lane;

        s[m] = s[m] * decay;
        if (e < d)
            sum = fmaf(s[m], p.k[r * d + e], sum);
    }
    u = p.beta[r] * (p.v[r * COLUMNS + column] - rt_lanes_sum(sum, LANES));
    sum = 0;
    RT_UNROLL
    for (int m = 0; m < M; m++) {
        unsigned e = (unsigned)m * LANES + lane;

        if (e < d) {
            s[m] = fmaf(p.k[r * d + e], u, s[m]);
            sum = fmaf(s[m], p.q[r * d + e], sum);
        }
    }
    *u_out = u;
    *o_out = rt_lanes_sum(sum, LANES);
}

RT_DEVICE float *pending_at(float *part, uint32_t slot, unsigned row, size_t width)
{
    return part + ((size_t)slot * RF_MAX_BLOCK + row) * width;
}

/* Keys and decays that delta_commit needs; one block of a key head, one of a value head writes them. */
RT_DEVICE void keep_inputs(const delta_job &j, const delta_place &p, unsigned first, unsigned n)
{
    const delta_view &t = j.t;

    if (p.first_column)
        return;
    if (p.head % (t.n_v_heads / t.n_k_heads) == 0)
        for (unsigned at = rt_thread(); at < n * t.d; at += THREADS)
            pending_at(t.pending_k, p.slot, first + at / t.d, (size_t)t.n_k_heads * t.d)[p.k_head * t.d + at % t.d] = p.k[at];
    for (unsigned r = rt_thread(); r < n; r += THREADS)
        pending_at(t.pending_g, p.slot, first + r, t.n_v_heads)[p.head] = p.decay[r];
}

/* grid: strips of COLUMNS, value heads, sequences. M elements a lane: at least d / 8. */
template <int M> RT_KERNEL delta_kernel(delta_job j)
{
    const delta_view &t = j.t;
    const rf_batch_seq seq = j.batch.seqs[rt_block_z()];
    unsigned d = t.d, lane = rt_thread() % LANES, n_rows = (unsigned)seq.n_rows;
    unsigned head = rt_block_y(), first_column = rt_block() * COLUMNS, column = first_column + rt_thread() / LANES;
    bool given = seq.role == RF_ROLE_GIVEN, there = column < d;
    float *state = t.state + (((size_t)seq.slot * t.n_v_heads + head) * d + (there ? column : 0)) * d;
    float s[M];
    RT_SHARED_DYNAMIC(float, memory);
    delta_place p = {head, head / (t.n_v_heads / t.n_k_heads), first_column, (uint32_t)seq.slot,
                     j.batch.first_row[rt_block_z()], memory, memory + j.tile * d, memory + 2 * j.tile * d,
                     memory + j.tile * (2 * d + COLUMNS), memory + j.tile * (2 * d + COLUMNS + 1)};

    RT_UNROLL
    for (int m = 0; m < M; m++)
        s[m] = there && (unsigned)m * LANES + lane < d ? state[(unsigned)m * LANES + lane] : 0.0f;
    for (unsigned i = 0; i < n_rows; i += j.tile) {
        unsigned n = n_rows - i < j.tile ? n_rows - i : j.tile;

        load_inputs(j, p, i, n);
        rt_sync();
        normalize(j, p, n);
        rt_sync();
        for (unsigned r = 0; r < n; r++) {
            float u, o;

            step<M>(p, d, r, s, &u, &o);
            if (there && lane == 0)
                j.o.p[(size_t)(p.first_row + i + r) * j.o.stride + head * d + column] = o;
            if (there && lane == 0 && !given)
                pending_at(t.pending_u, p.slot, i + r, (size_t)t.n_v_heads * d)[head * d + column] = u;
        }
        if (!given)
            keep_inputs(j, p, i, n);
        rt_sync();
    }
    if (!given || !there)
        return;
    RT_UNROLL
    for (int m = 0; m < M; m++)
        if ((unsigned)m * LANES + lane < d)
            state[(unsigned)m * LANES + lane] = s[m];
}

/* The window of a channel after n more rows: the last taps - 1 of window ++ rows. Oldest first, so that no source is
 * overwritten early. */
RT_DEVICE void advance_window(const delta_view &t, uint32_t slot, unsigned channel, unsigned n, const float *rows,
                              size_t stride)
{
    unsigned depth = t.taps - 1;
    float *window = t.window + (size_t)slot * depth * t.n_channels + channel;

    for (unsigned age = 0; age < depth; age++) {
        unsigned from = age + n;

        window[(size_t)age * t.n_channels] =
            from < depth ? window[(size_t)from * t.n_channels] : rows[(from - depth) * stride + channel];
    }
}

/* After delta: windows of given sequences advance, rows of generated ones are kept. grid: channels, sequences */
RT_KERNEL channels_kernel(delta_job j)
{
    unsigned channel = rt_block() * rt_n_threads() + rt_thread();
    const rf_batch_seq seq = j.batch.seqs[rt_block_y()];
    const float *rows = j.m.p + j.batch.first_row[rt_block_y()] * j.m.stride;

    if (channel >= j.t.n_channels)
        return;
    if (seq.role == RF_ROLE_GIVEN) {
        advance_window(j.t, (uint32_t)seq.slot, channel, (unsigned)seq.n_rows, rows, j.m.stride);
        return;
    }
    for (unsigned r = 0; r < (unsigned)seq.n_rows; r++)
        pending_at(j.t.pending_m, (uint32_t)seq.slot, r, j.t.n_channels)[channel] = rows[r * j.m.stride + channel];
}

/* The first pending rows on the state: the same decays and rank-one updates as their steps made.
 * grid: elements of a state, value heads, sequences */
RT_KERNEL commit_kernel(delta_view t, rt_batch_view batch)
{
    unsigned at = rt_block() * rt_n_threads() + rt_thread(), head = rt_block_y(), d = t.d;
    unsigned k_head = head / (t.n_v_heads / t.n_k_heads), column = at / d, element = at % d;
    const rf_batch_seq seq = batch.seqs[rt_block_z()];
    uint32_t slot = (uint32_t)seq.slot;
    float *state = t.state + ((size_t)slot * t.n_v_heads + head) * d * d + at, s;

    if (at >= d * d)
        return;
    s = *state;
    for (unsigned r = 0; r < (unsigned)seq.n_rows; r++) {
        float k = pending_at(t.pending_k, slot, r, (size_t)t.n_k_heads * d)[k_head * d + element],
              u = pending_at(t.pending_u, slot, r, (size_t)t.n_v_heads * d)[head * d + column],
              decay = pending_at(t.pending_g, slot, r, t.n_v_heads)[head];

        s = fmaf(k, u, s * decay);
    }
    *state = s;
}

/* grid: channels, sequences */
RT_KERNEL commit_window_kernel(delta_view t, rt_batch_view batch)
{
    unsigned channel = rt_block() * rt_n_threads() + rt_thread();
    const rf_batch_seq seq = batch.seqs[rt_block_y()];

    if (channel < t.n_channels)
        advance_window(t, (uint32_t)seq.slot, channel, (unsigned)seq.n_rows,
                       pending_at(t.pending_m, (uint32_t)seq.slot, 0, t.n_channels), t.n_channels);
}

/* ---- host */

/* Tokens whose inputs fit into shared memory, and the bytes of n of them. */
static size_t tile_bytes(size_t d, unsigned n)
{
    return n * (2 * d + COLUMNS + 2) * sizeof(float);
}

static unsigned tile_of(size_t d)
{
    unsigned n = MAX_TILE_ROWS;

    while (n > 1 && tile_bytes(d, n) > RT_SHARED_BYTES)
        n--;
    return n;
}

template <int M> static void run(rf_gpu *gpu, const gpu_batch *c, const delta_job &j)
{
    rt_grid grid = grid_of(divide_up(j.t.d, COLUMNS), j.t.n_v_heads, c->shape.n_seqs);

    launch(gpu, {"delta", grid, THREADS, tile_bytes(j.t.d, j.tile), true}, delta_kernel<M>, j);
}

static rt_launch_spec channels(const char *name, const rf_delta *t, const rf_batch *batch)
{
    return rt_launch_spec{name, grid_of(divide_up(t->view.n_channels, THREADS), batch->n_seqs), THREADS, 0, false};
}

static void delta(rf_backend *b, const rf_batch *batch, rf_delta *t, rf_mat m, rf_mat alpha, rf_mat beta, rf_mat o)
{
    const gpu_batch *c = batch_of(batch);
    delta_job j = {t->view, c->view, mat_of(m), mat_of(alpha), mat_of(beta), mat_of(o), tile_of(t->view.d)};
    unsigned elements = (t->view.d + LANES - 1) / LANES;

    if (elements <= 2)
        run<2>(gpu_of(b), c, j);
    else if (elements <= 4)
        run<4>(gpu_of(b), c, j);
    else if (elements <= 8)
        run<8>(gpu_of(b), c, j);
    else if (elements <= 16)
        run<16>(gpu_of(b), c, j);
    else if (elements <= 32)
        run<32>(gpu_of(b), c, j);
    else
        run<128>(gpu_of(b), c, j);
    launch(gpu_of(b), channels("delta_channels", t, batch), channels_kernel, j);
}

static void delta_commit(rf_backend *b, const rf_batch *batch, rf_delta *t)
{
    const gpu_batch *c = batch_of(batch);
    size_t elements = (size_t)t->view.d * t->view.d;

    launch(gpu_of(b), {"delta_commit", grid_of(divide_up(elements, THREADS), t->view.n_v_heads, batch->n_seqs), THREADS, 0, false},
           commit_kernel, t->view, c->view);
    launch(gpu_of(b), channels("delta_commit_window", t, batch), commit_window_kernel, t->view, c->view);
}

void delta_ops(rf_ops *ops)
{
    ops->delta = delta;
    ops->delta_commit = delta_commit;
}

} /* namespace */
