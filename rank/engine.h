/* A rank's engine: its shard of target and drafter, its part of the caches, and the execution of commands.
 *
 * Every rank runs rf_engine_run with the same command. Only the leader gets results (rf_engine_result). The hot path allocates nothing. */
#ifndef RF_ENGINE_H
#define RF_ENGINE_H

#include "../models/dflash.h"
#include "../models/qwen35.h"
#include "collect.h"
#include "command.h"
#include "plan.h"

typedef struct rf_engine rf_engine;

typedef struct {
    const rf_gguf *target_file, *drafter_file; /* drafter_file NULL: no DFlash drafter */
    const rf_qwen35_params *target;
    const rf_dflash_params *drafter;           /* NULL without one */
    bool with_mtp;
    const rf_shard *shard;
    rf_model_sizes sizes, drafter_sizes;       /* the same but for the cache types */
    size_t max_collect;                        /* candidates a row of the first exchange, at most */
    void (*progress)(void *context, size_t done, size_t all);
    void *progress_context;
} rf_engine_spec;

#define RF_COLLECT_K 256  /* first exchange of a filter that is not closed by top-k */
#define RF_DRAFT_TOP_K 10 /* candidates a row for v1 and MTP drafts */

/* What a drafting command left: rows in the order drafted, tagged with the sequence (index in the command) and draft number. */
typedef struct {
    size_t seq;             /* index into the command's sequences */
    size_t draft;           /* 0-based draft this row is for */
    const rf_candidate *cand; /* [k] draft rows (map with rf_selector_token for DFlash) */
    const float *selector;  /* [selector_rank], DFlash2 only */
} rf_draft_row;

typedef struct {
    rf_collected rows;      /* VERIFY, PREFILL, WIDEN, MASS, STATE_HASH (in mass), STATS */
    const rf_draft_row *draft; /* ROUND, MTP_NEXT */
    size_t n_draft_rows, draft_k;
    uint32_t status;        /* OR of all ranks' status words: signal number seen in the low byte, RF_STATUS_* above */
} rf_engine_result;

#define RF_STATUS_NONFINITE 0x100u /* the drafter's features held NaN or infinity (they were replaced) */

/* Not collective: a failure is this rank's; the caller agrees. Communicators: see rf_model_env. */
rf_engine *rf_engine_create(rf_backend *b, rf_comm *world, rf_comm *inner, const rf_engine_spec *spec, rf_error *err);
void rf_engine_destroy(rf_engine *e);

/* Collective. Returns false after RF_CMD_QUIT. */
bool rf_engine_run(rf_engine *e, const rf_command *c);
const rf_engine_result *rf_engine_get(const rf_engine *e);

rf_qwen35 *rf_engine_target(rf_engine *e);  /* tests */
rf_dflash *rf_engine_drafter(rf_engine *e); /* tests; NULL without one */

#endif
