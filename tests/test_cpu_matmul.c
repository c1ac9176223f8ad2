/* Matmuls of the CPU backend: bits against the written order computed here by scalar fmaf, numbers against double,
 * shards, nodes, passes. */
#include "devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "half.h"

typedef struct {
    uint32_t type;
    size_t n_out, n_in, n_rows; /* of the whole tensor; activation rows */
    const rf_range *row_runs, *col_runs;
    size_t n_row_runs, n_col_runs;
    const size_t *unit_end; /* NULL: matmul */
    size_t n_units, n_nodes;
    const rf_range *nodes;
    void *data;
    float *x; /* [n_rows][cols], stride cols + 3 */
} job;

static size_t total(const rf_range *runs, size_t n, size_t all)
{
    size_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += runs[i].count;
    return n ? sum : all;
}

static size_t out_rows(const job *j)
{
    return total(j->row_runs, j->n_row_runs, j->n_out);
}

static size_t in_cols(const job *j)
{
    return total(j->col_runs, j->n_col_runs, j->n_in);
}

static size_t place(const rf_range *runs, size_t n, size_t i)
{
    for (size_t r = 0; r < n; r++) {
        if (i < runs[r].count)
            return runs[r].first + i;
        i -= runs[r].count;
    }
    return i;
}

static size_t results(const job *j)
{
    return (j->unit_end ? j->n_nodes : 1) * j->n_rows * out_rows(j);
}

static void run(const device *d, const void *input, void *out)
{
    const job *j = input;
    size_t stride = in_cols(j) + 3;
    rf_error err = {0};
    rf_weight_spec spec = {"w",           j->data,       j->type,     j->n_in,    j->n_out, j->row_runs, j->col_runs,
                           j->n_row_runs, j->n_col_runs, j->unit_end, j->n_units, j->nodes, j->n_nodes};
    rf_weight *w = d->ops->weight_create(d->b, &spec, &err);
    rf_act *act = d->ops->act_create(d->b, j->n_rows, in_cols(j), &err);
    rf_buf *x = buffer_of(d, j->x, j->n_rows * stride * sizeof *j->x), *y = zero_buffer(d, results(j) * sizeof(float));

    assert_non_null(w);
    assert_non_null(act);
    d->ops->quantize(d->b, j->n_rows, in_cols(j), (rf_mat){x, 0, stride}, d->ops->weight_wants(w), act);
    if (j->unit_end)
        d->ops->matmul_nodes(d->b, j->n_rows, w, act, y);
    else
        d->ops->matmul(d->b, j->n_rows, w, act, (rf_mat){y, 0, out_rows(j)});
    read_buffer(d, y, out, results(j) * sizeof(float));
    d->ops->buf_destroy(x);
    d->ops->buf_destroy(y);
    d->ops->act_destroy(act);
    d->ops->weight_destroy(w);
}

/* ---- the contract, written out */

static float weight_at(const job *j, size_t row, size_t col)
{
    const unsigned char *p = j->data;
    size_t i = row * j->n_in + col;
    uint16_t half;
    float f;

    if (j->type == RF_TYPE_F32) {
        memcpy(&f, p + 4 * i, 4);
        return f;
    }
    memcpy(&half, p + 2 * i, 2);
    return j->type == RF_TYPE_F16 ? rf_f16_to_f32(half) : rf_bf16_to_f32(half);
}

static void quantize_by_hand(const float *x, int32_t q[32], float *d)
{
    float most = 0, s;

    for (size_t i = 0; i < 32; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    s = most / 127;
    for (size_t i = 0; i < 32; i++)
        q[i] = s > 0 ? (int32_t)nearbyintf(x[i] / s) : 0;
    *d = rf_f16_to_f32(rf_f32_to_f16(s));
}

static float block_product(const job *j, size_t row, size_t col, const float *x, float acc)
{
    const unsigned char *block = (const unsigned char *)j->data + (row * j->n_in + col) / 32 * 34;
    int32_t q[32], sum = 0;
    uint16_t half;
    float d;

    quantize_by_hand(x, q, &d);
    memcpy(&half, block, 2);
    for (size_t i = 0; i < 32; i++)
        sum += q[i] * (int8_t)block[2 + i];
    return fmaf((float)sum, rf_f16_to_f32(half) * d, acc);
}

static float sum_columns(const job *j, size_t out, const float *x, size_t first, size_t end)
{
    size_t row = place(j->row_runs, j->n_row_runs, out);
    float acc = 0;

    for (size_t k = first; k < end; k += j->type == RF_TYPE_Q8_0 ? 32 : 1) {
        size_t col = place(j->col_runs, j->n_col_runs, k);

        acc =
            j->type == RF_TYPE_Q8_0 ? block_product(j, row, col, x + k, acc) : fmaf(weight_at(j, row, col), x[k], acc);
    }
    return acc;
}

static float sum_tree(const job *j, size_t out, const float *x, rf_range units)
{
    size_t left = rf_tree_split(units.count);

    if (units.count == 1)
        return sum_columns(j, out, x, units.first ? j->unit_end[units.first - 1] : 0, j->unit_end[units.first]);
    return sum_tree(j, out, x, (rf_range){units.first, left}) +
           sum_tree(j, out, x, (rf_range){units.first + left, units.count - left});
}

static void by_contract(const job *j, float *out)
{
    for (size_t node = 0; node < (j->unit_end ? j->n_nodes : 1); node++)
        for (size_t r = 0; r < j->n_rows; r++)
            for (size_t o = 0; o < out_rows(j); o++, out++) {
                const float *x = j->x + r * (in_cols(j) + 3);

                *out = j->unit_end ? sum_tree(j, o, x, j->nodes[node]) : sum_columns(j, o, x, 0, in_cols(j));
            }
}

static void check(job *j, uint64_t seed)
{
    float *got, *want = malloc(results(j) * sizeof *want);

    j->data = random_tensor(j->type, j->n_out, j->n_in, seed);
    j->x = random_floats(j->n_rows * (in_cols(j) + 3), seed + 1, 4.0f);
    memset(j->x, 0, 32 * sizeof *j->x); /* a block of nothing */
    got = malloc(results(j) * sizeof *got);
    assert_non_null(got);
    assert_non_null(want);
    run_everywhere(run, j, got, results(j) * sizeof *got, false);
    by_contract(j, want);
    assert_ordered(got, want, results(j), "the written order");
    free(got);
    free(want);
    free(j->x);
    free(j->data);
}

static const uint32_t types[] = {RF_TYPE_F32, RF_TYPE_F16, RF_TYPE_BF16, RF_TYPE_Q8_0};

static void matmul_has_the_written_order(void **state)
{
    static const size_t rows[] = {1, 2, 3, 5, 8, 9, 16, 17, 33};

    (void)state;
    for (size_t t = 0; t < 4; t++)
        for (size_t i = 0; i < 9; i++)
            check(&(job){.type = types[t], .n_out = 96 + i, .n_in = 96, .n_rows = rows[i]}, i);
    check(&(job){.type = RF_TYPE_F32, .n_out = 1, .n_in = 33, .n_rows = 3}, 1);
    check(&(job){.type = RF_TYPE_Q8_0, .n_out = 130, .n_in = 1184, .n_rows = 16}, 2);
}

static void shards_gather_rows_and_columns(void **state)
{
    static const rf_range rows[] = {{40, 7}, {3, 20}, {90, 1}}, cols[] = {{64, 32}, {0, 32}, {160, 96}};

    (void)state;
    for (size_t t = 0; t < 4; t++)
        check(&(job){.type = types[t],
                     .n_out = 96,
                     .n_in = 256,
                     .n_rows = 4,
                     .row_runs = rows,
                     .n_row_runs = 3,
                     .col_runs = cols,
                     .n_col_runs = 3},
              70 + t);
}

static void nodes_are_trees_over_units(void **state)
{
    static const size_t ends[] = {32, 96, 128, 224, 256, 320, 352};
    static const rf_range whole[] = {{0, 7}}, parts[] = {{0, 1}, {1, 2}, {3, 4}};

    (void)state;
    for (size_t t = 0; t < 4; t++) {
        check(&(job){.type = types[t],
                     .n_out = 50,
                     .n_in = 352,
                     .n_rows = 17,
                     .unit_end = ends,
                     .n_units = 7,
                     .nodes = whole,
                     .n_nodes = 1},
              80 + t);
        check(&(job){.type = types[t],
                     .n_out = 50,
                     .n_in = 352,
                     .n_rows = 3,
                     .unit_end = ends,
                     .n_units = 7,
                     .nodes = parts,
                     .n_nodes = 3},
              90 + t);
    }
}

/* ---- ranks */

#define OUT 24
#define UNIT 32
#define MAX_UNITS 11

typedef struct {
    rf_range node; /* global units */
    float sum[OUT];
} node_sum;

static float finish(const node_sum *sums, size_t n, rf_range units, size_t o)
{
    size_t left = rf_tree_split(units.count);

    for (size_t i = 0; i < n; i++)
        if (sums[i].node.first == units.first && sums[i].node.count == units.count)
            return sums[i].sum[o];
    assert_true(units.count > 1);
    return finish(sums, n, (rf_range){units.first, left}, o) +
           finish(sums, n, (rf_range){units.first + left, units.count - left}, o);
}

/* Units [first, end) on one rank: its node sums, by global units. */
static size_t rank_sums(const device *d, const job *whole, size_t n_units, size_t first, size_t end, node_sum *sums)
{
    rf_range global[RF_TREE_MAX_NODES], local[RF_TREE_MAX_NODES], cols = {first * UNIT, (end - first) * UNIT};
    size_t n = rf_tree_nodes(n_units, (rf_range){first, end - first}, global), ends[MAX_UNITS];
    float out[RF_TREE_MAX_NODES * OUT];
    job mine = *whole;

    for (size_t i = 0; i < n; i++)
        local[i] = (rf_range){global[i].first - first, global[i].count};
    for (size_t u = 0; u < end - first; u++)
        ends[u] = (u + 1) * UNIT;
    mine.col_runs = &cols;
    mine.n_col_runs = 1;
    mine.unit_end = ends;
    mine.n_units = end - first;
    mine.nodes = local;
    mine.n_nodes = n;
    mine.x = whole->x + first * UNIT;
    run(d, &mine, out);
    for (size_t i = 0; i < n; i++) {
        sums[i].node = global[i];
        memcpy(sums[i].sum, out + i * OUT, sizeof sums[i].sum);
    }
    return n;
}

static void any_partition_gives_the_same_bits(void **state)
{
    device d = device_open("auto", 2);

    (void)state;
    for (size_t units = 2; units <= MAX_UNITS; units += 3) {
        job j = {.type = RF_TYPE_Q8_0, .n_out = OUT, .n_in = units * UNIT, .n_rows = 1};
        node_sum sums[3 * RF_TREE_MAX_NODES];
        float want[OUT];

        j.data = random_tensor(j.type, OUT, j.n_in, units);
        j.x = random_floats(j.n_in + 3, units, 2);
        assert_int_equal(rank_sums(&d, &j, units, 0, units, sums), 1);
        memcpy(want, sums[0].sum, sizeof want);
        for (size_t a = 1; a <= units; a++)
            for (size_t b = a; b <= units; b++) { /* [0, a) [a, b) [b, units) */
                size_t n = rank_sums(&d, &j, units, 0, a, sums);

                n += b > a ? rank_sums(&d, &j, units, a, b, sums + n) : 0;
                n += units > b ? rank_sums(&d, &j, units, b, units, sums + n) : 0;
                for (size_t o = 0; o < OUT; o++) {
                    float got = finish(sums, n, (rf_range){0, units}, o);

                    assert_same_bits(&got, &want[o], 1, "a partition");
                }
            }
        free(j.data);
        free(j.x);
    }
    device_close(&d);
}

/* ---- numbers, rows alone, passes */

static void near_the_product_in_double(void **state)
{
    enum { N = 40, K = 320, R = 5 };

    (void)state;
    for (size_t t = 0; t < 4; t++) {
        job j = {.type = types[t], .n_out = N, .n_in = K, .n_rows = R};
        float got[R * N], row[K];
        double want[R * N], largest = 0;
        device d = device_open("auto", 2);

        j.data = random_tensor(j.type, N, K, t);
        j.x = random_floats(R * (K + 3), t, 1);
        run(&d, &j, got);
        for (size_t o = 0; o < N; o++) {
            const rf_format *f = rf_format_find(j.type);

            f->unpack((const unsigned char *)j.data + o * K / f->block * f->bytes, row, K);
            for (size_t r = 0; r < R; r++) {
                want[r * N + o] = 0;
                for (size_t k = 0; k < K; k++)
                    want[r * N + o] += (double)row[k] * (double)j.x[r * (K + 3) + k];
                largest = fabs(want[r * N + o]) > largest ? fabs(want[r * N + o]) : largest;
            }
        }
        for (size_t i = 0; i < R * N; i++) /* int8 activations: about 1 / 254 of the largest value each */
            assert_true(fabs((double)got[i] - want[i]) < largest * (t == 3 ? 0.01 : 1e-5));
        free(j.data);
        free(j.x);
        device_close(&d);
    }
}

static void a_row_does_not_know_its_neighbours(void **state)
{
    enum { N = 48, K = 128, R = 37 };
    device d = device_open("auto", 2);

    (void)state;
    for (size_t t = 0; t < 4; t++) {
        job all = {.type = types[t], .n_out = N, .n_in = K, .n_rows = R}, one;
        float together[R * N], alone[N];

        all.data = random_tensor(all.type, N, K, t);
        all.x = random_floats(R * (K + 3), t, 3);
        run(&d, &all, together);
        one = all;
        one.n_rows = 1;
        for (size_t r = 0; r < R; r++) {
            one.x = all.x + r * (K + 3);
            run(&d, &one, alone);
            assert_same_bits(alone, together + r * N, N, "a row alone");
        }
        free(all.data);
        free(all.x);
    }
    device_close(&d);
}

static uint64_t bytes_read(uint32_t type, size_t n_rows, bool nodes)
{
    static const size_t ends[] = {64, 128};
    static const rf_range node = {0, 2};
    job j = {.type = type, .n_out = 100, .n_in = 128, .n_rows = n_rows};
    float out[100 * 40];
    uint64_t bytes;
    device d = device_open("auto", 1);

    if (nodes) {
        j.unit_end = ends;
        j.n_units = 2;
        j.nodes = &node;
        j.n_nodes = 1;
    }
    j.data = random_tensor(type, 100, 128, 1);
    j.x = random_floats(n_rows * 131, 1, 1);
    run(&d, &j, out);
    bytes = d.ops->stats(d.b).weight_bytes_read;
    free(j.data);
    free(j.x);
    device_close(&d);
    return bytes;
}

static void a_verify_reads_the_weights_once(void **state)
{
    (void)state;
    for (int nodes = 0; nodes < 2; nodes++) {
        assert_int_equal(bytes_read(RF_TYPE_Q8_0, 1, nodes), weight_pass_bytes(RF_TYPE_Q8_0, 100, 128));
        assert_int_equal(bytes_read(RF_TYPE_F16, 1, nodes), weight_pass_bytes(RF_TYPE_F16, 100, 128));
        for (size_t rows = 2; rows <= 40; rows += rows < RF_MAX_BLOCK ? 1 : 12) {
            size_t passes = (rows + RF_MAX_BLOCK - 1) / RF_MAX_BLOCK; /* one for all that a verify can have */

            assert_int_equal(bytes_read(RF_TYPE_Q8_0, rows, nodes), passes * bytes_read(RF_TYPE_Q8_0, 1, nodes));
            assert_int_equal(bytes_read(RF_TYPE_BF16, rows, nodes), passes * bytes_read(RF_TYPE_BF16, 1, nodes));
        }
    }
}

static void strange_activations_are_not_undefined(void **state)
{
    enum { N = 16, K = 96, R = 7 };
    static const float odd[R] = {INFINITY, -INFINITY, NAN, 1e-45f, 2.1e-43f, 3.4e38f, -0.0f};
    job j = {.type = RF_TYPE_Q8_0, .n_out = N, .n_in = K, .n_rows = R};
    float got[R * N];

    (void)state;
    j.data = random_tensor(j.type, N, K, 3);
    j.x = random_floats(R * (K + 3), 3, 1e-44f);
    for (size_t r = 0; r < R; r++)
        j.x[r * (K + 3) + 40] = odd[r];
    run_everywhere(run, &j, got, sizeof got, true);
    for (size_t o = 0; o < N; o++)
        assert_true(isnan(got[0 * N + o]) && isnan(got[1 * N + o]) && isnan(got[2 * N + o]) &&
                    isfinite(got[6 * N + o]));
    free(j.data);
    free(j.x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_has_the_written_order),
        cmocka_unit_test(shards_gather_rows_and_columns),
        cmocka_unit_test(nodes_are_trees_over_units),
        cmocka_unit_test(any_partition_gives_the_same_bits),
        cmocka_unit_test(near_the_product_in_double),
        cmocka_unit_test(a_row_does_not_know_its_neighbours),
        cmocka_unit_test(a_verify_reads_the_weights_once),
        cmocka_unit_test(strange_activations_are_not_undefined),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
