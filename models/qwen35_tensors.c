/* The tensor table of architecture `qwen35`: names, shapes (contiguous dimension first) and cuts. */
#include <stdlib.h>

#include "qwen35_impl.h"
#include "table.h"

size_t rf_ffn_unit(size_t n_ff)
{
    return n_ff < 2048 ? 32 : n_ff < 4096 ? 128 : 256;
}

rf_axis rf_axis_of(size_t size, size_t unit)
{
    return (rf_axis){(size + unit - 1) / unit, unit, size, NULL};
}

static bool any_layer(const rf_qwen35_params *p, bool full)
{
    for (size_t i = 0; i < p->n_layer; i++)
        if ((p->full_attention[i] != 0) == full)
            return true;
    return false;
}

void rf_qwen35_axes(const rf_qwen35_params *p, bool with_mtp, rf_axis axes[RF_N_AXES])
{
    if (with_mtp || any_layer(p, true))
        axes[RF_AXIS_HEADS] = rf_axis_of(p->n_head, 1);
    if (any_layer(p, false))
        axes[RF_AXIS_KEY_HEADS] = rf_axis_of(p->n_key_heads, 1);
    axes[RF_AXIS_FFN] = rf_axis_of(p->n_ff, rf_ffn_unit(p->n_ff));
    axes[RF_AXIS_VOCAB] = rf_axis_of(p->n_vocab, 64);
    if (with_mtp)
        axes[RF_AXIS_EMBD] = rf_axis_of(p->n_embd, 32);
}

/* Query rows of a head come with its gate rows: D of each. */
static void add_attention(rf_table *t, const rf_qwen35_params *p)
{
    size_t E = p->n_embd, H = p->n_head, Hkv = p->n_head_kv, D = p->head_dim;

    rf_table_rows(t, QWEN35_Q, "attn_q.weight", E, 2 * H * D, RF_AXIS_HEADS, RF_LAYOUT_PLAIN, 2 * D);
    rf_table_rows(t, QWEN35_K, "attn_k.weight", E, Hkv * D, RF_AXIS_HEADS, RF_LAYOUT_KV, D);
    rf_table_rows(t, QWEN35_V, "attn_v.weight", E, Hkv * D, RF_AXIS_HEADS, RF_LAYOUT_KV, D);
    rf_table_cols(t, QWEN35_O, "attn_output.weight", H * D, E, RF_AXIS_HEADS, RF_LAYOUT_PLAIN, D);
    rf_table_vector(t, QWEN35_Q_NORM, "attn_q_norm.weight", D);
    rf_table_vector(t, QWEN35_K_NORM, "attn_k_norm.weight", D);
}

static void add_delta(rf_table *t, const rf_qwen35_params *p)
{
    size_t E = p->n_embd, d = p->state_size, nk = p->n_key_heads, nv = p->n_value_heads, channels = (2 * nk + nv) * d;
    const rf_axis_id axis = RF_AXIS_KEY_HEADS;

    rf_table_rows(t, QWEN35_QKV, "attn_qkv.weight", E, channels, axis, RF_LAYOUT_QKV, d);
    rf_table_rows(t, QWEN35_Z, "attn_gate.weight", E, nv * d, axis, RF_LAYOUT_TILED, d);
    rf_table_rows(t, QWEN35_ALPHA, "ssm_alpha.weight", E, nv, axis, RF_LAYOUT_TILED, 1);
    rf_table_rows(t, QWEN35_BETA, "ssm_beta.weight", E, nv, axis, RF_LAYOUT_TILED, 1);
    rf_table_vector_rows(t, QWEN35_CONV, "ssm_conv1d.weight", p->conv_kernel, channels, axis, RF_LAYOUT_QKV, d);
    rf_table_vector_rows(t, QWEN35_A, "ssm_a", 1, nv, axis, RF_LAYOUT_TILED, 1);
    rf_table_vector_rows(t, QWEN35_DT, "ssm_dt.bias", 1, nv, axis, RF_LAYOUT_TILED, 1);
    rf_table_vector(t, QWEN35_SSM_NORM, "ssm_norm.weight", d);
    rf_table_cols(t, QWEN35_SSM_OUT, "ssm_out.weight", nv * d, E, axis, RF_LAYOUT_TILED, d);
}

static void add_block(rf_table *t, const rf_qwen35_params *p, size_t block, bool full)
{
    size_t E = p->n_embd, F = p->n_ff;

    rf_table_block(t, block);
    rf_table_vector(t, QWEN35_ATTN_NORM, "attn_norm.weight", E);
    rf_table_vector(t, QWEN35_POST_NORM, "post_attention_norm.weight", E);
    if (full)
        add_attention(t, p);
    else
        add_delta(t, p);
    rf_table_rows(t, QWEN35_GATE, "ffn_gate.weight", E, F, RF_AXIS_FFN, RF_LAYOUT_PLAIN, 1);
    rf_table_rows(t, QWEN35_UP, "ffn_up.weight", E, F, RF_AXIS_FFN, RF_LAYOUT_PLAIN, 1);
    rf_table_cols(t, QWEN35_DOWN, "ffn_down.weight", F, E, RF_AXIS_FFN, RF_LAYOUT_PLAIN, 1);
}

static void add_mtp(rf_table *t, const rf_qwen35_params *p)
{
    size_t E = p->n_embd, V = p->n_vocab;

    add_block(t, p, p->n_layer, true);
    rf_table_rows(t, QWEN35_EH_PROJ, "nextn.eh_proj.weight", 2 * E, E, RF_AXIS_EMBD, RF_LAYOUT_PLAIN, 1);
    rf_table_vector(t, QWEN35_ENORM, "nextn.enorm.weight", E);
    rf_table_vector(t, QWEN35_HNORM, "nextn.hnorm.weight", E);
    if (p->mtp_own_norm)
        rf_table_vector(t, QWEN35_HEAD_NORM, "nextn.shared_head_norm.weight", E);
    if (p->mtp_own_embd)
        rf_table_mapped(t, QWEN35_MTP_EMBD, "nextn.embed_tokens.weight", E, V);
    if (p->mtp_own_head)
        rf_table_rows(t, QWEN35_MTP_HEAD, "nextn.shared_head_head.weight", E, V, RF_AXIS_VOCAB, RF_LAYOUT_PLAIN, 1);
}

rf_tensor_want *rf_qwen35_tensors(const rf_qwen35_params *p, bool with_mtp, size_t *n, rf_error *err)
{
    size_t E = p->n_embd, V = p->n_vocab;
    rf_table t = {.part = RF_PART_TAIL};

    rf_table_mapped(&t, QWEN35_EMBD, "token_embd.weight", E, V);
    if (p->tied) { /* also the output matrix */
        rf_table_last(&t)->cut = RF_CUT_ROWS;
        rf_table_last(&t)->axis = RF_AXIS_VOCAB;
        rf_table_last(&t)->width = 1;
    } else {
        rf_table_rows(&t, QWEN35_OUTPUT, "output.weight", E, V, RF_AXIS_VOCAB, RF_LAYOUT_PLAIN, 1);
    }
    rf_table_vector(&t, QWEN35_OUTPUT_NORM, "output_norm.weight", E);
    t.part = RF_PART_LAYER;
    for (size_t i = 0; i < p->n_layer; i++)
        add_block(&t, p, i, p->full_attention[i] != 0);
    t.part = RF_PART_TAIL;
    t.unused = !with_mtp;
    if (p->n_mtp)
        add_mtp(&t, p);
    return rf_table_finish(&t, n, err);
}
