#include "config.h"

#include "topology.h"

#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef RF_HAVE_HWLOC
#include <hwloc.h>
#endif

#define MAX_CORES CPU_SETSIZE

void rf_topology_share(int n_cores, int rank, int n_ranks, int *first, int *count)
{
    if (n_ranks > n_cores) {
        *first = rank % n_cores;
        *count = 1;
        return;
    }
    *first = n_cores * rank / n_ranks;
    *count = n_cores * (rank + 1) / n_ranks - *first;
}

void rf_topology_list(const int *cores, int n, char *text, size_t size)
{
    size_t used = 0;

    text[0] = 0;
    for (int i = 0; i < n && used < size;) {
        int last = i;

        while (last + 1 < n && cores[last + 1] == cores[last] + 1)
            last++;
        used += (size_t)snprintf(text + used, size - used, last > i ? "%s%d-%d" : "%s%d", used ? "," : "", cores[i], cores[last]);
        i = last + 1;
    }
}

static int mask_cores(int *cores)
{
    cpu_set_t set;
    int n = 0;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 0;
    for (int i = 0; i < MAX_CORES; i++)
        if (CPU_ISSET((size_t)i, &set))
            cores[n++] = i;
    return n;
}

void rf_topology_mask_text(char *text, size_t size)
{
    int cores[MAX_CORES];

    rf_topology_list(cores, mask_cores(cores), text, size);
}

#ifdef RF_HAVE_HWLOC
/* One hardware thread a core first: siblings of a core already listed go last, so that threads spread over cores. */
static void order_by_core(int *cores, int n)
{
    hwloc_topology_t topology;
    int ordered[MAX_CORES], k = 0;
    bool taken[MAX_CORES] = {false};

    if (hwloc_topology_init(&topology) != 0)
        return;
    if (hwloc_topology_load(topology) != 0) {
        hwloc_topology_destroy(topology);
        return;
    }
    for (int pass = 0; k < n && pass < n; pass++) {
        hwloc_bitmap_t used = hwloc_bitmap_alloc();

        for (int i = 0; used && i < n; i++) {
            hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(topology, (unsigned)cores[i]);
            hwloc_obj_t core = pu ? hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu) : NULL;
            unsigned id = core ? core->logical_index : (unsigned)cores[i];

            if (taken[i] || hwloc_bitmap_isset(used, id))
                continue;
            hwloc_bitmap_set(used, id);
            taken[i] = true;
            ordered[k++] = cores[i];
        }
        hwloc_bitmap_free(used);
    }
    if (k == n)
        memcpy(cores, ordered, (size_t)n * sizeof *cores);
    hwloc_topology_destroy(topology);
}

static int numa_of(const int *cores, int n)
{
    hwloc_topology_t topology;
    int numa = -1;

    if (hwloc_topology_init(&topology) != 0)
        return -1;
    if (hwloc_topology_load(topology) == 0) {
        for (int i = 0; i < n; i++) {
            hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(topology, (unsigned)cores[i]);
            hwloc_obj_t node = NULL;
            int here = -1;

            while (pu && (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL)
                if (hwloc_bitmap_isset(node->cpuset, (unsigned)cores[i]))
                    here = (int)node->os_index;
            if (i == 0)
                numa = here;
            else if (here != numa)
                numa = -1;
        }
    }
    hwloc_topology_destroy(topology);
    return numa;
}
#else
static void order_by_core(int *cores, int n)
{
    (void)cores;
    (void)n;
}

static int numa_of(const int *cores, int n)
{
    (void)cores;
    (void)n;
    return -1;
}
#endif

/* Thread i on cores[i]; threads beyond the cores share the rank's whole set. */
static bool bind_threads(const int *cores, int n, int n_threads)
{
    int failed = 0;

#pragma omp parallel num_threads(n_threads) reduction(+ : failed)
    {
        int thread = omp_get_thread_num();
        cpu_set_t set;

        CPU_ZERO(&set);
        if (n_threads <= n)
            CPU_SET((size_t)cores[thread], &set);
        for (int i = 0; n_threads > n && i < n; i++)
            CPU_SET((size_t)cores[i], &set);
        failed += sched_setaffinity(0, sizeof set, &set) != 0;
    }
    return !failed;
}

static int compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

int rf_topology_apply(int wanted_threads, bool same_mask, int node_rank, int node_size, rf_topology *t, rf_error *err)
{
    int cores[MAX_CORES], own[MAX_CORES], n = mask_cores(cores), first = 0, count = n;
    long host_threads;

    if (!n)
        return rf_fail(err, RF_ERR_DEVICE, "the cores this process may use could not be read");
    memset(t, 0, sizeof *t);
    order_by_core(cores, n);
    if (same_mask)
        rf_topology_share(n, node_rank, node_size, &first, &count);
    memcpy(own, cores + first, (size_t)count * sizeof *own);
    t->n_cores = count;
    t->n_threads = wanted_threads > 0 ? wanted_threads : count;
    host_threads = (long)t->n_threads * (same_mask ? node_size : 1);
    t->busy = host_threads <= (same_mask ? n : count);
    omp_set_dynamic(0);
    omp_set_num_threads(t->n_threads);
    t->bound = bind_threads(own, count, t->n_threads);
    qsort(own, (size_t)count, sizeof *own, compare);
    t->numa = numa_of(own, count);
    rf_topology_list(own, count, t->cores, sizeof t->cores);
    return 0;
}
