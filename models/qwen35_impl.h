/* Inside of architecture `qwen35`, shared by its files. */
#ifndef RF_QWEN35_IMPL_H
#define RF_QWEN35_IMPL_H

#include "parts.h"
#include "qwen35.h"

/* Tags of the tensor table. */
enum {
    QWEN35_EMBD,
    QWEN35_OUTPUT,
    QWEN35_OUTPUT_NORM,
    QWEN35_ATTN_NORM,
    QWEN35_POST_NORM,
    QWEN35_Q,
    QWEN35_K,
    QWEN35_V,
    QWEN35_O,
    QWEN35_Q_NORM,
    QWEN35_K_NORM,
    QWEN35_QKV,
    QWEN35_Z,
    QWEN35_ALPHA,
    QWEN35_BETA,
    QWEN35_CONV,
    QWEN35_A,
    QWEN35_DT,
    QWEN35_SSM_NORM,
    QWEN35_SSM_OUT,
    QWEN35_GATE,
    QWEN35_UP,
    QWEN35_DOWN,
    QWEN35_EH_PROJ,
    QWEN35_ENORM,
    QWEN35_HNORM,
    QWEN35_HEAD_NORM,
    QWEN35_MTP_EMBD,
    QWEN35_MTP_HEAD
};

typedef struct {
    rf_weight *q, *k, *v; /* [E, H*2D], [E, Hkv*D], [E, Hkv*D], local heads */
    unsigned wants;       /* of the three */
    rf_buf *q_norm, *k_norm;
    rf_row_parallel o;    /* [H*D, E] */
    rf_kv *kv;
} qwen35_attention;

typedef struct {
    rf_weight *qkv, *z, *alpha, *beta; /* [E, channels], [E, nv*d], [E, nv], [E, nv], local heads */
    unsigned wants;                    /* of the four */
    rf_buf *norm;                      /* [d] */
    rf_row_parallel out;               /* [nv*d, E] */
    rf_delta *delta;
} qwen35_delta;

typedef struct {
    bool full;                  /* gated attention, else gated DeltaNet */
    rf_buf *attn_norm, *post_norm;
    qwen35_attention attention; /* only one of the two is filled */
    qwen35_delta delta;
    rf_ffn ffn;
} qwen35_block;

typedef struct {
    qwen35_block block;
    rf_weight_spec embd;         /* the target's unless the block has its own */
    rf_weight *eh_proj;          /* [2E, E local] */
    rf_buf *enorm, *hnorm, *head_norm;
    rf_weight *head;             /* the output matrix in use */
    rf_weight *own_head;         /* owned, or NULL */
    rf_buf *own_norm;            /* owned, or NULL */
    rf_attention_spec attention; /* as the trunk's, from position 1 on */
    size_t *embd_begin;          /* [ranks + 1] columns of eh_proj's output by rank */
    size_t n_embd_local;
} qwen35_mtp;

struct rf_qwen35 {
    rf_backend *b;
    const rf_ops *ops;
    rf_model_env env;
    rf_qwen35_params p;          /* full_attention is not kept: see blocks */
    bool with_mtp;
    size_t taps[64], n_taps;
    size_t first_layer, n_layers; /* held here */
    bool tail;
    /* layer mode */
    bool receives, sends;        /* from the rank before, to the rank after */
    bool taps_come, taps_go;     /* taps were captured before this rank, before the next */

    rf_range heads, kv_heads, key_heads; /* local */
    size_t n_value_heads, n_channels, n_ff, n_vocab; /* local */

    qwen35_block *blocks;        /* [n_layers] */
    qwen35_mtp mtp;
    rf_weight_spec embd;         /* the mapped table */
    rf_weight *output;
    rf_buf *output_norm;
    rf_rope *rope;
    rf_attention_spec attention;
    rf_sum_plan *head_sum, *delta_sum, *ffn_sum;

    rf_parts parts;
    rf_mat x, y;                 /* [rows][E] */
    rf_regions wide;             /* what follows lies in its buffer, phase by phase */
    rf_mat q, k, v, heads_out;   /* attention */
    rf_mat m, z, alpha, beta, o; /* DeltaNet */
    rf_mat gate, up;             /* feed-forward */
    rf_mat h_before, pair, pair_local; /* MTP: [rows][E], [rows][2E], [rows][E local] */
    rf_mat head_rows, logits;    /* [logits rows][E], [logits rows][V local] */
    rf_mat taps_now;             /* [rows][n_taps * E] */
    rf_buf *taps_kept;           /* [slots][RF_MAX_BLOCK][n_taps * E] */
    rf_mat h;                    /* [rows][E] after output_norm, with MTP */
    rf_buf *h_kept;              /* [slots][RF_MAX_BLOCK][E] of the last generated rows */
    rf_buf *h_last, *hm_last;    /* [slots][E] */
    float *zeros;                /* [E] host */

    bool tracing;
    rf_buf *trace;               /* [n_layers][rows][E] */
    float *trace_row;            /* [E] host */
};

size_t rf_ffn_unit(size_t n_ff);                /* feed-forward columns a unit */
rf_axis rf_axis_of(size_t size, size_t unit);

/* x += mix(rms(x)); x += ffn(rms(x)): one block over the rows of batch, in m->x. */
void rf_qwen35_block(rf_qwen35 *m, const qwen35_block *block, const rf_attention_spec *attention,
                     const rf_batch *batch);
/* Logits of the wanted rows of h [rows][E]. */
void rf_qwen35_head(rf_qwen35 *m, const rf_batch *batch, rf_mat h, const rf_weight *output);

/* What the drafter shares. */
const rf_weight_spec *rf_qwen35_embd(const rf_qwen35 *m);
const rf_weight *rf_qwen35_output(const rf_qwen35 *m);

#endif
