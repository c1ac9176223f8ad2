/* Binding: a network's tensor table meets a file, a shard and a device.
 *
 * One walk over everything a model allocates serves two ends: a dry binder only adds up bytes through the backend's
 * pure functions (the plan), a real one creates. So the two cannot differ. Failures are sticky: after the first,
 * everything returns NULL and b->failed stays true with *err filled. */
#ifndef RF_BIND_H
#define RF_BIND_H

#include "parts.h"
#include "qwen35.h"
#include "slice.h"
#include "table.h"

/* Every wanted tensor is there with its shape and a usable type, every tensor of the file is wanted (but v.*, mm.*),
 * and block types meet the cuts. Unused entries may be missing or of any shape. axes: units as rf_*_axes gives them. */
int rf_bind_check(const rf_gguf *file, const rf_tensor_want *wants, size_t n, const rf_axis axes[RF_N_AXES],
                  rf_error *err);
/* Rows of a matrix whose size only the tensor tells; 0 and *err if it is missing, no matrix, or larger than `most`. */
size_t rf_bind_n_rows(const rf_gguf *file, const char *name, size_t most, rf_error *err);

typedef struct {
    const rf_model_env *env;
    const rf_ops *ops;
    const rf_gguf *file;
    const rf_tensor_want *wants;
    size_t n_wants;
    bool dry;
    rf_model_bytes bytes;   /* what has been (or would be) allocated so far */
    size_t all;             /* weight bytes there will be, for progress */
    void (*progress)(void *context, size_t done, size_t all);
    void *context;
    bool failed;
    rf_error *err;
} rf_binder;

/* Weights of tensor (id, layer), this rank's slice. */
rf_weight *rf_bind_matrix(rf_binder *b, size_t id, size_t layer);
void rf_bind_row_parallel(rf_binder *b, size_t id, size_t layer, const rf_sum_plan *plan, rf_row_parallel *w);
rf_buf *rf_bind_vector(rf_binder *b, size_t id, size_t layer); /* float32 on the device */
/* float32 in host memory, malloc'd, not counted; NULL when dry */
float *rf_bind_host(rf_binder *b, size_t id, size_t layer);
rf_weight_spec rf_bind_table(rf_binder *b, size_t id, size_t layer); /* the mapped tensor, for embed */
unsigned rf_bind_wants(const rf_binder *b, const rf_weight *w);      /* weight_wants, 0 for NULL */

rf_buf *rf_bind_floats(rf_binder *b, size_t *category, size_t n); /* category: a member of b->bytes */
rf_act *rf_bind_act(rf_binder *b, size_t max_rows, size_t max_cols);
rf_rope *rf_bind_rope(rf_binder *b, size_t n_rot, double base, size_t max_rows);
rf_kv *rf_bind_kv(rf_binder *b, const rf_kv_spec *spec);
rf_delta *rf_bind_delta(rf_binder *b, const rf_delta_spec *spec);
rf_sum_plan *rf_bind_sum_plan(rf_binder *b, rf_axis_id axis);
/* Tree nodes of a plan on this rank. */
size_t rf_bind_n_nodes(const rf_binder *b, const rf_sum_plan *plan);
/* Columns of an allgather along axis: [ranks + 1] boundaries, malloc'd (one rank outside tensor mode). */
size_t *rf_bind_boundaries(rf_binder *b, rf_axis_id axis);

#endif
