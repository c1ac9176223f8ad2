/* Which cores a rank may use, and how it uses them. An existing mask (launcher, taskset, Slurm) is respected. */
#ifndef RF_TOPOLOGY_H
#define RF_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"

typedef struct {
    int n_threads;   /* OpenMP threads of this rank */
    int n_cores;     /* physical cores of the mask that are this rank's */
    bool bound;      /* each thread to a hardware thread of its own (else to all of the rank's, or, refused, to none) */
    bool busy;       /* the threads of all ranks with this mask fit its physical cores: waits may spin */
    int numa;        /* NUMA node of the cores, -1: several or unknown */
    char cores[64];  /* hardware threads of those cores: "0-3,8" */
} rf_topology;

/* Shares the physical cores of this process's mask among the n_alike processes of this host that have the same mask;
 * this one is number `place` of them. (One that the launcher bound by itself has its mask alone.) wanted_threads 0: one
 * a core. Binds OpenMP's threads. */
int rf_topology_apply(int wanted_threads, int place, int n_alike, rf_topology *t, rf_error *err);
/* The hardware threads of this process's mask, all of them, as text to compare with other ranks'. "" where they could
 * not be read. */
#define RF_MASK_TEXT 256
void rf_topology_mask_text(char text[RF_MASK_TEXT]);

#endif
