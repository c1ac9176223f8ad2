/* What the files of one ISA level offer each other. */
#ifndef RF_CPU_ISA_H
#define RF_CPU_ISA_H

#include "cpu_internal.h"

void RF_ISA_NAME(basic_ops)(rf_ops *ops);
void RF_ISA_NAME(matmul_ops)(rf_ops *ops);
void RF_ISA_NAME(attention_ops)(rf_ops *ops);
void RF_ISA_NAME(delta_ops)(rf_ops *ops);
void RF_ISA_NAME(logit_ops)(rf_ops *ops);

/* How far ahead kernels ask for weights, in bytes: processors stop looking ahead at the end of a 4 KiB page. Past the
 * end it is harmless. */
#define Q8_AHEAD 4096
#define SCALES_AHEAD 1024

/* A tile of activations from one k block on: [k block][n_rows]. */
typedef struct {
    size_t n_rows; /* 1 .. MAX_TILE_ROWS */
    const int8_t *q; /* [32] each */
    const float *d;
    const int32_t *offset;
} act_tile;

/* Blocks of outputs that are worked on together: their weights are far apart, and two streams from memory are faster
 * than one. */
typedef struct {
    size_t n;                   /* 1 or 2 */
    const unsigned char *w[2];  /* tiles, [k block] (bytes are q + 128) */
    const uint16_t *scales[2];  /* f16, [k block][16] */
} q8_source;

#define UNITS_AT_ONCE 8

typedef float unit_sums[2][MAX_TILE_ROWS][OUT_LANES]; /* of a unit: [block][row][lane] */

/* acc[u][b][r][lane] = sum over the n_kb[u] k blocks of unit u, ascending, of fma((float)isum, dw * dx, acc) from +0, for
 * the rows of the tile. Units follow each other, from the first k block of w, scales and x on; 1 .. UNITS_AT_ONCE. */
void RF_ISA_NAME(q8_tiles)(const q8_source *from, size_t n_units, const size_t *n_kb, const act_tile *x,
                           unit_sums *acc);

/* The same for exactly MAX_TILE_ROWS rows, where the level has something better for them (q8_amx.c). */
void RF_ISA_NAME(q8_sixteen)(const q8_source *from, size_t n_units, const size_t *n_kb, const act_tile *x,
                             unit_sums *acc);

#endif
