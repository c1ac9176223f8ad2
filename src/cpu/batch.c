#include <stdlib.h>
#include <string.h>

#include "cpu_internal.h"

static void batch_destroy(rf_batch *batch)
{
    cpu_batch *c = (cpu_batch *)batch;

    if (!c)
        return;
    free(c->seqs);
    free(c->first_row);
    free(c->tokens);
    free(c->position);
    free(c->seq);
    free(c->logit_rows);
    free(c);
}

static rf_batch *batch_create(rf_backend *b, size_t max_seqs, size_t max_rows, rf_error *err)
{
    cpu_batch *c = calloc(1, sizeof *c);

    if (c) {
        c->cpu = cpu_of(b);
        c->max_seqs = max_seqs;
        c->max_rows = max_rows;
        c->seqs = calloc(max_seqs, sizeof *c->seqs);
        c->first_row = calloc(max_seqs, sizeof *c->first_row);
        c->tokens = calloc(max_rows, sizeof *c->tokens);
        c->position = calloc(max_rows, sizeof *c->position);
        c->seq = calloc(max_rows, sizeof *c->seq);
        c->logit_rows = calloc(max_rows, sizeof *c->logit_rows);
        if (c->seqs && c->first_row && c->tokens && c->position && c->seq && c->logit_rows)
            return &c->shape;
        batch_destroy(&c->shape);
    }
    rf_fail(err, RF_ERR_MEMORY, "no memory for batches of %zu rows", max_rows);
    return NULL;
}

static void want_logits(cpu_batch *c, const rf_batch_seq *s, size_t first_row)
{
    size_t n = (size_t)s->n_rows, from = s->wants == RF_LOGITS_ALL ? 0 : s->wants == RF_LOGITS_LAST ? n - 1 : 1;

    if (s->wants == RF_LOGITS_NONE)
        return;
    for (size_t i = from; i < n; i++)
        c->logit_rows[c->shape.n_logit_rows++] = first_row + i;
}

static void batch_set(rf_backend *b, rf_batch *batch, size_t n_seqs, const rf_batch_seq *seqs, const int32_t *tokens)
{
    cpu_batch *c = (cpu_batch *)batch;
    size_t row = 0;

    (void)b;
    c->shape.n_seqs = n_seqs;
    c->shape.n_logit_rows = 0;
    memcpy(c->seqs, seqs, n_seqs * sizeof *seqs);
    for (size_t s = 0; s < n_seqs; s++) {
        c->first_row[s] = row;
        want_logits(c, &seqs[s], row);
        for (int32_t i = 0; i < seqs[s].n_rows; i++, row++) {
            c->position[row] = seqs[s].first_pos + i;
            c->seq[row] = (int32_t)s;
        }
    }
    c->shape.n_rows = row;
    memcpy(c->tokens, tokens, row * sizeof *tokens);
}

void cpu_batch_ops(rf_ops *ops)
{
    ops->batch_create = batch_create;
    ops->batch_destroy = batch_destroy;
    ops->batch_set = batch_set;
}
