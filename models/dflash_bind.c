/* Architecture `dflash`: what a rank allocates. One walk serves rf_dflash_bytes (dry) and rf_dflash_create. */
#include <stdlib.h>

#include "bind.h"
#include "dflash_impl.h"
#include "qwen35_impl.h"

/* Windowed layers need the window and room for the largest chunk injected at once; a ring of that, unless the context
 * is shorter. */
static rf_kv_spec cache_spec(const rf_dflash *m, size_t window)
{
    const rf_model_sizes *s = &m->env.sizes;
    rf_kv_spec spec = {.n_slots = s->n_slots,
                       .n_positions = s->n_ctx,
                       .n_heads = m->kv_heads.count,
                       .head_dim = m->p.head_dim,
                       .type_k = s->type_k,
                       .type_v = s->type_v};
    size_t ring = (window + s->max_rows + 255) / 256 * 256;

    if (window && ring < s->n_ctx) {
        spec.n_positions = ring;
        spec.ring = true;
    }
    return spec;
}

static void bind_layer(rf_binder *k, const rf_dflash *m, dflash_layer *l, size_t layer, size_t window)
{
    rf_kv_spec cache = cache_spec(m, window);

    l->attn_norm = rf_bind_vector(k, DFLASH_ATTN_NORM, layer);
    l->ffn_norm = rf_bind_vector(k, DFLASH_FFN_NORM, layer);
    l->q = rf_bind_matrix(k, DFLASH_Q, layer);
    l->k = rf_bind_matrix(k, DFLASH_K, layer);
    l->v = rf_bind_matrix(k, DFLASH_V, layer);
    l->wants = rf_bind_wants(k, l->q) | rf_bind_wants(k, l->k) | rf_bind_wants(k, l->v);
    l->q_norm = rf_bind_vector(k, DFLASH_Q_NORM, layer);
    l->k_norm = rf_bind_vector(k, DFLASH_K_NORM, layer);
    rf_bind_row_parallel(k, DFLASH_O, layer, m->head_sum, &l->o);
    l->ffn.gate = rf_bind_matrix(k, DFLASH_GATE, layer);
    l->ffn.up = rf_bind_matrix(k, DFLASH_UP, layer);
    l->ffn.wants = rf_bind_wants(k, l->ffn.gate) | rf_bind_wants(k, l->ffn.up);
    l->ffn.n_ff = m->n_ff;
    rf_bind_row_parallel(k, DFLASH_DOWN, layer, m->ffn_sum, &l->ffn.down);
    if (m->p.v2) {
        l->attn_conv.base = rf_bind_vector(k, DFLASH_ATTN_CONV_BASE, layer);
        l->attn_conv.proj = rf_bind_matrix(k, DFLASH_ATTN_CONV_PROJ, layer);
        l->ffn_conv.base = rf_bind_vector(k, DFLASH_FFN_CONV_BASE, layer);
        l->ffn_conv.proj = rf_bind_matrix(k, DFLASH_FFN_CONV_PROJ, layer);
    }
    l->kv = rf_bind_kv(k, &cache);
    l->attention = (rf_attention_spec){.n_heads = m->heads.count,
                                       .head_dim = m->p.head_dim,
                                       .head_stride = m->p.head_dim,
                                       .first_head = m->heads.first,
                                       .heads_per_kv = m->p.n_head / m->p.n_head_kv,
                                       .first_kv = m->kv_heads.first,
                                       .window = window};
}

static void bind_weights(rf_binder *k, rf_dflash *m, const rf_dflash_params *p)
{
    m->fc = rf_bind_matrix(k, DFLASH_FC, 0);
    m->feature_norm = rf_bind_vector(k, DFLASH_FEATURE_NORM, 0);
    m->output_norm = rf_bind_vector(k, DFLASH_OUTPUT_NORM, 0);
    if (p->v2)
        m->selector_hidden = rf_bind_matrix(k, DFLASH_SELECTOR_HIDDEN, 0);
    if (p->own_output)
        m->own_output = rf_bind_matrix(k, DFLASH_OUTPUT, 0);
    if (p->own_embd)
        m->embd = rf_bind_table(k, DFLASH_EMBD, 0);
    else if (m->target)
        m->embd = *rf_qwen35_embd(m->target);
    m->output = p->own_output ? m->own_output : m->target ? rf_qwen35_output(m->target) : NULL;
    for (size_t i = 0; i < p->n_layer; i++) {
        bind_layer(k, m, &m->layers[i], i, p->window[i]);
        m->inject_wants |= rf_bind_wants(k, m->layers[i].k) | rf_bind_wants(k, m->layers[i].v);
    }
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Injection runs over whole prompt chunks, drafting over at most RF_MAX_BLOCK rows a slot. */
static void bind_scratch(rf_binder *k, rf_dflash *m)
{
    const rf_model_sizes *s = &m->env.sizes;
    size_t rows = s->max_rows, block = s->n_slots * RF_MAX_BLOCK, E = m->p.n_embd, F = m->n_ff, D = m->p.head_dim;
    size_t H = m->heads.count, Hkv = m->kv_heads.count, features = m->p.n_taps * E, dyn, *scratch = &k->bytes.scratch;
    size_t nodes = larger(rf_bind_n_nodes(k, m->head_sum), rf_bind_n_nodes(k, m->ffn_sum));

    m->taps = rf_whole(rf_bind_floats(k, scratch, block * features), features);
    m->feature_local = rf_whole(rf_bind_floats(k, scratch, rows * m->n_embd_local), m->n_embd_local);
    m->feature = rf_whole(rf_bind_floats(k, scratch, rows * E), E);
    m->k = rf_whole(rf_bind_floats(k, scratch, rows * Hkv * D), Hkv * D);
    m->v = rf_whole(rf_bind_floats(k, scratch, rows * Hkv * D), Hkv * D);
    m->x = rf_whole(rf_bind_floats(k, scratch, block * E), E);
    m->y = rf_whole(rf_bind_floats(k, scratch, block * E), E);
    m->q = rf_whole(rf_bind_floats(k, scratch, block * H * D), H * D);
    m->heads_out = rf_whole(rf_bind_floats(k, scratch, block * H * D), H * D);
    m->gate = rf_whole(rf_bind_floats(k, scratch, block * F), F);
    m->up = rf_whole(rf_bind_floats(k, scratch, block * F), F);
    m->head_rows = rf_whole(rf_bind_floats(k, scratch, block * E), E);
    m->logits = rf_whole(rf_bind_floats(k, scratch, block * m->n_vocab), m->n_vocab);
    m->flag = rf_bind_floats(k, scratch, 1);
    if (m->p.v2) {
        dyn = 2 * m->p.conv_kernel * (E / m->p.conv_group);
        m->c = rf_whole(rf_bind_floats(k, scratch, block * E), E);
        m->dyn = rf_whole(rf_bind_floats(k, scratch, block * dyn), dyn);
        m->selector_rows = rf_bind_floats(k, scratch, block * m->p.selector_rank);
    }
    m->parts = (rf_parts){m->b, m->ops, m->env.inner, rf_bind_act(k, rows, larger(features, larger(H * D, F))),
                          rf_bind_floats(k, scratch, nodes * block * E), rf_bind_floats(k, scratch, block * E), E};
    m->rope = rf_bind_rope(k, m->p.n_rot, m->p.rope_base, rows);
}

static void take_share(rf_dflash *m)
{
    const rf_shard *s = m->env.shard;

    m->tail = s->tail;
    m->heads = rf_shard_elements(s, RF_AXIS_DRAFT_HEADS);
    m->kv_heads = rf_kv_heads(m->heads, m->p.n_head, m->p.n_head_kv);
    m->n_ff = rf_shard_elements(s, RF_AXIS_DRAFT_FFN).count;
    m->n_embd_local = rf_shard_elements(s, RF_AXIS_EMBD).count;
    m->n_vocab = rf_shard_elements(s, m->p.own_output ? RF_AXIS_DRAFT_VOCAB : RF_AXIS_VOCAB).count;
}

static rf_dflash *new_drafter(const rf_model_env *env, const rf_dflash_params *p, rf_qwen35 *target, rf_error *err)
{
    rf_dflash *m = calloc(1, sizeof *m);

    if (m) {
        m->b = env->backend;
        m->ops = env->backend->ops;
        m->env = *env;
        m->p = *p;
        m->p.window = NULL;
        m->target = target;
        take_share(m);
        m->layers = calloc(p->n_layer, sizeof *m->layers);
        if (m->layers)
            return m;
        free(m);
    }
    rf_fail(err, RF_ERR_MEMORY, "no memory for a drafter of %zu layers", p->n_layer);
    return NULL;
}

/* The walk; NULL after a dry one. */
static rf_dflash *walk(rf_binder *k, const rf_dflash_params *p, rf_qwen35 *target)
{
    rf_tensor_want *wants = rf_dflash_tensors(p, &k->n_wants, k->err);
    rf_dflash *m = wants ? new_drafter(k->env, p, target, k->err) : NULL;

    k->wants = wants;
    k->failed = !m;
    if (m && m->tail) {
        m->head_sum = rf_bind_sum_plan(k, RF_AXIS_DRAFT_HEADS);
        m->ffn_sum = rf_bind_sum_plan(k, RF_AXIS_DRAFT_FFN);
        m->embd_begin = rf_bind_boundaries(k, RF_AXIS_EMBD);
        bind_weights(k, m, p);
        bind_scratch(k, m);
    }
    free(wants);
    k->wants = NULL;
    if (!k->failed && !k->dry)
        return m;
    rf_dflash_destroy(m);
    return NULL;
}

int rf_dflash_bytes(const rf_model_env *env, const rf_gguf *file, const rf_dflash_params *p, rf_model_bytes *bytes,
                    rf_error *err)
{
    rf_binder k = {.env = env, .ops = env->backend->ops, .file = file, .dry = true, .err = err};

    walk(&k, p, NULL);
    *bytes = k.bytes;
    return k.failed ? -1 : 0;
}

rf_dflash *rf_dflash_create(const rf_model_env *env, const rf_gguf *file, const rf_dflash_params *p, rf_qwen35 *target,
                            rf_error *err)
{
    rf_binder k = {.env = env, .ops = env->backend->ops, .file = file, .err = err};

    return walk(&k, p, target);
}

static void free_layer(const rf_ops *ops, dflash_layer *l)
{
    rf_weight *weights[] = {
        l->q, l->k, l->v, l->o.w, l->ffn.gate, l->ffn.up, l->ffn.down.w, l->attn_conv.proj, l->ffn_conv.proj};
    rf_buf *vectors[] = {l->attn_norm, l->ffn_norm, l->q_norm, l->k_norm, l->attn_conv.base, l->ffn_conv.base};

    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        ops->weight_destroy(weights[i]);
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        ops->buf_destroy(vectors[i]);
    ops->kv_destroy(l->kv);
}

void rf_dflash_destroy(rf_dflash *m)
{
    if (!m)
        return;
    rf_buf *buffers[] = {m->feature_norm,  m->output_norm,   m->taps.buf, m->feature_local.buf,
                         m->feature.buf,   m->k.buf,         m->v.buf,    m->x.buf,
                         m->y.buf,         m->c.buf,         m->dyn.buf,  m->q.buf,
                         m->heads_out.buf, m->gate.buf,      m->up.buf,   m->head_rows.buf,
                         m->logits.buf,    m->selector_rows, m->flag,     m->parts.nodes,
                         m->parts.sum};

    for (size_t i = 0; i < m->p.n_layer; i++)
        free_layer(m->ops, &m->layers[i]);
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        m->ops->buf_destroy(buffers[i]);
    m->ops->weight_destroy(m->fc);
    m->ops->weight_destroy(m->selector_hidden);
    m->ops->weight_destroy(m->own_output);
    m->ops->act_destroy(m->parts.act);
    m->ops->rope_destroy(m->rope);
    rf_sum_plan_destroy(m->head_sum);
    rf_sum_plan_destroy(m->ffn_sum);
    free(m->embd_begin);
    free(m->layers);
    free(m);
}
