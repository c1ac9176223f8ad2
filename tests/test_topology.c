/* Cores: shares of made-up machines, and the mask of this one. */
#include "config.h"

#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../rank/places.h"
#include "../rank/topology.h"
#include "check.h"

/* Two sockets of four cores with two threads each, numbered as Linux does: 0-7 the first thread of every core, 8-15 the
 * second. */
#define TWO_SOCKETS "numa:2 core:4 pu:2(indexes=0,8,1,9,2,10,3,11,4,12,5,13,6,14,7,15)"

static size_t make_places(rf_place *places, size_t n, const int *threads)
{
    for (size_t i = 0; i < n; i++)
        places[i] = (rf_place){threads ? threads[i] : (int)i, -7, -7};
    return n;
}

static void expect_threads(const rf_place *places, size_t n, const int *threads)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(places[i].thread, threads[i]);
}

static void need_hwloc(void)
{
#ifndef RF_HAVE_HWLOC
    skip();
#endif
}

static void machine_order(void **state)
{
    rf_place places[16];
    size_t n = make_places(places, 16, NULL);

    (void)state;
    need_hwloc();
    rf_places_describe(TWO_SOCKETS, places, n);
    expect_threads(places, n, (int[]){0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15});
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(places[i].core, i / 2);
        assert_int_equal(places[i].numa, i / 8);
    }
    assert_int_equal(rf_places_n_cores(places, n), 8);
    assert_int_equal(rf_places_numa(places, n), -1);
    assert_int_equal(rf_places_numa(places, 8), 0);
}

/* Two ranks get a socket each: never the two threads of one core. */
static void ranks_get_sockets(void **state)
{
    rf_place places[16];
    size_t n = make_places(places, 16, NULL), first;
    int threads[16];
    char text[64];

    (void)state;
    need_hwloc();
    rf_places_describe(TWO_SOCKETS, places, n);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(rf_places_share(places, n, rank, 2, &first), 8);
        assert_int_equal(rf_places_n_cores(places + first, 8), 4);
        assert_int_equal(rf_places_numa(places + first, 8), rank);
        rf_places_list(places + first, 8, text, sizeof text);
        assert_string_equal(text, rank ? "4-7,12-15" : "0-3,8-11");
        rf_places_spread(places + first, 8, threads);
        for (int i = 0; i < 4; i++) { /* cores before siblings */
            assert_int_equal(threads[i], rank * 4 + i);
            assert_int_equal(threads[4 + i], 8 + rank * 4 + i);
        }
    }
}

static void part_of_a_machine(void **state)
{
    rf_place places[5];
    size_t n = make_places(places, 5, (int[]){1, 2, 5, 9, 15}), first;
    int threads[5];

    (void)state;
    need_hwloc();
    rf_places_describe(TWO_SOCKETS, places, n);
    expect_threads(places, n, (int[]){1, 9, 2, 5, 15});
    assert_int_equal(rf_places_n_cores(places, n), 4);
    assert_int_equal(rf_places_share(places, n, 0, 2, &first), 3);
    assert_int_equal(rf_places_share(places, n, 1, 2, &first), 2);
    assert_int_equal(first, 3);
    rf_places_spread(places, n, threads);
    assert_memory_equal(threads, ((int[]){1, 2, 5, 15, 9}), sizeof threads);
}

/* One thread a core, a machine without cores, and threads that hwloc has never heard of. */
static void plain_and_unknown_machines(void **state)
{
    rf_place places[4];

    (void)state;
    need_hwloc();
    rf_places_describe("numa:1 core:4 pu:1", places, make_places(places, 4, NULL));
    assert_int_equal(rf_places_n_cores(places, 4), 4);
    assert_int_equal(rf_places_numa(places, 4), 0);
    rf_places_describe("numa:1 pu:4", places, make_places(places, 4, NULL));
    assert_int_equal(rf_places_n_cores(places, 4), 4);
    rf_places_describe("numa:1 core:2 pu:1", places, make_places(places, 4, (int[]){0, 1, 7, 9}));
    expect_threads(places, 4, (int[]){0, 1, 7, 9});
    assert_int_equal(rf_places_n_cores(places, 4), 4);
    assert_int_equal(rf_places_numa(places, 4), -1);
    rf_places_describe("no such words", places, make_places(places, 4, NULL));
    assert_int_equal(rf_places_n_cores(places, 4), 4);
}

/* Whole cores, in order, every one given away once, none empty, sizes that differ by at most one core. */
static void cores_are_shared_evenly(void **state)
{
    rf_place places[120];

    (void)state;
    for (size_t siblings = 1; siblings <= 3; siblings++)
        for (size_t cores = 1; cores <= 40; cores++)
            for (int ranks = 1; ranks <= 50; ranks++) {
                size_t n = cores * siblings, next = 0, least = cores, most = 0;

                for (size_t i = 0; i < n; i++)
                    places[i] = (rf_place){(int)i, (int)(i / siblings), 0};
                for (int r = 0; r < ranks; r++) {
                    size_t first, count = rf_places_share(places, n, r, ranks, &first), own = count / siblings;

                    assert_int_equal(count % siblings, 0);
                    assert_int_equal(first % siblings, 0);
                    assert_true(own >= 1 && first + count <= n);
                    least = own < least ? own : least;
                    most = own > most ? own : most;
                    assert_int_equal(first, (size_t)ranks <= cores ? next : (size_t)r % cores * siblings);
                    next = first + count;
                }
                assert_true(most - least <= 1);
                if ((size_t)ranks <= cores)
                    assert_int_equal(next, n);
            }
}

static void threads_fit(void **state)
{
    rf_place places[8];

    (void)state;
    for (int i = 0; i < 8; i++)
        places[i] = (rf_place){i, i / 2, 0}; /* four cores */
    assert_true(rf_places_fit(places, 8, 0, 3)); /* shares of 1, 1 and 2 */
    assert_true(rf_places_fit(places, 8, 0, 4));
    assert_false(rf_places_fit(places, 8, 0, 5));
    assert_true(rf_places_fit(places, 8, 2, 2));
    assert_false(rf_places_fit(places, 8, 3, 2));
    assert_true(rf_places_fit(places, 8, 4, 1));
    assert_false(rf_places_fit(places, 8, 5, 1)); /* a sibling is no core */
}

static void core_lists(void **state)
{
    rf_place places[6];
    char text[64], small[12];

    (void)state;
    rf_places_list(places, make_places(places, 5, (int[]){8, 2, 0, 1, 3}), text, sizeof text);
    assert_string_equal(text, "0-3,8");
    rf_places_list(places, make_places(places, 1, (int[]){RF_MAX_PLACES - 1}), text, sizeof text);
    assert_string_equal(text, "8191");
    rf_places_list(places, make_places(places, 6, (int[]){1, 3, 5, 17, 29, 31}), small, sizeof small);
    assert_string_equal(small, "1,3,5,...");
    rf_places_list(places, 0, text, sizeof text);
    assert_string_equal(text, "");
}

/* ---- this machine */

static cpu_set_t before; /* the mask this test was started with */

static int first_of_mask(void)
{
    int i = 0;

    while (!CPU_ISSET((size_t)i, &before))
        i++;
    return i;
}

static int set_mask(void **state)
{
    (void)state;
    return sched_getaffinity(0, sizeof before, &before);
}

static int restore_mask(void **state)
{
    (void)state;
    return sched_setaffinity(0, sizeof before, &before);
}

/* Every OpenMP thread's mask lies inside `allowed`; with `single`, each is one thread wide and no two are the same. */
static void check_masks(const rf_topology *t, const cpu_set_t *allowed, bool single)
{
    int outside = 0, n = 0, sizes = 0;
    cpu_set_t all;

    CPU_ZERO(&all);
#pragma omp parallel
    {
        cpu_set_t set, both;

        sched_getaffinity(0, sizeof set, &set);
        CPU_AND(&both, &set, allowed);
#pragma omp critical
        {
            outside += !CPU_EQUAL(&both, &set);
            sizes += CPU_COUNT(&set);
            CPU_OR(&all, &all, &set);
            n++;
        }
    }
    assert_int_equal(n, t->n_threads);
    assert_int_equal(outside, 0);
    if (single) {
        assert_int_equal(sizes, n);
        assert_int_equal(CPU_COUNT(&all), n);
    }
}

static void this_machine(void **state)
{
    rf_topology t;
    rf_error err;

    (void)state;
    assert_int_equal(rf_topology_apply(0, 0, 1, &t, &err), 0);
    assert_true(t.n_cores >= 1 && t.n_cores <= CPU_COUNT(&before));
    assert_int_equal(t.n_threads, t.n_cores);
    assert_true(t.busy && t.bound && strlen(t.cores) > 0);
    check_masks(&t, &before, true);
}

/* What taskset or a launcher allows is all there is. */
static void a_mask_is_respected(void **state)
{
    cpu_set_t one;
    rf_topology t;
    rf_error err;
    char number[16];

    (void)state;
    CPU_ZERO(&one);
    CPU_SET((size_t)first_of_mask(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(rf_topology_apply(0, 0, 1, &t, &err), 0);
    snprintf(number, sizeof number, "%d", first_of_mask());
    assert_string_equal(t.cores, number);
    assert_true(t.n_threads == 1 && t.n_cores == 1 && t.busy && t.bound);
    check_masks(&t, &one, true);
    /* more threads than cores: they share, and do not spin */
    assert_int_equal(rf_topology_apply(3, 0, 1, &t, &err), 0);
    assert_true(t.n_threads == 3 && !t.busy && !t.bound);
    check_masks(&t, &one, false);
    assert_int_equal(rf_topology_apply(1, 1, 2, &t, &err), 0); /* two ranks on it */
    assert_false(t.busy);
}

static void masks_as_text(void **state)
{
    char all[RF_MASK_TEXT], again[RF_MASK_TEXT], one[RF_MASK_TEXT];
    cpu_set_t set;

    (void)state;
    rf_topology_mask_text(all);
    rf_topology_mask_text(again);
    assert_string_equal(all, again);
    assert_true(strlen(all) > 0);
    if (CPU_COUNT(&before) < 2)
        skip();
    CPU_ZERO(&set);
    CPU_SET((size_t)first_of_mask(), &set);
    assert_int_equal(sched_setaffinity(0, sizeof set, &set), 0);
    rf_topology_mask_text(one);
    assert_string_not_equal(all, one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machine_order),
        cmocka_unit_test(ranks_get_sockets),
        cmocka_unit_test(part_of_a_machine),
        cmocka_unit_test(plain_and_unknown_machines),
        cmocka_unit_test(cores_are_shared_evenly),
        cmocka_unit_test(threads_fit),
        cmocka_unit_test(core_lists),
        cmocka_unit_test_setup_teardown(this_machine, set_mask, restore_mask),
        cmocka_unit_test_setup_teardown(a_mask_is_respected, set_mask, restore_mask),
        cmocka_unit_test_setup_teardown(masks_as_text, set_mask, restore_mask),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
