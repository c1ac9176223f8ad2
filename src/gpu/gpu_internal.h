/* Inside of the GPU backend: its objects and what its files share. Compiled once for each vendor; everything lives in the
 * vendor's namespace but the objects that backend.h names, which a vendor's code alone looks into. */
#ifndef RF_GPU_INTERNAL_H
#define RF_GPU_INTERNAL_H

#include "gpu_rt.h"

extern "C" {
#include "../spec_sizes.h"
#include "gpu.h"
}

#define MAX_TILE_ROWS RF_MAX_BLOCK /* activation rows that one pass over the weights serves */
#define STAGING_BYTES ((size_t)4 << 20) /* pinned memory of all uploads, in two halves */
#define ATTENTION_UNITS 16384 /* (query, span) pairs whose sums are kept at a time */

struct rf_gpu {
    rf_backend base;
    rf_ops table;
    int device;
    rt_stream stream;
    char name[160], arithmetic[64];
    rf_backend_stats stats;
    rf_error error; /* the first since the last sync */
    /* Uploads go through pinned memory, so that nobody waits for them. */
    unsigned char *staging;
    size_t staged;       /* bytes of the current half */
    int half;
    rt_event done[2];    /* the half was copied */
    int n_events;
    float *units;        /* sums of attention spans: [unit][2 + widest head], then totals */
    size_t units_floats;
};

struct rf_buf {
    rf_gpu *gpu;
    size_t bytes;
    void *data; /* device address */
};

/* What kernels know of a batch: device addresses. */
typedef struct {
    const rf_batch_seq *seqs;     /* [n_seqs] */
    const uint32_t *first_row;    /* [n_seqs] */
    const uint32_t *seq_of;       /* [n_rows] */
    const uint32_t *logit_rows;   /* [n_logit_rows] */
} rt_batch_view;

typedef struct {
    rf_batch shape; /* first: rf_batch * is gpu_batch * */
    rf_gpu *gpu;
    size_t max_seqs, max_rows, bytes;
    unsigned char *host, *device; /* the same layout: seqs, first_row, seq_of, logit_rows */
    rt_batch_view here, view;     /* host and device addresses */
    int32_t *tokens;              /* [max_rows], host */
} gpu_batch;

/* Weights, row by row. Q8_0: int8 [n_rows][n_cols], then f16 scales [n_rows][n_cols / 32]. Floats: as in the file. */
struct rf_weight {
    rf_gpu *gpu;
    uint32_t type;
    size_t n_rows, n_cols, bytes;
    unsigned char *data;
    size_t n_units, n_nodes, n_adds, n_levels;
    /* Device: unit_end [n_units], node_unit [n_nodes] (first unit), level_end [n_levels], adds [n_adds][2] (unit to,
     * unit from), in levels whose additions do not touch each other. */
    uint32_t *plan;
    size_t plan_words;
};

struct rf_act {
    rf_gpu *gpu;
    size_t max_rows, max_cols;
    rf_mat x;
    size_t n_cols;
    int8_t *q; /* [row][n_cols] */
    float *d;  /* [row][n_cols / 32] */
};

struct rf_rope {
    rf_gpu *gpu;
    size_t half, max_rows;
    double *frequency;    /* [half] */
    float *cosine, *sine; /* [rows][half] */
};

struct rf_kv {
    rf_gpu *gpu;
    rf_kv_spec spec;
    size_t n_blocks;       /* a slot */
    uint32_t *table;       /* [n_slots][n_blocks] pool block, device */
    uint32_t *host_table;
    unsigned char *k, *v;  /* [pool block][head][SPAN][head_dim] */
    size_t k_size, v_size; /* bytes an element */
    size_t k_bytes, v_bytes;
};

/* What kernels know of DeltaNet states: device addresses. */
typedef struct {
    unsigned n_k_heads, n_v_heads, d, taps, n_channels;
    float eps;
    const float *conv; /* [taps][n_channels] */
    const float *a, *dt;
    float *state;      /* [slot][v head][value][key]: a column of the state is contiguous */
    float *window;     /* [slot][taps - 1][n_channels] */
    float *pending_m;  /* [slot][RF_MAX_BLOCK][n_channels] */
    float *pending_k;  /* [slot][RF_MAX_BLOCK][k head][d] */
    float *pending_u;  /* [slot][RF_MAX_BLOCK][v head][d] */
    float *pending_g;  /* [slot][RF_MAX_BLOCK][v head] */
} delta_view;

struct rf_delta {
    rf_gpu *gpu;
    rf_delta_spec spec;
    delta_view view;
    float *memory;
    size_t bytes;
};

namespace RT_SPACE {

static inline rf_gpu *gpu_of(const rf_backend *b)
{
    return reinterpret_cast<rf_gpu *>(reinterpret_cast<uintptr_t>(b));
}

static inline const gpu_batch *batch_of(const rf_batch *batch)
{
    return reinterpret_cast<const gpu_batch *>(batch);
}

/* A matrix as kernels see it. */
typedef struct {
    float *p;
    size_t stride;
} rt_mat;

static inline rt_mat mat_of(rf_mat m)
{
    return rt_mat{static_cast<float *>(m.buf->data) + m.offset, m.stride};
}

template <class T> static inline T *data_of(const rf_buf *buf)
{
    return static_cast<T *>(buf->data);
}

static inline size_t divide_up(size_t n, size_t by)
{
    return (n + by - 1) / by;
}

/* Queues a kernel. Empty grids are skipped. */
template <class... P, class... A>
static inline void launch(rf_gpu *gpu, const rt_launch_spec &s, void (*kernel)(P...), A... a)
{
    if (s.grid.x && s.grid.y && s.grid.z)
        rt_launch(gpu->stream, s, kernel, static_cast<P>(a)...);
}

static inline rt_grid grid_of(size_t x, size_t y = 1, size_t z = 1)
{
    return rt_grid{static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
}

/* memory.cu. Device memory, zeroed. NULL and *err where there is none. */
void *gpu_alloc(rf_gpu *gpu, size_t bytes, const char *what, rf_error *err);
void gpu_free(rf_gpu *gpu, void *p, size_t bytes);
size_t gpu_alloc_bytes(size_t bytes); /* what gpu_alloc(bytes) holds */
/* Queues a copy; src may change when it returns. */
void gpu_upload(rf_gpu *gpu, void *to, const void *src, size_t bytes);
/* At most STAGING_BYTES / 2 bytes of pinned memory to fill; gpu_push then queues its copy. */
unsigned char *gpu_stage(rf_gpu *gpu, size_t bytes);
void gpu_push(rf_gpu *gpu, void *to, const unsigned char *staged, size_t bytes);
/* Waits, and copies. */
void gpu_download(rf_gpu *gpu, void *to, const void *from, size_t bytes);
int gpu_open_staging(rf_gpu *gpu, rf_error *err);
void gpu_close_staging(rf_gpu *gpu);
void gpu_note(rf_gpu *gpu, const char *said); /* keeps the first error of the device; NULL: none */
/* Memory for sums of attention over heads of this width. */
int gpu_need_units(rf_gpu *gpu, size_t head_dim, rf_error *err);

void memory_ops(rf_ops *ops);    /* memory.cu */
void batch_ops(rf_ops *ops);     /* batch.cu */
void weight_ops(rf_ops *ops);    /* weights.cu */
void matmul_ops(rf_ops *ops);    /* matmul.cu */
void basic_ops(rf_ops *ops);     /* basic.cu */
void row_ops(rf_ops *ops);       /* rows.cu */
void cache_ops(rf_ops *ops);     /* caches.cu */
void attention_ops(rf_ops *ops); /* attention.cu */
void delta_ops(rf_ops *ops);     /* delta.cu */
void logit_ops(rf_ops *ops);     /* logits.cu */
void choice_ops(rf_ops *ops);    /* choices.cu */

} /* namespace */

#endif
