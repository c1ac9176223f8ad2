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

/* A tile of activations from one k block on: [k block][n_rows]. */
typedef struct {
    size_t n_rows; /* 1 .. MAX_TILE_ROWS */
    const int8_t *q; /* [32] each */
    const float *d;
    const int32_t *offset;
} act_tile;

/* acc[r][lane] = sum over n_kb blocks, ascending, of fma((float)isum, dw * dx, acc) from +0, for the rows of the tile.
 * w: [n_kb] tiles (bytes are q + 128), dw: [n_kb][16] f16. */
void RF_ISA_NAME(q8_tile)(size_t n_kb, const unsigned char *w, const uint16_t *dw, const act_tile *x,
                          float acc[][OUT_LANES]);

/* The same for two blocks of outputs, whose weights are far apart: two streams from memory are faster than one. */
void RF_ISA_NAME(q8_pair)(size_t n_kb, const unsigned char *const w[2], const uint16_t *const dw[2], const act_tile *x,
                          float acc[2][MAX_TILE_ROWS][OUT_LANES]);

#endif
