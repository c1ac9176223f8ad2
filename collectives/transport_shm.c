/* Ranks of one node, CPU buffers: a shared window, flags, no MPI call and no system call an exchange.
 *
 * Exchange number s uses half s mod 2 of every rank's slab. A rank writes its half, then publishes s; a reader waits
 * for the writer's number to reach s. A rank can only overwrite half s mod 2 in exchange s + 2, after all have
 * published s + 1, that is, finished reading s. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "mpi_call.h"
#include "transport.h"

#define SPINS_BEFORE_YIELD 20000
#define CACHE_LINE 64
#define ASKED_BYTES 8192 /* a quarter of a nearest cache */

typedef struct {
    _Alignas(CACHE_LINE) _Atomic uint64_t posted; /* the last exchange this rank has published */
    unsigned char pad[CACHE_LINE - sizeof(uint64_t)];
    unsigned char half[2][RF_STAGE_BYTES];
} slab;

typedef struct {
    rf_transport base;
    MPI_Win window;
    int n_ranks, rank;
    bool busy;
    uint64_t number;
    slab **slabs; /* [n_ranks] */
    rf_transport *mpi; /* send and receive (layer mode) */
} transport_shm;

static void *stage(rf_transport *base)
{
    transport_shm *t = (transport_shm *)base;

    return t->slabs[t->rank]->half[(t->number + 1) & 1];
}

static void wait_for(const transport_shm *t, const slab *s)
{
    unsigned spins = 0;

    while (atomic_load_explicit(&s->posted, memory_order_acquire) < t->number) {
        if (!t->busy || ++spins >= SPINS_BEFORE_YIELD)
            sched_yield();
#if defined(__x86_64__) || defined(__i386__)
        else
            __builtin_ia32_pause();
#endif
    }
}

/* Asks for the lines of a contribution all at once: the additions would ask for a few at a time. */
static void ask_for(const void *p, size_t bytes)
{
    for (size_t at = 0; at < bytes && at < ASKED_BYTES; at += CACHE_LINE)
        __builtin_prefetch((const unsigned char *)p + at);
}

/* The lines this rank will write next are in the caches of those who read them last time. */
static void take_back(void *p, size_t bytes)
{
    for (size_t at = 0; at < bytes && at < ASKED_BYTES; at += CACHE_LINE)
        __builtin_prefetch((unsigned char *)p + at, 1);
}

static void post(rf_transport *base, const size_t *bytes, const void **theirs)
{
    transport_shm *t = (transport_shm *)base;

    t->number++;
    atomic_store_explicit(&t->slabs[t->rank]->posted, t->number, memory_order_release);
    for (int r = 0; r < t->n_ranks; r++) {
        wait_for(t, t->slabs[r]);
        theirs[r] = t->slabs[r]->half[t->number & 1];
        if (r != t->rank)
            ask_for(theirs[r], bytes[r]);
    }
    take_back(stage(base), bytes[t->rank]);
}

static void send_bytes(rf_transport *base, int to, const void *data, size_t bytes)
{
    rf_transport *mpi = ((transport_shm *)base)->mpi;

    mpi->ops->send(mpi, to, data, bytes);
}

static void recv_bytes(rf_transport *base, int from, void *data, size_t bytes)
{
    rf_transport *mpi = ((transport_shm *)base)->mpi;

    mpi->ops->recv(mpi, from, data, bytes);
}

static void destroy(rf_transport *base)
{
    transport_shm *t = (transport_shm *)base;

    if (t->window != MPI_WIN_NULL)
        rf_mpi_check(MPI_Win_free(&t->window), "MPI_Win_free");
    if (t->mpi)
        t->mpi->ops->destroy(t->mpi);
    free(t->slabs);
    free(t);
}

static const rf_transport_ops table = {
    .name = "shm", .stage = stage, .post = post, .send = send_bytes, .recv = recv_bytes, .destroy = destroy,
};

/* MPI promises no alignment of a segment. Mappings begin at page boundaries in every process, so that all find the same
 * place. */
static slab *slab_in(void *segment)
{
    return (slab *)(((uintptr_t)segment + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
}

/* Collective. The slabs of all ranks, each on the memory of the rank that writes it. */
static int map_slabs(transport_shm *t, rf_error *err)
{
    rf_error mine = {RF_OK, ""};
    MPI_Info info;
    void *segment;

    rf_mpi_check(MPI_Info_create(&info), "MPI_Info_create");
    rf_mpi_check(MPI_Info_set(info, "alloc_shared_noncontig", "true"), "MPI_Info_set");
    if (MPI_Win_allocate_shared((MPI_Aint)sizeof(slab) + CACHE_LINE, 1, info, rf_mpi_data(), &segment, &t->window) !=
        MPI_SUCCESS) {
        t->window = MPI_WIN_NULL;
        rf_fail(&mine, RF_ERR_DEVICE,
                "a shared window of %zu bytes a rank could not be had (is the launcher's directory for it full?)",
                sizeof(slab));
    }
    MPI_Info_free(&info);
    if (rf_world_agree(&mine, err) != 0) {
        t->window = MPI_WIN_NULL; /* freeing is collective, and some rank has none */
        return -1;
    }
    MPI_Win_set_errhandler(t->window, MPI_ERRORS_RETURN);
    atomic_store(&slab_in(segment)->posted, 0);
    for (int r = 0; r < t->n_ranks; r++) {
        MPI_Aint size;
        int unit;

        rf_mpi_check(MPI_Win_shared_query(t->window, r, &size, &unit, &segment), "MPI_Win_shared_query");
        t->slabs[r] = slab_in(segment);
    }
    rf_mpi_check(MPI_Barrier(rf_mpi_data()), "MPI_Barrier"); /* all counters are 0 before the first exchange */
    return 0;
}

const char *rf_transport_shm_refusal(void)
{
    return rf_world_node_size() == rf_world_size() ? NULL : "the ranks are on several hosts";
}

rf_transport *rf_transport_shm(bool busy, rf_error *err)
{
    transport_shm *t = calloc(1, sizeof *t);
    rf_error mine = {RF_OK, ""};

    if (t) {
        t->base.ops = &table;
        t->window = MPI_WIN_NULL;
        t->n_ranks = rf_world_size();
        t->rank = rf_world_rank();
        t->busy = busy;
        t->slabs = calloc((size_t)rf_world_size(), sizeof(slab *));
    }
    if (!t || !t->slabs)
        rf_fail(&mine, RF_ERR_MEMORY, "no memory for the exchange between ranks");
    if (rf_world_agree(&mine, err) == 0) {
        t->mpi = rf_transport_mpi(busy, err);
        if (t->mpi && map_slabs(t, err) == 0)
            return &t->base;
    }
    if (t)
        destroy(&t->base);
    return NULL;
}
