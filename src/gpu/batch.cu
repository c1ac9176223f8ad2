/* The description of a batch: kept on the host, where it chooses what to launch, and copied to the device in one piece. */
#include "gpu_internal.h"

namespace RT_SPACE {

static size_t batch_bytes(size_t max_seqs, size_t max_rows)
{
    return rf_size_sum(rf_size_product(max_seqs, sizeof(rf_batch_seq) + sizeof(uint32_t)),
                       rf_size_product(max_rows, 2 * sizeof(uint32_t)));
}

/* The parts of a description that lies at p. */
static rt_batch_view view_at(const unsigned char *p, size_t max_seqs, size_t max_rows)
{
    rt_batch_view v;

    v.seqs = reinterpret_cast<const rf_batch_seq *>(p);
    v.first_row = reinterpret_cast<const uint32_t *>(v.seqs + max_seqs);
    v.seq_of = v.first_row + max_seqs;
    v.logit_rows = v.seq_of + max_rows;
    return v;
}

static void batch_destroy(rf_batch *batch)
{
    gpu_batch *c = reinterpret_cast<gpu_batch *>(batch);

    if (!c)
        return;
    gpu_free(c->gpu, c->device, c->bytes);
    free(c->host);
    free(c->tokens);
    free(c);
}

static rf_batch *batch_create(rf_backend *b, size_t max_seqs, size_t max_rows, rf_error *err)
{
    static const char what[] = "the description of a batch";
    gpu_batch *c = static_cast<gpu_batch *>(calloc(1, sizeof *c));

    if (!c) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for %s", what);
        return NULL;
    }
    c->gpu = gpu_of(b);
    c->max_seqs = max_seqs;
    c->max_rows = max_rows;
    c->bytes = batch_bytes(max_seqs, max_rows);
    c->host = static_cast<unsigned char *>(calloc(1, c->bytes + 1));
    c->tokens = static_cast<int32_t *>(calloc(max_rows + 1, sizeof *c->tokens));
    c->device = static_cast<unsigned char *>(gpu_alloc(c->gpu, c->bytes, what, err));
    if (c->host && c->tokens && c->device) {
        c->here = view_at(c->host, max_seqs, max_rows);
        c->view = view_at(c->device, max_seqs, max_rows);
        return &c->shape;
    }
    if (c->device)
        rf_fail(err, RF_ERR_MEMORY, "no memory for %s", what);
    batch_destroy(&c->shape);
    return NULL;
}

static void want_logits(gpu_batch *c, uint32_t *logit_rows, const rf_batch_seq *s, uint32_t first_row)
{
    uint32_t n = (uint32_t)s->n_rows, from = s->wants == RF_LOGITS_ALL ? 0 : s->wants == RF_LOGITS_LAST ? n - 1 : 1;

    if (s->wants == RF_LOGITS_NONE)
        return;
    for (uint32_t i = from; i < n; i++)
        logit_rows[c->shape.n_logit_rows++] = first_row + i;
}

static void batch_set(rf_backend *b, rf_batch *batch, size_t n_seqs, const rf_batch_seq *seqs, const int32_t *tokens)
{
    gpu_batch *c = reinterpret_cast<gpu_batch *>(batch);
    uint32_t *first_row = const_cast<uint32_t *>(c->here.first_row), *seq_of = const_cast<uint32_t *>(c->here.seq_of),
             row = 0;

    c->shape.n_seqs = n_seqs;
    c->shape.n_logit_rows = 0;
    memcpy(c->host, seqs, n_seqs * sizeof *seqs);
    for (size_t s = 0; s < n_seqs; s++) {
        first_row[s] = row;
        want_logits(c, const_cast<uint32_t *>(c->here.logit_rows), &seqs[s], row);
        for (int32_t i = 0; i < seqs[s].n_rows; i++)
            seq_of[row++] = (uint32_t)s;
    }
    c->shape.n_rows = row;
    memcpy(c->tokens, tokens, row * sizeof *tokens);
    gpu_upload(gpu_of(b), c->device, c->host, c->bytes);
}

void batch_ops(rf_ops *ops)
{
    ops->batch_create = batch_create;
    ops->batch_destroy = batch_destroy;
    ops->batch_set = batch_set;
}

} /* namespace */
