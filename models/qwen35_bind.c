/* Architecture `qwen35`: what a rank allocates. One walk serves rf_qwen35_bytes (dry) and rf_qwen35_create. */
#include <stdlib.h>

#include "bind.h"
#include "qwen35_impl.h"

/* ---- weights and caches of a block */

static void bind_attention(rf_binder *k, const rf_qwen35 *m, qwen35_attention *a, size_t layer, size_t n_positions)
{
    const rf_model_sizes *s = &m->env.sizes;

    a->q = rf_bind_matrix(k, QWEN35_Q, layer);
    a->k = rf_bind_matrix(k, QWEN35_K, layer);
    a->v = rf_bind_matrix(k, QWEN35_V, layer);
    a->wants = rf_bind_wants(k, a->q) | rf_bind_wants(k, a->k) | rf_bind_wants(k, a->v);
    a->q_norm = rf_bind_vector(k, QWEN35_Q_NORM, layer);
    a->k_norm = rf_bind_vector(k, QWEN35_K_NORM, layer);
    rf_bind_row_parallel(k, QWEN35_O, layer, m->head_sum, &a->o);
    a->kv = rf_bind_kv(k, &(rf_kv_spec){.n_slots = s->n_slots, .n_positions = n_positions, .n_heads = m->kv_heads.count,
                                        .head_dim = m->p.head_dim, .type_k = s->type_k, .type_v = s->type_v});
}

static void bind_delta(rf_binder *k, const rf_qwen35 *m, qwen35_delta *d, size_t layer)
{
    float *conv = rf_bind_host(k, QWEN35_CONV, layer), *a = rf_bind_host(k, QWEN35_A, layer),
          *dt = rf_bind_host(k, QWEN35_DT, layer);

    d->qkv = rf_bind_matrix(k, QWEN35_QKV, layer);
    d->z = rf_bind_matrix(k, QWEN35_Z, layer);
    d->alpha = rf_bind_matrix(k, QWEN35_ALPHA, layer);
    d->beta = rf_bind_matrix(k, QWEN35_BETA, layer);
    d->wants =
        rf_bind_wants(k, d->qkv) | rf_bind_wants(k, d->z) | rf_bind_wants(k, d->alpha) | rf_bind_wants(k, d->beta);
    d->norm = rf_bind_vector(k, QWEN35_SSM_NORM, layer);
    rf_bind_row_parallel(k, QWEN35_SSM_OUT, layer, m->delta_sum, &d->out);
    d->delta = rf_bind_delta(k, &(rf_delta_spec){.n_slots = m->env.sizes.n_slots,
                                                 .n_k_heads = m->key_heads.count,
                                                 .n_v_heads = m->n_value_heads,
                                                 .head_dim = m->p.state_size,
                                                 .conv_kernel = m->p.conv_kernel,
                                                 .eps = m->p.eps,
                                                 .conv = conv,
                                                 .a = a,
                                                 .dt = dt});
    free(conv);
    free(a);
    free(dt);
}

static void bind_block(rf_binder *k, const rf_qwen35 *m, qwen35_block *block, size_t layer, bool full,
                       size_t n_positions)
{
    block->full = full;
    block->attn_norm = rf_bind_vector(k, QWEN35_ATTN_NORM, layer);
    block->post_norm = rf_bind_vector(k, QWEN35_POST_NORM, layer);
    if (full)
        bind_attention(k, m, &block->attention, layer, n_positions);
    else
        bind_delta(k, m, &block->delta, layer);
    block->ffn.gate = rf_bind_matrix(k, QWEN35_GATE, layer);
    block->ffn.up = rf_bind_matrix(k, QWEN35_UP, layer);
    block->ffn.wants = rf_bind_wants(k, block->ffn.gate) | rf_bind_wants(k, block->ffn.up);
    block->ffn.n_ff = m->n_ff;
    rf_bind_row_parallel(k, QWEN35_DOWN, layer, m->ffn_sum, &block->ffn.down);
}

/* The anchor at the last position may have an entry, so the cache holds one position more than the trunk's. */
static void bind_mtp(rf_binder *k, rf_qwen35 *m)
{
    qwen35_mtp *t = &m->mtp;
    size_t layer = m->p.n_layer;

    bind_block(k, m, &t->block, layer, true, m->env.sizes.n_ctx + 1);
    t->eh_proj = rf_bind_matrix(k, QWEN35_EH_PROJ, layer);
    t->enorm = rf_bind_vector(k, QWEN35_ENORM, layer);
    t->hnorm = rf_bind_vector(k, QWEN35_HNORM, layer);
    t->own_norm = m->p.mtp_own_norm ? rf_bind_vector(k, QWEN35_HEAD_NORM, layer) : NULL;
    t->head_norm = m->p.mtp_own_norm ? t->own_norm : m->output_norm;
    t->own_head = m->p.mtp_own_head ? rf_bind_matrix(k, QWEN35_MTP_HEAD, layer) : NULL;
    t->head = m->p.mtp_own_head ? t->own_head : m->output;
    t->embd = m->p.mtp_own_embd ? rf_bind_table(k, QWEN35_MTP_EMBD, layer) : m->embd;
    t->embd_begin = rf_bind_boundaries(k, RF_AXIS_EMBD);
    t->attention = m->attention;
    t->attention.first_pos = 1;
}

/* ---- scratch */

static bool holds(const rf_qwen35 *m, bool full)
{
    if (full && m->with_mtp && m->tail)
        return true;
    for (size_t i = 0; i < m->n_layers; i++)
        if (m->blocks[i].full == full)
            return true;
    return false;
}

/* Attention, DeltaNet, feed-forward and the MTP head's input never overlap in time, so they share one buffer. */
static void lay_out(rf_qwen35 *m, rf_buf *buf)
{
    rf_regions *r = &m->wide;
    size_t H = m->heads.count, D = m->p.head_dim, E = m->p.n_embd, value_width = m->n_value_heads * m->p.state_size;

    *r = (rf_regions){.buf = buf, .n_rows = m->env.sizes.max_rows};
    if (holds(m, true)) {
        m->q = rf_region(r, 2 * H * D);
        m->k = rf_region(r, m->kv_heads.count * D);
        m->v = rf_region(r, m->kv_heads.count * D);
        m->heads_out = rf_region(r, H * D);
    }
    rf_regions_phase(r);
    if (holds(m, false)) {
        m->m = rf_region(r, m->n_channels);
        m->z = rf_region(r, value_width);
        m->alpha = rf_region(r, m->n_value_heads);
        m->beta = rf_region(r, m->n_value_heads);
        m->o = rf_region(r, value_width);
    }
    rf_regions_phase(r);
    if (holds(m, true) || holds(m, false)) {
        m->gate = rf_region(r, m->n_ff);
        m->up = rf_region(r, m->n_ff);
    }
    rf_regions_phase(r);
    if (m->with_mtp && m->tail) {
        m->h_before = rf_region(r, E);
        m->pair = rf_region(r, 2 * E);
        m->pair_local = rf_region(r, m->mtp.n_embd_local);
    }
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void bind_scratch(rf_binder *k, rf_qwen35 *m)
{
    size_t rows = m->env.sizes.max_rows, E = m->p.n_embd, cols = E, nodes = 0, *scratch = &k->bytes.scratch;

    if (holds(m, true)) {
        cols = larger(cols, m->heads.count * m->p.head_dim);
        nodes = larger(nodes, rf_bind_n_nodes(k, m->head_sum));
    }
    if (holds(m, false)) {
        cols = larger(cols, m->n_value_heads * m->p.state_size);
        nodes = larger(nodes, rf_bind_n_nodes(k, m->delta_sum));
    }
    if (holds(m, true) || holds(m, false)) {
        cols = larger(cols, m->n_ff);
        nodes = larger(nodes, rf_bind_n_nodes(k, m->ffn_sum));
    }
    if (m->with_mtp && m->tail)
        cols = larger(cols, 2 * E);
    m->x = rf_whole(rf_bind_floats(k, scratch, rows * E), E);
    m->y = rf_whole(rf_bind_floats(k, scratch, rows * E), E);
    lay_out(m, NULL);
    lay_out(m, rf_bind_floats(k, scratch, m->wide.most));
    m->parts = (rf_parts){m->b,
                          m->ops,
                          m->env.inner,
                          rf_bind_act(k, rows, cols),
                          rf_bind_floats(k, scratch, nodes * rows * E),
                          rf_bind_floats(k, scratch, rows * E),
                          E};
    m->rope = rf_bind_rope(k, m->p.n_rot, m->p.rope_base, rows);
}

/* Where the trunk ends: logits, and what drafters need kept. */
static void bind_tail(rf_binder *k, rf_qwen35 *m)
{
    const rf_model_sizes *s = &m->env.sizes;
    size_t E = m->p.n_embd, block_rows = s->n_slots * RF_MAX_BLOCK, *scratch = &k->bytes.scratch,
           *states = &k->bytes.states;

    if (m->n_taps && (m->tail || m->taps_go))
        m->taps_now = rf_whole(rf_bind_floats(k, scratch, s->max_rows * m->n_taps * E), m->n_taps * E);
    if (!m->tail)
        return;
    m->head_rows = rf_whole(rf_bind_floats(k, scratch, block_rows * E), E);
    m->logits = rf_whole(rf_bind_floats(k, scratch, block_rows * m->n_vocab), m->n_vocab);
    if (m->n_taps)
        m->taps_kept = rf_bind_floats(k, states, block_rows * m->n_taps * E);
    m->h = m->with_mtp ? rf_whole(rf_bind_floats(k, scratch, s->max_rows * E), E) : m->y;
    if (!m->with_mtp)
        return;
    m->h_kept = rf_bind_floats(k, states, block_rows * E);
    m->h_last = rf_bind_floats(k, states, s->n_slots * E);
    m->hm_last = rf_bind_floats(k, states, s->n_slots * E);
}

/* ---- the whole */

static rf_range elements(const rf_shard *s, rf_axis_id axis)
{
    return s->axis[axis].n_units ? rf_shard_elements(s, axis) : (rf_range){0, 0};
}

static bool any_below(const size_t *taps, size_t n, size_t layer)
{
    for (size_t i = 0; i < n; i++)
        if (taps[i] < layer)
            return true;
    return false;
}

/* This rank's share, from the shard alone. */
static void take_share(rf_qwen35 *m)
{
    const rf_shard *s = m->env.shard;
    const rf_qwen35_params *p = &m->p;
    size_t rank = (size_t)s->rank;

    m->first_layer = s->first_layer;
    m->n_layers = s->n_layers;
    m->tail = s->tail;
    if (s->split == RF_SPLIT_LAYER) {
        m->receives = s->rank > 0;
        m->sends = s->rank + 1 < s->n_ranks;
        m->taps_come = m->receives && any_below(m->taps, m->n_taps, s->layer_begin[rank]);
        m->taps_go = m->sends && any_below(m->taps, m->n_taps, s->layer_begin[rank + 1]);
    }
    m->heads = elements(s, RF_AXIS_HEADS);
    m->key_heads = elements(s, RF_AXIS_KEY_HEADS);
    if (m->heads.count)
        m->kv_heads = rf_kv_heads(m->heads, p->n_head, p->n_head_kv);
    if (m->key_heads.count)
        m->n_value_heads = m->key_heads.count * (p->n_value_heads / p->n_key_heads);
    m->n_channels = (2 * m->key_heads.count + m->n_value_heads) * p->state_size;
    m->n_ff = elements(s, RF_AXIS_FFN).count;
    m->n_vocab = elements(s, RF_AXIS_VOCAB).count;
    m->mtp.n_embd_local = elements(s, RF_AXIS_EMBD).count;
    m->attention = (rf_attention_spec){.n_heads = m->heads.count,
                                       .head_dim = p->head_dim,
                                       .head_stride = 2 * p->head_dim,
                                       .first_head = m->heads.first,
                                       .heads_per_kv = p->n_head / p->n_head_kv,
                                       .first_kv = m->kv_heads.first};
}

static void bind_all(rf_binder *k, rf_qwen35 *m, const rf_qwen35_params *p)
{
    if (m->heads.count)
        m->head_sum = rf_bind_sum_plan(k, RF_AXIS_HEADS);
    if (m->key_heads.count)
        m->delta_sum = rf_bind_sum_plan(k, RF_AXIS_KEY_HEADS);
    m->ffn_sum = rf_bind_sum_plan(k, RF_AXIS_FFN);
    m->embd = rf_bind_table(k, QWEN35_EMBD, 0);
    for (size_t i = 0; i < m->n_layers; i++)
        bind_block(k, m, &m->blocks[i], m->first_layer + i, p->full_attention[m->first_layer + i] != 0,
                   m->env.sizes.n_ctx);
    if (m->tail) {
        m->output_norm = rf_bind_vector(k, QWEN35_OUTPUT_NORM, 0);
        m->output = rf_bind_matrix(k, p->tied ? QWEN35_EMBD : QWEN35_OUTPUT, 0);
    }
    if (m->tail && m->with_mtp)
        bind_mtp(k, m);
    bind_scratch(k, m);
    bind_tail(k, m);
}

/* An unbound model: host memory only. */
static rf_qwen35 *new_model(const rf_model_env *env, const rf_qwen35_params *p, const rf_qwen35_options *o,
                            rf_error *err)
{
    rf_qwen35 *m = calloc(1, sizeof *m);

    if (m) {
        m->b = env->backend;
        m->ops = env->backend->ops;
        m->env = *env;
        m->p = *p;
        m->p.full_attention = NULL;
        m->with_mtp = o->with_mtp;
        m->n_taps = o->n_taps;
        for (size_t i = 0; i < o->n_taps; i++)
            m->taps[i] = o->taps[i];
        take_share(m);
        m->blocks = calloc(m->n_layers + 1, sizeof *m->blocks);
        m->zeros = calloc(p->n_embd, sizeof *m->zeros);
        m->trace_row = calloc(p->n_embd, sizeof *m->trace_row);
        if (m->blocks && m->zeros && m->trace_row)
            return m;
        rf_qwen35_destroy(m);
    }
    rf_fail(err, RF_ERR_MEMORY, "no memory for a model of %zu layers", p->n_layer);
    return NULL;
}

/* The walk; NULL after a dry one. */
static rf_qwen35 *walk(rf_binder *k, const rf_qwen35_params *p, const rf_qwen35_options *o)
{
    rf_tensor_want *wants = rf_qwen35_tensors(p, o->with_mtp, &k->n_wants, k->err);
    rf_qwen35 *m = wants ? new_model(k->env, p, o, k->err) : NULL;

    k->wants = wants;
    k->failed = !m;
    if (m)
        bind_all(k, m, p);
    free(wants);
    k->wants = NULL;
    if (!k->failed && !k->dry)
        return m;
    rf_qwen35_destroy(m);
    return NULL;
}

int rf_qwen35_bytes(const rf_model_env *env, const rf_gguf *file, const rf_qwen35_params *p, const rf_qwen35_options *o,
                    rf_model_bytes *bytes, rf_error *err)
{
    rf_binder k = {.env = env, .ops = env->backend->ops, .file = file, .dry = true, .err = err};

    walk(&k, p, o);
    *bytes = k.bytes;
    return k.failed ? -1 : 0;
}

rf_qwen35 *rf_qwen35_create(const rf_model_env *env, const rf_gguf *file, const rf_qwen35_params *p,
                            const rf_qwen35_options *o, void (*progress)(void *context, size_t done, size_t all),
                            void *context, rf_error *err)
{
    rf_binder k = {
        .env = env, .ops = env->backend->ops, .file = file, .progress = progress, .context = context, .err = err};
    rf_model_bytes bytes;

    if (rf_qwen35_bytes(env, file, p, o, &bytes, err) != 0)
        return NULL;
    k.all = bytes.weights;
    return walk(&k, p, o);
}

static void free_block(const rf_ops *ops, qwen35_block *block)
{
    qwen35_attention *a = &block->attention;
    qwen35_delta *d = &block->delta;
    rf_weight *weights[] = {a->q, a->k, a->v, a->o.w, d->qkv, d->z, d->alpha, d->beta, d->out.w,
                            block->ffn.gate, block->ffn.up, block->ffn.down.w};
    rf_buf *norms[] = {block->attn_norm, block->post_norm, a->q_norm, a->k_norm, d->norm};

    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        ops->weight_destroy(weights[i]);
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        ops->buf_destroy(norms[i]);
    ops->kv_destroy(a->kv);
    ops->delta_destroy(d->delta);
}

static void free_mtp(const rf_ops *ops, qwen35_mtp *t)
{
    free_block(ops, &t->block);
    ops->weight_destroy(t->eh_proj);
    ops->weight_destroy(t->own_head);
    ops->buf_destroy(t->enorm);
    ops->buf_destroy(t->hnorm);
    ops->buf_destroy(t->own_norm);
    free(t->embd_begin);
}

void rf_qwen35_destroy(rf_qwen35 *m)
{
    if (!m)
        return;
    for (size_t i = 0; m->blocks && i < m->n_layers; i++)
        free_block(m->ops, &m->blocks[i]);
    free_mtp(m->ops, &m->mtp);
    m->ops->weight_destroy(m->output);
    m->ops->act_destroy(m->parts.act);
    m->ops->rope_destroy(m->rope);
    rf_buf *buffers[] = {m->output_norm,
                         m->parts.nodes,
                         m->parts.sum,
                         m->x.buf,
                         m->y.buf,
                         m->wide.buf,
                         m->head_rows.buf,
                         m->logits.buf,
                         m->taps_now.buf,
                         m->taps_kept,
                         m->with_mtp ? m->h.buf : NULL,
                         m->h_kept,
                         m->h_last,
                         m->hm_last,
                         m->trace};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        m->ops->buf_destroy(buffers[i]);
    rf_sum_plan_destroy(m->head_sum);
    rf_sum_plan_destroy(m->delta_sum);
    rf_sum_plan_destroy(m->ffn_sum);
    free(m->blocks);
    free(m->zeros);
    free(m->trace_row);
    free(m);
}
