/* The leader's draft-verify loop (docs/models.md, "The round").
 *
 * A sequence's state between calls has one definition, however the last round went: n committed positions, the anchor (the newest
 * token, not yet processed), and the accepted rows of the last verify that the next command commits. */
#ifndef RF_ROUND_H
#define RF_ROUND_H

#include "engine.h"
#include "sampler.h"
#include "stats.h"

typedef enum {
    RF_STOP_NONE,
    RF_STOP_END,         /* end-of-generation token */
    RF_STOP_STRING,
    RF_STOP_LIMIT,       /* --predict */
    RF_STOP_CONTEXT,     /* no position left */
    RF_STOP_INTERRUPTED  /* a rank saw a signal */
} rf_stop;

typedef struct rf_sequence rf_sequence;
struct rf_sequence {
    /* the request; fixed from rf_round_reset to the next (but for the limit, the callback and the sampling, which a new turn may set) */
    int32_t slot;
    rf_drafter drafter;
    size_t n_max, n_min;   /* --spec-draft-n-max, -n-min */
    double p_min;          /* --spec-draft-p-min */
    rf_sampling sampling;
    int64_t n_predict;     /* tokens this turn may generate; < 0: no limit */
    /* Called for every generated token in order; a reason stops the sequence at that token. hash: of the row it was drawn from (0 unless
     * the leader was created with hashes). */
    rf_stop (*on_token)(void *context, int32_t token, int64_t position, uint64_t hash);
    void *context;
    bool simulated;           /* for measurements: the first simulated_accepts drafts of a round count as accepted, and no other, */
    size_t simulated_accepts; /* whatever the target says */
    /* state */
    int64_t n;             /* committed positions */
    int32_t fresh[RF_MAX_BLOCK]; /* accepted drafts and the anchor since the last commit */
    size_t n_commit;       /* rows of the last verify to be committed; fresh[n_commit - 1] is then the anchor */
    int32_t anchor;
    bool has_anchor;
    int64_t generated;     /* this turn */
    rf_stop stop;
    rf_stats stats;        /* this turn */
    /* the round under way */
    int32_t drafts[RF_MAX_BLOCK];
    size_t n_drafts;
};

typedef struct rf_leader rf_leader;

/* selector: the drafter's (NULL without one). hashes: row hashes are collected (--check). */
rf_leader *rf_leader_create(rf_engine *e, rf_comm *world, const rf_engine_spec *spec, const rf_selector *selector, bool hashes, rf_error *err);
void rf_leader_destroy(rf_leader *l);

/* Each returns 0, or -1 with a sentence when a row of logits held nothing but NaN. All broadcast commands; leader only. */
void rf_round_reset(rf_leader *l, rf_sequence *s);
/* Processes tokens (the anchor included, if the caller wants it processed: it must come first) in chunks of `chunk` at positions n ...,
 * and draws the first token of the turn, unless the sequence stops (signal between chunks). n + n_tokens <= n_ctx. progress may be NULL. */
int rf_round_prefill(rf_leader *l, rf_sequence *s, const int32_t *tokens, size_t n_tokens, size_t chunk,
                     void (*progress)(void *context, size_t done, size_t all), void *context, rf_error *err);
/* One round for every sequence that has not stopped (at most RF_MAX_SLOTS, distinct slots). */
int rf_round_run(rf_leader *l, rf_sequence *const *seqs, size_t n, rf_error *err);
/* Commits what is pending: after this the slots hold exactly n positions and the anchor is unprocessed. */
void rf_round_settle(rf_leader *l, rf_sequence *const *seqs, size_t n);

uint64_t rf_leader_state_hash(rf_leader *l, const rf_sequence *s);  /* settled sequences; tests */
uint64_t rf_leader_weight_bytes_read(rf_leader *l);                  /* sum over ranks */
void rf_leader_idle(rf_leader *l); /* the next command may be long in coming */
void rf_leader_quit(rf_leader *l, int exit_code); /* the last command: every rank ends with this code */
uint32_t rf_leader_status(const rf_leader *l); /* OR of the status words seen since the start */

#endif
