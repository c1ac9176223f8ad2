/* Inside of the CPU backend: its objects, and what the files of one ISA level share. */
#ifndef RF_CPU_INTERNAL_H
#define RF_CPU_INTERNAL_H

#include "../spec_sizes.h"
#include "team.h"

#define OUT_LANES 16   /* output rows of a packed weight block */
#define Q8_TILE_BYTES (Q8_BLOCK * OUT_LANES) /* int8 of 16 rows x 32 columns */
#define MAX_TILE_ROWS RF_MAX_BLOCK           /* activation rows a pass over the weights serves */
#define MAX_STRIP 64                         /* columns of a DeltaNet state that are worked on at a time */
#define ATTENTION_QUERIES 16                 /* of a task */
#define ATTENTION_MIN_TASKS 2                /* a thread; with fewer, threads divide the spans of a task */
#define ATTENTION_UNITS 4                    /* a thread: spans on their way; at least ATTENTION_MIN_TASKS */

/* Every ISA level compiles the same sources; its functions are told apart by a suffix. */
#define RF_ISA_PASTE(name, isa) name##_##isa
#define RF_ISA_EXPAND(name, isa) RF_ISA_PASTE(name, isa)
#define RF_ISA_NAME(name) RF_ISA_EXPAND(name, RF_ISA)

typedef struct {
    rf_backend base;
    rf_ops table;
    cpu_team team;
    const char *isa;       /* "reference", "avx2", "avx512" */
    char device[160];
    rf_backend_stats stats;
    float *scratch;        /* [n_threads][scratch_floats] */
    size_t scratch_floats;
    float *units;          /* [n_units] sums of an attention span, then [n_units][2][ATTENTION_QUERIES] totals */
    size_t n_units, units_floats;
} rf_cpu;

static inline rf_cpu *cpu_of(const rf_backend *b)
{
    return (rf_cpu *)(uintptr_t)b;
}

static inline cpu_team *team_of(const rf_backend *b)
{
    return &cpu_of(b)->team;
}

struct rf_buf {
    rf_cpu *cpu;
    size_t bytes;
    void *data;
};

typedef struct {
    rf_batch shape; /* first: rf_batch * is cpu_batch * */
    rf_cpu *cpu;
    size_t max_seqs, max_rows;
    rf_batch_seq *seqs;  /* [n_seqs] */
    size_t *first_row;   /* [n_seqs] */
    int32_t *tokens;     /* [n_rows] */
    int64_t *position;   /* [n_rows] */
    int32_t *seq;        /* [n_rows] */
    size_t *logit_rows;  /* [n_logit_rows] */
} cpu_batch;

static inline const cpu_batch *cpu_batch_of(const rf_batch *batch)
{
    return (const cpu_batch *)batch;
}

/* Packed weights, 16 output rows a block (zero rows fill the last).
 * Q8_0: [block][k block] tiles of 8 groups x 16 rows x 4 columns, each byte q + 128, then scales, f16,
 * [block][k block][16]. Floats: [block][k][16] in the file's type. */
struct rf_weight {
    rf_cpu *cpu;
    uint32_t type;
    size_t n_rows, n_cols, n_blocks;
    unsigned char *data;
    size_t bytes;
    size_t *unit_end; /* [n_units] local columns */
    rf_range *nodes;
    size_t n_units, n_nodes;
};

struct rf_act {
    rf_cpu *cpu;
    size_t max_rows, max_cols, n_cols;
    rf_mat x;
    /* Rows in tiles of MAX_TILE_ROWS (the last has fewer), which kernels stream: [k block][row of the tile]. */
    size_t n_rows;
    int8_t *q;        /* [32] each */
    float *d;
    int32_t *offset;  /* -128 * sum of q: undoes the + 128 of packed weights */
};

struct rf_rope {
    rf_cpu *cpu;
    size_t half, max_rows; /* n_rot / 2 */
    double *frequency;     /* [half] */
    float *cosine, *sine;  /* [rows][half] */
};

struct rf_kv {
    rf_cpu *cpu;
    rf_kv_spec spec;
    size_t n_blocks;      /* a slot */
    uint32_t *table;      /* [n_slots][n_blocks] pool block */
    unsigned char *k, *v; /* [pool block][head][SPAN][head_dim] */
    size_t k_size, v_size; /* bytes an element */
    size_t k_bytes, v_bytes;
};

struct rf_delta {
    rf_cpu *cpu;
    rf_delta_spec spec;
    size_t n_channels, tiles;
    float *conv;         /* [taps][n_channels] */
    float *a, *dt;
    float *state;        /* [slot][v head], then cpu_state_at */
    float *window;       /* [slot][taps - 1][n_channels] */
    float *pending_m;    /* [slot][RF_MAX_BLOCK][n_channels] */
    float *pending_k;    /* [slot][v head][RF_MAX_BLOCK][d]: each value head has its own, so that none waits for another */
    float *pending_u;    /* [slot][v head][RF_MAX_BLOCK][d] */
    float *pending_g;    /* [slot][v head][RF_MAX_BLOCK] exp(g) */
    int32_t *due;        /* [slot][v head] leading pending rows that are committed, but not in the state yet */
    float *memory;       /* all of them */
    size_t bytes;
};

static inline size_t round_to_lanes(size_t n)
{
    return (n + OUT_LANES - 1) / OUT_LANES * OUT_LANES;
}

/* ---- DeltaNet: a head's state is [strips of MAX_STRIP columns][d][columns of the strip], columns rounded up to lanes */

static inline size_t cpu_state_floats(size_t head_dim)
{
    return head_dim * round_to_lanes(head_dim);
}

/* Floats from one row to the next of the strip that column `at` is in */
static inline size_t cpu_state_stride(const rf_delta *t, size_t at)
{
    size_t left = round_to_lanes(t->spec.head_dim) - at / MAX_STRIP * MAX_STRIP;

    return left < MAX_STRIP ? left : MAX_STRIP;
}

/* Row 0, column `at` */
static inline float *cpu_state_at(const rf_delta *t, size_t slot, size_t head, size_t at)
{
    size_t d = t->spec.head_dim;

    return t->state + (slot * t->spec.n_v_heads + head) * cpu_state_floats(d) + at / MAX_STRIP * MAX_STRIP * d +
           at % MAX_STRIP;
}

static inline float *cpu_pending_k(const rf_delta *t, size_t slot, size_t head, size_t row)
{
    return t->pending_k + ((slot * t->spec.n_v_heads + head) * RF_MAX_BLOCK + row) * t->spec.head_dim;
}

static inline float *cpu_pending_u(const rf_delta *t, size_t slot, size_t head, size_t row)
{
    return t->pending_u + ((slot * t->spec.n_v_heads + head) * RF_MAX_BLOCK + row) * t->spec.head_dim;
}

static inline float *cpu_pending_g(const rf_delta *t, size_t slot, size_t head, size_t row)
{
    return t->pending_g + (slot * t->spec.n_v_heads + head) * RF_MAX_BLOCK + row;
}

static inline int32_t *cpu_due(const rf_delta *t, size_t slot, size_t head)
{
    return t->due + slot * t->spec.n_v_heads + head;
}

/* Floats of scratch a thread needs for a DeltaNet head: a strip of its state; q, k, v and u of a tile of rows; k and u
 * of as many committed ones. */
static inline size_t delta_scratch_floats(size_t head_dim)
{
    return head_dim * MAX_STRIP + 6 * MAX_TILE_ROWS * round_to_lanes(head_dim);
}

/* Floats of the sums of a span: m, l and o of all queries */
static inline size_t attention_unit_floats(size_t head_dim)
{
    return (2 + round_to_lanes(head_dim)) * ATTENTION_QUERIES;
}

/* Floats of scratch a thread needs for attention: queries, probabilities, a block of 16 positions, a unit. */
static inline size_t attention_scratch_floats(size_t head_dim)
{
    return (ATTENTION_QUERIES + OUT_LANES) * round_to_lanes(head_dim) + ATTENTION_QUERIES * SPAN +
           attention_unit_floats(head_dim);
}

static inline float *mat_row(rf_mat m, size_t row)
{
    return (float *)m.buf->data + m.offset + row * m.stride;
}

/* memory.c: zeroed, 64-byte aligned; large blocks are mapped, aligned for huge pages, touched by their first user. */
void *cpu_alloc(rf_cpu *cpu, size_t bytes, const char *what, rf_error *err);
void cpu_free(rf_cpu *cpu, void *p, size_t bytes);
size_t cpu_alloc_bytes(size_t bytes); /* what cpu_alloc(bytes) holds */
void cpu_memory_ops(rf_ops *ops);
/* At least `floats` of scratch for every thread. */
int cpu_need_scratch(rf_cpu *cpu, size_t floats, rf_error *err);
int cpu_need_units(rf_cpu *cpu, size_t head_dim, rf_error *err); /* for attention over heads of this width */
float *cpu_scratch(rf_cpu *cpu); /* this thread's, in a part of a team's work */

void cpu_batch_ops(rf_ops *ops);  /* batch.c */
void cpu_weight_ops(rf_ops *ops); /* weights.c */
void cpu_cache_ops(rf_ops *ops);  /* caches.c */

/* Address of cached element (slot, head, position). */
static inline size_t kv_place(const rf_kv *kv, size_t slot, size_t head, int64_t position)
{
    size_t block = (size_t)position / SPAN;

    if (kv->spec.ring)
        block %= kv->n_blocks;
    return ((kv->table[slot * kv->n_blocks + block] * kv->spec.n_heads + head) * SPAN + (size_t)position % SPAN) *
           kv->spec.head_dim;
}

/* One ISA level's compute ops. */
void rf_cpu_compute_ops_reference(rf_ops *ops);
void rf_cpu_compute_ops_avx2(rf_ops *ops);
void rf_cpu_compute_ops_avx512(rf_ops *ops);
void rf_cpu_compute_ops_amx(rf_ops *ops);

#endif
