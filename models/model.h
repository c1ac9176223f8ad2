/* What every network needs to be bound: device, communicator, shard, sizes; and the table of its tensors. */
#ifndef RF_MODEL_H
#define RF_MODEL_H

#include "../collectives/comm.h"
#include "backend.h"
#include "gguf.h"
#include "shard.h"

/* Sizes fixed when a model is bound. */
typedef struct {
    size_t n_slots;          /* live sequences */
    size_t n_ctx;            /* positions a slot can hold */
    size_t max_rows;         /* rows of one batch: max(prefill chunk, n_slots * RF_MAX_BLOCK) */
    uint32_t type_k, type_v; /* cache types (rf_type) */
} rf_model_sizes;

typedef struct {
    rf_backend *backend;
    rf_comm *world;         /* all ranks: layer mode's send and receive */
    rf_comm *inner;         /* sums and allgathers inside a layer: world in tensor mode, self in layer and none mode */
    const rf_shard *shard;
    rf_model_sizes sizes;
} rf_model_env;

/* ---- Tensor table: what a network's tensors are called, their shapes, and how they are cut. One table serves binding
 * (checks), loading (slices) and the plan (bytes). Entries are generated from the parameters by the architecture's
 * rf_*_tensors(). */

typedef enum {
    RF_CUT_REPLICATED, /* every rank that computes its layer holds it whole */
    RF_CUT_ROWS,       /* output rows by `axis` */
    RF_CUT_COLS,       /* input columns by `axis` (row-parallel: node sums) */
    RF_CUT_MAPPED,     /* read through the map, row by row (embeddings; codebooks, by the leader only) */
    RF_CUT_UNUSED      /* known, not loaded (vision, MTP when no MTP drafter is asked for) */
} rf_cut;

/* How a unit of the axis maps to rows or columns of this tensor. */
typedef enum {
    RF_LAYOUT_PLAIN,    /* element e of the axis owns rows (columns) [e * width, (e + 1) * width) */
    RF_LAYOUT_KV,       /* RF_AXIS_HEADS / DRAFT_HEADS: the KV heads those query heads read, `width` rows each */
    RF_LAYOUT_QKV,      /* DeltaNet qkv rows and conv channels: q heads, k heads, then tiled value heads */
    RF_LAYOUT_TILED     /* DeltaNet value heads, tiled by key heads, `width` each, unit-major locally */
} rf_layout;

typedef enum { RF_PART_LAYER, RF_PART_TAIL } rf_part; /* which rank in layer mode: its layer's, or the tail's */

typedef struct {
    char name[64];
    size_t n_dims, dims[4]; /* expected; contiguous first */
    bool optional;
    bool vector;            /* small float vector, uploaded as float32 (else a matrix for matmul) */
    rf_cut cut;
    rf_axis_id axis;
    rf_layout layout;
    size_t width;
    rf_part part;
    size_t layer;           /* trunk layer, for RF_PART_LAYER */
    size_t id;              /* architecture's own tag for binding */
} rf_tensor_want;

#endif
