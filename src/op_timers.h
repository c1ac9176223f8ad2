/* A decorator of the op table: how long each op took, by op.
 *
 * rf_op_timers_create puts a table of its own in front of the backend's, before anything is bound to it (models keep
 * the table's address). While the timers are off that table holds the backend's own functions, so nothing is paid;
 * start puts functions into it that take the time around the real ones. Ops are told apart by nothing but their name.
 * Times are those of the calling thread from call to return: right for a backend whose ops are finished when they
 * return. */
#ifndef RF_OP_TIMERS_H
#define RF_OP_TIMERS_H

#include "backend.h"

typedef enum {
    RF_TIMED_EMBED,
    RF_TIMED_NORM, /* rms_norm, gated_norm, head_norm_rope, rope_prepare */
    RF_TIMED_QUANTIZE,
    RF_TIMED_MATMUL,
    RF_TIMED_ATTENTION, /* attention, attention_block, kv_store */
    RF_TIMED_DELTA,
    RF_TIMED_DELTA_COMMIT,
    RF_TIMED_ELEMENTWISE, /* add, silu_mul, sigmoid_mul, dynamic_conv, sanitize, logit_scale */
    RF_TIMED_COPY,        /* copy, gather, keep, take, shift, upload, download, batch_set */
    RF_TIMED_LOGITS,      /* top_k, gumbel_argmax, log_mass, row_hash */
    RF_N_TIMED
} rf_timed_op;

typedef struct rf_op_timers rf_op_timers;

/* NULL: no memory. Destroy after everything that was bound in between, before the backend. */
rf_op_timers *rf_op_timers_create(rf_backend *b, rf_error *err);
void rf_op_timers_destroy(rf_op_timers *t);

void rf_op_timers_start(rf_op_timers *t); /* from zero */
void rf_op_timers_stop(rf_op_timers *t);
double rf_op_timers_seconds(const rf_op_timers *t, rf_timed_op op);
size_t rf_op_timers_calls(const rf_op_timers *t, rf_timed_op op);
const char *rf_timed_op_name(rf_timed_op op);

#endif
