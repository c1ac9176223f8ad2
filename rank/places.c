#include "config.h"

#include "places.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef RF_HAVE_HWLOC
#include <hwloc.h>

static int load(const char *synthetic, hwloc_topology_t *topology)
{
    if (hwloc_topology_init(topology) != 0)
        return -1;
    if ((!synthetic || hwloc_topology_set_synthetic(*topology, synthetic) == 0) && hwloc_topology_load(*topology) == 0)
        return 0;
    hwloc_topology_destroy(*topology);
    return -1;
}

static int numa_of(hwloc_topology_t topology, hwloc_obj_t pu)
{
    hwloc_obj_t node = NULL;

    while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL)
        if (hwloc_bitmap_isset(node->cpuset, pu->os_index))
            return (int)node->os_index;
    return -1;
}

/* Machine order is that of hwloc's logical numbers, of cores and of threads. */
static int by_machine(const void *a, const void *b)
{
    const rf_place *p = a, *q = b;

    return p->core != q->core ? (p->core > q->core) - (p->core < q->core)
                              : (p->thread > q->thread) - (p->thread < q->thread);
}

void rf_places_describe(const char *synthetic, rf_place *places, size_t n)
{
    hwloc_topology_t topology;
    bool known = load(synthetic, &topology) == 0, complete = known;

    for (size_t i = 0; complete && i < n; i++) {
        hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(topology, (unsigned)places[i].thread);
        hwloc_obj_t core = pu ? hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu) : NULL;

        complete = pu != NULL;
        if (!pu)
            continue;
        /* A machine that shows no cores: its threads are all there is. */
        places[i].core = (int)(core ? core->logical_index : pu->logical_index);
        places[i].numa = numa_of(topology, pu);
    }
    if (known)
        hwloc_topology_destroy(topology);
    for (size_t i = 0; !complete && i < n; i++)
        places[i] = (rf_place){places[i].thread, places[i].thread, -1};
    qsort(places, n, sizeof *places, by_machine);
}
#else
void rf_places_describe(const char *synthetic, rf_place *places, size_t n)
{
    (void)synthetic;
    for (size_t i = 0; i < n; i++)
        places[i] = (rf_place){places[i].thread, places[i].thread, -1};
}
#endif

size_t rf_places_n_cores(const rf_place *places, size_t n)
{
    size_t cores = 0;

    for (size_t i = 0; i < n; i++)
        cores += i == 0 || places[i].core != places[i - 1].core;
    return cores;
}

/* Index of the first place of the core-th core; n for the one behind the last. */
static size_t start_of(const rf_place *places, size_t n, size_t core)
{
    size_t cores = 0;

    for (size_t i = 0; i < n; i++) {
        cores += i == 0 || places[i].core != places[i - 1].core;
        if (cores > core)
            return i;
    }
    return n;
}

size_t rf_places_share(const rf_place *places, size_t n, int rank, int n_ranks, size_t *first)
{
    size_t cores = rf_places_n_cores(places, n), r = (size_t)rank, ranks = (size_t)n_ranks, from, to;

    from = ranks > cores ? r % cores : cores * r / ranks;
    to = ranks > cores ? from + 1 : cores * (r + 1) / ranks;
    *first = start_of(places, n, from);
    return start_of(places, n, to) - *first;
}

bool rf_places_fit(const rf_place *places, size_t n, int wanted_threads, int n_ranks)
{
    size_t each = wanted_threads > 0 ? (size_t)wanted_threads : 1; /* shares of 1, 1 and 2 of 4 cores fit too */

    return each * (size_t)n_ranks <= rf_places_n_cores(places, n);
}

void rf_places_spread(const rf_place *places, size_t n, int *threads)
{
    size_t filled = 0;

    for (size_t sibling = 0; filled < n; sibling++) /* the sibling-th thread of each core */
        for (size_t i = 0, start = 0; i < n; i++) {
            start = i > 0 && places[i].core == places[i - 1].core ? start : i;
            if (i - start == sibling)
                threads[filled++] = places[i].thread;
        }
}

int rf_places_numa(const rf_place *places, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (places[i].numa != places[0].numa)
            return -1;
    return n ? places[0].numa : -1;
}

void rf_places_list(const rf_place *places, size_t n, char *text, size_t size)
{
    static const char more[] = ",...";
    bool has[RF_MAX_PLACES] = {false};
    size_t used = 0;

    text[0] = 0;
    for (size_t i = 0; i < n; i++)
        has[places[i].thread] = true;
    for (int t = 0; t < RF_MAX_PLACES; t++) {
        char part[32];
        int last = t;

        if (!has[t])
            continue;
        while (last + 1 < RF_MAX_PLACES && has[last + 1])
            last++;
        snprintf(part, sizeof part, last > t ? "%s%d-%d" : "%s%d", used ? "," : "", t, last);
        if (used + strlen(part) + sizeof more > size) {
            snprintf(text + used, size - used, "%s", used ? more : more + 1);
            return;
        }
        used += (size_t)snprintf(text + used, size - used, "%s", part);
        t = last;
    }
}
