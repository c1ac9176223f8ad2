/* The tree over ranks: any partition of any number of units gives the bits of the plain recursion. One process plays
 * all ranks. */
#include <stdlib.h>
#include <string.h>

#include "../collectives/comm.h"
#include "check.h"

#define FLOATS 1100 /* more than one tile of rf_sum_plan_finish */
#define MOST_UNITS 257
#define MOST_RANKS 16

static float unit_sums[MOST_UNITS][FLOATS];
static uint64_t random_state = 99;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % n);
}

static void fill_units(void)
{
    for (size_t u = 0; u < MOST_UNITS; u++)
        for (size_t i = 0; i < FLOATS; i++)
            unit_sums[u][i] = ((float)random_below(2000001) - 1000000.0f) * (random_below(2) ? 1e-6f : 3.7f);
}

/* The definition, written here once more: the first half takes the odd one. */
static void oracle(size_t first, size_t count, float *out)
{
    float right[FLOATS];
    size_t left = count / 2 + count % 2;

    if (count == 1) {
        memcpy(out, unit_sums[first], sizeof unit_sums[first]);
        return;
    }
    oracle(first, left, out);
    oracle(first + left, count - left, right);
    for (size_t i = 0; i < FLOATS; i++)
        out[i] = out[i] + right[i];
}

/* Ranges may be empty. */
static void check_ranges(size_t n_units, int n_ranks, const size_t *begin, const float *want)
{
    rf_error err;
    rf_sum_plan *plan = rf_sum_plan_create(n_units, n_ranks, begin, &err);
    float *sums[MOST_RANKS], out[FLOATS];

    assert_non_null(plan);
    for (int r = 0; r < n_ranks; r++) {
        size_t nodes = rf_sum_plan_n_nodes(plan, r), held = 0;

        assert_true(nodes <= RF_TREE_MAX_NODES && (nodes >= 1) == (begin[r + 1] > begin[r]));
        sums[r] = malloc((nodes + 1) * FLOATS * sizeof(float));
        for (size_t k = 0; k < nodes; k++) {
            rf_range node = rf_sum_plan_nodes(plan, r)[k];

            assert_int_equal(node.first, begin[r] + held);
            held += node.count;
            oracle(node.first, node.count, sums[r] + k * FLOATS);
        }
        assert_int_equal(held, begin[r + 1] - begin[r]);
    }
    rf_sum_plan_finish(plan, (const float *const *)sums, FLOATS, FLOATS, out);
    assert_memory_equal(out, want, sizeof out);
    for (int r = 0; r < n_ranks; r++)
        free(sums[r]);
    rf_sum_plan_destroy(plan);
}

static void random_cut(size_t n_units, int n_ranks, size_t *begin)
{
    begin[0] = 0;
    begin[n_ranks] = n_units;
    for (int r = 1; r < n_ranks; r++) { /* leave a unit for each of the others */
        size_t least = begin[r - 1] + 1, most = n_units - (size_t)(n_ranks - r);

        begin[r] = least + random_below((uint32_t)(most - least + 1));
    }
}

static void any_cut_gives_the_same_bits(void **state)
{
    static const size_t large[] = {100, 127, 128, 129, MOST_UNITS};
    static float want[FLOATS];
    size_t begin[MOST_RANKS + 1];

    (void)state;
    fill_units();
    for (size_t n = 1; n <= 70 + sizeof large / sizeof *large; n++) {
        size_t units = n <= 70 ? n : large[n - 71];

        oracle(0, units, want);
        for (int ranks = 1; ranks <= MOST_RANKS && (size_t)ranks <= units; ranks++)
            for (int round = 0; round < (ranks == 1 ? 1 : 3); round++) {
                random_cut(units, ranks, begin);
                check_ranges(units, ranks, begin, want);
            }
    }
}

static void even_ranks_hold_one_node(void **state)
{
    (void)state;
    for (size_t units = 8; units <= 64; units *= 2)
        for (size_t ranks = 1; ranks <= 8; ranks *= 2)
            for (size_t r = 0; r < ranks; r++)
                assert_int_equal(rf_tree_nodes(units, (rf_range){r * units / ranks, units / ranks}, NULL), 1);
    assert_int_equal(rf_tree_nodes(5, (rf_range){0, 3}, NULL), 1); /* the first half takes the odd one */
    assert_int_equal(rf_tree_nodes(5, (rf_range){0, 2}, NULL), 1);
    assert_int_equal(rf_tree_nodes(5, (rf_range){2, 3}, NULL), 2);
    assert_int_equal(rf_tree_nodes(5, (rf_range){2, 0}, NULL), 0);
}

/* The definition of the largest nodes: from the root down, the first that lie inside. */
static size_t inside(rf_range node, rf_range owned, rf_range *found)
{
    size_t left = node.count / 2 + node.count % 2, n;

    if (node.first >= owned.first && node.first + node.count <= owned.first + owned.count) {
        *found = node;
        return 1;
    }
    if (node.count == 1 || node.first >= owned.first + owned.count || node.first + node.count <= owned.first)
        return 0;
    n = inside((rf_range){node.first, left}, owned, found);
    return n + inside((rf_range){node.first + left, node.count - left}, owned, found + n);
}

static void check_range(size_t units, rf_range owned)
{
    rf_range nodes[RF_TREE_MAX_NODES], want[RF_TREE_MAX_NODES];
    size_t n = rf_tree_nodes(units, owned, nodes), depth = 0;

    while ((size_t)1 << depth < units)
        depth++;
    assert_int_equal(n, rf_tree_nodes(units, owned, NULL));
    assert_true(n <= 2 * depth + 1);
    assert_int_equal(n, inside((rf_range){0, units}, owned, want));
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(nodes[i].first, want[i].first);
        assert_int_equal(nodes[i].count, want[i].count);
    }
}

static void nodes_are_the_largest(void **state)
{
    (void)state;
    for (size_t units = 1; units <= 70; units++)
        for (size_t first = 0; first < units; first++)
            for (size_t count = 1; first + count <= units; count++)
                check_range(units, (rf_range){first, count});
    for (int i = 0; i < 2000; i++) {
        size_t units = 1 + random_below(1u << 30), first = random_below((uint32_t)units);

        check_range(units, (rf_range){first, 1 + random_below((uint32_t)(units - first))});
    }
}

static void a_rank_may_hold_nothing(void **state)
{
    static float want[FLOATS];

    (void)state;
    fill_units();
    oracle(0, 5, want);
    check_ranges(5, 4, (size_t[]){0, 0, 3, 3, 5}, want);
}

static void what_is_no_cut(void **state)
{
    static const struct {
        size_t n_units;
        int n_ranks;
        size_t begin[4];
    } bad[] = {{0, 1, {0, 0}},    {4, 2, {1, 2, 4}},    {4, 2, {0, 2, 3}},
               {4, 2, {0, 5, 4}}, {4, 3, {0, 3, 2, 4}}, {4, 0, {4}}};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rf_error err = {RF_OK, ""};

        assert_null(rf_sum_plan_create(bad[i].n_units, bad[i].n_ranks, bad[i].begin, &err));
        assert_int_equal(err.code, RF_ERR_USAGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cut_gives_the_same_bits),
        cmocka_unit_test(even_ranks_hold_one_node),
        cmocka_unit_test(nodes_are_the_largest),
        cmocka_unit_test(a_rank_may_hold_nothing),
        cmocka_unit_test(what_is_no_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
