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

void RF_ISA_NAME(q8_tile)(size_t n_kb, const unsigned char *w, const uint16_t *dw, const act_tile *x,
                          float acc[][OUT_LANES])
{
    memset(acc, 0, x->n_rows * sizeof acc[0]);
    for (size_t kb = 0; kb < n_kb; kb++)
        for (size_t r = 0; r < x->n_rows; r++) {
            size_t at = kb * x->n_rows + r;
            int32_t sum[OUT_LANES];

            block_sums(w + kb * Q8_TILE_BYTES, x->q + at * Q8_BLOCK, x->offset[at], sum);
            for (int lane = 0; lane < OUT_LANES; lane++)
                acc[r][lane] =
                    fmaf((float)sum[lane], rf_f16_to_f32(dw[kb * OUT_LANES + (size_t)lane]) * x->d[at], acc[r][lane]);
        }
}

void RF_ISA_NAME(q8_pair)(size_t n_kb, const unsigned char *const w[2], const uint16_t *const dw[2], const act_tile *x,
                          float acc[2][MAX_TILE_ROWS][OUT_LANES])
{
    for (size_t b = 0; b < 2; b++)
        RF_ISA_NAME(q8_tile)(n_kb, w[b], dw[b], x, acc[b]);
}
