/* Which cores a rank may use, and how it uses them. An existing mask (launcher, taskset, Slurm) is respected. */
#ifndef RF_TOPOLOGY_H
#define RF_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"

typedef struct {
    int n_threads;   /* OpenMP threads of this rank */
    int n_cores;     /* of the mask that is this rank's */
    bool bound;      /* threads were bound, one a core (else left to the system) */
    bool busy;       /* ranks x threads of this host fit its allowed cores: waits may spin */
    int numa;        /* NUMA node of the cores, -1: several or unknown */
    char cores[64];  /* "0-3,8" */
} rf_topology;

/* Shares the allowed cores of this host among its ranks when all see the same mask (the launcher did not bind), else takes the mask as this
 * rank's own. wanted_threads 0: as many as the rank has cores. same_mask: whether every rank of the host has the same mask (agreed by the
 * caller), node_rank / node_size as rf_world_*. Binds OpenMP's threads. */
int rf_topology_apply(int wanted_threads, bool same_mask, int node_rank, int node_size, rf_topology *t, rf_error *err);
/* The cores of this process's mask as text, to compare with the other ranks'. */
void rf_topology_mask_text(char *text, size_t size);

/* Pure: cores [first, first + count) of n_cores that rank `rank` of n_ranks gets: contiguous, sizes differ by at most one, and when there are more
 * ranks than cores, core rank mod n_cores. */
void rf_topology_share(int n_cores, int rank, int n_ranks, int *first, int *count);
/* Pure: "0-3,8" from a list of ascending core numbers. */
void rf_topology_list(const int *cores, int n, char *text, size_t size);

#endif
