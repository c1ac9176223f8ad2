/* The tensor table of architecture `dflash`: names, shapes (contiguous dimension first) and cuts. */
#include "dflash_impl.h"

#include "qwen35_impl.h"
#include "table.h"

void rf_dflash_axes(const rf_dflash_params *p, rf_axis axes[RF_N_AXES])
{
    axes[RF_AXIS_DRAFT_HEADS] = rf_axis_of(p->n_head, 1);
    axes[RF_AXIS_DRAFT_FFN] = rf_axis_of(p->n_ff, rf_ffn_unit(p->n_ff));
    axes[RF_AXIS_EMBD] = rf_axis_of(p->n_embd, 32);
    if (p->own_output)
        axes[RF_AXIS_DRAFT_VOCAB] = rf_axis_of(p->n_draft_vocab, 64);
}

/* Base element (side * taps + tap) * E + c; projection row (side * taps + tap) * (E / group) + g. */
static void add_conv(rf_table *t, const rf_dflash_params *p, size_t base_id, const char *base, size_t proj_id,
                     const char *proj)
{
    rf_tensor_want *w;

    rf_table_vector(t, base_id, base, p->n_embd);
    w = rf_table_last(t);
    w->n_dims = 3;
    w->dims[1] = p->conv_kernel;
    w->dims[2] = 2;
    rf_table_whole(t, proj_id, proj, p->n_embd, 2 * p->conv_kernel * (p->n_embd / p->conv_group));
}

static void add_layer(rf_table *t, const rf_dflash_params *p, size_t layer)
{
    size_t E = p->n_embd, H = p->n_head, Hkv = p->n_head_kv, D = p->head_dim, F = p->n_ff;

    rf_table_block(t, layer);
    rf_table_vector(t, DFLASH_ATTN_NORM, "attn_norm.weight", E);
    rf_table_vector(t, DFLASH_FFN_NORM, p->older ? "post_attention_norm.weight" : "ffn_norm.weight", E);
    rf_table_rows(t, DFLASH_Q, "attn_q.weight", E, H * D, RF_AXIS_DRAFT_HEADS, RF_LAYOUT_PLAIN, D);
    rf_table_rows(t, DFLASH_K, "attn_k.weight", E, Hkv * D, RF_AXIS_DRAFT_HEADS, RF_LAYOUT_KV, D);
    rf_table_rows(t, DFLASH_V, "attn_v.weight", E, Hkv * D, RF_AXIS_DRAFT_HEADS, RF_LAYOUT_KV, D);
    rf_table_cols(t, DFLASH_O, "attn_output.weight", H * D, E, RF_AXIS_DRAFT_HEADS, RF_LAYOUT_PLAIN, D);
    rf_table_vector(t, DFLASH_Q_NORM, "attn_q_norm.weight", D);
    rf_table_vector(t, DFLASH_K_NORM, "attn_k_norm.weight", D);
    rf_table_rows(t, DFLASH_GATE, "ffn_gate.weight", E, F, RF_AXIS_DRAFT_FFN, RF_LAYOUT_PLAIN, 1);
    rf_table_rows(t, DFLASH_UP, "ffn_up.weight", E, F, RF_AXIS_DRAFT_FFN, RF_LAYOUT_PLAIN, 1);
    rf_table_cols(t, DFLASH_DOWN, "ffn_down.weight", F, E, RF_AXIS_DRAFT_FFN, RF_LAYOUT_PLAIN, 1);
    if (!p->v2)
        return;
    add_conv(t, p, DFLASH_ATTN_CONV_BASE, "attn_conv_base", DFLASH_ATTN_CONV_PROJ, "attn_conv_proj.weight");
    add_conv(t, p, DFLASH_FFN_CONV_BASE, "ffn_conv_base", DFLASH_FFN_CONV_PROJ, "ffn_conv_proj.weight");
}

static void add_vocabulary(rf_table *t, const rf_dflash_params *p)
{
    size_t E = p->n_embd, R = p->selector_rank, V = p->n_target_vocab;

    if (p->own_embd)
        rf_table_mapped(t, DFLASH_EMBD, "token_embd.weight", E, V);
    if (p->own_output)
        rf_table_rows(t, DFLASH_OUTPUT, "output.weight", E, p->n_draft_vocab, RF_AXIS_DRAFT_VOCAB, RF_LAYOUT_PLAIN, 1);
    if (p->has_d2t) {
        rf_table_mapped(t, DFLASH_D2T, "d2t", p->n_draft_vocab, 0);
        rf_table_last(t)->n_dims = 1;
    }
    if (!p->v2)
        return;
    rf_table_whole(t, DFLASH_SELECTOR_HIDDEN, "selector_hidden.weight", E, R);
    rf_table_mapped(t, DFLASH_PREDECESSOR, "selector_predecessor.weight", R, V);
    rf_table_mapped(t, DFLASH_SUCCESSOR, "selector_successor.weight", R, V);
}

rf_tensor_want *rf_dflash_tensors(const rf_dflash_params *p, size_t *n, rf_error *err)
{
    size_t E = p->n_embd;
    rf_table t = {.part = RF_PART_TAIL};

    rf_table_rows(&t, DFLASH_FC, p->older ? "dflash_fc.weight" : "fc.weight", p->n_taps * E, E, RF_AXIS_EMBD,
                  RF_LAYOUT_PLAIN, 1);
    rf_table_vector(&t, DFLASH_FEATURE_NORM, p->older ? "dflash_hidden_norm.weight" : "enc.output_norm.weight", E);
    rf_table_vector(&t, DFLASH_OUTPUT_NORM, "output_norm.weight", E);
    add_vocabulary(&t, p);
    for (size_t i = 0; i < p->n_layer; i++)
        add_layer(&t, p, i);
    return rf_table_finish(&t, n, err);
}
