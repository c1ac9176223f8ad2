/* Architecture `dflash`: injecting features and drafting, one op a line, shapes at the side (docs/models.md).
 * H, Hkv, F, V: local. */
#include "dflash_impl.h"

#include "qwen35_impl.h"

/* ---- features */

/* g = rms(fc f, enc.output_norm); K and V of every layer straight from g, at the positions of batch.
 * taps: [rows][n_taps * E]. */
static void inject(rf_dflash *m, const rf_batch *batch, rf_mat taps)
{
    const rf_ops *ops = m->ops;
    rf_backend *b = m->b;
    rf_act *act = m->parts.act;
    size_t n = batch->n_rows, E = m->p.n_embd, D = m->p.head_dim;

    ops->sanitize(b, n, m->p.n_taps * E, taps, m->flag);
    ops->quantize(b, n, m->p.n_taps * E, taps, ops->weight_wants(m->fc), act);
    ops->matmul(b, n, m->fc, act, m->feature_local);                                     /* [rows][E local] */
    rf_comm_allgather(m->env.inner, n, m->embd_begin, m->feature_local, m->feature);     /* [rows][E] */
    ops->rms_norm(b, n, E, m->feature, m->feature_norm, m->p.eps, m->feature);           /* g [rows][E] */
    ops->rope_prepare(b, batch, m->rope);
    ops->quantize(b, n, E, m->feature, m->inject_wants, act);
    for (size_t i = 0; i < m->p.n_layer; i++) {
        const dflash_layer *l = &m->layers[i];

        ops->matmuls(b, n, 2, (rf_product[]){{l->k, m->k}, {l->v, m->v}}, act);          /* [rows][Hkv][D] each */
        ops->head_norm_rope(b, batch, m->rope, m->kv_heads.count, D, D, l->k_norm, m->p.eps, m->k);
        ops->kv_store(b, batch, l->kv, m->k, m->v);
    }
}

void rf_dflash_inject(rf_dflash *m, const rf_batch *batch)
{
    if (m->tail)
        inject(m, batch, rf_qwen35_taps(m->target));
}

void rf_dflash_inject_kept(rf_dflash *m, const rf_batch *batch)
{
    if (!m->tail)
        return;
    m->ops->take_rows(m->b, batch, m->p.n_taps * m->p.n_embd, rf_qwen35_kept_taps(m->target), m->taps);
    inject(m, batch, m->taps);
}

/* ---- the noise block */

/* o(softmax(q k / sqrt(D)) v) over the injected positions and the whole block. Returns [rows][E]. */
static rf_mat attention(rf_dflash *m, const dflash_layer *l, const rf_batch *batch, rf_mat y)
{
    const rf_ops *ops = m->ops;
    rf_backend *b = m->b;
    rf_act *act = m->parts.act;
    size_t n = batch->n_rows, D = m->p.head_dim, H = m->heads.count, Hkv = m->kv_heads.count;

    ops->quantize(b, n, m->p.n_embd, y, l->wants, act);
    ops->matmuls(b, n, 3, (rf_product[]){{l->q, m->q},                                   /* [rows][H][D] */
                                         {l->k, m->k},                                   /* [rows][Hkv][D] */
                                         {l->v, m->v}}, act);                            /* [rows][Hkv][D] */
    ops->head_norm_rope(b, batch, m->rope, H, D, D, l->q_norm, m->p.eps, m->q);
    ops->head_norm_rope(b, batch, m->rope, Hkv, D, D, l->k_norm, m->p.eps, m->k);
    ops->attention_block(b, batch, l->kv, &l->attention, m->q, m->k, m->v, m->heads_out); /* [rows][H][D] */
    return rf_reduce(&m->parts, n, m->heads_out, &l->o);                                 /* [rows][E] */
}

static rf_mat feed_forward(rf_dflash *m, const dflash_layer *l, const rf_batch *batch, rf_mat y)
{
    return rf_ffn_forward(&m->parts, batch->n_rows, y, &l->ffn, m->gate, m->up);         /* [rows][E] */
}

typedef rf_mat (*sublayer)(rf_dflash *m, const dflash_layer *l, const rf_batch *batch, rf_mat y);

/* x += conv_1(f(conv_0(y))), y = rms(x, norm); both convolutions with dyn = conv_proj y. DFlash (v1): x += f(y). */
static void around(rf_dflash *m, const dflash_layer *l, const rf_buf *norm, const dflash_conv *conv, sublayer f,
                   const rf_batch *batch)
{
    const rf_ops *ops = m->ops;
    rf_backend *b = m->b;
    size_t n = batch->n_rows, E = m->p.n_embd, taps = m->p.conv_kernel, group = m->p.conv_group;

    ops->rms_norm(b, n, E, m->x, norm, m->p.eps, m->y);                                  /* [rows][E] */
    if (!m->p.v2) {
        ops->add(b, n, E, m->x, f(m, l, batch, m->y));
        return;
    }
    ops->quantize(b, n, E, m->y, ops->weight_wants(conv->proj), m->parts.act);
    ops->matmul(b, n, conv->proj, m->parts.act, m->dyn);                                 /* [rows][2][taps][groups] */
    ops->dynamic_conv(b, batch, E, taps, group, 0, m->dyn, conv->base, m->y, m->c);      /* [rows][E] */
    ops->dynamic_conv(b, batch, E, taps, group, 1, m->dyn, conv->base, f(m, l, batch, m->c), m->y);
    ops->add(b, n, E, m->x, m->y);
}

/* r = selector_hidden o and logits = output o of the wanted rows. */
static void head(rf_dflash *m, const rf_batch *batch)
{
    const rf_ops *ops = m->ops;
    rf_backend *b = m->b;
    size_t n = batch->n_logit_rows, E = m->p.n_embd;
    unsigned wants = ops->weight_wants(m->output) | (m->p.v2 ? ops->weight_wants(m->selector_hidden) : 0);

    if (!n)
        return;
    ops->gather_logit_rows(b, batch, E, m->y, m->head_rows);                             /* [logits rows][E] */
    ops->quantize(b, n, E, m->head_rows, wants, m->parts.act);
    if (m->p.v2)
        ops->matmul(b, n, m->selector_hidden, m->parts.act,
                    rf_whole(m->selector_rows, m->p.selector_rank));                     /* [logits rows][R] */
    ops->matmul(b, n, m->output, m->parts.act, m->logits);                               /* [logits rows][V] */
    ops->logit_scale(b, n, m->n_vocab, m->p.logit_scale, m->p.logit_cap, m->logits);
}

void rf_dflash_draft(rf_dflash *m, const rf_batch *batch)
{
    size_t n = batch->n_rows, E = m->p.n_embd;

    if (!m->tail)
        return;
    m->ops->embed(m->b, batch, &m->embd, m->p.embedding_scale, m->x);                    /* [rows][E] */
    m->ops->rope_prepare(m->b, batch, m->rope);
    for (size_t i = 0; i < m->p.n_layer; i++) {
        const dflash_layer *l = &m->layers[i];

        around(m, l, l->attn_norm, &l->attn_conv, attention, batch);
        around(m, l, l->ffn_norm, &l->ffn_conv, feed_forward, batch);
    }
    m->ops->rms_norm(m->b, n, E, m->x, m->output_norm, m->p.eps, m->y);                  /* o [rows][E] */
    head(m, batch);
}

/* ---- sequences and what others read */

/* Nothing but injected keys and values is kept, and those of positions not yet injected are never read. */
void rf_dflash_reset(rf_dflash *m, size_t slot)
{
    (void)m;
    (void)slot;
}

rf_mat rf_dflash_logits(rf_dflash *m)
{
    return m->logits;
}

rf_range rf_dflash_vocab(const rf_dflash *m)
{
    if (!m->tail)
        return (rf_range){0, 0};
    return m->p.own_output ? rf_shard_elements(m->env.shard, RF_AXIS_DRAFT_VOCAB) : rf_qwen35_vocab(m->target);
}

rf_buf *rf_dflash_selector_rows(rf_dflash *m)
{
    return m->selector_rows;
}

bool rf_dflash_replaced_nonfinite(rf_dflash *m)
{
    int32_t flag = 0;
    const int32_t none = 0;

    if (!m->tail)
        return false;
    m->ops->download(m->b, m->flag, 0, &flag, sizeof flag);
    if (flag)
        m->ops->upload(m->b, m->flag, 0, &none, sizeof none);
    return flag != 0;
}
