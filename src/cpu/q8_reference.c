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

void RF_ISA_NAME(q8_tiles)(const q8_source *from, size_t n_units, const size_t *n_kb, const act_tile *x,
                           unit_sums *acc)
{
    size_t kb = 0;

    for (size_t u = 0; u < n_units; u++) {
        memset(acc[u], 0, sizeof acc[u]);
        for (size_t end = kb + n_kb[u]; kb < end; kb++)
            for (size_t b = 0; b < from->n; b++)
                for (size_t r = 0; r < x->n_rows; r++) {
                    const uint16_t *dw = from->scales[b] + kb * OUT_LANES;
                    size_t at = kb * x->n_rows + r;
                    float *sums = acc[u][b][r];
                    int32_t sum[OUT_LANES];

                    block_sums(from->w[b] + kb * Q8_TILE_BYTES, x->q + at * Q8_BLOCK, x->offset[at], sum);
                    for (int lane = 0; lane < OUT_LANES; lane++)
                        sums[lane] = fmaf((float)sum[lane], rf_f16_to_f32(dw[lane]) * x->d[at], sums[lane]);
                }
    }
}
