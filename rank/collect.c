#include "collect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sampler.h"

struct rf_collector {
    rf_backend *b;
    rf_comm *world;
    size_t n_ranks, max_rows, max_cells, max_bytes;
    rf_buf *cand, *best, *hash, *max, *mass, *gumbel; /* on the device */
    unsigned char *mine, *all;                        /* wire form: status, candidates, bests, hashes */
    rf_candidate *merged;
    rf_gumbel_best *merged_best;
    uint64_t *merged_hash;
    size_t *next; /* [n_ranks] places taken while merging */
};

typedef struct {
    size_t cand, best, hash, bytes; /* offsets inside one rank's part, and its length */
} wire;

static wire wire_of(size_t n_rows, rf_collect what)
{
    wire w;

    w.cand = sizeof(uint64_t);
    w.best = w.cand + n_rows * (size_t)what.k * sizeof(rf_candidate);
    w.hash = w.best + (what.gumbel ? n_rows * sizeof(rf_gumbel_best) : 0);
    w.bytes = w.hash + (what.hash ? n_rows * sizeof(uint64_t) : 0);
    return w;
}

static size_t cells_of(size_t n_vocab, size_t max_rows, size_t max_k)
{
    return n_vocab > max_rows * max_k ? n_vocab : max_rows * max_k;
}

static size_t wire_bytes(size_t cells, size_t max_rows)
{
    return sizeof(uint64_t) + cells * sizeof(rf_candidate) + max_rows * (sizeof(rf_gumbel_best) + sizeof(uint64_t));
}

size_t rf_collector_bytes(size_t n_ranks, size_t n_vocab, size_t max_rows, size_t max_k)
{
    size_t cells = cells_of(n_vocab, max_rows, max_k), small = max_rows * 3 * sizeof(rf_gumbel_row);

    return cells * sizeof(rf_candidate) * 2 + wire_bytes(cells, max_rows) * (1 + n_ranks) + small * 2;
}

rf_collector *rf_collector_create(rf_backend *b, rf_comm *world, size_t n_vocab, size_t max_rows, size_t max_k, rf_error *err)
{
    rf_collector *c = calloc(1, sizeof *c);
    const rf_ops *ops = b->ops;

    if (!c) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for collecting candidates");
        return NULL;
    }
    c->b = b;
    c->world = world;
    c->n_ranks = (size_t)rf_comm_size(world);
    c->max_rows = max_rows;
    c->max_cells = cells_of(n_vocab, max_rows, max_k);
    c->max_bytes = wire_bytes(c->max_cells, max_rows);
    c->mine = calloc(1, c->max_bytes);
    c->all = rf_comm_rank(world) == 0 ? calloc(c->n_ranks, c->max_bytes) : c->mine;
    c->merged = calloc(c->max_cells, sizeof *c->merged);
    c->merged_best = calloc(max_rows, sizeof *c->merged_best);
    c->merged_hash = calloc(max_rows, sizeof *c->merged_hash);
    c->next = calloc(c->n_ranks, sizeof *c->next);
    c->cand = ops->buf_create(b, c->max_cells * sizeof(rf_candidate), err);
    c->best = ops->buf_create(b, max_rows * sizeof(rf_gumbel_best), err);
    c->hash = ops->buf_create(b, max_rows * sizeof(uint64_t), err);
    c->max = ops->buf_create(b, max_rows * sizeof(float), err);
    c->mass = ops->buf_create(b, max_rows * sizeof(uint64_t), err);
    c->gumbel = ops->buf_create(b, max_rows * sizeof(rf_gumbel_row), err);
    if (c->mine && c->all && c->merged && c->merged_best && c->merged_hash && c->next && c->cand && c->best && c->hash && c->max && c->mass &&
        c->gumbel)
        return c;
    rf_collector_destroy(c);
    rf_fail(err, RF_ERR_MEMORY, "no memory for collecting %zu candidates of %zu ranks", max_rows * max_k, (size_t)rf_comm_size(world));
    return NULL;
}

void rf_collector_destroy(rf_collector *c)
{
    if (!c)
        return;
    c->b->ops->buf_destroy(c->cand);
    c->b->ops->buf_destroy(c->best);
    c->b->ops->buf_destroy(c->hash);
    c->b->ops->buf_destroy(c->max);
    c->b->ops->buf_destroy(c->mass);
    c->b->ops->buf_destroy(c->gumbel);
    if (c->all != c->mine)
        free(c->all);
    free(c->mine);
    free(c->merged);
    free(c->merged_best);
    free(c->merged_hash);
    free(c->next);
    free(c);
}

static uint64_t word(const unsigned char *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static uint32_t merge_status(const rf_collector *c, wire w)
{
    uint32_t status = 0;

    for (size_t r = 0; r < c->n_ranks; r++)
        status |= (uint32_t)word(c->all + r * w.bytes);
    return status;
}

static void merge(rf_collector *c, wire w, size_t n_rows, rf_collect what, rf_collected *out)
{
    size_t k = (size_t)what.k;

    for (size_t row = 0; row < n_rows; row++) {
        rf_sampler_merge(c->all + w.cand + row * k * sizeof(rf_candidate), w.bytes, c->n_ranks, k, c->next, c->merged + row * k);
        if (what.gumbel)
            c->merged_best[row] = rf_sampler_merge_best(c->all + w.best + row * sizeof(rf_gumbel_best), w.bytes, c->n_ranks);
        if (what.hash) {
            c->merged_hash[row] = 0;
            for (size_t r = 0; r < c->n_ranks; r++)
                c->merged_hash[row] += word(c->all + r * w.bytes + w.hash + row * sizeof(uint64_t));
        }
    }
    out->n_rows = n_rows;
    out->k = k;
    out->cand = c->merged;
    out->best = c->merged_best;
    out->hash = c->merged_hash;
    out->status = merge_status(c, w);
}

static void fill_mine(rf_collector *c, wire w, rf_mat logits, size_t n_rows, rf_range ids, rf_collect what, const rf_gumbel_row *gumbel)
{
    const rf_ops *ops = c->b->ops;
    size_t cells = n_rows * (size_t)what.k;

    /* queue all, then read */
    ops->top_k(c->b, n_rows, ids.count, logits, (int32_t)ids.first, (size_t)what.k, c->cand);
    if (what.gumbel) {
        ops->upload(c->b, c->gumbel, 0, gumbel, n_rows * sizeof *gumbel);
        ops->gumbel_argmax(c->b, n_rows, ids.count, logits, (int32_t)ids.first, c->gumbel, c->best);
    }
    if (what.hash)
        ops->row_hash(c->b, n_rows, ids.count, logits, (int32_t)ids.first, c->hash);
    ops->download(c->b, c->cand, 0, c->mine + w.cand, cells * sizeof(rf_candidate));
    if (what.gumbel)
        ops->download(c->b, c->best, 0, c->mine + w.best, n_rows * sizeof(rf_gumbel_best));
    if (what.hash)
        ops->download(c->b, c->hash, 0, c->mine + w.hash, n_rows * sizeof(uint64_t));
}

/* Ranks that hold no part of the vocabulary send empty places. */
static void fill_empty(rf_collector *c, wire w, size_t n_rows, rf_collect what)
{
    const rf_candidate none = {-INFINITY, -1};
    const rf_gumbel_best no_best = {-INFINITY, -INFINITY, -1};

    memset(c->mine + w.cand, 0, w.bytes - w.cand);
    for (size_t i = 0; i < n_rows * (size_t)what.k; i++)
        memcpy(c->mine + w.cand + i * sizeof none, &none, sizeof none);
    for (size_t i = 0; what.gumbel && i < n_rows; i++)
        memcpy(c->mine + w.best + i * sizeof no_best, &no_best, sizeof no_best);
}

static void set_status(rf_collector *c, uint32_t status)
{
    uint64_t v = status;

    memcpy(c->mine, &v, sizeof v);
}

void rf_collect_rows(rf_collector *c, rf_mat logits, size_t n_rows, rf_range ids, rf_collect what, const rf_gumbel_row *gumbel,
                     uint32_t status, rf_collected *out)
{
    wire w = wire_of(n_rows, what);

    set_status(c, status);
    if (n_rows && ids.count)
        fill_mine(c, w, logits, n_rows, ids, what, gumbel);
    else
        fill_empty(c, w, n_rows, what);
    rf_comm_gather(c->world, 0, c->mine, w.bytes, c->all);
    if (rf_comm_rank(c->world) == 0)
        merge(c, w, n_rows, what, out);
}

void rf_collect_sum(rf_collector *c, uint64_t mine, uint32_t status, rf_collected *out)
{
    wire w = {.bytes = 2 * sizeof(uint64_t)};

    set_status(c, status);
    memcpy(c->mine + sizeof(uint64_t), &mine, sizeof mine);
    rf_comm_gather(c->world, 0, c->mine, w.bytes, c->all);
    if (rf_comm_rank(c->world) != 0)
        return;
    out->mass = 0;
    for (size_t r = 0; r < c->n_ranks; r++)
        out->mass += word(c->all + r * w.bytes + sizeof(uint64_t));
    out->status = merge_status(c, w);
}

void rf_collect_mass(rf_collector *c, rf_mat logits, size_t row, rf_range ids, float max, uint32_t status, rf_collected *out)
{
    const rf_ops *ops = c->b->ops;
    uint64_t mass = 0;

    if (ids.count) {
        rf_mat one = {logits.buf, logits.offset + row * logits.stride, logits.stride};

        ops->upload(c->b, c->max, 0, &max, sizeof max);
        ops->log_mass(c->b, 1, ids.count, one, c->max, c->mass);
        ops->download(c->b, c->mass, 0, &mass, sizeof mass);
    }
    rf_collect_sum(c, mass, status, out);
}
