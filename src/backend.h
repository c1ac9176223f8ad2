/* The op table every device implements: the only way models compute.
 *
 * A model binds its weights and caches once (validated, may allocate) and then only queues ops. Ops run in the order they
 * are queued; results may be read after sync() (upload and download are ops too; download implies sync). In the hot path
 * nothing is checked and nothing is allocated. Device errors are sticky until sync(), which reports the first.
 *
 * Determinism (docs/determinism.md): a row's bits never depend on how many rows, or which other sequences, are computed
 * with it; nor on the number of threads. The order of every sum is written beside its op. "16 lanes" means: element i is
 * accumulated in lane i mod 16, i ascending, from +0; then lane l += lane l + 8 (l < 8), l += l + 4, l += l + 2, l += l + 1.
 * "fma" is one rounding. All arithmetic is float32 unless said. exp, sigmoid, softplus are the backend's single versions:
 * the same input gives the same bits in every op, lane and thread.
 *
 * Shapes: [rows][cols], cols contiguous. All counts are element counts. */
#ifndef RF_BACKEND_H
#define RF_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "sum_tree.h"

typedef struct rf_backend rf_backend;
typedef struct rf_buf rf_buf;       /* memory of the device */
typedef struct rf_weight rf_weight; /* a matrix shard in the backend's own layout */
typedef struct rf_act rf_act;       /* activations prepared for matmuls (float32, and int8 blocks where weights want them) */
typedef struct rf_kv rf_kv;         /* keys and values of one layer, all slots */
typedef struct rf_delta rf_delta;   /* DeltaNet states, conv windows and pending rows of one layer, all slots */
typedef struct rf_rope rf_rope;     /* rotary cosines and sines of the rows of the current batch */

/* A sequence never has more than this many rows that may be rolled back (anchor + 15 drafts). */
#define RF_MAX_BLOCK 16

/* ---- Batch descriptor: which rows belong to which sequence. No position, length or token is a scalar argument of an op. */

typedef enum {
    RF_ROLE_GIVEN,    /* committed at once: DeltaNet state and window advance in place (prefill) */
    RF_ROLE_GENERATED /* pending: state stays, rows are kept aside until delta_commit (verify; at most RF_MAX_BLOCK rows) */
} rf_role;

typedef enum { RF_LOGITS_NONE, RF_LOGITS_LAST, RF_LOGITS_ALL, RF_LOGITS_ALL_BUT_FIRST } rf_wants_logits;

typedef struct {
    int32_t slot;      /* which cache */
    int32_t n_rows;    /* >= 1; rows of a sequence are adjacent, positions first_pos .. first_pos + n_rows - 1 */
    int64_t first_pos; /* >= 0 */
    int32_t role;      /* rf_role */
    int32_t wants;     /* rf_wants_logits */
} rf_batch_seq;

/* Shapes are public (they choose what to launch); the rest belongs to the backend. */
typedef struct rf_batch {
    size_t n_seqs, n_rows, n_logit_rows;
} rf_batch;

/* ---- Views */

/* A float32 matrix inside a buffer: element (r, c) is at offset + r * stride + c, in floats. */
typedef struct {
    rf_buf *buf;
    size_t offset, stride;
} rf_mat;

/* ---- Weights */

typedef struct {
    const char *name;      /* for messages */
    const void *data;      /* the tensor in the mapped file */
    uint32_t type;         /* rf_type */
    size_t n_cols, n_rows; /* of the whole tensor; columns contiguous (inputs), rows are outputs */
    /* The shard: these rows and these columns, in this order; a count of 0 means all. Rows and columns of a run ascend.
     * For block types every column run starts and ends at a multiple of 32. */
    const rf_range *row_runs, *col_runs;
    size_t n_row_runs, n_col_runs;
    /* Row-parallel shards only (n_units > 0): local columns are divided into units ending at unit_end[u], and the units into
     * tree nodes (local unit ranges). A node's sum over its units has the shape of sum_tree.h. */
    const size_t *unit_end;
    size_t n_units;
    const rf_range *nodes;
    size_t n_nodes;
} rf_weight_spec;

/* One of the products of an op that makes several from the same activations. */
typedef struct {
    const rf_weight *w;
    rf_mat y;
} rf_product;

/* ---- Descriptions of the larger ops */

typedef struct {
    size_t n_slots, n_positions; /* capacity per slot; rounded up to blocks of 256 positions */
    size_t n_heads, head_dim;    /* KV heads held here, width of a head (keys and values alike) */
    uint32_t type_k, type_v;     /* RF_TYPE_F32 or RF_TYPE_F16: rounded to this before any use */
    bool ring;                   /* positions wrap around: position p lives where p - capacity lived (sliding windows) */
} rf_kv_spec;

typedef struct {
    size_t n_heads;      /* local query heads */
    size_t head_dim;     /* D */
    size_t head_stride;  /* floats from one query head to the next in q (D, or 2D where gates are interleaved) */
    size_t first_head;   /* global index of local query head 0 */
    size_t heads_per_kv; /* H / Hkv */
    size_t first_kv;     /* global index of local KV head 0: query head j reads local KV head (first_head+j)/heads_per_kv - first_kv */
    size_t window;       /* 0: none; else the row at p sees cached position s only if p - s < window */
    size_t first_pos;    /* cached positions below it are never seen (an MTP cache starts at 1) */
} rf_attention_spec;

typedef struct {
    size_t n_slots;
    size_t n_k_heads, n_v_heads; /* held here; local value head j reads local key head j / (n_v_heads / n_k_heads) */
    size_t head_dim;             /* d */
    size_t conv_kernel;          /* taps */
    float eps;                   /* l2(v) = v / max(||v||, eps) */
    /* Host arrays, copied by delta_create. Channels: n_k*d queries, n_k*d keys, n_v*d values, heads in local order. */
    const float *conv;           /* [n_channels][conv_kernel] */
    const float *a, *dt;         /* [n_v_heads] */
} rf_delta_spec;

typedef struct {
    float logit;
    int32_t id; /* global row of the output matrix */
} rf_candidate;

typedef struct {
    double score; /* logit / T + G(seed, position, token) */
    float logit;
    int32_t id;
} rf_gumbel_best;

typedef struct {
    uint64_t seed;
    int64_t position;  /* of the token that is drawn */
    double temperature; /* > 0 */
} rf_gumbel_row;

typedef struct {
    uint64_t weight_bytes_read; /* packed weight bytes that matmuls went through, counted in every pass of their loops */
    uint64_t allocated_bytes;   /* device memory held now */
    uint64_t n_allocations;     /* since creation: unchanged while the hot path runs */
} rf_backend_stats;

/* ---- The table. b: the backend; batch: the descriptor the rows come from. "y may be x" is said where aliasing is legal. */

typedef struct rf_ops {
    const char *name;       /* "cpu" */
    void (*destroy)(rf_backend *b);
    /* One line for people and for the start-up agreement: device name; arithmetic level ("cpu-f32-1"): backends with the same
     * level give the same bits. */
    const char *(*device_name)(const rf_backend *b);
    const char *(*arithmetic)(const rf_backend *b);
    void (*report)(const rf_backend *b, void (*line)(const char *text)); /* which op runs on which code */
    rf_backend_stats (*stats)(const rf_backend *b);
    /* Calls body(context) at once, on the calling thread. What it queues may go to threads that wait awake, or into one
     * graph, until it returns; ops outside of a step do the same work, slower. */
    void (*step)(rf_backend *b, void (*body)(void *context), void *context);

    /* -- Memory. Buffers start zeroed. NULL and *err (RF_ERR_MEMORY) on failure. */
    size_t (*buf_bytes)(size_t bytes); /* pure: what a buffer of `bytes` will hold (the plan uses it) */
    rf_buf *(*buf_create)(rf_backend *b, size_t bytes, rf_error *err);
    void (*buf_destroy)(rf_buf *buf); /* NULL is legal, as for every destroy below */
    void *(*buf_host)(rf_buf *buf);   /* host address, or NULL where the device's memory is not the host's */
    void (*upload)(rf_backend *b, rf_buf *dst, size_t offset, const void *src, size_t bytes);
    void (*download)(rf_backend *b, const rf_buf *src, size_t offset, void *dst, size_t bytes); /* syncs */
    int (*sync)(rf_backend *b, rf_error *err);

    /* -- Batch. set() copies seqs and tokens ([sum of n_rows]); n_seqs and n_rows within what was created. */
    rf_batch *(*batch_create)(rf_backend *b, size_t max_seqs, size_t max_rows, rf_error *err);
    void (*batch_destroy)(rf_batch *batch);
    void (*batch_set)(rf_backend *b, rf_batch *batch, size_t n_seqs, const rf_batch_seq *seqs, const int32_t *tokens);

    /* -- Weights. weight_bytes is pure: what weight_create will hold, without a device (the plan uses it). */
    size_t (*weight_bytes)(const rf_weight_spec *spec);
    rf_weight *(*weight_create)(rf_backend *b, const rf_weight_spec *spec, rf_error *err);
    void (*weight_destroy)(rf_weight *w);
    /* bit 1: float32 activations, bit 2: int8 blocks; OR over the weights that share one rf_act */
    unsigned (*weight_wants)(const rf_weight *w);

    size_t (*act_bytes)(size_t max_rows, size_t max_cols); /* pure */
    rf_act *(*act_create)(rf_backend *b, size_t max_rows, size_t max_cols, rf_error *err);
    void (*act_destroy)(rf_act *act);
    /* int8 per 32: s = absmax / 127, q = round-half-even(x / s) with the unrounded s (0 where s is 0), stored scale = s
     * rounded to f16. x must stay unchanged until the last matmul that reads act. */
    void (*quantize)(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat x, unsigned wants, rf_act *act);

    /* y[r][n] = sum_k w[n][k] x[r][k]. Block types: one accumulator per output from +0, k blocks ascending,
     * acc = fma((float)isum, dw * dx, acc). Float types: acc = fma(w, x, acc), k ascending. */
    void (*matmul)(rf_backend *b, size_t n_rows, const rf_weight *w, const rf_act *x, rf_mat y);
    /* n products of the same x (q, k and v; gate and up), each as matmul makes it, in one launch. Their y do not overlap. */
    void (*matmuls)(rf_backend *b, size_t n_rows, size_t n, const rf_product *products, const rf_act *x);
    /* Row-parallel: y[node][row][n] (packed: node stride n_rows * n_outputs): each unit summed as in matmul from +0, units
     * added up the tree of their node. */
    void (*matmul_nodes)(rf_backend *b, size_t n_rows, const rf_weight *w, const rf_act *x, rf_buf *y);

    /* -- Elementwise and norms */
    /* x[r] = row token[r] of the mapped table (any format), times scale (1 leaves bits alone) */
    void (*embed)(rf_backend *b, const rf_batch *batch, const rf_weight_spec *table, float scale, rf_mat x);
    /* y = x * w / sqrt(mean(x^2) + eps): ss by 16 lanes of fma(x, x, lane); s = 1 / sqrtf(ss / n + eps); y = (x * s) * w.
     * y may be x. */
    void (*rms_norm)(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat x, const rf_buf *w, float eps, rf_mat y);
    void (*add)(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat x, rf_mat y); /* x += y */
    void (*silu_mul)(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat gate, rf_mat up, rf_mat y); /* y = (g*sigmoid(g))*up; y may be gate */
    /* x[r][h*D + i] *= sigmoid(gate[r][h*gate_stride + i]) */
    void (*sigmoid_mul)(rf_backend *b, size_t n_rows, size_t n_heads, size_t head_dim, rf_mat x, rf_mat gate, size_t gate_stride);
    /* per head of d: x = rms(x, w over d) * silu(z), formed as ((x*s)*w) * (z*sigmoid(z)); z laid out like x */
    void (*gated_norm)(rf_backend *b, size_t n_rows, size_t n_heads, size_t head_dim, rf_mat x, const rf_buf *w, float eps, rf_mat z);
    /* NaN -> 0, +-infinity -> +-65504; sets *flag (int32 buffer) to 1 if anything was replaced */
    void (*sanitize)(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat x, rf_buf *flag);
    void (*copy)(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat src, rf_mat dst);
    /* dst[i] = src[row of the batch's i-th logits row] */
    void (*gather_logit_rows)(rf_backend *b, const rf_batch *batch, size_t n_cols, rf_mat src, rf_mat dst);
    /* Rows kept per slot, store is [n_slots][RF_MAX_BLOCK][n_cols] packed: row i of a sequence <-> store[slot][i]
     * (sequences of at most RF_MAX_BLOCK rows; keep_rows leaves out sequences of role GIVEN, which may be longer). */
    void (*keep_rows)(rf_backend *b, const rf_batch *batch, size_t n_cols, rf_mat src, rf_buf *store);
    void (*take_rows)(rf_backend *b, const rf_batch *batch, size_t n_cols, const rf_buf *store, rf_mat dst);
    /* One row kept per slot, store is [n_slots][n_cols] packed; sequences of any length and role. keep_last: store[slot] = the last
     * row of the sequence. shift_rows: its row 0 = store[slot], its row i = src[row i - 1]; dst is not src. */
    void (*keep_last)(rf_backend *b, const rf_batch *batch, size_t n_cols, rf_mat src, rf_buf *store);
    void (*shift_rows)(rf_backend *b, const rf_batch *batch, size_t n_cols, const rf_buf *store, rf_mat src, rf_mat dst);

    /* -- Attention */
    size_t (*rope_bytes)(size_t n_rot, size_t max_rows); /* pure */
    rf_rope *(*rope_create)(rf_backend *b, size_t n_rot, double base, size_t max_rows, rf_error *err);
    void (*rope_destroy)(rf_rope *rope);
    /* for the rows of batch: angle = pos * base^(-2i/n_rot) in double, cosine and sine in double, each rounded once */
    void (*rope_prepare)(rf_backend *b, const rf_batch *batch, rf_rope *rope);
    /* in place, per head: rms over D by w (as rms_norm), then rotate pairs (i, i + n_rot/2):
     * (a, b) -> (fma(a, c, -(b*s)), fma(a, s, b*c)) */
    void (*head_norm_rope)(rf_backend *b, const rf_batch *batch, const rf_rope *rope, size_t n_heads, size_t head_dim,
                           size_t head_stride, const rf_buf *w, float eps, rf_mat x);
    size_t (*kv_bytes)(const rf_kv_spec *spec); /* pure */
    rf_kv *(*kv_create)(rf_backend *b, const rf_kv_spec *spec, rf_error *err);
    void (*kv_destroy)(rf_kv *kv);
    void (*kv_store)(rf_backend *b, const rf_batch *batch, rf_kv *kv, rf_mat k, rf_mat v); /* rows [n_kv*D] at their positions */
    /* out[r][j*D..] = softmax(q.k / sqrt(D)) v over cached positions first_pos..pos(r) (window: the last `window` of them; a row
     * that sees none gives zeros). Spans of 256
     * absolute positions in ascending order; q.k by 16 lanes of fma(q, k, lane), then * (1/sqrtf(D)); inside a span m = max of
     * the seen scores, p = exp(s - m), l = sum of p by 16 lanes (lane = position mod 16), o = fma(p, v, o) positions ascending from
     * +0; spans combine as M = max(m1, m2), a = exp(m1 - M), c = exp(m2 - M), l = fma(l2, c, l1 * a), o = fma(o2, c, o1 * a),
     * also for the first span (l1 = o1 = 0, m1 = -inf gives a = 0). Last, o / l. Positions not seen are never read. */
    void (*attention)(rf_backend *b, const rf_batch *batch, const rf_kv *kv, const rf_attention_spec *spec, rf_mat q, rf_mat out);
    /* Drafter: every row sees cached positions s < first_pos of its sequence (window applies by the row's position), in spans as
     * above, then as one last span all rows of its sequence's block, whose k and v [rows][n_kv*D] are rounded to the cache types
     * first (in place) and not stored. n_rows of a sequence <= RF_MAX_BLOCK; lane = row index in the block. */
    void (*attention_block)(rf_backend *b, const rf_batch *batch, const rf_kv *kv, const rf_attention_spec *spec, rf_mat q,
                            rf_mat k, rf_mat v, rf_mat out);
    /* Exact stored bytes of positions [first, first+n) of one local head: n*D elements of the cache type, keys then values (tests,
     * saved sessions). import writes them. */
    void (*kv_export)(rf_backend *b, const rf_kv *kv, size_t slot, size_t head, int64_t first, size_t n, void *keys, void *values);
    void (*kv_import)(rf_backend *b, rf_kv *kv, size_t slot, size_t head, int64_t first, size_t n, const void *keys, const void *values);

    /* -- Gated DeltaNet */
    size_t (*delta_bytes)(const rf_delta_spec *spec); /* pure; the arrays are not read */
    rf_delta *(*delta_create)(rf_backend *b, const rf_delta_spec *spec, rf_error *err);
    void (*delta_destroy)(rf_delta *delta);
    void (*delta_reset)(rf_backend *b, rf_delta *delta, size_t slot); /* zero state and window */
    /* m [rows][n_channels] before the convolution, alpha and beta [rows][n_v]; o [rows][n_v*d], before ssm_norm. Token by token:
     * y[c] = sum_j w[c][j] * m[t-(taps-1)+j][c] by fma from +0, j ascending; silu; q, k: ss by 16 lanes of fma, divided by
     * max(sqrtf(ss), eps) (x / norm), then q *= 1/sqrtf(d); g = a * softplus(alpha + dt), beta = sigmoid(beta);
     * S = exp(g) * S; r[j] = sum_i fma(S[i][j], k[i]) i ascending from +0; u = beta * (v - r); S[i][j] = fma(k[i], u[j], S[i][j]);
     * o[j] = sum_i fma(S[i][j], q[i]) i ascending from +0. GIVEN rows advance state and window in place; GENERATED rows start from
     * the committed state, leave it alone and keep (m, k, u, exp(g)) pending for delta_commit. */
    void (*delta)(rf_backend *b, const rf_batch *batch, rf_delta *delta, rf_mat m, rf_mat alpha, rf_mat beta, rf_mat o);
    /* for each sequence of batch: advance its slot by its first n_rows pending rows (same bits as if they had been GIVEN) */
    void (*delta_commit)(rf_backend *b, const rf_batch *batch, rf_delta *delta);
    /* state of one local value head [d][d] (key index first) and, per channel, the window [taps-1] oldest first */
    void (*delta_export)(rf_backend *b, const rf_delta *delta, size_t slot, size_t v_head, float *state);
    void (*delta_import)(rf_backend *b, rf_delta *delta, size_t slot, size_t v_head, const float *state);
    void (*window_export)(rf_backend *b, const rf_delta *delta, size_t slot, float *window /* [n_channels][taps-1] */);
    void (*window_import)(rf_backend *b, rf_delta *delta, size_t slot, const float *window);

    /* -- DFlash2 convolution: y[r][c] = sum_t (dyn[r][(side*taps + t)*(n_cols/group) + c/group] + base[(side*taps + t)*n_cols + c])
     * * x[r - t][c] by fma from +0, t ascending; rows before the first of the sequence are zero (skipped). y is not x. */
    void (*dynamic_conv)(rf_backend *b, const rf_batch *batch, size_t n_cols, size_t taps, size_t group, size_t side, rf_mat dyn,
                         const rf_buf *base, rf_mat x, rf_mat y);

    /* -- Logits. n_rows rows of the local vocabulary shard [n_cols], global id = first_id + column. NaN counts as -inf. */
    /* l *= scale (if not 1), then cap * tanhf(l / cap) (if cap > 0) */
    void (*logit_scale)(rf_backend *b, size_t n_rows, size_t n_cols, float scale, float cap, rf_mat logits);
    /* k best, descending, ties lower id first: out[row][k] (rf_candidate); where k > n_cols the rest is {-inf, -1} */
    void (*top_k)(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat logits, int32_t first_id, size_t k, rf_buf *out);
    /* argmax of logit / T + G in double (gumbel.h), ties to the lower id; rows: rf_gumbel_row [n_rows]; out: rf_gumbel_best */
    void (*gumbel_argmax)(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat logits, int32_t first_id, const rf_buf *rows, rf_buf *out);
    /* out[row] (uint64) = sum over columns of floor(exp(l - max[row]) * 2^40), exp in double; max: float [n_rows] */
    void (*log_mass)(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat logits, const rf_buf *max, rf_buf *out);
    /* out[row] (uint64) = sum mod 2^64 over columns of mix(id, bits of the logit) (hash.h) */
    void (*row_hash)(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat logits, int32_t first_id, rf_buf *out);
} rf_ops;

struct rf_backend {
    const rf_ops *ops;
};

/* The CPU backend. n_threads >= 1; busy: they have cores of their own, so that waits may spin; isa: "auto", "reference",
 * "avx2", "avx512" or "amx" (an absent level is RF_ERR_USAGE). The pure functions of the table can be had without a
 * backend. */
rf_backend *rf_cpu_create(int n_threads, bool busy, const char *isa, rf_error *err);
const rf_ops *rf_cpu_traits(void);

#endif
