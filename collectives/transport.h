/* What a transport offers to comm.c: one exchange, in which every rank contributes bytes and sees those of all.
 *
 * stage() gives the place (RF_STAGE_BYTES) where this rank writes its contribution of the next exchange; post() makes it visible and waits for
 * the others: theirs[r] stays valid until the second post() after this one. Lockstep; no allocation. */
#ifndef RF_TRANSPORT_H
#define RF_TRANSPORT_H

#include "comm.h"

#define RF_STAGE_BYTES ((size_t)1 << 20)

typedef struct rf_transport rf_transport;

typedef struct {
    const char *name;
    void *(*stage)(rf_transport *t);
    void (*post)(rf_transport *t, const size_t *bytes, const void **theirs); /* bytes[r]: rank r's contribution */
    /* Optional, for two-shot sums over a network: rank r gets part[r] .. part[r+1] (floats) of every node of every rank, packed
     * [node][part]. n_nodes[r] nodes of n floats each lie in this rank's stage. NULL: post everything, each reads its part. */
    void (*scatter)(rf_transport *t, const size_t *n_nodes, size_t n, const size_t *part, const void **theirs);
    void (*send)(rf_transport *t, int to, const void *data, size_t bytes);
    void (*recv)(rf_transport *t, int from, void *data, size_t bytes);
    void (*destroy)(rf_transport *t);
} rf_transport_ops;

struct rf_transport {
    const rf_transport_ops *ops;
};

/* Each: NULL and *err when it cannot serve these ranks. Collective over the world. */
rf_transport *rf_transport_shm(bool busy, rf_error *err);
rf_transport *rf_transport_mpi(rf_error *err);
size_t rf_transport_plan_bytes(int n_ranks); /* memory of the larger of them, a rank */

/* comm.c, for tests: a communicator over one transport ("shm", "mpi"). */
rf_comm *rf_comm_create_over(rf_backend *b, rf_allreduce allreduce, const char *transport, bool busy, rf_error *err);

#endif
