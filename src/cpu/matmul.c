/* Matmul: lanes are output rows. Parallel over blocks of 16 outputs; a block's weights serve up to MAX_TILE_ROWS
 * activation rows a pass, and wait in the cache for the next pass: memory is read once, whatever the number of rows. */
#include "config.h"

#include "../quant.h"
#include "isa.h"
#include "vec16.h"

#define SHARED_BYTES 32768 /* packed weights, for one row, below which one thread is enough */
#define SHARED_FROM 8192   /* activations below which one thread quantises */

/* Blocks of outputs that are worked on together. */
typedef struct {
    size_t block[2], n; /* n: 1 or 2 */
} block_pair;

/* ---- activations */

static v16 magnitude(v16 x)
{
    return v_max(x, v_sub(v_set1(-0.0f), x));
}

/* Whole numbers, so that their sum is exact in any order. */
static v16 quantized(v16 x, v16 scale)
{
    v16 q = v_round(v_div(x, scale));

    return v_max(v_min(q, v_set1(127)), v_set1(-127)); /* only where a subnormal scale was rounded down */
}

/* scale = absmax / 127; with infinity or NaN somewhere the products become NaN */
static void quantize_block(const float *x, int8_t *q, float *d, int32_t *offset)
{
    v16 a = v_load(x), b = v_load(x + LANES), zero = v_set1(0);
    float nothing = v_total(v_add(v_mul(a, zero), v_mul(b, zero))); /* NaN unless all are finite */
    float scale = v_largest(v_max(magnitude(a), magnitude(b))) / 127.0f;

    *d = nothing == 0 ? s_round_f16(scale) : NAN;
    *offset = 0;
    if (!(nothing == 0 && scale > 0)) {
        memset(q, 0, Q8_BLOCK);
        return;
    }
    a = quantized(a, v_set1(scale));
    b = quantized(b, v_set1(scale));
    v_store_i8(q, a);
    v_store_i8(q + LANES, b);
    *offset = -128 * (int32_t)v_total(v_add(a, b));
}

/* Where row r's k block 0 is, in blocks; the next k block is `step` further. */
static size_t act_place(size_t n_rows, size_t n_kb, size_t r, size_t *step)
{
    size_t first = r / MAX_TILE_ROWS * MAX_TILE_ROWS;

    *step = n_rows - first < MAX_TILE_ROWS ? n_rows - first : MAX_TILE_ROWS;
    return first * n_kb + r % MAX_TILE_ROWS;
}

typedef struct {
    size_t n_rows, n_kb, shares;
    rf_mat x;
    rf_act *act;
} quantize_work;

/* Items are shares of the k blocks, of all rows. */
static void quantize_part(const void *work, size_t first, size_t end)
{
    const quantize_work *k = work;
    size_t from = cpu_share_first(k->n_kb, first, k->shares), to = cpu_share_first(k->n_kb, end, k->shares);
    rf_act *act = k->act;

    for (size_t r = 0; r < k->n_rows; r++) {
        size_t step, at = act_place(k->n_rows, k->n_kb, r, &step) + from * step;
        const float *x = mat_row(k->x, r);

        for (size_t kb = from; kb < to; kb++, at += step)
            quantize_block(x + kb * Q8_BLOCK, act->q + at * Q8_BLOCK, act->d + at, act->offset + at);
    }
}

static void quantize(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat x, unsigned wants, rf_act *act)
{
    quantize_work k = {n_rows, n_cols / Q8_BLOCK, cpu_team_shares(team_of(b), n_rows * n_cols >= SHARED_FROM), x, act};

    act->x = x;
    act->n_rows = n_rows;
    act->n_cols = n_cols;
    if (wants & 2u)
        cpu_team_each(team_of(b), k.shares, quantize_part, &k);
}

/* ---- float weights: acc = fma(w, x, acc), k ascending */

static inline v16 load_weights(const unsigned char *w, const uint32_t type, size_t k)
{
    if (type == RF_TYPE_F32)
        return v_load((const float *)(const void *)w + k * OUT_LANES);
    if (type == RF_TYPE_F16)
        return v_load_f16((const uint16_t *)(const void *)w + k * OUT_LANES);
    return v_load_bf16((const uint16_t *)(const void *)w + k * OUT_LANES);
}

/* n and type are constants, so that the accumulators live in registers. */
static inline __attribute__((always_inline)) void float_rows(const size_t n, const uint32_t type,
                                                             const unsigned char *w, size_t first, size_t end, rf_mat x,
                                                             size_t row, float out[][OUT_LANES])
{
    v16 acc[MAX_TILE_ROWS];
    const float *p = mat_row(x, row);
    size_t stride = x.stride;

#pragma GCC unroll 16
    for (size_t r = 0; r < n; r++)
        acc[r] = v_set1(0);
    for (size_t k = first; k < end; k++) {
        v16 weights = load_weights(w, type, k);

#pragma GCC unroll 16
        for (size_t r = 0; r < n; r++)
            acc[r] = v_fma(weights, v_set1(p[r * stride + k]), acc[r]);
    }
#pragma GCC unroll 16
    for (size_t r = 0; r < n; r++)
        v_store(out[r], acc[r]);
}

static inline __attribute__((always_inline)) void float_tile_of(const uint32_t type, const unsigned char *w,
                                                                size_t first, size_t end, rf_mat x, size_t row,
                                                                size_t n_rows, float out[][OUT_LANES])
{
    size_t r = 0;

    for (; V_REGISTERS >= 32 && r + 16 <= n_rows; r += 16)
        float_rows(16, type, w, first, end, x, row + r, out + r);
    for (; V_REGISTERS >= 32 && r + 8 <= n_rows; r += 8)
        float_rows(8, type, w, first, end, x, row + r, out + r);
    for (; r + 4 <= n_rows; r += 4)
        float_rows(4, type, w, first, end, x, row + r, out + r);
    for (; r + 2 <= n_rows; r += 2)
        float_rows(2, type, w, first, end, x, row + r, out + r);
    if (r < n_rows)
        float_rows(1, type, w, first, end, x, row + r, out + r);
}

static void float_tile(const rf_weight *w, size_t block, const rf_act *x, size_t first, size_t end, size_t row,
                       size_t n_rows, float out[][OUT_LANES])
{
    const unsigned char *weights = w->data + block * w->n_cols * OUT_LANES * (w->type == RF_TYPE_F32 ? 4 : 2);

    switch (w->type) {
    case RF_TYPE_F32: float_tile_of(RF_TYPE_F32, weights, first, end, x->x, row, n_rows, out); break;
    case RF_TYPE_F16: float_tile_of(RF_TYPE_F16, weights, first, end, x->x, row, n_rows, out); break;
    default: float_tile_of(RF_TYPE_BF16, weights, first, end, x->x, row, n_rows, out); break;
    }
}

/* ---- any weights: units [unit, unit + n_units), 1 .. UNITS_AT_ONCE, of a pair of blocks of outputs, for the tile of
 * rows that starts at `row`. Unit u is columns [unit_begin(u), w->unit_end[u]). */

static size_t unit_begin(const rf_weight *w, size_t unit)
{
    return unit ? w->unit_end[unit - 1] : 0;
}

static void q8_units(const rf_weight *w, const block_pair *pair, const rf_act *x, size_t unit, size_t n_units,
                     size_t row, size_t n_rows, unit_sums *out)
{
    size_t n_kb = w->n_cols / Q8_BLOCK, kb = unit_begin(w, unit) / Q8_BLOCK, step;
    size_t at = act_place(x->n_rows, n_kb, row, &step) + kb * step, of_unit[UNITS_AT_ONCE] = {0};
    const uint16_t *scales = (const uint16_t *)(const void *)(w->data + w->n_blocks * n_kb * Q8_TILE_BYTES);
    act_tile tile = {n_rows, x->q + at * Q8_BLOCK, x->d + at, x->offset + at};
    q8_source from = {.n = pair->n};

    for (size_t b = 0; b < pair->n; b++) {
        from.w[b] = w->data + (pair->block[b] * n_kb + kb) * Q8_TILE_BYTES;
        from.scales[b] = scales + (pair->block[b] * n_kb + kb) * OUT_LANES;
    }
    for (size_t u = 0; u < n_units; u++)
        of_unit[u] = (w->unit_end[unit + u] - unit_begin(w, unit + u)) / Q8_BLOCK;
    RF_ISA_NAME(q8_tiles)(&from, n_units, of_unit, &tile, out);
}

static void sum_columns(const rf_weight *w, const block_pair *pair, const rf_act *x, size_t unit, size_t n_units,
                        size_t row, size_t n_rows, unit_sums *out)
{
    if (w->type == RF_TYPE_Q8_0) {
        q8_units(w, pair, x, unit, n_units, row, n_rows, out);
        return;
    }
    for (size_t u = 0; u < n_units; u++)
        for (size_t b = 0; b < pair->n; b++)
            float_tile(w, pair->block[b], x, unit_begin(w, unit + u), w->unit_end[unit + u], row, n_rows, out[u][b]);
}

static void store_tiles(const rf_weight *w, const block_pair *pair, size_t n_rows, unit_sums sums, float *out,
                        size_t stride)
{
    for (size_t b = 0; b < pair->n; b++) {
        size_t first = pair->block[b] * OUT_LANES, n = w->n_rows - first < OUT_LANES ? w->n_rows - first : OUT_LANES;

        for (size_t r = 0; r < n_rows; r++)
            memcpy(out + r * stride + first, sums[b][r], n * sizeof(float));
    }
}

/* Pair number i of blocks [first, end): one from each half. */
static block_pair nth_pair(size_t first, size_t end, size_t i)
{
    size_t half = (end - first + 1) / 2;

    return (block_pair){{first + i, first + half + i}, first + half + i < end ? 2 : 1};
}

/* Packed bytes of one block of outputs: what a pass over it for up to MAX_TILE_ROWS rows goes through. */
static size_t block_bytes(const rf_weight *w)
{
    return w->bytes / w->n_blocks;
}

static void count_bytes(rf_cpu *cpu, uint64_t bytes)
{
#pragma omp atomic
    cpu->stats.weight_bytes_read += bytes;
}

/* Whether a product is worth the other threads. */
static bool shared(const rf_weight *w, size_t n_rows)
{
    return w->bytes * (n_rows + 3) >= SHARED_BYTES * 4;
}

typedef struct {
    rf_cpu *cpu;
    size_t n_rows, n, shares;
    const rf_product *products;
    const rf_act *x;
} products_work;

/* Output blocks [first, end) of one product. Returns the bytes it went through. */
static uint64_t product_blocks(const rf_product *p, size_t n_rows, const rf_act *x, size_t first, size_t end)
{
    const rf_weight *w = p->w;
    uint64_t bytes = 0;

    for (size_t i = 0; i < (end - first + 1) / 2; i++) {
        block_pair pair = nth_pair(first, end, i);

        for (size_t row = 0; row < n_rows; row += MAX_TILE_ROWS) {
            size_t n = n_rows - row < MAX_TILE_ROWS ? n_rows - row : MAX_TILE_ROWS;
            unit_sums sums;

            sum_columns(w, &pair, x, 0, 1, row, n, &sums);
            store_tiles(w, &pair, n, sums, mat_row(p->y, row), p->y.stride);
            bytes += pair.n * block_bytes(w);
        }
    }
    return bytes;
}

/* Items are shares of every product. */
static void products_part(const void *work, size_t first, size_t end)
{
    const products_work *k = work;
    uint64_t bytes = 0;

    for (size_t i = 0; i < k->n; i++) {
        size_t n = k->products[i].w->n_blocks;

        bytes += product_blocks(&k->products[i], k->n_rows, k->x, cpu_share_first(n, first, k->shares),
                                cpu_share_first(n, end, k->shares));
    }
    count_bytes(k->cpu, bytes);
}

static void matmuls(rf_backend *b, size_t n_rows, size_t n, const rf_product *products, const rf_act *x)
{
    products_work k = {cpu_of(b), n_rows, n, 1, products, x};

    for (size_t i = 0; i < n; i++)
        if (shared(products[i].w, n_rows))
            k.shares = cpu_team_shares(team_of(b), true);
    cpu_team_each(team_of(b), k.shares, products_part, &k);
}

static void matmul(rf_backend *b, size_t n_rows, const rf_weight *w, const rf_act *x, rf_mat y)
{
    rf_product product = {w, y};

    matmuls(b, n_rows, 1, &product, x);
}

/* left += right, for the rows of a pair */
static void add_sums(const block_pair *pair, size_t n_rows, unit_sums left, unit_sums right)
{
    for (size_t b = 0; b < pair->n; b++)
        for (size_t r = 0; r < n_rows; r++)
            v_store(left[b][r], v_add(v_load(left[b][r]), v_load(right[b][r])));
}

/* The tree over the first `count` of sums; the root is sums[0]. */
static void add_up(const block_pair *pair, size_t n_rows, unit_sums *sums, size_t count)
{
    size_t left = rf_tree_split(count);

    if (count == 1)
        return;
    add_up(pair, n_rows, sums, left);
    add_up(pair, n_rows, sums + left, count - left);
    add_sums(pair, n_rows, sums[0], sums[left]);
}

/* The tree over local units [units.first, + count): root in sums[0], which has room for UNITS_AT_ONCE. */
static void sum_units(const rf_weight *w, const block_pair *pair, const rf_act *x, rf_range units, size_t row,
                      size_t n_rows, unit_sums *sums)
{
    size_t left = rf_tree_split(units.count);
    unit_sums root;

    if (units.count <= UNITS_AT_ONCE) {
        sum_columns(w, pair, x, units.first, units.count, row, n_rows, sums);
        add_up(pair, n_rows, sums, units.count);
        return;
    }
    sum_units(w, pair, x, (rf_range){units.first, left}, row, n_rows, sums);
    memcpy(root, sums[0], sizeof root);
    sum_units(w, pair, x, (rf_range){units.first + left, units.count - left}, row, n_rows, sums);
    add_sums(pair, n_rows, root, sums[0]);
    memcpy(sums[0], root, sizeof root);
}

typedef struct {
    rf_cpu *cpu;
    size_t n_rows;
    const rf_weight *w;
    const rf_act *x;
    float *nodes;
} nodes_work;

static void nodes_part(const void *work, size_t first, size_t end)
{
    const nodes_work *k = work;
    const rf_weight *w = k->w;
    uint64_t bytes = 0;

    for (size_t i = 0; i < (end - first + 1) / 2; i++) {
        block_pair pair = nth_pair(first, end, i);

        for (size_t row = 0; row < k->n_rows; row += MAX_TILE_ROWS) {
            size_t n = k->n_rows - row < MAX_TILE_ROWS ? k->n_rows - row : MAX_TILE_ROWS;

            bytes += pair.n * block_bytes(w); /* the nodes share out the columns */
            for (size_t node = 0; node < w->n_nodes; node++) {
                unit_sums sums[UNITS_AT_ONCE];

                sum_units(w, &pair, k->x, w->nodes[node], row, n, sums);
                store_tiles(w, &pair, n, sums[0], k->nodes + (node * k->n_rows + row) * w->n_rows, w->n_rows);
            }
        }
    }
    count_bytes(k->cpu, bytes);
}

static void matmul_nodes(rf_backend *b, size_t n_rows, const rf_weight *w, const rf_act *x, rf_buf *y)
{
    nodes_work k = {cpu_of(b), n_rows, w, x, y->data};

    cpu_team_each_if(team_of(b), shared(w, n_rows), w->n_blocks, nodes_part, &k);
}

void RF_ISA_NAME(matmul_ops)(rf_ops *ops)
{
    ops->quantize = quantize;
    ops->matmul = matmul;
    ops->matmuls = matmuls;
    ops->matmul_nodes = matmul_nodes;
}
