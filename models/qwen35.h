/* Architecture `qwen35` (Qwen3.5 / 3.6 / 3.8 dense): the target and its MTP head. Arithmetic: docs/models.md.
 *
 * Sequences live in slots. A slot's committed state (KV, DeltaNet states and windows, MTP cache) is that of its first n
 * positions. forward() with RF_ROLE_GIVEN rows commits them; with RF_ROLE_GENERATED rows it only keeps what commit()
 * needs. */
#ifndef RF_QWEN35_H
#define RF_QWEN35_H

#include "model.h"

typedef struct {
    size_t n_layer;      /* trunk blocks (block_count - nextn_predict_layers) */
    size_t n_mtp;        /* 0 or 1 (more are refused) */
    size_t n_embd, n_ff, n_vocab, n_ctx_train;
    size_t n_head, n_head_kv, head_dim, n_rot;
    double rope_base;
    size_t conv_kernel, state_size, n_key_heads, n_value_heads;
    float eps;
    bool tied;           /* no output.weight: token_embd serves */
    bool mtp_own_embd, mtp_own_head, mtp_own_norm;
    unsigned char *full_attention; /* [n_layer] 1: gated attention, 0: DeltaNet; owned */
} rf_qwen35_params;

/* Reads and validates the header; checks every tensor's name, shape and type against the table (a tensor the model does
 * not claim is an error, except v.*, mm.*). want_mtp: MTP tensors will be loaded (an error if the file has none). */
int rf_qwen35_params_read(const rf_gguf *file, bool want_mtp, rf_qwen35_params *p, rf_error *err);
void rf_qwen35_params_free(rf_qwen35_params *p);

/* The tensor table: n entries, malloc'd, caller frees. with_mtp as above (else MTP entries are RF_CUT_UNUSED). */
rf_tensor_want *rf_qwen35_tensors(const rf_qwen35_params *p, bool with_mtp, size_t *n, rf_error *err);
/* Fills n_units, unit, size of the axes that the target (and MTP) has; begin is the plan's. */
void rf_qwen35_axes(const rf_qwen35_params *p, bool with_mtp, rf_axis axes[RF_N_AXES]);

typedef struct rf_qwen35 rf_qwen35;

typedef struct {
    bool with_mtp;
    const size_t *taps; /* residual stream entering trunk layer L, in this order, kept for the drafter */
    size_t n_taps;
} rf_qwen35_options;

/* Bytes this rank will hold, pure arithmetic over what create() allocates (through env->backend->ops' pure functions;
 * env->backend may be a traits-only stand-in: only ->ops is used). */
typedef struct {
    size_t weights, caches, states, scratch;
} rf_model_bytes;
int rf_qwen35_bytes(const rf_model_env *env, const rf_gguf *file, const rf_qwen35_params *p, const rf_qwen35_options *o,
                    rf_model_bytes *bytes, rf_error *err);

/* progress may be NULL: called with bytes done and in all. Not collective: a failure is this rank's (the caller
 * agrees). */
rf_qwen35 *rf_qwen35_create(const rf_model_env *env, const rf_gguf *file, const rf_qwen35_params *p,
                            const rf_qwen35_options *o, void (*progress)(void *context, size_t done, size_t all),
                            void *context, rf_error *err);
void rf_qwen35_destroy(rf_qwen35 *m);

/* ---- Hot path: queues ops and collectives, no checks, no allocation. All ranks, same batch. */

void rf_qwen35_reset(rf_qwen35 *m, size_t slot); /* empty sequence: zero states */
/* Trunk over batch; logits of the wanted rows (local vocabulary shard; only where shard->tail). */
void rf_qwen35_forward(rf_qwen35 *m, const rf_batch *batch);
/* Advance each sequence of batch (first_pos = n committed, n_rows = k + 1 accepted rows of the last GENERATED forward).
 * KV needs nothing. */
void rf_qwen35_commit(rf_qwen35 *m, const rf_batch *batch);
rf_mat rf_qwen35_logits(rf_qwen35 *m);      /* [n_logit_rows][local vocabulary] of the last forward or mtp call */
rf_range rf_qwen35_vocab(const rf_qwen35 *m); /* global ids held here; count 0 where not tail */
/* Taps of the rows of the last forward: [row][n_taps * n_embd] (tail ranks), and those kept of the last GENERATED
 * forward: [slot][RF_MAX_BLOCK][n_taps * n_embd]. */
rf_mat rf_qwen35_taps(rf_qwen35 *m);
rf_buf *rf_qwen35_kept_taps(rf_qwen35 *m);

/* MTP head (tail ranks only compute; others return at once). Each call writes the MTP entries of its rows and leaves
 * logits of the wanted rows in rf_qwen35_logits.
 *  mtp_prefill: after forward() of GIVEN rows at [p0, p0 + n), the same batch: writes entries p0 .. p0 + n - 1 (the one
 *               at 0 is never seen) from the rows' own tokens and h of the position before (kept across chunks).
 *  mtp_commit:  batch rows are the k accepted drafts and the new anchor, at positions n + 1 .. n + k + 1 (first_pos =
 *               n + 1), paired with h of rows 0 .. k of the last GENERATED forward. wants = RF_LOGITS_LAST for the
 *               first draft, or NONE.
 *  mtp_first:   after a prefill that ended at position n - 1: one row a sequence, the anchor at n, with the kept h.
 *  mtp_next:    one row a sequence: the token drafted last, paired with that sequence's last hm (output of its last
 *               mtp_* row). */
void rf_qwen35_mtp_prefill(rf_qwen35 *m, const rf_batch *batch);
void rf_qwen35_mtp_commit(rf_qwen35 *m, const rf_batch *batch);
void rf_qwen35_mtp_first(rf_qwen35 *m, const rf_batch *batch);
void rf_qwen35_mtp_next(rf_qwen35 *m, const rf_batch *batch);

/* ---- State, for tests and saved sessions: a 64-bit hash of the trunk's committed state of a slot at n positions, over
 * (layer, global head) parts, summed mod 2^64, so that ranks add up to the same number however the model is cut (each
 * part counted by its owner of the lowest rank). */
uint64_t rf_qwen35_state_hash(rf_qwen35 *m, size_t slot, int64_t n);
/* The same of the MTP entries 1 .. n - 1: only for slots drafted by MTP (others leave theirs alone). 0 without an MTP
 * head here. */
uint64_t rf_qwen35_mtp_state_hash(rf_qwen35 *m, size_t slot, int64_t n);
/* For measurements: the slot's caches (the MTP head's too) hold positions [0, n) as if they had been processed; numbers
 * are made up. -1: no memory. */
int rf_qwen35_fill(rf_qwen35 *m, size_t slot, int64_t n, rf_error *err);
/* Residual stream after every trunk block held here, for golden tests. Copies are only made after rf_qwen35_trace(m,
 * true), which allocates. */
void rf_qwen35_trace(rf_qwen35 *m, bool on);
/* [n_embd], host copy; row of the last forward. */
const float *rf_qwen35_trace_rows(rf_qwen35 *m, size_t layer, size_t row);

#endif
