/* Sampling that no drafter, draft length, split or rank count can change (docs/determinism.md, "Sampling").
 *
 * With T > 0, in this order: top-k, top-p, min-p, temperature; then the token is argmax over what was kept of logit / T
 * + G(seed, position, token) (gumbel.h), ties to the lower id: an exact draw from softmax(logit / T) over the kept
 * tokens, and a fixed function of the logits. Masses are integers, floor(exp(l - max) * 2^40), so that sums are exact
 * in any order. top-p keeps the shortest prefix (by logit, ties lower id) whose mass is at least ceil(p * mass of what
 * top-k kept); min-p keeps masses >= floor(p * 2^40). Ties at a filter's edge keep the lower id. NaN counts as -inf.
 *
 * The vocabulary is sharded, so a decision starts from the best k candidates and widens until the filter is provably
 * closed. Pure; no allocation. */
#ifndef RF_SAMPLER_H
#define RF_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend.h"

typedef struct {
    double temperature; /* <= 0: greedy */
    int32_t top_k;      /* <= 0: off */
    double top_p;       /* >= 1: off */
    double min_p;       /* <= 0: off */
    uint64_t seed;
} rf_sampling;

/* What the first exchange of a row must carry. */
typedef struct {
    size_t k;    /* best candidates, at least 1 */
    bool gumbel; /* nothing is filtered: argmax of logit / T + G of each shard decides */
} rf_sample_needs;

#define RF_SAMPLE_FIRST_K 256
rf_sample_needs rf_sampler_needs(const rf_sampling *s);

typedef enum {
    RF_SAMPLE_DONE,
    RF_SAMPLE_MORE, /* the filter is not closed: call again with rf_sampler_wider(n) candidates */
    RF_SAMPLE_MASS, /* the mass of the whole vocabulary is needed: call again with it */
    RF_SAMPLE_EMPTY /* the row holds no number above -infinity */
} rf_sample_state;

/* cand: the n best of the row, descending, ties lower id; complete: that is the whole vocabulary. mass: of the whole
 * vocabulary relative to cand[0].logit, or NULL. position: of the token that is drawn. */
rf_sample_state rf_sampler_try(const rf_sampling *s, int64_t position, const rf_candidate *cand, size_t n,
                               bool complete, const uint64_t *mass, int32_t *token);
/* 256 -> 4096 -> the whole vocabulary */
size_t rf_sampler_wider(size_t n, size_t n_vocab);
/* floor(exp(logit - max) * 2^40); 2^40 where both are equal (also infinite); 0 for NaN */
uint64_t rf_sampler_mass(float logit, float max);

/* ---- One row out of its shards. Shard r's part begins at byte r * stride of `parts`; an empty place is {-inf, -1}.
 * The result is that of the whole row, however it was cut. */

/* out[0, k) = the k best of n_shards lists of k candidates each, every list descending with ties lower id and empty
 * places last; so is out. next: scratch [n_shards]. */
void rf_sampler_merge(const void *parts, size_t stride, size_t n_shards, size_t k, size_t *next, rf_candidate *out);
/* The best of n_shards bests by score, ties lower id; id -1 where all are empty. */
rf_gumbel_best rf_sampler_merge_best(const void *parts, size_t stride, size_t n_shards);

/* ---- The drafter's choice among its n >= 1 scored candidates, coupled to the target's by the same G at the same
 * position: index of the best score (greedy, ties lower id) or of the best score / T + G. NaN counts as -inf. */
size_t rf_sampler_draft(const rf_sampling *s, int64_t position, const float *scores, const int32_t *tokens, size_t n);
/* softmax over the n scores (not divided by T) at `chosen`: what --spec-draft-p-min compares with. In [0, 1] whatever
 * the scores. */
double rf_draft_probability(const float *scores, size_t n, size_t chosen);

#endif
