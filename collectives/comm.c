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

#define STAGE_FLOATS (RF_STAGE_BYTES / sizeof(float))

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

        rf_mpi_check(MPI_Allreduce(MPI_IN_PLACE, out + at, (int)count, MPI_FLOAT, MPI_SUM, rf_mpi_data()),
                     "MPI_Allreduce");
    }
}
#endif

void rf_comm_sum_host(rf_comm *c, const rf_sum_plan *p, size_t n, const float *nodes, float *out)
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
    piece = STAGE_FLOATS / most;
    for (size_t at = 0; at < n; at += piece) {
        size_t count = n - at < piece ? n - at : piece;

        if (most * count * sizeof(float) <= RF_TWO_SHOT_BYTES)
            one_shot(c, p, nodes + at, n, count, out + at);
        else
            two_shot(c, p, nodes + at, n, count, out + at);
    }
}

void rf_comm_sum_tree(rf_comm *c, const rf_sum_plan *p, size_t n_rows, size_t n_cols, rf_buf *nodes, rf_buf *out)
{
    const rf_ops *ops = c->b->ops;

    rf_comm_sum_host(c, p, n_rows * n_cols, ops->buf_host(nodes), ops->buf_host(out));
}

/* Columns [at, at + n) of rank r's part of the row. */
static size_t part_columns(const size_t *begin, int r, size_t at, size_t n)
{
    size_t width = begin[r + 1] - begin[r];

    return at >= width ? 0 : width - at < n ? width - at : n;
}

static void copy_rows(size_t n_rows, size_t n_cols, const float *src, size_t src_stride, float *dst, size_t dst_stride)
{
    for (size_t row = 0; row < n_rows; row++)
        memcpy(dst + row * dst_stride, src + row * src_stride, n_cols * sizeof *dst);
}

/* One exchange: `rows` rows, columns [at, at + n) of each rank's part. */
static void allgather_piece(rf_comm *c, const size_t *begin, size_t rows, size_t at, size_t n, const float *src,
                            size_t src_stride, float *dst, size_t dst_stride)
{
    size_t own = part_columns(begin, c->rank, at, n);

    if (own)
        copy_rows(rows, own, src + at, src_stride, c->transport->ops->stage(c->transport), own);
    for (int r = 0; r < c->size; r++)
        c->bytes[r] = rows * part_columns(begin, r, at, n) * sizeof(float);
    post(c);
    for (int r = 0; r < c->size; r++) {
        size_t theirs = part_columns(begin, r, at, n);

        if (theirs)
            copy_rows(rows, theirs, c->theirs[r], theirs, dst + begin[r] + at, dst_stride);
    }
}

void rf_comm_allgather(rf_comm *c, size_t n_rows, const size_t *begin, rf_mat src, rf_mat dst)
{
    const rf_ops *ops = c->b->ops;
    const float *from = (const float *)ops->buf_host(src.buf) + src.offset;
    float *to = (float *)ops->buf_host(dst.buf) + dst.offset;
    size_t widest = 1, cols, rows;

    if (c->size == 1) {
        copy_rows(n_rows, begin[1] - begin[0], from, src.stride, to + begin[0], dst.stride);
        return;
    }
    for (int r = 0; r < c->size; r++)
        widest = begin[r + 1] - begin[r] > widest ? begin[r + 1] - begin[r] : widest;
    cols = widest < STAGE_FLOATS ? widest : STAGE_FLOATS;
    rows = STAGE_FLOATS / cols;
    for (size_t row = 0; row < n_rows; row += rows)
        for (size_t at = 0; at < widest; at += cols)
            allgather_piece(c, begin, n_rows - row < rows ? n_rows - row : rows, at, cols, from + row * src.stride,
                            src.stride, to + row * dst.stride, dst.stride);
}

void rf_comm_send(rf_comm *c, int to, rf_buf *src, size_t bytes)
{
    c->transport->ops->send(c->transport, to, c->b->ops->buf_host(src), bytes);
}

void rf_comm_recv(rf_comm *c, int from, rf_buf *dst, size_t bytes)
{
    c->transport->ops->recv(c->transport, from, c->b->ops->buf_host(dst), bytes);
}

/* ---- creation */

#ifdef RF_HAVE_MPI
/* In order of preference. */
static const rf_transport_offer table[] = {
    {"shm", "all ranks are on one host", rf_transport_shm_refusal, rf_transport_shm},
    {"mpi", "serves any ranks", NULL, rf_transport_mpi},
};
#define N_OFFERS (sizeof table / sizeof *table)

static int try_offer(rf_comm *c, const rf_transport_offer *offer, bool busy, rf_error *err)
{
    const char *refusal = offer->refusal ? offer->refusal() : NULL;

    if (refusal)
        return rf_fail(err, RF_ERR_DEVICE, "%s", refusal);
    c->transport = offer->create(busy, err);
    if (!c->transport)
        return -1;
    if (rf_comm_check(c, c->transport, err) == 0)
        return 0;
    c->transport->ops->destroy(c->transport);
    c->transport = NULL;
    return -1;
}

/* Every transport here reads and writes the backend's buffers as host memory. */
static bool has_host_buffers(rf_backend *b, rf_error *err)
{
    rf_buf *buf = b->ops->buf_create(b, sizeof(float), err);
    bool host = buf && b->ops->buf_host(buf);

    if (buf && !host)
        rf_fail(err, RF_ERR_DEVICE,
                "no transport of this build serves buffers of backend %s, which are not host memory", b->ops->name);
    b->ops->buf_destroy(buf);
    return host;
}

rf_comm *rf_comm_create_from(rf_backend *b, rf_allreduce allreduce, const rf_transport_offer *offers, size_t n_offers,
                             bool busy, rf_error *err)
{
    rf_comm *c = allocate(b, rf_world_rank(), rf_world_size());
    rf_error mine = {RF_OK, ""}, why = {RF_OK, ""};

    if (!c)
        rf_fail(&mine, RF_ERR_MEMORY, "no memory for a communicator");
    else if (c->size > 1)
        has_host_buffers(b, &mine);
    if (rf_world_agree(&mine, err) != 0) {
        rf_comm_destroy(c);
        return NULL;
    }
    snprintf(c->reason, sizeof c->reason, "one rank");
    for (size_t i = 0; c->size > 1 && !c->transport && i < n_offers; i++) {
        if (try_offer(c, &offers[i], busy, err) != 0)
            why = *err;
        else if (why.code == RF_OK)
            snprintf(c->reason, sizeof c->reason, "%s", offers[i].reason);
        else
            snprintf(c->reason, sizeof c->reason, "%.*s", (int)sizeof c->reason - 1, why.text);
    }
    c->allreduce = allreduce; /* not before: the check is of the tree */
    if (c->size == 1 || c->transport)
        return c;
    rf_comm_destroy(c);
    return NULL;
}

rf_comm *rf_comm_create_over(rf_backend *b, rf_allreduce allreduce, const char *transport, bool busy, rf_error *err)
{
    for (size_t i = 0; i < N_OFFERS; i++)
        if (strcmp(table[i].name, transport) == 0)
            return rf_comm_create_from(b, allreduce, &table[i], 1, busy, err);
    rf_fail(err, RF_ERR_USAGE, "there is no transport %s", transport);
    return NULL;
}

rf_comm *rf_comm_create(rf_backend *b, rf_allreduce allreduce, bool busy, rf_error *err)
{
    return rf_comm_create_from(b, allreduce, table, N_OFFERS, busy, err);
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
