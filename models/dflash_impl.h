/* Inside of architecture `dflash`, shared by its files. */
#ifndef RF_DFLASH_IMPL_H
#define RF_DFLASH_IMPL_H

#include "dflash.h"
#include "parts.h"

/* Tags of the tensor table. */
enum {
    DFLASH_EMBD,
    DFLASH_OUTPUT,
    DFLASH_D2T,
    DFLASH_FC,
    DFLASH_FEATURE_NORM,
    DFLASH_OUTPUT_NORM,
    DFLASH_SELECTOR_HIDDEN,
    DFLASH_PREDECESSOR,
    DFLASH_SUCCESSOR,
    DFLASH_ATTN_NORM,
    DFLASH_FFN_NORM,
    DFLASH_Q,
    DFLASH_K,
    DFLASH_V,
    DFLASH_O,
    DFLASH_Q_NORM,
    DFLASH_K_NORM,
    DFLASH_GATE,
    DFLASH_UP,
    DFLASH_DOWN,
    DFLASH_ATTN_CONV_BASE,
    DFLASH_ATTN_CONV_PROJ,
    DFLASH_FFN_CONV_BASE,
    DFLASH_FFN_CONV_PROJ
};

/* DFlash2: the local convolution around a sublayer. */
typedef struct {
    rf_buf *base;    /* [2 sides][taps][E] */
    rf_weight *proj; /* [E, 2 * taps * E / group] */
} dflash_conv;

typedef struct {
    rf_buf *attn_norm, *ffn_norm, *q_norm, *k_norm;
    rf_weight *q, *k, *v; /* [E, H*D], [E, Hkv*D], [E, Hkv*D], local heads */
    unsigned wants;       /* of the three */
    rf_row_parallel o;    /* [H*D, E] */
    rf_ffn ffn;
    dflash_conv attn_conv, ffn_conv;
    rf_kv *kv;
    rf_attention_spec attention;
} dflash_layer;

struct rf_dflash {
    rf_backend *b;
    const rf_ops *ops;
    rf_model_env env;
    rf_dflash_params p;     /* window is not kept: see layers */
    rf_qwen35 *target;
    bool tail;              /* else nothing below is filled */
    rf_range heads, kv_heads;
    size_t n_ff, n_vocab, n_embd_local; /* local */
    size_t *embd_begin;     /* [ranks + 1] columns of fc's output by rank */

    dflash_layer *layers;   /* [n_layer] */
    rf_weight *fc;          /* [n_taps * E, E local] */
    rf_buf *feature_norm, *output_norm;
    rf_weight *selector_hidden; /* [E, R] */
    rf_weight_spec embd;
    const rf_weight *output; /* the matrix in use */
    rf_weight *own_output;  /* owned, or NULL */
    unsigned inject_wants;  /* of every layer's k and v */
    rf_rope *rope;
    rf_sum_plan *head_sum, *ffn_sum;

    rf_parts parts;
    rf_mat taps;            /* [block rows][n_taps * E] taken from the kept ones */
    rf_mat feature_local, feature; /* [rows][E local], [rows][E] */
    rf_mat k, v;            /* [rows][Hkv*D] */
    rf_mat x, y, c;         /* [block rows][E] */
    rf_mat dyn;             /* [block rows][2 * taps * E / group] */
    rf_mat q, heads_out;    /* [block rows][H*D] */
    rf_mat gate, up;        /* [block rows][F local] */
    rf_mat head_rows, logits; /* [logits rows][E], [logits rows][V local] */
    rf_buf *selector_rows;  /* [logits rows][R] */
    rf_buf *flag;           /* int32: features had NaN or infinity */
};

#endif
