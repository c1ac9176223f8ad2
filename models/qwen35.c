/* Architecture `qwen35`: the forward pass, one op a line, shapes at the side (docs/models.md).
 * H, Hkv, nk, nv, channels, F, V: local. */
#include "qwen35_impl.h"

/* Gated attention: o(softmax(q k / sqrt(D)) v * sigmoid(gate)). Returns [rows][E]. */
static rf_mat attention(rf_qwen35 *m, const qwen35_attention *a, const rf_attention_spec *spec, const rf_batch *batch)
{
    const rf_ops *ops = m->ops;
    rf_backend *b = m->b;
    rf_act *act = m->parts.act;
    size_t n = batch->n_rows, D = m->p.head_dim, H = m->heads.count, Hkv = m->kv_heads.count;

    ops->quantize(b, n, m->p.n_embd, m->y, a->wants, act);
    ops->matmuls(b, n, 3, (rf_product[]){{a->q, m->q},                                       /* [rows][H][q, gate] */
                                         {a->k, m->k},                                       /* [rows][Hkv][D] */
                                         {a->v, m->v}}, act);                                /* [rows][Hkv][D] */
    ops->head_norm_rope(b, batch, m->rope, H, D, 2 * D, a->q_norm, m->p.eps, m->q);
    ops->head_norm_rope(b, batch, m->rope, Hkv, D, D, a->k_norm, m->p.eps, m->k);
    ops->kv_store(b, batch, a->kv, m->k, m->v);
    ops->attention(b, batch, a->kv, spec, m->q, m->heads_out);                               /* [rows][H][D] */
    ops->sigmoid_mul(b, n, H, D, m->heads_out, rf_from_column(m->q, D), 2 * D);              /* [rows][H][D] */
    return rf_reduce(&m->parts, n, m->heads_out, &a->o);                                     /* [rows][E] */
}

/* Gated DeltaNet: out(rms(delta(conv(qkv))) * silu(z)). Returns [rows][E]. */
static rf_mat delta(rf_qwen35 *m, const qwen35_delta *d, const rf_batch *batch)
{
    const rf_ops *ops = m->ops;
    rf_backend *b = m->b;
    rf_act *act = m->parts.act;
    size_t n = batch->n_rows;

    ops->quantize(b, n, m->p.n_embd, m->y, d->wants, act);
    ops->matmuls(b, n, 4, (rf_product[]){{d->qkv, m->m},                                     /* [rows][channels] */
                                         {d->z, m->z},                                       /* [rows][nv][d] */
                                         {d->alpha, m->alpha},                               /* [rows][nv] */
                                         {d->beta, m->beta}}, act);                          /* [rows][nv] */
    ops->delta(b, batch, d->delta, m->m, m->alpha, m->beta, m->o);                           /* [rows][nv][d] */
    ops->gated_norm(b, n, m->n_value_heads, m->p.state_size, m->o, d->norm, m->p.eps, m->z); /* [rows][nv][d] */
    return rf_reduce(&m->parts, n, m->o, &d->out);                                           /* [rows][E] */
}

void rf_qwen35_block(rf_qwen35 *m, const qwen35_block *block, const rf_attention_spec *spec, const rf_batch *batch)
{
    const rf_ops *ops = m->ops;
    size_t n = batch->n_rows, E = m->p.n_embd;
    rf_mat mixed;

    ops->rms_norm(m->b, n, E, m->x, block->attn_norm, m->p.eps, m->y);                       /* [rows][E] */
    mixed = block->full ? attention(m, &block->attention, spec, batch) : delta(m, &block->delta, batch);
    ops->add(m->b, n, E, m->x, mixed);
    ops->rms_norm(m->b, n, E, m->x, block->post_norm, m->p.eps, m->y);                       /* [rows][E] */
    ops->add(m->b, n, E, m->x, rf_ffn_forward(&m->parts, n, m->y, &block->ffn, m->gate, m->up));
}

void rf_qwen35_head(rf_qwen35 *m, const rf_batch *batch, rf_mat h, const rf_weight *output)
{
    const rf_ops *ops = m->ops;
    size_t n = batch->n_logit_rows;

    if (!n)
        return;
    ops->gather_logit_rows(m->b, batch, m->p.n_embd, h, m->head_rows);                       /* [logits rows][E] */
    ops->quantize(m->b, n, m->p.n_embd, m->head_rows, ops->weight_wants(output), m->parts.act);
    ops->matmul(m->b, n, output, m->parts.act, m->logits);                                   /* [logits rows][V] */
}

/* ---- the trunk */

/* The residual stream entering trunk layer L, to its places among the taps. */
static void tap(rf_qwen35 *m, size_t layer, size_t n)
{
    size_t E = m->p.n_embd;

    for (size_t i = 0; i < m->n_taps; i++)
        if (m->taps[i] == layer)
            m->ops->copy(m->b, n, E, m->x, rf_from_column(m->taps_now, i * E));
}

static void receive(rf_qwen35 *m, size_t n)
{
    int from = m->env.shard->rank - 1;

    rf_comm_recv(m->env.world, from, m->x.buf, n * m->p.n_embd * sizeof(float));
    if (m->taps_come)
        rf_comm_recv(m->env.world, from, m->taps_now.buf, n * m->n_taps * m->p.n_embd * sizeof(float));
}

static void send(rf_qwen35 *m, size_t n)
{
    int to = m->env.shard->rank + 1;

    rf_comm_send(m->env.world, to, m->x.buf, n * m->p.n_embd * sizeof(float));
    if (m->taps_go)
        rf_comm_send(m->env.world, to, m->taps_now.buf, n * m->n_taps * m->p.n_embd * sizeof(float));
}

static void trace(rf_qwen35 *m, size_t held, size_t n)
{
    size_t E = m->p.n_embd;

    if (m->tracing)
        m->ops->copy(m->b, n, E, m->x, (rf_mat){m->trace, held * m->env.sizes.max_rows * E, E});
}

/* h = rms(x, output_norm); logits = output h; what the drafters need is kept. */
static void finish(rf_qwen35 *m, const rf_batch *batch)
{
    size_t n = batch->n_rows, E = m->p.n_embd;

    if (m->n_taps)
        m->ops->keep_rows(m->b, batch, m->n_taps * E, m->taps_now, m->taps_kept);
    m->ops->rms_norm(m->b, n, E, m->x, m->output_norm, m->p.eps, m->h);                      /* [rows][E] */
    if (m->with_mtp)
        m->ops->keep_rows(m->b, batch, E, m->h, m->h_kept);
    rf_qwen35_head(m, batch, m->h, m->output);
}

void rf_qwen35_forward(rf_qwen35 *m, const rf_batch *batch)
{
    size_t n = batch->n_rows;

    if (m->receives)
        receive(m, n);
    else
        m->ops->embed(m->b, batch, &m->embd, 1.0f, m->x);                                    /* [rows][E] */
    m->ops->rope_prepare(m->b, batch, m->rope);
    for (size_t i = 0; i < m->n_layers; i++) {
        tap(m, m->first_layer + i, n);
        rf_qwen35_block(m, &m->blocks[i], &m->attention, batch);
        trace(m, i, n);
    }
    if (m->tail) {
        tap(m, m->p.n_layer, n);
        finish(m, batch);
    }
    if (m->sends)
        send(m, n);
}

/* ---- sequences */

void rf_qwen35_commit(rf_qwen35 *m, const rf_batch *batch)
{
    for (size_t i = 0; i < m->n_layers; i++)
        if (!m->blocks[i].full)
            m->ops->delta_commit(m->b, batch, m->blocks[i].delta.delta);
}

void rf_qwen35_reset(rf_qwen35 *m, size_t slot)
{
    size_t bytes = m->p.n_embd * sizeof(float);

    for (size_t i = 0; i < m->n_layers; i++)
        if (!m->blocks[i].full)
            m->ops->delta_reset(m->b, m->blocks[i].delta.delta, slot);
    if (!m->with_mtp || !m->tail)
        return;
    m->ops->upload(m->b, m->h_last, slot * bytes, m->zeros, bytes);
    m->ops->upload(m->b, m->hm_last, slot * bytes, m->zeros, bytes);
}

/* ---- what others read */

rf_mat rf_qwen35_logits(rf_qwen35 *m)
{
    return m->logits;
}

rf_range rf_qwen35_vocab(const rf_qwen35 *m)
{
    return m->tail ? rf_shard_elements(m->env.shard, RF_AXIS_VOCAB) : (rf_range){0, 0};
}

rf_mat rf_qwen35_taps(rf_qwen35 *m)
{
    return m->taps_now;
}

rf_buf *rf_qwen35_kept_taps(rf_qwen35 *m)
{
    return m->taps_kept;
}

const rf_weight_spec *rf_qwen35_embd(const rf_qwen35 *m)
{
    return &m->embd;
}

const rf_weight *rf_qwen35_output(const rf_qwen35 *m)
{
    return m->output;
}
