/* How ranks add and exchange. A communicator is lockstep: every rank makes the same calls in the same order.
 *
 * Two kinds of traffic:
 *  - data (activations in backend buffers, in every layer): sum_tree, allgather, send/recv. Queued like ops; the
 *    transport (self, shm, mpi; later gpu-aware, ipc, staged) was chosen and checked with a known pattern at start.
 *  - control (host memory, a few per round): bcast, gather, agree. Always MPI (or nothing on one rank).
 * A failing MPI call ends the job with one line (rank, host, cause) and MPI_Abort(5): no call returns an error in a
 * steady loop. */
#ifndef RF_COMM_H
#define RF_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend.h"
#include "modes.h"

typedef struct rf_comm rf_comm;

/* World: the launcher's ranks. Without MPI in the build, or started without a launcher, one rank. argc/argv as MPI_Init
 * wants them. Pair with rf_world_finalize. */
int rf_world_init(int *argc, char ***argv, rf_error *err);
void rf_world_finalize(void);
int rf_world_rank(void);
int rf_world_size(void);
int rf_world_node_rank(void); /* among the ranks of this host */
int rf_world_node_size(void);
const char *rf_world_host(void);
const char *rf_world_mpi_version(void); /* "Open MPI 4.1.4", or "none" */
/* Prints one line "rankflash: rank R on HOST: text" and ends all ranks with `code`. Never returns. */
void rf_world_abort(rf_code code, const char *text) __attribute__((noreturn));

/* The communicator of all ranks. Collective. busy: ranks and threads fit the cores: waits may spin; else they yield. */
rf_comm *rf_comm_create(rf_backend *b, rf_allreduce allreduce, bool busy, rf_error *err);
/* One rank playing alone (layer mode inside a layer, tests, -np 1). */
rf_comm *rf_comm_create_self(rf_backend *b);
void rf_comm_destroy(rf_comm *c);
int rf_comm_rank(const rf_comm *c);
int rf_comm_size(const rf_comm *c);
const char *rf_comm_transport(const rf_comm *c); /* "self", "shm", "mpi" */
const char *rf_comm_reason(const rf_comm *c);    /* why it was chosen, for the start-up lines */
size_t rf_comm_plan_bytes(int n_ranks); /* pure: host memory a rank holds for exchange, at most */

/* How one sum over U >= 1 units is cut over ranks; made once when a model is bound. begin[r] .. begin[r+1] are rank r's
 * units (begin[0] = 0, begin[n_ranks] = n_units, never falling): else RF_ERR_USAGE. */
typedef struct rf_sum_plan rf_sum_plan;
rf_sum_plan *rf_sum_plan_create(size_t n_units, int n_ranks, const size_t *begin, rf_error *err);
void rf_sum_plan_destroy(rf_sum_plan *p);
size_t rf_sum_plan_n_nodes(const rf_sum_plan *p, int rank);
const rf_range *rf_sum_plan_nodes(const rf_sum_plan *p, int rank); /* global units, ascending */
/* Pure finish of the tree (used by every transport and by tests that play all ranks in one process): out[i] for i in
 * [0, n) from sums[r] = rank r's node sums, node stride `stride` floats. Order: sum_tree.h. */
void rf_sum_plan_finish(const rf_sum_plan *p, const float *const *sums, size_t stride, size_t n, float *out);

#define RF_TWO_SHOT_BYTES ((size_t)32 << 10) /* node sums of one rank above this are scattered by columns */
/* out[row][E] = the whole sum, on every rank, from this rank's node sums [node][row][E] (packed). RF_ALLREDUCE_ORDERED:
 * the tree, one-shot for small payloads and two-shot (scatter by columns, finish, allgather) for large ones, same bits.
 * RF_ALLREDUCE_MPI: nodes are added locally and MPI_Allreduce does the rest. out is packed [n_rows][n_cols]. */
void rf_comm_sum_tree(rf_comm *c, const rf_sum_plan *p, size_t n_rows, size_t n_cols, rf_buf *nodes, rf_buf *out);
/* dst[row][begin[r] .. begin[r+1]) = rank r's src[row][...]: columns of every rank side by side. begin has size+1
 * entries. */
void rf_comm_allgather(rf_comm *c, size_t n_rows, const size_t *begin, rf_mat src, rf_mat dst);
/* Layer mode: packed bytes to and from one rank. */
void rf_comm_send(rf_comm *c, int to, rf_buf *src, size_t bytes);
void rf_comm_recv(rf_comm *c, int from, rf_buf *dst, size_t bytes);

/* Control, host memory. */
void rf_comm_bcast(rf_comm *c, int root, void *data, size_t bytes);
/* dst (root only) gets size * bytes, rank order */
void rf_comm_gather(rf_comm *c, int root, const void *src, size_t bytes, void *dst);
void rf_comm_barrier(rf_comm *c);
/* Followers at an idle prompt: like bcast from rank 0, but waits with a growing sleep (up to 20 ms) and no CPU. The
 * leader calls rf_comm_bcast_idle too, so that both sides use the same operation. */
void rf_comm_bcast_idle(rf_comm *c, void *data, size_t bytes);

/* Every rank reports its status; all learn the outcome. *mine: code RF_OK or an error. Returns 0 if all are RF_OK; else
 * -1 with *all = the lowest failing rank's error, its text prefixed "rank R on HOST: " (where there are several).
 * Collective over the world. */
int rf_world_agree(const rf_error *mine, rf_error *all);
/* Among the ranks of this host that have the same text as this one: how many they are, and this rank's place.
 * Collective over the world. */
void rf_world_alike_on_host(const char *text, int *rank, int *count);
/* *value becomes the least of all ranks'. Collective over the world. */
void rf_world_least(size_t *value);
/* Every rank holds the same text (file sizes, header hash, program version, backend arithmetic ...): names the odd
 * rank, its host and the part that differs. parts: n NUL-terminated strings "what: value". Collective over the
 * world. */
int rf_world_same(const char *const *parts, size_t n, rf_error *err);

#endif
