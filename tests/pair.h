/* A target and a drafter on one rank of the CPU backend, driven as the rank's engine would, for tests of models. Any
 * failure to set it up fails the test with the sentence. */
#ifndef RF_TESTS_PAIR_H
#define RF_TESTS_PAIR_H

#include "check.h"

#include "../models/dflash.h"
#include "../models/qwen35.h"

typedef struct {
    const char *target, *drafter; /* names under the test data, or paths (./x, /x); drafter NULL: none */
    bool with_mtp;
    uint32_t type_kv;
    size_t n_slots, n_ctx, max_rows;
} pair_spec;

typedef struct {
    rf_backend *b;
    rf_comm *self;
    rf_gguf *target_file, *drafter_file;
    rf_qwen35_params target_params;
    rf_dflash_params drafter_params;
    size_t begin[RF_N_AXES][2];
    rf_shard shard;
    rf_model_env env;
    rf_qwen35_options options;
    rf_qwen35 *target;
    rf_dflash *drafter;
    rf_selector *selector;
    rf_batch *batch;
} pair;

void pair_open(pair *p, const pair_spec *spec);
void pair_close(pair *p);

/* A shard that owns everything, for one rank. begin: where its boundaries lie; must live as long. */
void whole_shard(const rf_qwen35_params *target, bool with_mtp, const rf_dflash_params *drafter,
                 size_t begin[RF_N_AXES][2], rf_shard *shard);

/* Queues a batch of one sequence. */
void pair_batch(pair *p, int32_t slot, int64_t first_pos, const int32_t *tokens, size_t n, rf_role role,
                rf_wants_logits wants);

/* Processes tokens at first_pos .. as given rows in chunks, with MTP entries and drafter features where the pair has
 * those. logits: NULL, or [n][n_vocab] filled for every row (chunk <= RF_MAX_BLOCK then). */
void pair_prefill(pair *p, int32_t slot, int64_t first_pos, const int32_t *tokens, size_t n, size_t chunk,
                  float *logits);
/* [anchor, drafts] as generated rows; logits [n][n_vocab] or NULL. */
void pair_verify(pair *p, int32_t slot, int64_t first_pos, const int32_t *tokens, size_t n, float *logits);
/* Accepts the first k + 1 rows of the last verify at n; fresh: the k accepted drafts and the new anchor. MTP entries
 * are rewritten, features injected. */
void pair_commit(pair *p, int32_t slot, int64_t n, size_t k, const int32_t *fresh);

/* m greedy drafts after n processed positions. rows: NULL, or [m][k] candidates with selector scores (k as asked). */
void pair_draft_dflash(pair *p, int32_t slot, int64_t n, int32_t anchor, size_t m, int32_t *drafts, rf_candidate *cand,
                       float *scores, size_t k);
/* first: entry of the anchor at n comes after a prefill (mtp_first), else it was written by pair_commit, which left the
 * first draft's logits. */
void pair_draft_mtp(pair *p, int32_t slot, int64_t n, int32_t anchor, size_t m, bool first, int32_t *drafts);

void pair_logits(pair *p, size_t n_rows, float *out);
size_t argmax(const float *row, size_t n); /* ties to the lowest */
/* Of target, MTP head and drafter. */
uint64_t pair_state_hash(pair *p, int32_t slot, int64_t n);

#endif
