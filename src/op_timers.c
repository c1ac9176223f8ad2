#include "config.h"

#include "op_timers.h"

#include <stdlib.h>

#include "clock.h"

struct rf_op_timers {
    rf_ops table; /* first: a backend's ops are its timers */
    rf_backend *b;
    const rf_ops *inner;
    double seconds[RF_N_TIMED];
    size_t calls[RF_N_TIMED];
};

static rf_op_timers *timers_of(const rf_backend *b)
{
    return (rf_op_timers *)(uintptr_t)b->ops;
}

/* One op: the same parameters, the real function between two looks at the clock. */
#define TIMED(op, kind, parameters, arguments)    \
    static void timed_##op parameters             \
    {                                             \
        rf_op_timers *t = timers_of(b);           \
        double start = rf_seconds();              \
                                                  \
        t->inner->op arguments;                   \
        t->seconds[kind] += rf_seconds() - start; \
        t->calls[kind]++;                         \
    }

TIMED(upload, RF_TIMED_COPY, (rf_backend * b, rf_buf *dst, size_t offset, const void *src, size_t bytes),
      (b, dst, offset, src, bytes))
TIMED(download, RF_TIMED_COPY, (rf_backend * b, const rf_buf *src, size_t offset, void *dst, size_t bytes),
      (b, src, offset, dst, bytes))
TIMED(batch_set, RF_TIMED_COPY,
      (rf_backend * b, rf_batch *batch, size_t n_seqs, const rf_batch_seq *seqs, const int32_t *tokens),
      (b, batch, n_seqs, seqs, tokens))
TIMED(quantize, RF_TIMED_QUANTIZE,
      (rf_backend * b, size_t n_rows, size_t n_cols, rf_mat x, unsigned wants, rf_act *act),
      (b, n_rows, n_cols, x, wants, act))
TIMED(matmul, RF_TIMED_MATMUL, (rf_backend * b, size_t n_rows, const rf_weight *w, const rf_act *x, rf_mat y),
      (b, n_rows, w, x, y))
TIMED(matmuls, RF_TIMED_MATMUL,
      (rf_backend * b, size_t n_rows, size_t n, const rf_product *products, const rf_act *x),
      (b, n_rows, n, products, x))
TIMED(matmul_nodes, RF_TIMED_MATMUL, (rf_backend * b, size_t n_rows, const rf_weight *w, const rf_act *x, rf_buf *y),
      (b, n_rows, w, x, y))
TIMED(embed, RF_TIMED_EMBED,
      (rf_backend * b, const rf_batch *batch, const rf_weight_spec *table, float scale, rf_mat x),
      (b, batch, table, scale, x))
TIMED(rms_norm, RF_TIMED_NORM,
      (rf_backend * b, size_t n_rows, size_t n_cols, rf_mat x, const rf_buf *w, float eps, rf_mat y),
      (b, n_rows, n_cols, x, w, eps, y))
TIMED(add, RF_TIMED_ELEMENTWISE, (rf_backend * b, size_t n_rows, size_t n_cols, rf_mat x, rf_mat y),
      (b, n_rows, n_cols, x, y))
TIMED(silu_mul, RF_TIMED_ELEMENTWISE, (rf_backend * b, size_t n_rows, size_t n_cols, rf_mat gate, rf_mat up, rf_mat y),
      (b, n_rows, n_cols, gate, up, y))
TIMED(sigmoid_mul, RF_TIMED_ELEMENTWISE,
      (rf_backend * b, size_t n_rows, size_t n_heads, size_t head_dim, rf_mat x, rf_mat gate, size_t gate_stride),
      (b, n_rows, n_heads, head_dim, x, gate, gate_stride))
TIMED(gated_norm, RF_TIMED_NORM,
      (rf_backend * b, size_t n_rows, size_t n_heads, size_t head_dim, rf_mat x, const rf_buf *w, float eps, rf_mat z),
      (b, n_rows, n_heads, head_dim, x, w, eps, z))
TIMED(sanitize, RF_TIMED_ELEMENTWISE, (rf_backend * b, size_t n_rows, size_t n_cols, rf_mat x, rf_buf *flag),
      (b, n_rows, n_cols, x, flag))
TIMED(copy, RF_TIMED_COPY, (rf_backend * b, size_t n_rows, size_t n_cols, rf_mat src, rf_mat dst),
      (b, n_rows, n_cols, src, dst))
TIMED(gather_logit_rows, RF_TIMED_COPY, (rf_backend * b, const rf_batch *batch, size_t n_cols, rf_mat src, rf_mat dst),
      (b, batch, n_cols, src, dst))
TIMED(keep_rows, RF_TIMED_COPY, (rf_backend * b, const rf_batch *batch, size_t n_cols, rf_mat src, rf_buf *store),
      (b, batch, n_cols, src, store))
TIMED(take_rows, RF_TIMED_COPY, (rf_backend * b, const rf_batch *batch, size_t n_cols, const rf_buf *store, rf_mat dst),
      (b, batch, n_cols, store, dst))
TIMED(keep_last, RF_TIMED_COPY, (rf_backend * b, const rf_batch *batch, size_t n_cols, rf_mat src, rf_buf *store),
      (b, batch, n_cols, src, store))
TIMED(shift_rows, RF_TIMED_COPY,
      (rf_backend * b, const rf_batch *batch, size_t n_cols, const rf_buf *store, rf_mat src, rf_mat dst),
      (b, batch, n_cols, store, src, dst))
TIMED(rope_prepare, RF_TIMED_NORM, (rf_backend * b, const rf_batch *batch, rf_rope *rope), (b, batch, rope))
TIMED(head_norm_rope, RF_TIMED_NORM,
      (rf_backend * b, const rf_batch *batch, const rf_rope *rope, size_t n_heads, size_t head_dim, size_t head_stride,
       const rf_buf *w, float eps, rf_mat x),
      (b, batch, rope, n_heads, head_dim, head_stride, w, eps, x))
TIMED(kv_store, RF_TIMED_ATTENTION, (rf_backend * b, const rf_batch *batch, rf_kv *kv, rf_mat k, rf_mat v),
      (b, batch, kv, k, v))
TIMED(attention, RF_TIMED_ATTENTION,
      (rf_backend * b, const rf_batch *batch, const rf_kv *kv, const rf_attention_spec *spec, rf_mat q, rf_mat out),
      (b, batch, kv, spec, q, out))
TIMED(attention_block, RF_TIMED_ATTENTION,
      (rf_backend * b, const rf_batch *batch, const rf_kv *kv, const rf_attention_spec *spec, rf_mat q, rf_mat k,
       rf_mat v, rf_mat out),
      (b, batch, kv, spec, q, k, v, out))
TIMED(delta, RF_TIMED_DELTA,
      (rf_backend * b, const rf_batch *batch, rf_delta *delta, rf_mat m, rf_mat alpha, rf_mat beta, rf_mat o),
      (b, batch, delta, m, alpha, beta, o))
TIMED(delta_commit, RF_TIMED_DELTA_COMMIT, (rf_backend * b, const rf_batch *batch, rf_delta *delta), (b, batch, delta))
TIMED(dynamic_conv, RF_TIMED_ELEMENTWISE,
      (rf_backend * b, const rf_batch *batch, size_t n_cols, size_t taps, size_t group, size_t side, rf_mat dyn,
       const rf_buf *base, rf_mat x, rf_mat y),
      (b, batch, n_cols, taps, group, side, dyn, base, x, y))
TIMED(logit_scale, RF_TIMED_ELEMENTWISE,
      (rf_backend * b, size_t n_rows, size_t n_cols, float scale, float cap, rf_mat logits),
      (b, n_rows, n_cols, scale, cap, logits))
TIMED(top_k, RF_TIMED_LOGITS,
      (rf_backend * b, size_t n_rows, size_t n_cols, rf_mat logits, int32_t first_id, size_t k, rf_buf *out),
      (b, n_rows, n_cols, logits, first_id, k, out))
TIMED(gumbel_argmax, RF_TIMED_LOGITS,
      (rf_backend * b, size_t n_rows, size_t n_cols, rf_mat logits, int32_t first_id, const rf_buf *rows, rf_buf *out),
      (b, n_rows, n_cols, logits, first_id, rows, out))
TIMED(log_mass, RF_TIMED_LOGITS,
      (rf_backend * b, size_t n_rows, size_t n_cols, rf_mat logits, const rf_buf *max, rf_buf *out),
      (b, n_rows, n_cols, logits, max, out))
TIMED(row_hash, RF_TIMED_LOGITS,
      (rf_backend * b, size_t n_rows, size_t n_cols, rf_mat logits, int32_t first_id, rf_buf *out),
      (b, n_rows, n_cols, logits, first_id, out))

rf_op_timers *rf_op_timers_create(rf_backend *b, rf_error *err)
{
    rf_op_timers *t = calloc(1, sizeof *t);

    if (!t) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for the timers of ops");
        return NULL;
    }
    t->b = b;
    t->inner = b->ops;
    t->table = *b->ops;
    b->ops = &t->table;
    return t;
}

void rf_op_timers_destroy(rf_op_timers *t)
{
    if (!t)
        return;
    t->b->ops = t->inner;
    free(t);
}

void rf_op_timers_start(rf_op_timers *t)
{
    rf_ops *o = &t->table;

    for (size_t i = 0; i < RF_N_TIMED; i++) {
        t->seconds[i] = 0;
        t->calls[i] = 0;
    }
    o->upload = timed_upload;
    o->download = timed_download;
    o->batch_set = timed_batch_set;
    o->quantize = timed_quantize;
    o->matmul = timed_matmul;
    o->matmuls = timed_matmuls;
    o->matmul_nodes = timed_matmul_nodes;
    o->embed = timed_embed;
    o->rms_norm = timed_rms_norm;
    o->add = timed_add;
    o->silu_mul = timed_silu_mul;
    o->sigmoid_mul = timed_sigmoid_mul;
    o->gated_norm = timed_gated_norm;
    o->sanitize = timed_sanitize;
    o->copy = timed_copy;
    o->gather_logit_rows = timed_gather_logit_rows;
    o->keep_rows = timed_keep_rows;
    o->take_rows = timed_take_rows;
    o->keep_last = timed_keep_last;
    o->shift_rows = timed_shift_rows;
    o->rope_prepare = timed_rope_prepare;
    o->head_norm_rope = timed_head_norm_rope;
    o->kv_store = timed_kv_store;
    o->attention = timed_attention;
    o->attention_block = timed_attention_block;
    o->delta = timed_delta;
    o->delta_commit = timed_delta_commit;
    o->dynamic_conv = timed_dynamic_conv;
    o->logit_scale = timed_logit_scale;
    o->top_k = timed_top_k;
    o->gumbel_argmax = timed_gumbel_argmax;
    o->log_mass = timed_log_mass;
    o->row_hash = timed_row_hash;
}

void rf_op_timers_stop(rf_op_timers *t)
{
    t->table = *t->inner;
}

double rf_op_timers_seconds(const rf_op_timers *t, rf_timed_op op)
{
    return t->seconds[op];
}

size_t rf_op_timers_calls(const rf_op_timers *t, rf_timed_op op)
{
    return t->calls[op];
}

const char *rf_timed_op_name(rf_timed_op op)
{
    static const char *const names[RF_N_TIMED] = {[RF_TIMED_EMBED] = "embed",
                                                  [RF_TIMED_NORM] = "norm and rope",
                                                  [RF_TIMED_QUANTIZE] = "quantize",
                                                  [RF_TIMED_MATMUL] = "matmul",
                                                  [RF_TIMED_ATTENTION] = "attention",
                                                  [RF_TIMED_DELTA] = "DeltaNet",
                                                  [RF_TIMED_DELTA_COMMIT] = "DeltaNet commit",
                                                  [RF_TIMED_ELEMENTWISE] = "elementwise",
                                                  [RF_TIMED_COPY] = "copy",
                                                  [RF_TIMED_LOGITS] = "logits"};

    return names[op];
}
