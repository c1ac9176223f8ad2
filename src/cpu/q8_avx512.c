/* Q8_0 dot products by VNNI: packed weights are unsigned (q + 128), activations signed; offset starts the sum at -128 * sum(x). */
#include <immintrin.h>

#include "isa.h"

#define GROUPS (Q8_BLOCK / 4)

static inline __attribute__((always_inline)) void tile(const size_t n_rows, size_t n_kb, const unsigned char *w, const uint16_t *dw,
                                                       const int8_t *x, size_t x_stride, const float *dx, const int32_t *offset,
                                                       size_t d_stride, float out[][OUT_LANES])
{
    __m512 acc[MAX_TILE_ROWS];

    for (size_t r = 0; r < n_rows; r++)
        acc[r] = _mm512_setzero_ps();
    for (size_t kb = 0; kb < n_kb; kb++) {
        const unsigned char *wk = w + kb * Q8_TILE_BYTES;
        __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(dw + kb * OUT_LANES)));
        __m512i weights[GROUPS];

        for (size_t g = 0; g < GROUPS; g++)
            weights[g] = _mm512_loadu_si512(wk + g * 4 * OUT_LANES);
        for (size_t r = 0; r < n_rows; r++) {
            const int8_t *xr = x + r * x_stride + kb * Q8_BLOCK;
            __m512i even = _mm512_set1_epi32(offset[r * d_stride + kb]), odd = _mm512_setzero_si512();

            for (size_t g = 0; g < GROUPS; g += 2) {
                int32_t x0, x1;

                __builtin_memcpy(&x0, xr + g * 4, sizeof x0);
                __builtin_memcpy(&x1, xr + g * 4 + 4, sizeof x1);
                even = _mm512_dpbusd_epi32(even, weights[g], _mm512_set1_epi32(x0));
                odd = _mm512_dpbusd_epi32(odd, weights[g + 1], _mm512_set1_epi32(x1));
            }
            acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(even, odd)),
                                     _mm512_mul_ps(scale, _mm512_set1_ps(dx[r * d_stride + kb])), acc[r]);
        }
    }
    for (size_t r = 0; r < n_rows; r++)
        _mm512_storeu_ps(out[r], acc[r]);
}

void RF_ISA_NAME(q8_tile)(size_t n_kb, const unsigned char *w, const uint16_t *dw, size_t n_rows, const int8_t *x, size_t x_stride,
                          const float *dx, const int32_t *offset, size_t d_stride, float acc[][OUT_LANES])
{
    switch (n_rows) { /* a constant number of rows keeps the accumulators in registers */
    case 1: tile(1, n_kb, w, dw, x, x_stride, dx, offset, d_stride, acc); break;
    case 2: tile(2, n_kb, w, dw, x, x_stride, dx, offset, d_stride, acc); break;
    case 3: tile(3, n_kb, w, dw, x, x_stride, dx, offset, d_stride, acc); break;
    case 4: tile(4, n_kb, w, dw, x, x_stride, dx, offset, d_stride, acc); break;
    case 5: tile(5, n_kb, w, dw, x, x_stride, dx, offset, d_stride, acc); break;
    case 6: tile(6, n_kb, w, dw, x, x_stride, dx, offset, d_stride, acc); break;
    case 7: tile(7, n_kb, w, dw, x, x_stride, dx, offset, d_stride, acc); break;
    case 8: tile(8, n_kb, w, dw, x, x_stride, dx, offset, d_stride, acc); break;
    case MAX_TILE_ROWS: tile(MAX_TILE_ROWS, n_kb, w, dw, x, x_stride, dx, offset, d_stride, acc); break;
    default: tile(n_rows, n_kb, w, dw, x, x_stride, dx, offset, d_stride, acc); break;
    }
}
