/* Sums over ranks: every transport there is, and the MPI library's own. */
#include "config.h"

#include <stdlib.h>

#include "../collectives/transport.h"
#include "bench.h"
#include "clock.h"

#define TURNS        10
#define TURN_SECONDS 0.002
#define UNITS        64 /* of the sum, even shares: one node a rank where there are 2, 4 or 8 */

static const size_t sizes[] = {1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 20}; /* bytes of the result */
static const char *const transports[] = {"shm", "mpi", "MPI_Allreduce"};

#define N_SIZES      (sizeof sizes / sizeof *sizes)
#define N_TRANSPORTS (sizeof transports / sizeof *transports)

typedef struct {
    rf_comm *comm[N_TRANSPORTS]; /* NULL: not here */
    rf_sum_plan *plan;
    rf_buf *nodes, *out;
} sums;

static int create(sums *s, const rf_job *job, rf_error *err)
{
    const rf_ops *ops = job->backend->ops;
    size_t size = (size_t)rf_world_size(), units = size > UNITS ? size : UNITS,
           *begin = calloc(size + 1, sizeof *begin);
    rf_error mine = {RF_OK, ""}, ignored;
    bool busy = job->topology.busy;

    if (begin) {
        for (size_t r = 0; r <= size; r++)
            begin[r] = units * r / size;
        s->plan = rf_sum_plan_create(units, (int)size, begin, &mine);
        free(begin);
    } else {
        rf_fail(&mine, RF_ERR_MEMORY, "no memory for a sum over %zu ranks", size);
    }
    if (s->plan)
        s->nodes =
            ops->buf_create(job->backend, rf_sum_plan_n_nodes(s->plan, rf_world_rank()) * sizes[N_SIZES - 1], &mine);
    if (s->nodes)
        s->out = ops->buf_create(job->backend, sizes[N_SIZES - 1], &mine);
    if (rf_world_agree(&mine, err) != 0)
        return -1;
    s->comm[0] = rf_comm_create_over(job->backend, RF_ALLREDUCE_ORDERED, "shm", busy, &ignored);
    s->comm[1] = rf_comm_create_over(job->backend, RF_ALLREDUCE_ORDERED, "mpi", busy, &ignored);
    s->comm[2] = rf_comm_create(job->backend, RF_ALLREDUCE_MPI, busy, err);
    return s->comm[2] ? 0 : -1;
}

static void destroy(sums *s, const rf_ops *ops)
{
    for (size_t t = 0; t < N_TRANSPORTS; t++)
        rf_comm_destroy(s->comm[t]);
    rf_sum_plan_destroy(s->plan);
    ops->buf_destroy(s->nodes);
    ops->buf_destroy(s->out);
}

static void sum_times(const sums *s, rf_comm *comm, size_t bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rf_comm_sum_tree(comm, s->plan, 1, bytes / sizeof(float), s->nodes, s->out);
}

/* One turn: seconds a sum. *n: sums of a turn, found out by the first. */
static double turn(const sums *s, const rf_job *job, rf_comm *comm, size_t bytes, int32_t *n)
{
    double start;

    rf_comm_barrier(job->world);
    if (!*n) {
        start = rf_seconds();
        sum_times(s, comm, bytes, 5);
        start = (rf_seconds() - start) / 5;
        *n = start < TURN_SECONDS ? (int32_t)(TURN_SECONDS / start) + 1 : 1;
        rf_comm_bcast(job->world, 0, n, sizeof *n);
        rf_comm_barrier(job->world);
    }
    start = rf_seconds();
    sum_times(s, comm, bytes, (size_t)*n);
    return (rf_seconds() - start) / *n;
}

int bench_allreduce(bench *b, rf_error *err)
{
    rf_job *job = &b->job;
    sums s = {0};
    bench_figure *f[N_SIZES][N_TRANSPORTS] = {{NULL}};
    int32_t n[N_SIZES][N_TRANSPORTS] = {{0}};
    int failed;

    if (rf_world_size() == 1)
        return 0;
    failed = create(&s, job, err);
    for (size_t i = 0; !failed && i < N_SIZES; i++)
        for (size_t t = 0; t < N_TRANSPORTS; t++)
            if (s.comm[t]) {
                f[i][t] = bench_add(b, BENCH_ALLREDUCE);
                f[i][t]->transport = transports[t];
                f[i][t]->rows = sizes[i];
                f[i][t]->bytes = (double)sizes[i];
            }
    for (int k = 0; !failed && k < TURNS; k++)
        for (size_t i = 0; i < N_SIZES; i++)
            for (size_t t = 0; t < N_TRANSPORTS; t++)
                if (f[i][t])
                    bench_time(f[i][t], turn(&s, job, s.comm[t], sizes[i], &n[i][t]));
    for (size_t i = 0; !failed && i < N_SIZES; i++)
        for (size_t t = N_TRANSPORTS; t-- > 0;) {
            if (!f[i][t])
                continue;
            bench_finish(f[i][t]);
            if (t + 1 < N_TRANSPORTS && f[i][N_TRANSPORTS - 1]->best > 0) {
                f[i][t]->ratio = f[i][t]->best / f[i][N_TRANSPORTS - 1]->best;
                f[i][t]->ratio_to = transports[N_TRANSPORTS - 1];
            }
        }
    destroy(&s, job->backend->ops);
    return failed;
}
