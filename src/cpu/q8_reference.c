/* Q8_0 dot products, portable. The other levels' kernels give the same bits: integer sums are exact. */
#include "isa.h"
#include "vec16.h"

static void block_sums(const unsigned char *w, const int8_t *x, int32_t offset, int32_t sum[OUT_LANES])
{
    for (int lane = 0; lane < OUT_LANES; lane++)
        sum[lane] = offset;
    for (int group = 0; group < Q8_BLOCK / 4; group++)
        for (int lane = 0; lane < OUT_LANES; lane++)
            for (int i = 0; i < 4; i++)
                sum[lane] += (int32_t)w[(group * OUT_LANES + lane) * 4 + i] * x[group * 4 + i];
}

void RF_ISA_NAME(q8_tile)(size_t n_kb, const unsigned char *w, const uint16_t *dw, size_t n_rows, const int8_t *x, size_t x_stride,
                          const float *dx, const int32_t *offset, size_t d_stride, float acc[][OUT_LANES])
{
    for (size_t r = 0; r < n_rows; r++) {
        memset(acc[r], 0, sizeof acc[r]);
        for (size_t kb = 0; kb < n_kb; kb++) {
            int32_t sum[OUT_LANES];

            block_sums(w + kb * Q8_TILE_BYTES, x + r * x_stride + kb * Q8_BLOCK, offset[r * d_stride + kb], sum);
            for (int lane = 0; lane < OUT_LANES; lane++)
                acc[r][lane] = fmaf((float)sum[lane], rf_f16_to_f32(dw[kb * OUT_LANES + (size_t)lane]) * dx[r * d_stride + kb], acc[r][lane]);
        }
    }
}
