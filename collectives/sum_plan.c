#include <stdlib.h>
#include <string.h>

#include "comm.h"

#define TILE 512 /* floats of one stack place: the working set stays in L1 */
#define MAX_DEPTH 48

/* The tree as a program for a stack machine: push rank r's node i, or add the top two (the deeper one is the left
 * child). */
typedef struct {
    int rank;    /* -1: add */
    size_t node; /* index into the rank's nodes */
} step;

struct rf_sum_plan {
    int n_ranks;
    size_t n_units;
    size_t *begin;      /* [n_ranks + 1] */
    rf_range **nodes;   /* [n_ranks] */
    size_t *n_nodes;    /* [n_ranks] */
    step *steps;
    size_t n_steps;
};

static int owner_of(const rf_sum_plan *p, rf_range range)
{
    for (int r = 0; r < p->n_ranks; r++)
        if (range.first >= p->begin[r] && range.first + range.count <= p->begin[r + 1])
            return r;
    return -1;
}

static size_t index_of(const rf_sum_plan *p, int rank, rf_range range)
{
    size_t i = 0;

    while (p->nodes[rank][i].first != range.first)
        i++;
    return i;
}

static void compile(rf_sum_plan *p, rf_range range)
{
    int rank = owner_of(p, range);
    size_t left = rf_tree_split(range.count);

    if (rank >= 0) {
        p->steps[p->n_steps++] = (step){rank, index_of(p, rank, range)};
        return;
    }
    compile(p, (rf_range){range.first, left});
    compile(p, (rf_range){range.first + left, range.count - left});
    p->steps[p->n_steps++] = (step){-1, 0};
}

static int find_nodes(rf_sum_plan *p)
{
    for (int r = 0; r < p->n_ranks; r++) {
        rf_range owned = {p->begin[r], p->begin[r + 1] - p->begin[r]};

        p->n_nodes[r] = rf_tree_nodes(p->n_units, owned, NULL);
        p->nodes[r] = calloc(p->n_nodes[r] + 1, sizeof *p->nodes[r]);
        if (!p->nodes[r])
            return -1;
        rf_tree_nodes(p->n_units, owned, p->nodes[r]);
    }
    return 0;
}

static bool is_cut(size_t n_units, int n_ranks, const size_t *begin)
{
    if (n_units == 0 || n_ranks < 1 || begin[0] != 0 || begin[n_ranks] != n_units)
        return false;
    for (int r = 0; r < n_ranks; r++)
        if (begin[r] > begin[r + 1])
            return false;
    return true;
}

rf_sum_plan *rf_sum_plan_create(size_t n_units, int n_ranks, const size_t *begin, rf_error *err)
{
    rf_sum_plan *p = calloc(1, sizeof *p);
    size_t total = 0;

    if (!is_cut(n_units, n_ranks, begin)) {
        free(p);
        rf_fail(err, RF_ERR_USAGE, "a sum over %zu units is not cut into %d ascending ranges", n_units, n_ranks);
        return NULL;
    }
    if (!p)
        goto no_memory;
    p->n_ranks = n_ranks;
    p->n_units = n_units;
    p->begin = malloc(((size_t)n_ranks + 1) * sizeof *p->begin);
    p->nodes = calloc((size_t)n_ranks, sizeof *p->nodes);
    p->n_nodes = calloc((size_t)n_ranks, sizeof *p->n_nodes);
    if (!p->begin || !p->nodes || !p->n_nodes)
        goto no_memory;
    memcpy(p->begin, begin, ((size_t)n_ranks + 1) * sizeof *begin);
    if (find_nodes(p) != 0)
        goto no_memory;
    for (int r = 0; r < n_ranks; r++)
        total += p->n_nodes[r];
    p->steps = calloc(2 * total, sizeof *p->steps);
    if (!p->steps)
        goto no_memory;
    compile(p, (rf_range){0, n_units});
    return p;
no_memory:
    rf_sum_plan_destroy(p);
    rf_fail(err, RF_ERR_MEMORY, "no memory for a sum over %zu units", n_units);
    return NULL;
}

void rf_sum_plan_destroy(rf_sum_plan *p)
{
    if (!p)
        return;
    for (int r = 0; p->nodes && r < p->n_ranks; r++)
        free(p->nodes[r]);
    free(p->nodes);
    free(p->n_nodes);
    free(p->begin);
    free(p->steps);
    free(p);
}

size_t rf_sum_plan_n_nodes(const rf_sum_plan *p, int rank)
{
    return p->n_nodes[rank];
}

const rf_range *rf_sum_plan_nodes(const rf_sum_plan *p, int rank)
{
    return p->nodes[rank];
}

static void finish_tile(const rf_sum_plan *p, const float *const *sums, size_t stride, size_t at, size_t n, float *out)
{
    float stack[MAX_DEPTH][TILE];
    size_t depth = 0;

    for (size_t s = 0; s < p->n_steps; s++) {
        if (p->steps[s].rank >= 0) {
            memcpy(stack[depth++], sums[p->steps[s].rank] + p->steps[s].node * stride + at, n * sizeof(float));
        } else {
            float *left = stack[depth - 2];
            const float *right = stack[depth - 1];

            for (size_t i = 0; i < n; i++)
                left[i] = left[i] + right[i];
            depth--;
        }
    }
    memcpy(out + at, stack[0], n * sizeof(float));
}

void rf_sum_plan_finish(const rf_sum_plan *p, const float *const *sums, size_t stride, size_t n, float *out)
{
    for (size_t at = 0; at < n; at += TILE)
        finish_tile(p, sums, stride, at, n - at < TILE ? n - at : TILE, out);
}
