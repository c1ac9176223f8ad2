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
    /* Where buffers are not host memory and there are several ranks: data passes through these. */
    float *in, *out;         /* STAGE_FLOATS each; NULL: buffers are host memory */
    rf_buf *packed;          /* RF_STAGE_BYTES of the device */
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
    free(c->in);
    free(c->out);
    if (c->packed)
        c->b->ops->buf_destroy(c->packed);
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

/* How many floats of a sum are exchanged at a time. */
static size_t piece_floats(const rf_comm *c, const rf_sum_plan *p)
{
    return STAGE_FLOATS / most_nodes(c, p);
}

/* One piece of a sum over several ranks. */
static void sum_piece(rf_comm *c, const rf_sum_plan *p, const float *nodes, size_t stride, size_t n, float *out)
{
    if (most_nodes(c, p) * n * sizeof(float) <= RF_TWO_SHOT_BYTES)
        one_shot(c, p, nodes, stride, n, out);
    else
        two_shot(c, p, nodes, stride, n, out);
}

void rf_comm_sum_host(rf_comm *c, const rf_sum_plan *p, size_t n, const float *nodes, float *out)
{
    size_t piece;

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
    piece = piece_floats(c, p);
    for (size_t at = 0; at < n; at += piece)
        sum_piece(c, p, nodes + at, n, n - at < piece ? n - at : piece, out + at);
}

/* Buffers that are not host memory: a piece of every node comes down, the piece of the sum goes up. */
static void sum_staged(rf_comm *c, const rf_sum_plan *p, size_t n, rf_buf *nodes, rf_buf *out)
{
    const rf_ops *ops = c->b->ops;
    size_t piece = piece_floats(c, p);

    for (size_t at = 0; at < n; at += piece) {
        size_t count = n - at < piece ? n - at : piece;

        for (size_t k = 0; k < rf_sum_plan_n_nodes(p, c->rank); k++)
            ops->download(c->b, nodes, (k * n + at) * sizeof(float), c->in + k * count, count * sizeof(float));
#ifdef RF_HAVE_MPI
        if (c->allreduce == RF_ALLREDUCE_MPI)
            plain_allreduce(c, p, c->in, count, c->out);
        else
#endif
            sum_piece(c, p, c->in, count, count, c->out);
        ops->upload(c->b, out, at * sizeof(float), c->out, count * sizeof(float));
    }
}

void rf_comm_sum_tree(rf_comm *c, const rf_sum_plan *p, size_t n_rows, size_t n_cols, rf_buf *nodes, rf_buf *out)
{
    const rf_ops *ops = c->b->ops;
    float *host = ops->buf_host(nodes);

    if (host)
        rf_comm_sum_host(c, p, n_rows * n_cols, host, ops->buf_host(out));
    else if (c->size == 1)
        ops->copy(c->b, n_rows, n_cols, (rf_mat){nodes, 0, n_cols}, (rf_mat){out, 0, n_cols});
    else
        sum_staged(c, p, n_rows * n_cols, nodes, out);
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

/* A matrix of an allgather: in host memory, or (host NULL) of the device. */
typedef struct {
    float *host;
    rf_mat mat;
} gathered;

static gathered gathered_of(const rf_comm *c, rf_mat mat)
{
    float *host = c->b->ops->buf_host(mat.buf);

    return (gathered){host ? host + mat.offset : NULL, mat};
}

static rf_mat moved(rf_mat m, size_t row, size_t column)
{
    return (rf_mat){m.buf, m.offset + row * m.stride + column, m.stride};
}

/* rows x n floats at (row, column) of the matrix, packed: into host memory, and out of it */
static void take_part(rf_comm *c, gathered from, size_t row, size_t column, size_t rows, size_t n, float *to)
{
    if (from.host) {
        copy_rows(rows, n, from.host + row * from.mat.stride + column, from.mat.stride, to, n);
        return;
    }
    c->b->ops->copy(c->b, rows, n, moved(from.mat, row, column), (rf_mat){c->packed, 0, n});
    c->b->ops->download(c->b, c->packed, 0, to, rows * n * sizeof *to);
}

static void put_part(rf_comm *c, gathered to, size_t row, size_t column, size_t rows, size_t n, const float *from)
{
    if (to.host) {
        copy_rows(rows, n, from, n, to.host + row * to.mat.stride + column, to.mat.stride);
        return;
    }
    c->b->ops->upload(c->b, c->packed, 0, from, rows * n * sizeof *from);
    c->b->ops->copy(c->b, rows, n, (rf_mat){c->packed, 0, n}, moved(to.mat, row, column));
}

/* One exchange: rows [row, row + rows), columns [at, at + n) of each rank's part. */
static void allgather_piece(rf_comm *c, const size_t *begin, size_t row, size_t rows, size_t at, size_t n, gathered src,
                            gathered dst)
{
    size_t own = part_columns(begin, c->rank, at, n);

    if (own)
        take_part(c, src, row, at, rows, own, c->transport->ops->stage(c->transport));
    for (int r = 0; r < c->size; r++)
        c->bytes[r] = rows * part_columns(begin, r, at, n) * sizeof(float);
    post(c);
    for (int r = 0; r < c->size; r++) {
        size_t theirs = part_columns(begin, r, at, n);

        if (theirs)
            put_part(c, dst, row, begin[r] + at, rows, theirs, c->theirs[r]);
    }
}

void rf_comm_allgather(rf_comm *c, size_t n_rows, const size_t *begin, rf_mat src, rf_mat dst)
{
    gathered from = gathered_of(c, src), to = gathered_of(c, dst);
    size_t widest = 1, cols, rows;

    if (c->size == 1) {
        size_t width = begin[1] - begin[0];

        if (from.host)
            copy_rows(n_rows, width, from.host, src.stride, to.host + begin[0], dst.stride);
        else
            c->b->ops->copy(c->b, n_rows, width, src, moved(dst, 0, begin[0]));
        return;
    }
    for (int r = 0; r < c->size; r++)
        widest = begin[r + 1] - begin[r] > widest ? begin[r + 1] - begin[r] : widest;
    cols = widest < STAGE_FLOATS ? widest : STAGE_FLOATS;
    rows = STAGE_FLOATS / cols;
    for (size_t row = 0; row < n_rows; row += rows)
        for (size_t at = 0; at < widest; at += cols)
            allgather_piece(c, begin, row, n_rows - row < rows ? n_rows - row : rows, at, cols, from, to);
}

/* Staged, both sides cut at the same places: all ranks have the same backend. */
void rf_comm_send(rf_comm *c, int to, rf_buf *src, size_t bytes)
{
    const rf_ops *ops = c->b->ops;
    const rf_transport_ops *t = c->transport->ops;
    void *host = ops->buf_host(src);

    if (host)
        t->send(c->transport, to, host, bytes);
    for (size_t at = 0; !host && at < bytes; at += RF_STAGE_BYTES) {
        size_t n = bytes - at < RF_STAGE_BYTES ? bytes - at : RF_STAGE_BYTES;

        ops->download(c->b, src, at, c->in, n);
        t->send(c->transport, to, c->in, n);
    }
}

void rf_comm_recv(rf_comm *c, int from, rf_buf *dst, size_t bytes)
{
    const rf_ops *ops = c->b->ops;
    const rf_transport_ops *t = c->transport->ops;
    void *host = ops->buf_host(dst);

    if (host)
        t->recv(c->transport, from, host, bytes);
    for (size_t at = 0; !host && at < bytes; at += RF_STAGE_BYTES) {
        size_t n = bytes - at < RF_STAGE_BYTES ? bytes - at : RF_STAGE_BYTES;

        t->recv(c->transport, from, c->in, n);
        ops->upload(c->b, dst, at, c->in, n);
    }
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

/* Every transport here reads and writes host memory: what is not passes through memory that is made here. */
static int prepare_staging(rf_comm *c, rf_error *err)
{
    const rf_ops *ops = c->b->ops;

    c->packed = ops->buf_create(c->b, RF_STAGE_BYTES, err);
    if (!c->packed)
        return -1;
    if (ops->buf_host(c->packed)) {
        ops->buf_destroy(c->packed);
        c->packed = NULL;
        return 0;
    }
    c->in = malloc(RF_STAGE_BYTES);
    c->out = malloc(RF_STAGE_BYTES);
    return c->in && c->out ? 0 : rf_fail(err, RF_ERR_MEMORY, "no memory for a communicator");
}

static void explain(rf_comm *c, const rf_transport_offer *offer, const rf_error *why)
{
    const char *staged = c->in ? "; staged: device memory passes through the host's" : "";

    if (why->code == RF_OK)
        snprintf(c->reason, sizeof c->reason, "%s%s", offer->reason, staged);
    else
        snprintf(c->reason, sizeof c->reason, "%.*s%s", (int)(sizeof c->reason - 1 - strlen(staged)), why->text, staged);
}

rf_comm *rf_comm_create_from(rf_backend *b, rf_allreduce allreduce, const rf_transport_offer *offers, size_t n_offers,
                             bool busy, rf_error *err)
{
    rf_comm *c = allocate(b, rf_world_rank(), rf_world_size());
    rf_error mine = {RF_OK, ""}, why = {RF_OK, ""};

    if (!c)
        rf_fail(&mine, RF_ERR_MEMORY, "no memory for a communicator");
    else if (c->size > 1)
        prepare_staging(c, &mine);
    if (rf_world_agree(&mine, err) != 0) {
        rf_comm_destroy(c);
        return NULL;
    }
    snprintf(c->reason, sizeof c->reason, "one rank");
    for (size_t i = 0; c->size > 1 && !c->transport && i < n_offers; i++) {
        if (try_offer(c, &offers[i], busy, err) != 0)
            why = *err;
        else
            explain(c, &offers[i], &why);
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
