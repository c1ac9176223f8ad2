/* Which backend a rank computes on: the CPU, a GPU, or the emulated GPU. */
#ifndef RF_DEVICE_H
#define RF_DEVICE_H

#include <stdbool.h>
#include <stdio.h>

#include "backend.h"
#include "options.h"

typedef struct {
    int place, n_ranks; /* of the ranks of this host */
    int n_threads;      /* of the CPU backend, and whether they have cores of their own */
    bool busy;
} rf_device_spec;

/* The backend that --backend, --device and -ngl ask for. *err: RF_ERR_USAGE where this build has no such code,
 * RF_ERR_DEVICE where the machine has no such device. */
rf_backend *rf_device_create(const rf_options *o, const rf_device_spec *spec, rf_error *err);
/* Its pure functions, without a device (the CPU's where this build has no such code). */
const rf_ops *rf_device_traits(const rf_options *o);
/* Free memory of the device, in bytes, before anything is created on it; 0: not known, or it is the host's. */
size_t rf_device_free_memory(const rf_options *o);
/* --list-devices */
void rf_device_list(FILE *out);

/* Pure: the device of the rank that is number `place` of `n_ranks` on its host, where `count` devices are visible and
 * --device said `wanted` (-1: nothing). -1 and *err: RF_ERR_USAGE, there is none for it. */
int rf_device_number(int wanted, int place, int n_ranks, int count, rf_error *err);

#endif
