/* The cost model of --plan: how long steps take, predicted. Pure arithmetic over (plan, sizes, machine); what it counts
 * and what it leaves out is in docs/scaling.md.
 *
 * A step is a chain of segments, each ending where ranks meet: a sublayer of a layer, the output matrix, a layer of the
 * drafter. A segment takes as long as its slowest rank, and a rank the longer of reading (weights, caches, DeltaNet
 * states) and multiplying. Between segments ranks exchange. */
#ifndef RF_PLAN_COST_H
#define RF_PLAN_COST_H

#include "plan.h"

typedef struct {
    double read;     /* bytes a second that a rank reads from its memory */
    double products; /* int8 multiplications with addition a second, a rank */
    double read_reached, products_reached; /* what kernels get of each, above 0, at most 1 */
    double latency;  /* seconds that the smallest exchange between ranks takes */
    double link;     /* bytes a second that a rank sends (and receives at the same time) */
} rf_machine;

/* Seconds. In layer mode ranks take turns, and all of it is one sequence's. */
typedef struct {
    double seconds;                        /* the three below */
    double reading, multiplying, exchange; /* segments bound by memory, by products; between them */
} rf_cost;

/* ---- The pieces */

/* A sum over ranks of `bytes` of result, where a rank has `nodes` tree nodes of that size: sent to all at once if that
 * is little (collectives/comm.h), else scattered by columns and gathered. */
double rf_cost_sum(const rf_machine *m, int n_ranks, size_t nodes, double bytes);
/* Columns of all ranks, `bytes` together, side by side on every rank. */
double rf_cost_allgather(const rf_machine *m, int n_ranks, double bytes);
/* A command from the leader to all, or an answer from all to the leader: a tree of small messages. */
double rf_cost_control(const rf_machine *m, int n_ranks);

/* ---- Steps */

typedef struct rf_cost_model rf_cost_model;

/* NULL and *err. The plan must outlive it; sizes: the cache types count. */
rf_cost_model *rf_cost_model_create(const rf_plan *p, const rf_model_sizes *sizes, const rf_model_sizes *drafter_sizes,
                                    rf_error *err);
void rf_cost_model_destroy(rf_cost_model *c);

/* A prompt of n tokens after depth others, in chunks; drafters' caches are filled, too. */
rf_cost rf_cost_prefill(const rf_cost_model *c, const rf_machine *m, size_t depth, size_t n, size_t chunk);
/* One token: verify of one row, and its commit. */
rf_cost rf_cost_decode(const rf_cost_model *c, const rf_machine *m, size_t depth);
/* rows through target and output, without a commit. */
rf_cost rf_cost_verify(const rf_cost_model *c, const rf_machine *m, size_t depth, size_t rows);
/* The plan's drafter drafts, all drafts are verified, and all are committed. drafts >= 1. */
rf_cost rf_cost_round(const rf_cost_model *c, const rf_machine *m, size_t depth, size_t drafts);

/* ---- --plan's part */

#define RF_COST_PROMPT 512 /* tokens of the prompt that is predicted */

typedef struct {
    rf_machine machine;
    const char *source; /* whose numbers these are */
    size_t chunk;       /* rows of a prefill chunk */
    size_t drafts;      /* of a round; 0: none */
} rf_cost_wishes;

int rf_plan_print_cost(const rf_plan *p, const rf_model_sizes *sizes, const rf_model_sizes *drafter_sizes,
                       const rf_cost_wishes *w, FILE *out, rf_error *err);

#endif
