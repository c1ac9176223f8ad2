/* Matmul. LANES neighbouring lanes share an output: they take chunks of columns in turn, one float32 accumulator an
 * output, row and lane from +0, chunks ascending; then the lanes are added by halves (device.h). For a whole matrix
 * LANES is 32; in a row-parallel product every unit is such a sum over 8 lanes, and units are added up the tree. The
 * order of a row's sums depends on the columns alone: not on the number of rows, and a unit's not on what else the rank
 * holds.
 *
 * N outputs and R rows are computed at once, so that 1 to 16 rows read every weight once. More rows go in tiles of 16.
 *
 * A format says how many columns a lane takes at a time, and how they are loaded and multiplied:
 * Q8_0: 16 columns, half a block: acc = fma((float)isum, dw * dx, acc). Floats: one, acc = fma(w, x, acc). */
#include "gpu_internal.h"

#include "device.h"

namespace RT_SPACE {

#define THREADS 128
#define OUTPUTS 4      /* N */
#define NODE_LANES 8   /* a unit */

typedef struct {
    const unsigned char *data;
    size_t n_rows, n_cols;
} matrix;

typedef struct {
    const int8_t *q;
    const float *d;
    size_t n_cols;
    rt_mat x;
} rows_view;

struct q8_0 {
    static const unsigned CHUNK = 16;
    struct piece {
        four_words q;
        float d;
    };

    RT_DEVICE piece weights(const matrix &w, size_t row, size_t k)
    {
        const uint16_t *d = reinterpret_cast<const uint16_t *>(w.data + w.n_rows * w.n_cols);
        piece p;

        p.q = *reinterpret_cast<const four_words *>(w.data + row * w.n_cols + k);
        p.d = rt_f16_to_f32(d[(row * w.n_cols + k) / Q8_BLOCK]);
        return p;
    }

    RT_DEVICE piece activations(const rows_view &x, size_t row, size_t k)
    {
        piece p;

        p.q = *reinterpret_cast<const four_words *>(x.q + row * x.n_cols + k);
        p.d = x.d[(row * x.n_cols + k) / Q8_BLOCK];
        return p;
    }

    RT_DEVICE float add(const piece &w, const piece &x, float acc)
    {
        int32_t sum = 0;

        RT_UNROLL
        for (int i = 0; i < 4; i++)
            sum = rt_dot4(w.q.v[i], x.q.v[i], sum);
        return fmaf((float)sum, w.d * x.d, acc);
    }
};

/* Weights that are numbers: T says how one is read. */
template <class T> struct plain {
    static const unsigned CHUNK = 1;
    typedef float piece;

    RT_DEVICE piece weights(const matrix &w, size_t row, size_t k)
    {
        return T::read(w.data, row * w.n_cols + k);
    }
    RT_DEVICE piece activations(const rows_view &x, size_t row, size_t k) { return x.x.p[row * x.x.stride + k]; }
    RT_DEVICE float add(piece w, piece x, float acc) { return fmaf(w, x, acc); }
};

struct read_f32 {
    RT_DEVICE float read(const unsigned char *p, size_t i) { return reinterpret_cast<const float *>(p)[i]; }
};
struct read_f16 {
    RT_DEVICE float read(const unsigned char *p, size_t i)
    {
        return rt_f16_to_f32(reinterpret_cast<const uint16_t *>(p)[i]);
    }
};
struct read_bf16 {
    RT_DEVICE float read(const unsigned char *p, size_t i)
    {
        return rt_bits_to_f32((uint32_t)reinterpret_cast<const uint16_t *>(p)[i] << 16);
    }
};

/* acc[n * R + r] = this lane's part of columns [first, end) of output first_out + n and row first_row + r. Outputs and
 * rows that are not there repeat the last one. */
template <class F, unsigned LANES, int R, int N>
RT_DEVICE void sum_columns(const matrix &w, const rows_view &x, size_t first_out, size_t first_row,
                                  size_t n_rows, size_t first, size_t end, float (&acc)[N * R])
{
    size_t row[R], out[N];

    RT_UNROLL
    for (int r = 0; r < R; r++)
        row[r] = first_row + r < n_rows ? first_row + r : n_rows - 1;
    RT_UNROLL
    for (int n = 0; n < N; n++)
        out[n] = first_out + n < w.n_rows ? first_out + n : w.n_rows - 1;
    RT_UNROLL
    for (int i = 0; i < N * R; i++)
        acc[i] = 0;
    for (size_t k = first + rt_thread() % LANES * F::CHUNK; k < end; k += LANES * F::CHUNK) {
        typename F::piece weights[N];

        RT_UNROLL
        for (int n = 0; n < N; n++)
            weights[n] = F::weights(w, out[n], k);
        RT_UNROLL
        for (int r = 0; r < R; r++) {
            typename F::piece in = F::activations(x, row[r], k);

            RT_UNROLL
            for (int n = 0; n < N; n++)
                acc[n * R + r] = F::add(weights[n], in, acc[n * R + r]);
        }
    }
}

/* grid: outputs / (groups of a block * N), row tiles of R */
template <class F, int R, int N>
RT_KERNEL whole_kernel(matrix w, rows_view x, size_t n_rows, rt_mat y)
{
    size_t first_out = ((size_t)rt_block() * (THREADS / RT_GROUP) + rt_thread() / RT_GROUP) * N,
           first_row = (size_t)rt_block_y() * R;
    float acc[N * R];
    unsigned index;

    sum_columns<F, RT_GROUP, R, N>(w, x, first_out, first_row, n_rows, 0, first_out < w.n_rows ? w.n_cols : 0, acc);
    if (!share_sums<RT_GROUP, N * R>(acc, &index))
        return;
    RT_UNROLL
    for (int i = 0; i < sums_held<RT_GROUP, N * R>::COUNT; i++) {
        size_t out = first_out + (index + i) / R, row = first_row + (index + i) % R;

        if (out < w.n_rows && row < n_rows)
            y.p[row * y.stride + out] = acc[i];
    }
}

typedef struct {
    const uint32_t *unit_end, *node_unit, *level_end, *adds;
    unsigned n_units, n_nodes, n_levels;
} tree_view;

/* All additions of the trees, a level at a time. */
template <int V> RT_DEVICE void add_units(const tree_view &t, rt_shared<float> sums)
{
    unsigned first = 0;

    for (unsigned level = 0; level < t.n_levels; level++) {
        unsigned end = t.level_end[level];

        for (unsigned i = rt_thread(); i < (end - first) * V; i += rt_n_threads()) {
            unsigned add = first + i / V;

            sums[t.adds[2 * add] * V + i % V] = sums[t.adds[2 * add] * V + i % V] + sums[t.adds[2 * add + 1] * V + i % V];
        }
        first = end;
        rt_sync();
    }
}

/* grid: outputs / N, row tiles of R. Dynamic shared memory: [unit][N * R] sums. */
template <class F, int R, int N>
RT_KERNEL node_kernel(matrix w, rows_view x, tree_view t, size_t n_rows, float *y)
{
    const unsigned TEAMS = THREADS / NODE_LANES, V = N * R;
    size_t first_out = (size_t)rt_block() * N, first_row = (size_t)rt_block_y() * R;
    RT_SHARED_DYNAMIC(float, sums);

    for (unsigned base = 0; base < t.n_units; base += TEAMS) {
        unsigned unit = base + rt_thread() / NODE_LANES, index;
        bool there = unit < t.n_units;
        size_t first = there && unit ? t.unit_end[unit - 1] : 0, end = there ? t.unit_end[unit] : 0;
        float acc[N * R];

        sum_columns<F, NODE_LANES, R, N>(w, x, first_out, first_row, n_rows, first, end, acc);
        if (share_sums<NODE_LANES, N * R>(acc, &index) && there)
            for (int i = 0; i < sums_held<NODE_LANES, N * R>::COUNT; i++)
                sums[unit * V + index + i] = acc[i];
    }
    rt_sync();
    add_units<V>(t, sums);
    for (unsigned i = rt_thread(); i < t.n_nodes * V; i += rt_n_threads()) {
        size_t out = first_out + i % V / R, row = first_row + i % R;

        if (out < w.n_rows && row < n_rows)
            y[((i / V) * n_rows + row) * w.n_rows + out] = sums[t.node_unit[i / V] * V + i % V];
    }
}

/* grid: blocks of 32 columns / (threads / 8), rows. Eight lanes take a block of 32, four columns each. */
RT_KERNEL quantize_kernel(rt_mat x, size_t n_kb, int8_t *q, float *d)
{
    size_t row = rt_block_y(), kb = (size_t)rt_block() * (rt_n_threads() / 8) + rt_thread() / 8;
    unsigned lane = rt_thread() % 8, largest = 0;
    bool there = kb < n_kb;
    const float *in = x.p + row * x.stride + (there ? kb : n_kb - 1) * Q8_BLOCK + lane * 4;
    float scale;
    int32_t word = 0;

    for (int i = 0; i < 4; i++) {
        unsigned magnitude = rt_f32_to_bits(in[i]) & 0x7fffffffu;

        largest = magnitude > largest ? magnitude : largest;
    }
    for (unsigned mask = 4; mask; mask /= 2) {
        unsigned other = rt_shuffle_xor(largest, mask);

        largest = other > largest ? other : largest;
    }
    scale = rt_bits_to_f32(largest) / 127.0f;
    if (largest >= 0x7f800000u) /* infinity or NaN somewhere: the products become NaN */
        scale = 0;
    for (int i = 0; i < 4; i++) {
        int32_t v = scale > 0 ? (int32_t)rintf(in[i] / scale) : 0;

        v = v > 127 ? 127 : v < -127 ? -127 : v; /* only where a subnormal scale was rounded down */
        word |= (int32_t)((uint32_t)(v & 0xff) << (8 * i));
    }
    if (!there)
        return;
    reinterpret_cast<int32_t *>(q + (row * n_kb + kb) * Q8_BLOCK)[lane] = word;
    if (lane == 0)
        d[row * n_kb + kb] = largest >= 0x7f800000u ? rt_bits_to_f32(0x7fc00000u) : rt_f16_to_f32(rt_f32_to_f16(scale));
}

/* ---- host */

static void quantize(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat x, unsigned wants, rf_act *act)
{
    size_t n_kb = n_cols / Q8_BLOCK;

    act->x = x;
    act->n_cols = n_cols;
    if (wants & 2u)
        launch(gpu_of(b), {"quantize", grid_of(divide_up(n_kb, THREADS / 8), n_rows), THREADS, 0, true}, quantize_kernel,
               mat_of(x), n_kb, act->q, act->d);
}

static rows_view rows_of(const rf_act *x)
{
    return rows_view{x->q, x->d, x->n_cols, mat_of(x->x)};
}

/* Every tile of rows goes through the weights once. */
static void count_bytes(rf_gpu *gpu, const rf_weight *w, size_t n_tiles)
{
    gpu->stats.weight_bytes_read += w->bytes * n_tiles;
}

template <class F, int R> static void run_whole(rf_gpu *gpu, size_t n_rows, const rf_weight *w, const rf_act *x, rf_mat y)
{
    matrix m = {w->data, w->n_rows, w->n_cols};
    rt_grid grid = grid_of(divide_up(w->n_rows, THREADS / RT_GROUP * OUTPUTS), divide_up(n_rows, R));

    count_bytes(gpu, w, grid.y);
    launch(gpu, {"matmul", grid, THREADS, 0, true}, whole_kernel<F, R, OUTPUTS>, m, rows_of(x), n_rows, mat_of(y));
}

template <class F> static void choose_whole(rf_gpu *gpu, size_t n_rows, const rf_weight *w, const rf_act *x, rf_mat y)
{
    if (n_rows > 8)
        run_whole<F, 16>(gpu, n_rows, w, x, y);
    else if (n_rows > 4)
        run_whole<F, 8>(gpu, n_rows, w, x, y);
    else if (n_rows > 2)
        run_whole<F, 4>(gpu, n_rows, w, x, y);
    else if (n_rows > 1)
        run_whole<F, 2>(gpu, n_rows, w, x, y);
    else
        run_whole<F, 1>(gpu, n_rows, w, x, y);
}

static void matmul(rf_backend *b, size_t n_rows, const rf_weight *w, const rf_act *x, rf_mat y)
{
    switch (w->type) {
    case RF_TYPE_F32: choose_whole<plain<read_f32>>(gpu_of(b), n_rows, w, x, y); break;
    case RF_TYPE_F16: choose_whole<plain<read_f16>>(gpu_of(b), n_rows, w, x, y); break;
    case RF_TYPE_BF16: choose_whole<plain<read_bf16>>(gpu_of(b), n_rows, w, x, y); break;
    default: choose_whole<q8_0>(gpu_of(b), n_rows, w, x, y); break;
    }
}

/* A launch each: they follow each other on the stream without a gap that matters. */
static void matmuls(rf_backend *b, size_t n_rows, size_t n, const rf_product *products, const rf_act *x)
{
    for (size_t i = 0; i < n; i++)
        matmul(b, n_rows, products[i].w, x, products[i].y);
}

static size_t node_memory(const rf_weight *w, size_t values)
{
    return w->n_units * values * sizeof(float);
}

template <class F, int R, int N>
static void run_nodes(rf_gpu *gpu, size_t n_rows, const rf_weight *w, const rf_act *x, rf_buf *y)
{
    matrix m = {w->data, w->n_rows, w->n_cols};
    rt_grid grid = grid_of(divide_up(w->n_rows, N), divide_up(n_rows, R));
    const uint32_t *node_unit = w->plan + w->n_units, *level_end = node_unit + w->n_nodes;
    tree_view t = {w->plan, node_unit, level_end, level_end + w->n_levels, (unsigned)w->n_units, (unsigned)w->n_nodes,
                   (unsigned)w->n_levels};

    count_bytes(gpu, w, grid.y);
    launch(gpu, {"matmul_nodes", grid, THREADS, node_memory(w, N * R), true}, node_kernel<F, R, N>, m, rows_of(x), t,
           n_rows, data_of<float>(y));
}

template <class F> static void choose_nodes(rf_gpu *gpu, size_t n_rows, const rf_weight *w, const rf_act *x, rf_buf *y)
{
    size_t rows = n_rows > 8 ? 16 : n_rows > 4 ? 8 : n_rows > 2 ? 4 : n_rows;

    while (rows > 1 && node_memory(w, OUTPUTS * rows) > RT_SHARED_BYTES)
        rows /= 2;
    switch (rows) {
    case 16: run_nodes<F, 16, OUTPUTS>(gpu, n_rows, w, x, y); break;
    case 8: run_nodes<F, 8, OUTPUTS>(gpu, n_rows, w, x, y); break;
    case 4: run_nodes<F, 4, OUTPUTS>(gpu, n_rows, w, x, y); break;
    case 2: run_nodes<F, 2, OUTPUTS>(gpu, n_rows, w, x, y); break;
    default:
        if (node_memory(w, OUTPUTS) <= RT_SHARED_BYTES)
            run_nodes<F, 1, OUTPUTS>(gpu, n_rows, w, x, y);
        else
            run_nodes<F, 1, 1>(gpu, n_rows, w, x, y);
    }
}

static void matmul_nodes(rf_backend *b, size_t n_rows, const rf_weight *w, const rf_act *x, rf_buf *y)
{
    switch (w->type) {
    case RF_TYPE_F32: choose_nodes<plain<read_f32>>(gpu_of(b), n_rows, w, x, y); break;
    case RF_TYPE_F16: choose_nodes<plain<read_f16>>(gpu_of(b), n_rows, w, x, y); break;
    case RF_TYPE_BF16: choose_nodes<plain<read_bf16>>(gpu_of(b), n_rows, w, x, y); break;
    default: choose_nodes<q8_0>(gpu_of(b), n_rows, w, x, y); break;
    }
}

void matmul_ops(rf_ops *ops)
{
    ops->quantize = quantize;
    ops->matmul = matmul;
    ops->matmuls = matmuls;
    ops->matmul_nodes = matmul_nodes;
}

} /* namespace */
