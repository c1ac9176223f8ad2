#include <stdlib.h>
#include <string.h>

#include "cpu_internal.h"

static void batch_destroy(rf_batch *batch)
{
    cpu_batch *c = (cpu_batch *)batch;

    if (!c)
        return;
    cpu_free(c->cpu, c->seqs, c->max_seqs * sizeof *c->seqs);
    cpu_free(c->cpu, c->first_row, c->max_seqs * sizeof *c->first_row);
    cpu_free(c->cpu, c->tokens, c->max_rows * sizeof *c->tokens);
    cpu_free(c->cpu, c->position, c->max_rows * sizeof *c->position);
    cpu_free(c->cpu, c->seq, c->max_rows * sizeof *c->seq);
    cpu_free(c->cpu, c->logit_rows, c->max_rows * sizeof *c->logit_rows);
    free(c);
}

static rf_batch *batch_create(rf_backend *b, size_t max_seqs, size_t max_rows, rf_error *err)
{
    static const char what[] = "the description of a batch";
    rf_cpu *cpu = cpu_of(b);
    cpu_batch *c = calloc(1, sizeof *c);

    if (!c) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for %s", what);
        return NULL;
    }
    c->cpu = cpu;
    c->max_seqs = max_seqs;
    c->max_rows = max_rows;
    c->seqs = cpu_alloc(cpu, rf_size_product(max_seqs, sizeof *c->seqs), what, err);
    c->first_row = cpu_alloc(cpu, rf_size_product(max_seqs, sizeof *c->first_row), what, err);
    c->tokens = cpu_alloc(cpu, rf_size_product(max_rows, sizeof *c->tokens), what, err);
    c->position = cpu_alloc(cpu, rf_size_product(max_rows, sizeof *c->position), what, err);
    c->seq = cpu_alloc(cpu, rf_size_product(max_rows, sizeof *c->seq), what, err);
    c->logit_rows = cpu_alloc(cpu, rf_size_product(max_rows, sizeof *c->logit_rows), what, err);
    if (c->seqs && c->first_row && c->tokens && c->position && c->seq && c->logit_rows)
        return &c->shape;
    batch_destroy(&c->shape);
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
