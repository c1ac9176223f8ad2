/* The start-up check of a transport: a known pattern of several sizes, exchanged as it is (a wrong low bit may vanish
 * when a sum is rounded) and summed over uneven shares. No rank stops before the others do: what is tried never depends
 * on what one rank saw. */
#include <stdlib.h>
#include <string.h>

#include "transport.h"

#define TILE 1024 /* floats of the expected sum finished at a time: memory does not grow with ranks times size */

/* One shot, two shots, and more than one exchange. */
#define LARGEST 300001
static const size_t sizes[] = {1, 1024, 40001, LARGEST};
#define N_SIZES (sizeof sizes / sizeof *sizes)

typedef struct {
    rf_sum_plan *plan;
    size_t *begin;      /* [ranks + 1] */
    size_t most;        /* nodes of one rank */
    float *nodes, *out; /* [most][LARGEST], [LARGEST] */
    float *tiles, want[TILE]; /* [ranks][most][TILE] */
    const float **sums; /* [ranks] */
    const void **theirs; /* [ranks] */
    size_t *bytes;      /* [ranks] */
} pattern;

static float value(int rank, size_t node, size_t i)
{
    return (float)((i * 7 + node * 13 + (size_t)rank * 101) % 1009) * 0.37f - 150.0f;
}

static void release(pattern *x)
{
    rf_sum_plan_destroy(x->plan);
    free(x->begin);
    free(x->nodes);
    free(x->out);
    free(x->tiles);
    free(x->sums);
    free(x->theirs);
    free(x->bytes);
}

static int prepare(pattern *x, int n_ranks, rf_error *err)
{
    size_t size = (size_t)n_ranks, n_units = 2 * size + 1;

    memset(x, 0, sizeof *x);
    x->begin = calloc(size + 1, sizeof *x->begin);
    if (!x->begin)
        return rf_fail(err, RF_ERR_MEMORY, "no memory for the start-up check of the exchange");
    for (size_t r = 0; r <= size; r++)
        x->begin[r] = r * n_units / size;
    x->plan = rf_sum_plan_create(n_units, n_ranks, x->begin, err);
    if (!x->plan)
        return -1;
    for (int r = 0; r < n_ranks; r++)
        x->most = rf_sum_plan_n_nodes(x->plan, r) > x->most ? rf_sum_plan_n_nodes(x->plan, r) : x->most;
    x->nodes = calloc(x->most * LARGEST, sizeof *x->nodes);
    x->out = calloc(LARGEST, sizeof *x->out);
    x->tiles = calloc(size * x->most * TILE, sizeof *x->tiles);
    x->sums = calloc(size, sizeof *x->sums);
    x->theirs = calloc(size, sizeof *x->theirs);
    x->bytes = calloc(size, sizeof *x->bytes);
    if (!x->nodes || !x->out || !x->tiles || !x->sums || !x->theirs || !x->bytes)
        return rf_fail(err, RF_ERR_MEMORY, "no memory for the start-up check of the exchange");
    for (int r = 0; r < n_ranks; r++)
        x->sums[r] = x->tiles + (size_t)r * x->most * TILE;
    return 0;
}

/* Whether the first n floats of every rank arrive bit by bit. */
static bool exchanged(rf_transport *t, pattern *x, int rank, int n_ranks, size_t n)
{
    float *mine = t->ops->stage(t);
    bool same = true;

    for (size_t i = 0; i < n; i++)
        mine[i] = value(rank, 0, i);
    for (int r = 0; r < n_ranks; r++)
        x->bytes[r] = n * sizeof *mine;
    t->ops->post(t, x->bytes, x->theirs);
    for (int r = 0; r < n_ranks; r++)
        for (size_t i = 0; i < n; i++) {
            float expected = value(r, 0, i);

            same = same && memcmp((const float *)x->theirs[r] + i, &expected, sizeof expected) == 0;
        }
    return same;
}

/* Whether out[0, n) is the sum, which this rank finishes by itself from the pattern of all ranks. */
static bool summed(pattern *x, int n_ranks, size_t n)
{
    for (size_t at = 0; at < n; at += TILE) {
        size_t count = n - at < TILE ? n - at : TILE;

        for (int r = 0; r < n_ranks; r++)
            for (size_t k = 0; k < rf_sum_plan_n_nodes(x->plan, r); k++)
                for (size_t i = 0; i < count; i++)
                    x->tiles[((size_t)r * x->most + k) * TILE + i] = value(r, k, at + i);
        rf_sum_plan_finish(x->plan, x->sums, TILE, count, x->want);
        if (memcmp(x->out + at, x->want, count * sizeof *x->want) != 0)
            return false;
    }
    return true;
}

static void run(rf_comm *c, rf_transport *t, pattern *x, rf_error *mine)
{
    int rank = rf_comm_rank(c), n_ranks = rf_comm_size(c);

    for (size_t s = 0; s < N_SIZES; s++) {
        size_t n = sizes[s], staged = n < RF_STAGE_BYTES / sizeof(float) ? n : RF_STAGE_BYTES / sizeof(float);

        if (!exchanged(t, x, rank, n_ranks, staged) && mine->code == RF_OK)
            rf_fail(mine, RF_ERR_DEVICE, "transport %s changed some of %zu floats at start-up", t->ops->name, staged);
        for (size_t k = 0; k < rf_sum_plan_n_nodes(x->plan, rank); k++)
            for (size_t i = 0; i < n; i++)
                x->nodes[k * n + i] = value(rank, k, i);
        rf_comm_sum_host(c, x->plan, n, x->nodes, x->out);
        if (!summed(x, n_ranks, n) && mine->code == RF_OK)
            rf_fail(mine, RF_ERR_DEVICE, "transport %s returned a wrong sum of %zu floats at start-up", t->ops->name,
                    n);
    }
}

int rf_comm_check(rf_comm *c, rf_transport *t, rf_error *err)
{
    rf_error mine = {RF_OK, ""};
    pattern x;
    int failed;

    prepare(&x, rf_comm_size(c), &mine);
    failed = rf_world_agree(&mine, err);
    if (!failed) {
        run(c, t, &x, &mine);
        failed = rf_world_agree(&mine, err);
    }
    release(&x);
    return failed;
}
