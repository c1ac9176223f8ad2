/* The gather that returns candidates to the leader, with every rank's status word.
 *
 * Each rank reduces its shard of the vocabulary (top-k, Gumbel argmax, hash, mass) on its device; only the results cross. The
 * leader merges them into one sorted list a row. */
#ifndef RF_COLLECT_H
#define RF_COLLECT_H

#include "../collectives/comm.h"
#include "command.h"

typedef struct rf_collector rf_collector;

/* What the leader has after a collect (nothing on other ranks, except that all pointers are valid memory). */
typedef struct {
    size_t n_rows, k;            /* candidates a row, after the merge */
    const rf_candidate *cand;    /* [n_rows][k] descending, ties lower id; unused places are {-inf, -1} */
    const rf_gumbel_best *best;  /* [n_rows], if asked for */
    const uint64_t *hash;        /* [n_rows], if asked for */
    uint64_t mass;               /* after rf_collect_mass */
    uint32_t status;             /* OR of every rank's status word */
} rf_collected;

/* n_vocab: rows of the largest vocabulary collected; max_rows: rows of one collect; at most max_k candidates a row except that a single
 * row may ask for all. */
rf_collector *rf_collector_create(rf_backend *b, rf_comm *world, size_t n_vocab, size_t max_rows, size_t max_k, rf_error *err);
void rf_collector_destroy(rf_collector *c);
size_t rf_collector_bytes(size_t n_ranks, size_t n_vocab, size_t max_rows, size_t max_k); /* pure: memory it holds at most */

/* Collective. logits [n_rows][ids.count], global ids from ids.first; gumbel rows [n_rows] if what.gumbel. status: this rank's word. */
void rf_collect_rows(rf_collector *c, rf_mat logits, size_t n_rows, rf_range ids, rf_collect what, const rf_gumbel_row *gumbel,
                     uint32_t status, rf_collected *out);
/* Collective: total mass of one row over the whole vocabulary. */
void rf_collect_mass(rf_collector *c, rf_mat logits, size_t row, rf_range ids, float max, uint32_t status, rf_collected *out);
/* Collective: sum mod 2^64 of a number over ranks. */
void rf_collect_sum(rf_collector *c, uint64_t mine, uint32_t status, rf_collected *out);

#endif
