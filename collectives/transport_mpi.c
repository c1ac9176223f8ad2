/* Host buffers through MPI: one node or many. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_call.h"
#include "transport.h"

#define DATA_TAG 1

typedef struct {
    rf_transport base;
    int n_ranks, rank;
    unsigned char *mine, *theirs[2]; /* theirs: two exchanges stay readable */
    int *counts, *places, *send_counts, *send_places;
    unsigned parity;
} transport_mpi;

static void *stage(rf_transport *base)
{
    return ((transport_mpi *)base)->mine;
}

static void post(rf_transport *base, const size_t *bytes, const void **theirs)
{
    transport_mpi *t = (transport_mpi *)base;
    unsigned char *into = t->theirs[t->parity ^= 1];

    for (int r = 0, at = 0; r < t->n_ranks; at += t->counts[r++]) {
        t->counts[r] = (int)bytes[r];
        t->places[r] = at;
        theirs[r] = into + at;
    }
    rf_mpi_check(
        MPI_Allgatherv(t->mine, t->counts[t->rank], MPI_BYTE, into, t->counts, t->places, MPI_BYTE, rf_mpi_data()),
        "MPI_Allgatherv");
}

/* This rank's nodes, cut by owner of the part, are packed into the buffer of the exchange before, which nobody reads
 * any more (transport.h). */
static void scatter(rf_transport *base, const size_t *n_nodes, size_t n, const size_t *part, const void **theirs)
{
    transport_mpi *t = (transport_mpi *)base;
    unsigned char *into = t->theirs[t->parity ^= 1], *packed = t->theirs[t->parity ^ 1];
    const float *nodes = (const float *)(void *)t->mine;
    size_t own = part[t->rank + 1] - part[t->rank], at = 0, from = 0;

    for (int r = 0; r < t->n_ranks; r++) {
        size_t width = part[r + 1] - part[r];

        t->send_places[r] = (int)at;
        for (size_t k = 0; k < n_nodes[t->rank]; k++, at += width * sizeof(float))
            memcpy(packed + at, nodes + k * n + part[r], width * sizeof(float));
        t->send_counts[r] = (int)at - t->send_places[r];
        t->counts[r] = (int)(n_nodes[r] * own * sizeof(float));
        t->places[r] = (int)from;
        theirs[r] = into + from;
        from += (size_t)t->counts[r];
    }
    rf_mpi_check(MPI_Alltoallv(packed, t->send_counts, t->send_places, MPI_BYTE, into, t->counts, t->places, MPI_BYTE,
                               rf_mpi_data()),
                 "MPI_Alltoallv");
}

static void send_bytes(rf_transport *base, int to, const void *data, size_t bytes)
{
    const unsigned char *p = data;

    (void)base;
    for (size_t done = 0; done < bytes;) {
        size_t n = bytes - done < (size_t)1 << 30 ? bytes - done : (size_t)1 << 30;

        rf_mpi_check(MPI_Send(p + done, (int)n, MPI_BYTE, to, DATA_TAG, rf_mpi_data()), "MPI_Send");
        done += n;
    }
}

static void recv_bytes(rf_transport *base, int from, void *data, size_t bytes)
{
    unsigned char *p = data;

    (void)base;
    for (size_t done = 0; done < bytes;) {
        size_t n = bytes - done < (size_t)1 << 30 ? bytes - done : (size_t)1 << 30;

        rf_mpi_check(MPI_Recv(p + done, (int)n, MPI_BYTE, from, DATA_TAG, rf_mpi_data(), MPI_STATUS_IGNORE),
                     "MPI_Recv");
        done += n;
    }
}

static void destroy(rf_transport *base)
{
    transport_mpi *t = (transport_mpi *)base;

    free(t->mine);
    free(t->theirs[0]);
    free(t->theirs[1]);
    free(t->counts);
    free(t);
}

static const rf_transport_ops table = {
    .name = "mpi",
    .stage = stage,
    .post = post,
    .scatter = scatter,
    .send = send_bytes,
    .recv = recv_bytes,
    .destroy = destroy,
};

static transport_mpi *allocate(rf_error *err)
{
    transport_mpi *t = calloc(1, sizeof *t);
    size_t n = (size_t)rf_world_size();

    if (!t)
        goto no_memory;
    t->base.ops = &table;
    t->n_ranks = rf_world_size();
    t->rank = rf_world_rank();
    t->mine = malloc(RF_STAGE_BYTES);
    t->theirs[0] = malloc(n * RF_STAGE_BYTES);
    t->theirs[1] = malloc(n * RF_STAGE_BYTES);
    t->counts = calloc(4 * n, sizeof *t->counts);
    if (!t->mine || !t->theirs[0] || !t->theirs[1] || !t->counts)
        goto no_memory;
    t->places = t->counts + n;
    t->send_counts = t->places + n;
    t->send_places = t->send_counts + n;
    return t;
no_memory:
    if (t)
        destroy(&t->base);
    rf_fail(err, RF_ERR_MEMORY, "no memory for the exchange between %zu ranks", n);
    return NULL;
}

rf_transport *rf_transport_mpi(bool busy, rf_error *err)
{
    rf_error mine = {RF_OK, ""};
    transport_mpi *t;

    (void)busy; /* how MPI waits is the launcher's choice */
    if ((size_t)rf_world_size() > INT_MAX / RF_STAGE_BYTES) {
        rf_fail(err, RF_ERR_DEVICE, "transport mpi serves at most %zu ranks", INT_MAX / RF_STAGE_BYTES);
        return NULL;
    }
    t = allocate(&mine);
    if (rf_world_agree(&mine, err) == 0)
        return &t->base;
    if (t)
        destroy(&t->base);
    return NULL;
}
