/* What a transport offers to comm.c: one exchange, in which every rank contributes bytes and sees those of all.
 *
 * stage() gives the place (RF_STAGE_BYTES) where this rank writes its contribution of the next exchange; post() makes
 * it visible and waits for the others: theirs[r] stays valid until the second post() after this one. Lockstep; no
 * allocation. */
#ifndef RF_TRANSPORT_H
#define RF_TRANSPORT_H

#include "comm.h"

#define RF_STAGE_BYTES ((size_t)1 << 20)

typedef struct rf_transport rf_transport;

typedef struct {
    const char *name;
    void *(*stage)(rf_transport *t);
    void (*post)(rf_transport *t, const size_t *bytes, const void **theirs); /* bytes[r]: rank r's contribution */
    /* Optional, for two-shot sums over a network: rank r gets part[r] .. part[r+1] (floats) of every node of every
     * rank, packed [node][part]. n_nodes[r] nodes of n floats each lie in this rank's stage. It ends the life of what
     * earlier posts returned. NULL: post everything, each reads its part. */
    void (*scatter)(rf_transport *t, const size_t *n_nodes, size_t n, const size_t *part, const void **theirs);
    void (*send)(rf_transport *t, int to, const void *data, size_t bytes);
    void (*recv)(rf_transport *t, int from, void *data, size_t bytes);
    void (*destroy)(rf_transport *t);
} rf_transport_ops;

struct rf_transport {
    const rf_transport_ops *ops;
};

/* A transport as comm.c's table offers it. */
typedef struct {
    const char *name;
    const char *reason; /* why it is taken when it can be */
    /* NULL, or why it cannot serve these ranks: the same answer on all. May be NULL: it always can. */
    const char *(*refusal)(void);
    /* Collective over the world: a transport on every rank, or NULL and the same *err on every rank. What may fail on
     * one rank alone (memory) is agreed before the next collective call, else the others would wait for it for
     * ever. */
    rf_transport *(*create)(bool busy, rf_error *err);
} rf_transport_offer;

rf_transport *rf_transport_mpi(bool busy, rf_error *err);
rf_transport *rf_transport_shm(bool busy, rf_error *err);
const char *rf_transport_shm_refusal(void);
size_t rf_transport_plan_bytes(int n_ranks); /* memory of the larger of them, a rank */

/* check.c: the start-up check of t, which is c's transport. Collective over the world; all get the same outcome. */
int rf_comm_check(rf_comm *c, rf_transport *t, rf_error *err);

/* comm.c. sum_host: rf_comm_sum_tree on host memory, n floats a node. The others, also for tests: the first of the
 * offers that serves, and the offer of the table that has this name. Collective over the world; NULL and the same *err
 * on all ranks. */
void rf_comm_sum_host(rf_comm *c, const rf_sum_plan *p, size_t n, const float *nodes, float *out);
rf_comm *rf_comm_create_from(rf_backend *b, rf_allreduce allreduce, const rf_transport_offer *offers, size_t n_offers,
                             bool busy, rf_error *err);
rf_comm *rf_comm_create_over(rf_backend *b, rf_allreduce allreduce, const char *transport, bool busy, rf_error *err);

#endif
