/* Architecture `qwen35`: the MTP head. The entry at position p pairs token x_p with the trunk's h of position p - 1. */
#include "qwen35_impl.h"

/* Rows of batch with h of the position before each in m->h_before: writes their entries, keeps each sequence's last hm,
 * and leaves logits of the wanted rows. */
static void run(rf_qwen35 *m, const rf_batch *batch)
{
    const rf_ops *ops = m->ops;
    rf_backend *b = m->b;
    const qwen35_mtp *t = &m->mtp;
    size_t n = batch->n_rows, E = m->p.n_embd;

    ops->embed(b, batch, &t->embd, 1.0f, m->pair);                                           /* [rows][E, -] */
    ops->rms_norm(b, n, E, m->pair, t->enorm, m->p.eps, m->pair);                            /* [rows][E, -] */
    ops->rms_norm(b, n, E, m->h_before, t->hnorm, m->p.eps, rf_from_column(m->pair, E));     /* [rows][E, E] */
    ops->quantize(b, n, 2 * E, m->pair, ops->weight_wants(t->eh_proj), m->parts.act);
    ops->matmul(b, n, t->eh_proj, m->parts.act, m->pair_local);                              /* [rows][E local] */
    rf_comm_allgather(m->env.inner, n, t->embd_begin, m->pair_local, m->x);                  /* [rows][E] */
    ops->rope_prepare(b, batch, m->rope);
    rf_qwen35_block(m, &t->block, &t->attention, batch);                                     /* [rows][E] */
    ops->rms_norm(b, n, E, m->x, t->head_norm, m->p.eps, m->y);                              /* hm [rows][E] */
    ops->keep_last(b, batch, E, m->y, m->hm_last);
    rf_qwen35_head(m, batch, m->y, t->head);
}

void rf_qwen35_mtp_prefill(rf_qwen35 *m, const rf_batch *batch)
{
    if (!m->tail)
        return;
    m->ops->shift_rows(m->b, batch, m->p.n_embd, m->h_last, m->h, m->h_before);
    m->ops->keep_last(m->b, batch, m->p.n_embd, m->h, m->h_last);
    run(m, batch);
}

void rf_qwen35_mtp_commit(rf_qwen35 *m, const rf_batch *batch)
{
    if (!m->tail)
        return;
    m->ops->take_rows(m->b, batch, m->p.n_embd, m->h_kept, m->h_before);
    m->ops->keep_last(m->b, batch, m->p.n_embd, m->h_before, m->h_last);
    run(m, batch);
}

/* One row a sequence: row 0 comes from the store, so the matrix of rows that follow is never read. */
void rf_qwen35_mtp_first(rf_qwen35 *m, const rf_batch *batch)
{
    if (!m->tail)
        return;
    m->ops->shift_rows(m->b, batch, m->p.n_embd, m->h_last, m->h, m->h_before);
    run(m, batch);
}

void rf_qwen35_mtp_next(rf_qwen35 *m, const rf_batch *batch)
{
    if (!m->tail)
        return;
    m->ops->shift_rows(m->b, batch, m->p.n_embd, m->hm_last, m->h, m->h_before);
    run(m, batch);
}
