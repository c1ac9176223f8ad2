/* Hardware threads and the physical cores they belong to. */
#ifndef RF_PLACES_H
#define RF_PLACES_H

#include <stdbool.h>
#include <stddef.h>

#define RF_MAX_PLACES 8192

typedef struct {
    int thread; /* hardware thread, as the system numbers it */
    int core;   /* hardware threads of one physical core have the same number */
    int numa;   /* NUMA node, -1: unknown */
} rf_place;

/* Fills core and numa of places[0, n), whose threads are given, and puts them into machine order: neighbouring cores
 * (one socket, one NUMA node) side by side, threads of a core together. synthetic: NULL, or a machine in hwloc's words
 * instead of this one (tests). Without hwloc, or where it does not know the machine, every thread counts as a core and
 * the order is the system's. */
void rf_places_describe(const char *synthetic, rf_place *places, size_t n);

/* The pure rest takes places in machine order. */
size_t rf_places_n_cores(const rf_place *places, size_t n);
/* Rank `rank` of n_ranks gets whole cores: contiguous, numbers differ by at most one; with more ranks than cores, core
 * rank mod n_cores. Its places are places[*first, *first + returned). */
size_t rf_places_share(const rf_place *places, size_t n, int rank, int n_ranks, size_t *first);
/* Whether n_ranks ranks with wanted_threads threads each (0: one a core of their own) have a physical core for every
 * thread. */
bool rf_places_fit(const rf_place *places, size_t n, int wanted_threads, int n_ranks);
/* The order in which threads take places: one of each core, then a second of each, ... threads[n] gets their
 * numbers. */
void rf_places_spread(const rf_place *places, size_t n, int *threads);
/* The NUMA node all are on, or -1. */
int rf_places_numa(const rf_place *places, size_t n);
/* "0-3,8" from any order of threads; "0-3,..." where the room ends. */
void rf_places_list(const rf_place *places, size_t n, char *text, size_t size);

#endif
