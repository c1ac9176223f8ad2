/* One span for a tile of queries of one KV head: the arithmetic of attention, without its bookkeeping. */
#ifndef RF_CPU_ATTENTION_H
#define RF_CPU_ATTENTION_H

#include "isa.h"

#define QUERIES ATTENTION_QUERIES

/* Keys and values of up to SPAN positions: row i at i * stride bytes. */
typedef struct {
    const unsigned char *k, *v;
    size_t k_stride, v_stride;
    uint32_t type_k, type_v; /* RF_TYPE_F32 or RF_TYPE_F16 */
} span_rows;

/* Query i sees rows [from[i], to[i]) of the span; none where they are equal. */
typedef struct {
    size_t n, d, width; /* queries; head_dim, and that rounded up to whole vectors */
    float scale;        /* 1 / sqrtf(d) */
    const float *q;     /* [n][width], zeros behind d */
    size_t from[QUERIES], to[QUERIES];
    float *p;           /* scratch [QUERIES][SPAN] */
    float *block;       /* scratch [16][width] */
} query_tile;

/* m: largest score, l: sum of exp(s - m), o: sum of exp(s - m) v, of the seen rows of the span (backend.h has the
 * orders). Queries that see none are left out. */
typedef struct {
    float *m, *l; /* [QUERIES] */
    float *o;     /* [QUERIES][width] */
} span_sums;

void RF_ISA_NAME(attend_span)(const query_tile *t, const span_rows *rows, span_sums out);

#endif
