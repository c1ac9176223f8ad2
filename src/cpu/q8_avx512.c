/* Q8_0 dot products by VNNI: packed weights are unsigned (q + 128), activations signed; offset starts the sum at -128 *
 * sum(x). */
#include <immintrin.h>

#include "isa.h"

#define GROUPS (Q8_BLOCK / 4)
#define SCALES_AHEAD 1024

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

/* Rows [first, first + n) of the tile for `blocks` blocks of outputs; n and blocks are constants, so that the
 * accumulators live in registers. */
static inline __attribute__((always_inline)) void rows(const size_t blocks, const size_t n, size_t first, size_t n_kb,
                                                       const unsigned char *const *w0, const uint16_t *const *dw0,
                                                       const act_tile *x, float out[][MAX_TILE_ROWS][OUT_LANES])
{
    const int8_t *q = x->q + first * Q8_BLOCK;
    const float *d = x->d + first;
    const int32_t *offset = x->offset + first;
    const unsigned char *w[2];
    const uint16_t *dw[2];
    __m512 acc[2][MAX_TILE_ROWS];

#pragma GCC unroll 2
    for (size_t b = 0; b < blocks; b++) {
        w[b] = w0[b];
        dw[b] = dw0[b];
#pragma GCC unroll 16
        for (size_t r = 0; r < n; r++)
            acc[b][r] = _mm512_setzero_ps();
    }
    for (size_t kb = 0; kb < n_kb; kb++) {
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
            _mm512_storeu_ps(out[b][first + r], acc[b][r]);
}

/* n = 1 .. 8 rows */
static inline __attribute__((always_inline)) void few_rows(const size_t blocks, size_t n, size_t first, size_t n_kb,
                                                           const unsigned char *const *w, const uint16_t *const *dw,
                                                           const act_tile *x, float out[][MAX_TILE_ROWS][OUT_LANES])
{
    switch (n) {
    case 1: rows(blocks, 1, first, n_kb, w, dw, x, out); break;
    case 2: rows(blocks, 2, first, n_kb, w, dw, x, out); break;
    case 3: rows(blocks, 3, first, n_kb, w, dw, x, out); break;
    case 4: rows(blocks, 4, first, n_kb, w, dw, x, out); break;
    case 5: rows(blocks, 5, first, n_kb, w, dw, x, out); break;
    case 6: rows(blocks, 6, first, n_kb, w, dw, x, out); break;
    case 7: rows(blocks, 7, first, n_kb, w, dw, x, out); break;
    default: rows(blocks, 8, first, n_kb, w, dw, x, out); break;
    }
}

/* 1 .. 16 rows of one block. Of 9 .. 15, the second part finds the weights in the cache. */
static void one_block(size_t n_kb, const unsigned char *w, const uint16_t *dw, const act_tile *x,
                      float out[][MAX_TILE_ROWS][OUT_LANES])
{
    size_t n = x->n_rows;

    if (n == MAX_TILE_ROWS) {
        rows(1, MAX_TILE_ROWS, 0, n_kb, &w, &dw, x, out);
        return;
    }
    if (n > 8)
        few_rows(1, n - 8, 8, n_kb, &w, &dw, x, out);
    few_rows(1, n > 8 ? 8 : n, 0, n_kb, &w, &dw, x, out);
}

void RF_ISA_NAME(q8_tile)(size_t n_kb, const unsigned char *w, const uint16_t *dw, const act_tile *x,
                          float acc[][OUT_LANES])
{
    one_block(n_kb, w, dw, x, (float (*)[MAX_TILE_ROWS][OUT_LANES])acc);
}

void RF_ISA_NAME(q8_pair)(size_t n_kb, const unsigned char *const w[2], const uint16_t *const dw[2], const act_tile *x,
                          float acc[2][MAX_TILE_ROWS][OUT_LANES])
{
    if (x->n_rows < MAX_TILE_ROWS) {
        few_rows(2, x->n_rows < 8 ? x->n_rows : 8, 0, n_kb, w, dw, x, acc);
        if (x->n_rows > 8) /* these find the weights in the cache */
            few_rows(2, x->n_rows - 8, 8, n_kb, w, dw, x, acc);
        return;
    }
    one_block(n_kb, w[0], dw[0], x, acc);
    one_block(n_kb, w[1], dw[1], x, acc + 1);
}
