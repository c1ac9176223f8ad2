#include "config.h"

#include "comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport.h"
#include "world.h"
#ifdef RF_HAVE_MPI
#include "mpi_call.h"
#endif

#define TWO_SHOT_BYTES ((size_t)32 << 10) /* node sums of one rank above this are scattered by columns */
#define CHECK_SIZES 4

struct rf_comm {
    rf_backend *b;
    rf_transport *transport; /* NULL: one rank */
    rf_allreduce allreduce;
    int rank, size;
    char reason[160];
    const void **theirs;     /* [size] */
    const float **sums;      /* [size] */
    size_t *bytes, *part;    /* [size], [size + 1] */
};

void rf_comm_destroy(rf_comm *c)
{
    if (!c)
        return;
    if (c->transport)
        c->transport->ops->destroy(c->transport);
    free(c->theirs);
    free(c->sums);
    free(c->bytes);
    free(c->part);
    free(c);
}

static rf_comm *allocate(rf_backend *b, int rank, int size)
{
    rf_comm *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->b = b;
    c->rank = rank;
    c->size = size;
    c->theirs = calloc((size_t)size, sizeof *c->theirs);
    c->sums = calloc((size_t)size, sizeof *c->sums);
    c->bytes = calloc((size_t)size, sizeof *c->bytes);
    c->part = calloc((size_t)size + 1, sizeof *c->part);
    if (c->theirs && c->sums && c->bytes && c->part)
        return c;
    rf_comm_destroy(c);
    return NULL;
}

rf_comm *rf_comm_create_self(rf_backend *b)
{
    rf_comm *c = allocate(b, 0, 1);

    if (c)
        snprintf(c->reason, sizeof c->reason, "one rank");
    return c;
}

int rf_comm_rank(const rf_comm *c)
{
    return c->rank;
}

int rf_comm_size(const rf_comm *c)
{
    return c->size;
}

const char *rf_comm_transport(const rf_comm *c)
{
    return c->transport ? c->transport->ops->name : "self";
}

const char *rf_comm_reason(const rf_comm *c)
{
    return c->reason;
}

/* ---- data */

static size_t most_nodes(const rf_comm *c, const rf_sum_plan *p)
{
    size_t most = 1;

    for (int r = 0; r < c->size; r++)
        if (rf_sum_plan_n_nodes(p, r) > most)
            most = rf_sum_plan_n_nodes(p, r);
    return most;
}

static void stage_nodes(rf_comm *c, const rf_sum_plan *p, const float *nodes, size_t stride, size_t n)
{
    float *mine = c->transport->ops->stage(c->transport);

    for (size_t k = 0; k < rf_sum_plan_n_nodes(p, c->rank); k++)
        memcpy(mine + k * n, nodes + k * stride, n * sizeof *mine);
}

static void post(rf_comm *c)
{
    c->transport->ops->post(c->transport, c->bytes, c->theirs);
}

static void one_shot(rf_comm *c, const rf_sum_plan *p, const float *nodes, size_t stride, size_t n, float *out)
{
    stage_nodes(c, p, nodes, stride, n);
    for (int r = 0; r < c->size; r++)
        c->bytes[r] = rf_sum_plan_n_nodes(p, r) * n * sizeof(float);
    post(c);
    for (int r = 0; r < c->size; r++)
        c->sums[r] = c->theirs[r];
    rf_sum_plan_finish(p, c->sums, n, n, out);
}

/* Every rank finishes its part of the floats, then all parts are put together. */
static void two_shot(rf_comm *c, const rf_sum_plan *p, const float *nodes, size_t stride, size_t n, float *out)
{
    const rf_transport_ops *ops = c->transport->ops;
    size_t size = (size_t)c->size, own, width;

    for (size_t r = 0; r <= size; r++)
        c->part[r] = n * r / size;
    own = c->part[c->rank];
    width = c->part[c->rank + 1] - own;
    stage_nodes(c, p, nodes, stride, n);
    for (int r = 0; r < c->size; r++)
        c->bytes[r] = ops->scatter ? rf_sum_plan_n_nodes(p, r) : rf_sum_plan_n_nodes(p, r) * n * sizeof(float);
    if (ops->scatter)
        ops->scatter(c->transport, c->bytes, n, c->part, c->theirs);
    else
        post(c);
    for (int r = 0; r < c->size; r++)
        c->sums[r] = (const float *)c->theirs[r] + (ops->scatter ? 0 : own);
    rf_sum_plan_finish(p, c->sums, ops->scatter ? width : n, width, ops->stage(c->transport));
    for (int r = 0; r < c->size; r++)
        c->bytes[r] = (c->part[r + 1] - c->part[r]) * sizeof(float);
    post(c);
    for (int r = 0; r < c->size; r++)
        memcpy(out + c->part[r], c->theirs[r], c->bytes[r]);
}

#ifdef RF_HAVE_MPI
/* --allreduce mpi: the order of the sum is the library's, so it may depend on the number of ranks. */
static void plain_allreduce(const rf_comm *c, const rf_sum_plan *p, const float *nodes, size_t n, float *out)
{
    memcpy(out, nodes, n * sizeof *out);
    for (size_t k = 1; k < rf_sum_plan_n_nodes(p, c->rank); k++)
        for (size_t i = 0; i < n; i++)
            out[i] += nodes[k * n + i];
    for (size_t at = 0; at < n; at += RF_STAGE_BYTES) {
        size_t count = n - at < RF_STAGE_BYTES ? n - at : RF_STAGE_BYTES;

        rf_mpi_check(MPI_Allreduce(MPI_IN_PLACE, out + at, (int)count, MPI_FLOAT, MPI_SUM, rf_mpi_data()), "MPI_Allreduce");
    }
}
#endif

static void sum_host(rf_comm *c, const rf_sum_plan *p, size_t n, const float *nodes, float *out)
{
    size_t most, piece;

    if (c->size == 1) {
        memcpy(out, nodes, n * sizeof *out); /* all units are one rank's: one node, the root */
        return;
    }
#ifdef RF_HAVE_MPI
    if (c->allreduce == RF_ALLREDUCE_MPI) {
        plain_allreduce(c, p, nodes, n, out);
        return;
    }
#endif
    most = most_nodes(c, p);
    piece = RF_STAGE_BYTES / sizeof(float) / most;
    for (size_t at = 0; at < n; at += piece) {
        size_t count = n - at < piece ? n - at : piece;

        if (most * count * sizeof(float) <= TWO_SHOT_BYTES)
            one_shot(c, p, nodes + at, n, count, out + at);
        else
            two_shot(c, p, nodes + at, n, count, out + at);
    }
}

void rf_comm_sum_tree(rf_comm *c, const rf_sum_plan *p, size_t n_rows, size_t n_cols, rf_buf *nodes, rf_buf *out)
{
    const rf_ops *ops = c->b->ops;

    sum_host(c, p, n_rows * n_cols, ops->buf_host(nodes), ops->buf_host(out));
}

static void put_columns(const rf_comm *c, size_t n_rows, const size_t *begin, int from, const float *src, size_t src_stride, rf_mat dst, float *to)
{
    size_t width = begin[from + 1] - begin[from];

    (void)c;
    for (size_t row = 0; row < n_rows; row++)
        memcpy(to + dst.offset + row * dst.stride + begin[from], src + row * src_stride, width * sizeof(float));
}

void rf_comm_allgather(rf_comm *c, size_t n_rows, const size_t *begin, rf_mat src, rf_mat dst)
{
    const rf_ops *ops = c->b->ops;
    const float *from = (const float *)ops->buf_host(src.buf) + src.offset;
    float *to = ops->buf_host(dst.buf);
    size_t own = begin[c->rank + 1] - begin[c->rank], widest = 1, piece;

    if (c->size == 1) {
        put_columns(c, n_rows, begin, 0, from, src.stride, dst, to);
        return;
    }
    for (int r = 0; r < c->size; r++)
        widest = begin[r + 1] - begin[r] > widest ? begin[r + 1] - begin[r] : widest;
    piece = RF_STAGE_BYTES / sizeof(float) / widest;
    for (size_t at = 0; at < n_rows; at += piece) {
        size_t rows = n_rows - at < piece ? n_rows - at : piece;
        float *mine = c->transport->ops->stage(c->transport);
        rf_mat part = {dst.buf, dst.offset + at * dst.stride, dst.stride};

        for (size_t row = 0; row < rows; row++)
            memcpy(mine + row * own, from + (at + row) * src.stride, own * sizeof *mine);
        for (int r = 0; r < c->size; r++)
            c->bytes[r] = rows * (begin[r + 1] - begin[r]) * sizeof(float);
        post(c);
        for (int r = 0; r < c->size; r++)
            put_columns(c, rows, begin, r, c->theirs[r], begin[r + 1] - begin[r], part, to);
    }
}

void rf_comm_send(rf_comm *c, int to, rf_buf *src, size_t bytes)
{
    c->transport->ops->send(c->transport, to, c->b->ops->buf_host(src), bytes);
}

void rf_comm_recv(rf_comm *c, int from, rf_buf *dst, size_t bytes)
{
    c->transport->ops->recv(c->transport, from, c->b->ops->buf_host(dst), bytes);
}

/* ---- creation: the start-up check of a transport, then the choice */

static float check_value(int rank, size_t node, size_t i)
{
    return (float)((i * 7 + node * 13 + (size_t)rank * 101) % 1009) * 0.37f - 150.0f;
}

/* A sum over 2 * size + 1 units with a known pattern, uneven, at sizes on both sides of two-shot; every rank compares with the tree it
 * finishes itself. */
static int check_size(rf_comm *c, const rf_sum_plan *p, size_t n, float *nodes, float *out, float *all, float *want)
{
    size_t most = most_nodes(c, p);

    for (int r = 0; r < c->size; r++)
        for (size_t k = 0; k < rf_sum_plan_n_nodes(p, r); k++)
            for (size_t i = 0; i < n; i++)
                all[((size_t)r * most + k) * n + i] = check_value(r, k, i);
    memcpy(nodes, all + (size_t)c->rank * most * n, most * n * sizeof *nodes);
    sum_host(c, p, n, nodes, out);
    for (int r = 0; r < c->size; r++)
        c->sums[r] = all + (size_t)r * most * n;
    rf_sum_plan_finish(p, c->sums, n, n, want);
    return memcmp(out, want, n * sizeof *out) == 0 ? 0 : -1;
}

static int check_transport(rf_comm *c, rf_error *err)
{
    static const size_t sizes[CHECK_SIZES] = {1, 1024, 40001, 300000};
    size_t size = (size_t)c->size, n_units = 2 * size + 1, most, n = sizes[CHECK_SIZES - 1];
    size_t *begin = c->part;
    rf_allreduce wanted = c->allreduce;
    rf_sum_plan *p;
    float *memory;
    int failed = 0;

    for (size_t r = 0; r <= size; r++)
        begin[r] = r * n_units / size;
    p = rf_sum_plan_create(n_units, c->size, begin, err);
    if (!p)
        return -1;
    most = most_nodes(c, p);
    memory = malloc((most * (size + 1) + 2) * n * sizeof *memory);
    c->allreduce = RF_ALLREDUCE_ORDERED;
    for (size_t i = 0; memory && !failed && i < CHECK_SIZES; i++) {
        float *out = memory + most * n, *want = out + n, *all = want + n;

        if (check_size(c, p, sizes[i], memory, out, all, want) != 0)
            failed = rf_fail(err, RF_ERR_DEVICE, "transport %s returned a wrong sum of %zu floats at start-up", rf_comm_transport(c), sizes[i]);
    }
    if (!memory)
        failed = rf_fail(err, RF_ERR_MEMORY, "no memory for the start-up check of transport %s", rf_comm_transport(c));
    c->allreduce = wanted;
    free(memory);
    rf_sum_plan_destroy(p);
    return failed;
}

#ifdef RF_HAVE_MPI
/* All ranks go on with the transport, or none does. */
static int try_transport(rf_comm *c, const char *name, bool busy, rf_error *err)
{
    rf_error mine = {RF_OK, ""};

    c->transport = strcmp(name, "shm") == 0 ? rf_transport_shm(busy, &mine) : rf_transport_mpi(&mine);
    if (rf_world_agree(&mine, err) == 0) {
        check_transport(c, &mine);
        if (rf_world_agree(&mine, err) == 0)
            return 0;
    }
    if (c->transport)
        c->transport->ops->destroy(c->transport);
    c->transport = NULL;
    return -1;
}

rf_comm *rf_comm_create_over(rf_backend *b, rf_allreduce allreduce, const char *transport, bool busy, rf_error *err)
{
    rf_comm *c = allocate(b, rf_world_rank(), rf_world_size());

    if (!c) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for a communicator");
        return NULL;
    }
    c->allreduce = allreduce;
    if (c->size == 1) {
        snprintf(c->reason, sizeof c->reason, "one rank");
        return c;
    }
    if (try_transport(c, transport, busy, err) == 0)
        return c;
    rf_comm_destroy(c);
    return NULL;
}

rf_comm *rf_comm_create(rf_backend *b, rf_allreduce allreduce, bool busy, rf_error *err)
{
    rf_error why = {RF_OK, ""};
    rf_comm *c = rf_comm_create_over(b, allreduce, "shm", busy, &why);

    if (c) {
        if (c->size > 1)
            snprintf(c->reason, sizeof c->reason, "all ranks are on one host");
        return c;
    }
    c = rf_comm_create_over(b, allreduce, "mpi", busy, err);
    if (c)
        snprintf(c->reason, sizeof c->reason, "%.*s", (int)sizeof c->reason - 1, why.text);
    return c;
}
#else
rf_comm *rf_comm_create(rf_backend *b, rf_allreduce allreduce, bool busy, rf_error *err)
{
    rf_comm *c = rf_comm_create_self(b);

    (void)busy;
    if (c)
        c->allreduce = allreduce;
    else
        rf_fail(err, RF_ERR_MEMORY, "no memory for a communicator");
    return c;
}
#endif

size_t rf_comm_plan_bytes(int n_ranks)
{
    return n_ranks > 1 ? rf_transport_plan_bytes(n_ranks) : 0;
}
