/* Inside of the leader, shared by round.c and choose.c. */
#ifndef RF_LEADER_H
#define RF_LEADER_H

#include "round.h"

#define RF_MAX_DRAFT_K 64 /* selector candidates a row, at most (params are checked against it) */

/* Turns collected rows into tokens, asking for more candidates or masses while a filter is open. */
typedef struct {
    rf_candidate *cand;   /* [max_rows][k] of the last verify or prefill (copied: WIDEN reuses the collector) */
    rf_gumbel_best *best; /* [max_rows] */
    uint64_t *hash;       /* [max_rows] */
    size_t k;             /* candidates a row in cand */
    size_t max_rows, max_k, n_vocab;
} rf_chooser;

struct rf_leader {
    rf_engine *engine;
    rf_comm *world;
    rf_engine_spec spec;
    const rf_selector *selector;
    bool hashes, idle;
    rf_command command;
    rf_chooser chooser;
    uint32_t status;
};

/* Broadcasts l->command and runs it here. */
void rf_leader_send(rf_leader *l);

int rf_chooser_create(rf_chooser *c, const rf_engine_spec *spec, rf_error *err);
void rf_chooser_destroy(rf_chooser *c);
/* What the first exchange must carry for these sequences' samplings together. */
rf_collect rf_chooser_wants(const rf_chooser *c, rf_sequence *const *seqs, size_t n, bool hashes);
/* Takes over the rows that the last PREFILL or VERIFY left in the engine. */
void rf_chooser_begin(rf_chooser *c, rf_leader *l, size_t n_rows);
/* The token drawn from row for `position`. -1: the row holds no number. */
int rf_choose(rf_chooser *c, rf_leader *l, const rf_sequence *s, size_t row, int64_t position, int32_t *token, rf_error *err);
uint64_t rf_chooser_hash(const rf_chooser *c, size_t row);

#endif
