#include "config.h"

#include "topology.h"

#include <inttypes.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "places.h"

#define SET_BYTES CPU_ALLOC_SIZE(RF_MAX_PLACES)

/* Hardware threads of the calling thread's mask; 0 if it could not be read. */
static size_t read_mask(rf_place *places)
{
    cpu_set_t *set = CPU_ALLOC(RF_MAX_PLACES);
    size_t n = 0;

    if (set && sched_getaffinity(0, SET_BYTES, set) == 0)
        for (int i = 0; i < RF_MAX_PLACES; i++)
            if (CPU_ISSET_S((size_t)i, SET_BYTES, set))
                places[n++] = (rf_place){i, i, -1};
    CPU_FREE(set);
    return n;
}

/* FNV-1a over the thread numbers: a list cut short would make different masks look alike. */
static uint64_t hash_mask(const rf_place *places, size_t n)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < n; i++)
        for (int shift = 0; shift < 16; shift += 8)
            hash = (hash ^ (uint64_t)(places[i].thread >> shift & 0xff)) * UINT64_C(0x100000001b3);
    return hash;
}

void rf_topology_mask_text(char text[RF_MASK_TEXT])
{
    rf_place *places = calloc(RF_MAX_PLACES, sizeof *places);
    size_t n = places ? read_mask(places) : 0;
    char list[RF_MASK_TEXT - 64];

    text[0] = 0;
    if (n) {
        rf_places_list(places, n, list, sizeof list);
        snprintf(text, RF_MASK_TEXT, "%zu threads %s %016" PRIx64, n, list, hash_mask(places, n));
    }
    free(places);
}

/* Thread i on threads[i]; where there are more threads than that, each on all of them. */
static bool bind_threads(const int *threads, size_t n, int n_threads)
{
    bool single = (size_t)n_threads <= n;
    int failed = 0;

#pragma omp parallel num_threads(n_threads) reduction(+ : failed)
    {
        size_t number = (size_t)omp_get_thread_num();
        cpu_set_t *set = CPU_ALLOC(RF_MAX_PLACES);

        if (set) {
            CPU_ZERO_S(SET_BYTES, set);
            for (size_t i = single ? number : 0; i < (single ? number + 1 : n); i++)
                CPU_SET_S((size_t)threads[i], SET_BYTES, set);
        }
        failed += !set || sched_setaffinity(0, SET_BYTES, set) != 0;
        CPU_FREE(set);
    }
    return single && !failed;
}

static void apply(int wanted_threads, int place, int n_alike, const rf_place *places, size_t n, int *threads,
                  rf_topology *t)
{
    size_t first, count = rf_places_share(places, n, place, n_alike, &first);
    const rf_place *own = places + first;

    memset(t, 0, sizeof *t);
    t->n_cores = (int)rf_places_n_cores(own, count);
    t->n_threads = wanted_threads > 0 ? wanted_threads : t->n_cores;
    t->busy = rf_places_fit(places, n, wanted_threads, n_alike);
    t->numa = rf_places_numa(own, count);
    rf_places_list(own, count, t->cores, sizeof t->cores);
    rf_places_spread(own, count, threads);
    omp_set_dynamic(0);
    omp_set_num_threads(t->n_threads);
    t->bound = bind_threads(threads, count, t->n_threads);
}

int rf_topology_apply(int wanted_threads, int place, int n_alike, rf_topology *t, rf_error *err)
{
    rf_place *places = calloc(RF_MAX_PLACES, sizeof *places);
    int *threads = calloc(RF_MAX_PLACES, sizeof *threads), failed = 0;
    size_t n = places ? read_mask(places) : 0;

    if (!places || !threads) {
        failed = rf_fail(err, RF_ERR_MEMORY, "no memory to read the cores of this host");
    } else if (!n) {
        failed = rf_fail(err, RF_ERR_DEVICE, "the cores this process may use could not be read");
    } else {
        rf_places_describe(NULL, places, n);
        apply(wanted_threads, place, n_alike, places, n, threads, t);
    }
    free(threads);
    free(places);
    return failed;
}
