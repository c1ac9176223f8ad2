/* Architecture `dflash`: the block-diffusion drafter, DFlash (v1) and DFlash2 (local convolution and candidate
 * selector). Arithmetic: docs/models.md. The drafter's cache holds K and V injected from the target's taps at committed
 * positions only. */
#ifndef RF_DFLASH_H
#define RF_DFLASH_H

#include "model.h"
#include "qwen35.h"

typedef struct {
    size_t n_layer, n_embd, n_ff, n_vocab;
    size_t n_head, n_head_kv, head_dim, n_rot;
    double rope_base;
    float eps;
    size_t block_size;      /* B: at most B - 1 drafts */
    size_t n_taps;
    size_t taps[64];        /* target layers whose entering residual stream is tapped, in order */
    bool v2;                /* DFlash2 */
    size_t conv_kernel, conv_group, selector_rank, selector_top_k;
    size_t *window;         /* [n_layer] 0: none; owned */
    float logit_scale, logit_cap, embedding_scale; /* 1, 0, 1 when absent */
    int32_t mask_token;
    bool own_embd, own_output, has_d2t;
    bool older;             /* architecture name `dflash-draft`: its own tensor names */
    size_t n_draft_vocab;   /* rows of the output matrix in use */
    size_t n_target_vocab;  /* the selector's tables are indexed by target token */
} rf_dflash_params;

/* Both architecture names (`dflash`, the older `dflash-draft` with its tensor names and tap numbering). Checks against
 * the target. */
int rf_dflash_params_read(const rf_gguf *file, const rf_qwen35_params *target, rf_dflash_params *p, rf_error *err);
void rf_dflash_params_free(rf_dflash_params *p);
rf_tensor_want *rf_dflash_tensors(const rf_dflash_params *p, size_t *n, rf_error *err);
void rf_dflash_axes(const rf_dflash_params *p, rf_axis axes[RF_N_AXES]);

typedef struct rf_dflash rf_dflash;

int rf_dflash_bytes(const rf_model_env *env, const rf_gguf *file, const rf_dflash_params *p, rf_model_bytes *bytes,
                    rf_error *err);
/* target: its taps are read, and its embedding table and output matrix unless the drafter has its own; it must outlive
 * the drafter. Ranks without the tail hold nothing. */
rf_dflash *rf_dflash_create(const rf_model_env *env, const rf_gguf *file, const rf_dflash_params *p, rf_qwen35 *target,
                            rf_error *err);
void rf_dflash_destroy(rf_dflash *m);

/* ---- Hot path. Tail ranks compute, others return at once. */

void rf_dflash_reset(rf_dflash *m, size_t slot);
/* Inject the taps of the rows of the target's last forward (GIVEN rows; batch: the same batch). */
void rf_dflash_inject(rf_dflash *m, const rf_batch *batch);
/* Inject the taps kept of the last GENERATED forward: batch as for rf_qwen35_commit. */
void rf_dflash_inject_kept(rf_dflash *m, const rf_batch *batch);
/* Noise blocks: each sequence's rows are [anchor, mask, mask, ...] at n .. n + m (role is ignored, wants
 * RF_LOGITS_ALL_BUT_FIRST). */
void rf_dflash_draft(rf_dflash *m, const rf_batch *batch);
rf_mat rf_dflash_logits(rf_dflash *m);          /* [n_logit_rows][local draft vocabulary] */
rf_range rf_dflash_vocab(const rf_dflash *m);   /* draft rows held here (map to tokens with rf_dflash_token) */
/* DFlash2: r = selector_hidden . o, [n_logit_rows][selector_rank] (tail ranks) */
rf_buf *rf_dflash_selector_rows(rf_dflash *m);
bool rf_dflash_replaced_nonfinite(rf_dflash *m); /* features had NaN or infinity since the last call (syncs) */

/* ---- Selector, on the leader, from the mapped drafter file (no model needed). */
typedef struct rf_selector rf_selector;
rf_selector *rf_selector_create(const rf_gguf *file, const rf_dflash_params *p, rf_error *err);
void rf_selector_destroy(rf_selector *s);
int32_t rf_selector_token(const rf_selector *s, int32_t draft_row); /* d2t, or the same number */
/* score[i] = cand[i].logit + sum_r (predecessor[prev][r] * r_row[r]) * successor[cand[i]][r] (float32, fma, r
 * ascending); v1: the logit. Tokens are target ids. */
void rf_selector_scores(const rf_selector *s, int32_t prev, const float *r_row, const rf_candidate *cand, size_t n,
                        float *score);

/* As rf_qwen35_state_hash; of windowed layers the last `window` positions. */
uint64_t rf_dflash_state_hash(rf_dflash *m, size_t slot, int64_t n);
/* As rf_qwen35_fill. */
int rf_dflash_fill(rf_dflash *m, size_t slot, int64_t n, rf_error *err);

#endif
