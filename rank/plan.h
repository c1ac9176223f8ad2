/* The plan: which rank holds what. Pure arithmetic over (headers, ranks, ratios, sizes): no MPI, no device. The rules
 * are in docs/plan.md. */
#ifndef RF_PLAN_H
#define RF_PLAN_H

#include <stdio.h>

#include "../models/dflash.h"
#include "../models/qwen35.h"

typedef struct rf_plan rf_plan;

typedef struct {
    const rf_gguf *target_file, *drafter_file; /* drafter_file NULL: none */
    const rf_qwen35_params *target;
    const rf_dflash_params *drafter;           /* NULL: none */
    bool with_mtp;
    rf_split split;
    int n_ranks;
    const double *ratios;                      /* [n_ratios], NULL: equal */
    size_t n_ratios;
} rf_plan_spec;

/* NULL and *err: RF_ERR_USAGE when the ranks or ratios cannot be (the sentence says the largest count that works). */
rf_plan *rf_plan_create(const rf_plan_spec *spec, rf_error *err);
void rf_plan_destroy(rf_plan *p);
/* The boundary arrays in *shard stay the plan's. */
void rf_plan_shard(const rf_plan *p, int rank, rf_shard *shard);
const rf_plan_spec *rf_plan_spec_of(const rf_plan *p);

/* ---- the cuts themselves */

/* begin[0 .. n_ranks]: b_0 = 0, b_N = U, b_r = max(b_{r-1} + 1, min(floor(U * c_r / c_N + 0.5), U - (N - r))), c the
 * running sum of ratios in double (NULL: all 1). Needs n_ranks <= n_units. */
void rf_plan_cut(size_t n_units, int n_ranks, const double *ratios, size_t *begin);
/* Equal shares of attention: the least maximum of KV heads held by a rank, then the least sum of squared query-head
 * counts, then the lexicographically largest list of counts, among all cuts into non-empty contiguous ranges. */
int rf_plan_cut_heads(size_t n_head, size_t n_head_kv, int n_ranks, size_t *begin, rf_error *err);
/* Layer mode: boundary r = layers whose middle byte lies below (bytes of layers + tail) * cumulative share; every rank
 * but the last has a layer. */
void rf_plan_cut_layers(const size_t *layer_bytes, size_t n_layer, size_t tail_bytes, int n_ranks, const double *ratios,
                        size_t *begin);

/* ---- bytes */

typedef struct {
    size_t weights, caches, states, scratch; /* target and drafter */
    size_t exchange;                         /* transports, candidates */
    size_t program;                          /* libraries; on the leader also the vocabulary's tables */
    size_t total;
} rf_plan_bytes;

/* What a rank will hold. sizes: the target's, and the drafter's (which differ by cache type). ops: the backend's table
 * (pure functions). */
int rf_plan_memory(const rf_plan *p, int rank, const rf_ops *ops, const rf_model_sizes *sizes,
                   const rf_model_sizes *drafter_sizes, size_t max_collect, rf_plan_bytes *bytes, rf_error *err);

/* Bytes as stored in the files. sharded (a KV head held twice counts once) + replicated + mapped + unused + header ==
 * file size. */
typedef struct {
    size_t *sharded;    /* [n_ranks] */
    size_t *replicated; /* [n_ranks] */
    size_t repeated;    /* of sharded: KV heads that a lower rank holds too */
    size_t replicated_once, mapped, unused, header;
    size_t file_size;
} rf_plan_account;

int rf_plan_account_make(const rf_plan *p, rf_plan_account *a, rf_error *err);
void rf_plan_account_free(rf_plan_account *a);

/* The largest context (multiple of 256, at most wanted) whose plan stays within `available` bytes on every rank; 0 if
 * not even 256 fits. */
int rf_plan_fit(const rf_plan *p, const rf_ops *ops, const rf_model_sizes *sizes, const rf_model_sizes *drafter_sizes,
                size_t max_collect, size_t available, size_t *n_ctx, rf_error *err);

/* The text of --plan. available: memory of one rank (0: unknown). */
int rf_plan_print(const rf_plan *p, const rf_ops *ops, const rf_model_sizes *sizes, const rf_model_sizes *drafter_sizes,
                  size_t max_collect, size_t available, FILE *out, rf_error *err);

#endif
