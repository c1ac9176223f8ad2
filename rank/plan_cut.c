#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"

static double share(const double *ratios, int r)
{
    return ratios ? ratios[r] : 1.0;
}

static double running(const double *ratios, int n)
{
    double sum = 0;

    for (int r = 0; r < n; r++)
        sum += share(ratios, r);
    return sum;
}

void rf_plan_cut(size_t n_units, int n_ranks, const double *ratios, size_t *begin)
{
    double all = running(ratios, n_ranks);

    begin[0] = 0;
    begin[n_ranks] = n_units;
    for (int r = 1; r < n_ranks; r++) {
        size_t wanted = (size_t)floor((double)n_units * running(ratios, r) / all + 0.5),
               most = n_units - (size_t)(n_ranks - r);

        wanted = wanted < most ? wanted : most;
        begin[r] = wanted > begin[r - 1] + 1 ? wanted : begin[r - 1] + 1;
    }
}

static size_t kv_held(size_t first, size_t end, size_t heads_per_kv)
{
    return (end - 1) / heads_per_kv + 1 - first / heads_per_kv;
}

/* cost[r][i]: least sum of squares of cutting heads [i, n_head) among ranks r .. N-1 where none holds more than `most`
 * KV heads; SIZE_MAX: none. Every rank before r has a head, and so has every rank after it. */
static void fill_costs(size_t *cost, size_t n_head, size_t heads_per_kv, size_t n_ranks, size_t most)
{
    size_t width = n_head + 1;

    for (size_t i = 0; i < (n_ranks + 1) * width; i++)
        cost[i] = SIZE_MAX;
    cost[n_ranks * width + n_head] = 0;
    for (size_t r = n_ranks; r-- > 0;)
        for (size_t i = r; i + (n_ranks - r) <= n_head; i++) {
            size_t best = SIZE_MAX;

            for (size_t end = i + 1; end + (n_ranks - 1 - r) <= n_head && kv_held(i, end, heads_per_kv) <= most;
                 end++) {
                size_t rest = cost[(r + 1) * width + end], here = (end - i) * (end - i);

                if (rest != SIZE_MAX && rest + here < best)
                    best = rest + here;
            }
            cost[r * width + i] = best;
        }
}

int rf_plan_cut_heads(size_t n_head, size_t n_head_kv, int n_ranks, size_t *begin, rf_error *err)
{
    size_t width = n_head + 1, heads_per_kv = n_head / n_head_kv;
    size_t *cost = calloc(((size_t)n_ranks + 1) * width, sizeof *cost);

    if (!cost)
        return rf_fail(err, RF_ERR_MEMORY, "no memory to cut %zu heads", n_head);
    /* Someone holds at least the average. */
    for (size_t most = (n_head_kv + (size_t)n_ranks - 1) / (size_t)n_ranks; most <= n_head_kv; most++) {
        fill_costs(cost, n_head, heads_per_kv, (size_t)n_ranks, most);
        if (cost[0] == SIZE_MAX)
            continue;
        begin[0] = 0;
        for (int r = 0; r < n_ranks; r++) { /* the largest first count that still reaches the optimum */
            size_t i = begin[r], end = n_head;

            for (;; end--) {
                size_t rest = cost[(size_t)(r + 1) * width + end];

                if (end > i && kv_held(i, end, heads_per_kv) <= most && rest != SIZE_MAX &&
                    rest + (end - i) * (end - i) == cost[(size_t)r * width + i])
                    break;
            }
            begin[r + 1] = end;
        }
        break;
    }
    free(cost);
    return 0;
}

void rf_plan_cut_layers(const size_t *layer_bytes, size_t n_layer, size_t tail_bytes, int n_ranks, const double *ratios,
                        size_t *begin)
{
    double all = running(ratios, n_ranks), total = (double)tail_bytes;

    for (size_t i = 0; i < n_layer; i++)
        total += (double)layer_bytes[i];
    begin[0] = 0;
    begin[n_ranks] = n_layer;
    for (int r = 1; r < n_ranks; r++) {
        double limit = total * running(ratios, r) / all, at = 0;
        size_t n = 0;

        while (n < n_layer && at + (double)layer_bytes[n] / 2 < limit)
            at += (double)layer_bytes[n++];
        begin[r] = n;
    }
    /* Every rank but the last has a layer: raise from the front, lower from the back. */
    for (int r = 1; r < n_ranks; r++)
        if (begin[r] < begin[r - 1] + 1)
            begin[r] = begin[r - 1] + 1;
    for (int r = n_ranks - 1; r >= 1; r--) {
        size_t most = n_layer - (size_t)(n_ranks - 1 - r);

        if (begin[r] > most)
            begin[r] = most;
    }
}
