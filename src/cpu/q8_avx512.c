/* Q8_0 dot products by VNNI: packed weights are unsigned (q + 128), activations signed; offset starts the sum at -128 *
 * sum(x). */
#include <immintrin.h>

#include "isa.h"

#define GROUPS (Q8_BLOCK / 4)

/* The processor repeats four bytes of x itself: the compiler would spend an instruction and a register on it. */
static inline __attribute__((always_inline)) __m512i dot(__m512i sum, __m512i w, const int8_t *x)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*(const int8_t (*)[4])x));
    return sum;
}

/* One k block of one block of outputs: acc[r] += its products with rows [0, n) of x. */
static inline __attribute__((always_inline)) void k_block(const size_t n, const unsigned char *w, const uint16_t *dw,
                                                          const int8_t *q, const float *d, const int32_t *offset,
                                                          __m512 *acc)
{
    __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)dw));
    __m512i weights[GROUPS];

    _mm_prefetch((const char *)dw + SCALES_AHEAD, _MM_HINT_T0);
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
            even = dot(even, weights[g], q + r * Q8_BLOCK + g * 4);
            odd = dot(odd, weights[g + 1], q + r * Q8_BLOCK + g * 4 + 4);
        }
        acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(even, odd)),
                                 _mm512_mul_ps(scale, _mm512_set1_ps(d[r])), acc[r]);
    }
}

/* Rows [first, first + n) of the tile for blocks [block, block + blocks) of the source; n and blocks are constants, so
 * that the accumulators live in registers. */
static inline __attribute__((always_inline)) void rows(const size_t blocks, const size_t n, size_t block, size_t first,
                                                       const q8_source *from, size_t n_units, const size_t *n_kb,
                                                       const act_tile *x, unit_sums *out)
{
    const int8_t *q = x->q + first * Q8_BLOCK;
    const float *d = x->d + first;
    const int32_t *offset = x->offset + first;
    const unsigned char *w[2];
    const uint16_t *dw[2];

#pragma GCC unroll 2
    for (size_t b = 0; b < blocks; b++) {
        w[b] = from->w[block + b];
        dw[b] = from->scales[block + b];
    }
    for (size_t u = 0; u < n_units; u++) {
        __m512 acc[2][MAX_TILE_ROWS];

#pragma GCC unroll 2
        for (size_t b = 0; b < blocks; b++)
#pragma GCC unroll 16
            for (size_t r = 0; r < n; r++)
                acc[b][r] = _mm512_setzero_ps();
        for (size_t kb = 0; kb < n_kb[u]; kb++) {
#pragma GCC unroll 2
            for (size_t b = 0; b < blocks; b++) {
                k_block(n, w[b], dw[b], q, d, offset, acc[b]);
                w[b] += Q8_TILE_BYTES;
                dw[b] += OUT_LANES;
            }
            q += x->n_rows * Q8_BLOCK;
            d += x->n_rows;
            offset += x->n_rows;
        }
#pragma GCC unroll 2
        for (size_t b = 0; b < blocks; b++)
#pragma GCC unroll 16
            for (size_t r = 0; r < n; r++)
                _mm512_storeu_ps(out[u][block + b][first + r], acc[b][r]);
    }
}

/* n = 1 .. 8 rows */
static inline __attribute__((always_inline)) void few_rows(const size_t blocks, size_t n, size_t first,
                                                           const q8_source *from, size_t n_units, const size_t *n_kb,
                                                           const act_tile *x, unit_sums *out)
{
    switch (n) {
    case 1: rows(blocks, 1, 0, first, from, n_units, n_kb, x, out); break;
    case 2: rows(blocks, 2, 0, first, from, n_units, n_kb, x, out); break;
    case 3: rows(blocks, 3, 0, first, from, n_units, n_kb, x, out); break;
    case 4: rows(blocks, 4, 0, first, from, n_units, n_kb, x, out); break;
    case 5: rows(blocks, 5, 0, first, from, n_units, n_kb, x, out); break;
    case 6: rows(blocks, 6, 0, first, from, n_units, n_kb, x, out); break;
    case 7: rows(blocks, 7, 0, first, from, n_units, n_kb, x, out); break;
    default: rows(blocks, 8, 0, first, from, n_units, n_kb, x, out); break;
    }
}

void RF_ISA_NAME(q8_tiles)(const q8_source *from, size_t n_units, const size_t *n_kb, const act_tile *x,
                           unit_sums *acc)
{
    size_t n = x->n_rows;

    if (n == MAX_TILE_ROWS) {
#ifdef RF_ISA_AMX
        RF_ISA_NAME(q8_sixteen)(from, n_units, n_kb, x, acc);
#else
        for (size_t b = 0; b < from->n; b++) /* the accumulators fill the registers */
            rows(1, MAX_TILE_ROWS, b, 0, from, n_units, n_kb, x, acc);
#endif
        return;
    }
    if (from->n == 1)
        few_rows(1, n < 8 ? n : 8, 0, from, n_units, n_kb, x, acc);
    else
        few_rows(2, n < 8 ? n : 8, 0, from, n_units, n_kb, x, acc);
    if (n <= 8)
        return;
    if (from->n == 1) /* these find the weights in the cache */
        few_rows(1, n - 8, 8, from, n_units, n_kb, x, acc);
    else
        few_rows(2, n - 8, 8, from, n_units, n_kb, x, acc);
}
