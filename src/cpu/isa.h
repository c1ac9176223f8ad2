/* What the files of one ISA level offer each other. */
#ifndef RF_CPU_ISA_H
#define RF_CPU_ISA_H

#include "cpu_internal.h"

void RF_ISA_NAME(basic_ops)(rf_ops *ops);
void RF_ISA_NAME(matmul_ops)(rf_ops *ops);
void RF_ISA_NAME(attention_ops)(rf_ops *ops);
void RF_ISA_NAME(delta_ops)(rf_ops *ops);
void RF_ISA_NAME(logit_ops)(rf_ops *ops);

/* acc[r][lane] = sum over n_kb blocks, ascending, of fma((float)isum, dw * dx, acc) from +0, for n_rows (1 .. MAX_TILE_ROWS) activation rows.
 * w: [n_kb] tiles (bytes are q + 128), dw: [n_kb][16] f16. x, dx, offset: first row's; strides in elements. */
void RF_ISA_NAME(q8_tile)(size_t n_kb, const unsigned char *w, const uint16_t *dw, size_t n_rows, const int8_t *x, size_t x_stride,
                          const float *dx, const int32_t *offset, size_t d_stride, float acc[][OUT_LANES]);

#endif
