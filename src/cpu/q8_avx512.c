/* Q8_0 dot products by VNNI: packed weights are unsigned (q + 128), activations signed; offset starts the sum at -128 *
 * sum(x). */
#include <immintrin.h>

#include "isa.h"

#define GROUPS (Q8_BLOCK / 4)

static inline __attribute__((always_inline)) __m512i four(const int8_t *x)
{
    int32_t bytes;

    __builtin_memcpy(&bytes, x, sizeof bytes);
    return _mm512_set1_epi32(bytes);
}

/* Rows [first, first + n) of the tile; n is a constant, so that the accumulators live in registers. */
static inline __attribute__((always_inline)) void rows(const size_t n, size_t first, size_t n_kb,
                                                       const unsigned char *w, const uint16_t *dw, const act_tile *x,
                                                       float out[][OUT_LANES])
{
    const int8_t *q = x->q + first * Q8_BLOCK;
    const float *d = x->d + first;
    const int32_t *offset = x->offset + first;
    __m512 acc[MAX_TILE_ROWS];

#pragma GCC unroll 16
    for (size_t r = 0; r < n; r++)
        acc[r] = _mm512_setzero_ps();
    for (size_t kb = 0; kb < n_kb; kb++) {
        __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)dw));
        __m512i weights[GROUPS];

        _mm_prefetch((const char *)dw + 1024, _MM_HINT_T0);
#pragma GCC unroll 8
        for (size_t g = 0; g < GROUPS; g++) {
            weights[g] = _mm512_loadu_si512(w + g * 4 * OUT_LANES);
            _mm_prefetch((const char *)w + Q8_AHEAD + g * 4 * OUT_LANES, _MM_HINT_T0);
        }
#pragma GCC unroll 16
        for (size_t r = 0; r < n; r++) {
            __m512i even = _mm512_set1_epi32(offset[r]), odd = _mm512_setzero_si512();

#pragma GCC unroll 4
            for (size_t g = 0; g < GROUPS; g += 2) {
                even = _mm512_dpbusd_epi32(even, weights[g], four(q + r * Q8_BLOCK + g * 4));
                odd = _mm512_dpbusd_epi32(odd, weights[g + 1], four(q + r * Q8_BLOCK + g * 4 + 4));
            }
            acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(even, odd)),
                                     _mm512_mul_ps(scale, _mm512_set1_ps(d[r])), acc[r]);
        }
        w += Q8_TILE_BYTES;
        dw += OUT_LANES;
        q += x->n_rows * Q8_BLOCK;
        d += x->n_rows;
        offset += x->n_rows;
    }
#pragma GCC unroll 16
    for (size_t r = 0; r < n; r++)
        _mm512_storeu_ps(out[first + r], acc[r]);
}

/* n = 1 .. 8 rows */
static void few_rows(size_t n, size_t first, size_t n_kb, const unsigned char *w, const uint16_t *dw, const act_tile *x,
                     float out[][OUT_LANES])
{
    switch (n) {
    case 1: rows(1, first, n_kb, w, dw, x, out); break;
    case 2: rows(2, first, n_kb, w, dw, x, out); break;
    case 3: rows(3, first, n_kb, w, dw, x, out); break;
    case 4: rows(4, first, n_kb, w, dw, x, out); break;
    case 5: rows(5, first, n_kb, w, dw, x, out); break;
    case 6: rows(6, first, n_kb, w, dw, x, out); break;
    case 7: rows(7, first, n_kb, w, dw, x, out); break;
    default: rows(8, first, n_kb, w, dw, x, out); break;
    }
}

void RF_ISA_NAME(q8_tile)(size_t n_kb, const unsigned char *w, const uint16_t *dw, const act_tile *x,
                          float acc[][OUT_LANES])
{
    size_t n = x->n_rows;

    if (n == MAX_TILE_ROWS) {
        rows(MAX_TILE_ROWS, 0, n_kb, w, dw, x, acc);
        return;
    }
    if (n > 8) /* the second part finds the weights in the cache */
        few_rows(n - 8, 8, n_kb, w, dw, x, acc);
    few_rows(n > 8 ? 8 : n, 0, n_kb, w, dw, x, acc);
}
