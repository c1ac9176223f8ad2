/* The command protocol: the leader broadcasts, every rank (the leader too) runs the same command in lockstep.
 *
 * A command is one broadcast of RF_COMMAND_BYTES: a head, one record a sequence, then tokens; what does not fit follows in a second
 * broadcast (prompt chunks). Which collectives a command runs follows from its bytes alone, never from the rank. */
#ifndef RF_COMMAND_H
#define RF_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../collectives/comm.h"
#include "../models/model.h"

#define RF_MAX_SLOTS 64       /* sequences of one command, at most */
#define RF_COMMAND_BYTES 1024 /* one broadcast: enough for 8 sequences of 16 rows */

typedef enum {
    RF_CMD_RESET,      /* empty the slots */
    RF_CMD_PREFILL,    /* one sequence: process its tokens as given rows; collect the last row if wants_row */
    RF_CMD_ROUND,      /* commit what the last verify accepted; then draft. Collects the drafters' candidates */
    RF_CMD_MTP_NEXT,   /* MTP: the token drafted last; collects the next candidates */
    RF_CMD_VERIFY,     /* commit as ROUND does (not for MTP slots: they need the round's tokens), then target over [anchor, drafts];
                          collects every row */
    RF_CMD_WIDEN,      /* more candidates of one row of the last verify or prefill */
    RF_CMD_MASS,       /* total mass of one row of the last verify or prefill, relative to a given maximum */
    RF_CMD_STATE_HASH, /* hash of a slot's committed state; collects it (tests) */
    RF_CMD_STATS,      /* collects memory held and bytes read */
    RF_CMD_QUIT
} rf_command_kind;

typedef enum { RF_DRAFTER_NONE, RF_DRAFTER_MTP, RF_DRAFTER_DFLASH } rf_drafter;

/* What the collecting exchange carries for each target row. */
typedef struct {
    int32_t k;      /* best candidates of each rank */
    int32_t gumbel; /* 1: also each rank's argmax of logit / T + G */
    int32_t hash;   /* 1: also the row hash (--check) */
} rf_collect;

typedef struct {
    int32_t kind;           /* rf_command_kind */
    int32_t n_seqs, n_tokens;
    int32_t idle_next;      /* 1: the next command may be long in coming: wait for it without using the CPU */
    rf_collect collect;
    int32_t row;            /* WIDEN, MASS: the collected row meant */
    float max;              /* MASS */
    int32_t exit_code;      /* QUIT */
} rf_command_head;

typedef struct {
    int64_t first_pos;      /* positions committed before this command */
    uint64_t seed;
    double temperature;
    int32_t slot;
    int32_t drafter;        /* rf_drafter of the slot; the same from reset to reset */
    int32_t n_commit;       /* ROUND, VERIFY: rows of the last verify that were accepted */
    int32_t n_draft;        /* ROUND: tokens to draft now */
    int32_t n_tokens;       /* of the token list that are this sequence's */
    int32_t wants_row;      /* PREFILL: 1 if the last row's candidates are collected */
} rf_command_seq;

typedef struct rf_command {
    rf_command_head head;
    rf_command_seq *seqs;   /* [n_seqs] */
    int32_t *tokens;        /* [n_tokens], sequence after sequence */
    unsigned char *bytes;   /* the wire form; owned */
    size_t max_seqs, max_tokens;
} rf_command;

int rf_command_create(rf_command *c, size_t max_seqs, size_t max_tokens, rf_error *err);
/* With the maxima of an engine of these sizes: the same on all ranks. */
int rf_command_create_for(rf_command *c, const rf_model_sizes *sizes, rf_error *err);
void rf_command_destroy(rf_command *c);
void rf_command_begin(rf_command *c, rf_command_kind kind);
/* Appends a sequence with its tokens; returns its record for the remaining fields. Within the maxima given at create. */
rf_command_seq *rf_command_add(rf_command *c, int32_t slot, int64_t first_pos, const int32_t *tokens, size_t n_tokens);

/* Collective: the leader sends c; the others receive into c. idle: as head.idle_next of the command before. */
void rf_command_exchange(rf_command *c, rf_comm *world, bool leader, bool idle);

#endif
