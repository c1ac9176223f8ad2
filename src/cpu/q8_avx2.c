/* Q8_0 dot products by AVX2: |w| times x with the sign of w. |w| <= 128 as an unsigned byte and |x| <= 127, so that a
 * pair is at most 32512 and every sum is exact, also for weights of -128. */
#include <immintrin.h>

#include "isa.h"

#define HALVES 2 /* of 8 output rows, and so of the 64 bytes of a group */
#define GROUPS (Q8_BLOCK / 4)
#define MOST 4 /* rows at a time */

static inline __attribute__((always_inline)) __m256i four(const int8_t *x)
{
    int32_t bytes;

    __builtin_memcpy(&bytes, x, sizeof bytes);
    return _mm256_set1_epi32(bytes);
}

/* acc[first .. first + n) += one k block. n is a constant; q, d: the first of these rows. */
static inline __attribute__((always_inline)) void block(const size_t n, const unsigned char *w, const uint16_t *dw,
                                                        const int8_t *q, const float *d, float acc[][OUT_LANES])
{
    const __m256i bias = _mm256_set1_epi8((char)0x80), ones = _mm256_set1_epi16(1);
    __m256i sum[MOST][HALVES];

#pragma GCC unroll 4
    for (size_t r = 0; r < n; r++)
        sum[r][0] = sum[r][1] = _mm256_setzero_si256();
    for (size_t g = 0; g < GROUPS; g++)
#pragma GCC unroll 2
        for (size_t half = 0; half < HALVES; half++) {
            __m256i biased = _mm256_loadu_si256((const __m256i *)(const void *)(w + (g * HALVES + half) * 32));
            __m256i signed_w = _mm256_xor_si256(biased, bias), size_w = _mm256_abs_epi8(signed_w);

#pragma GCC unroll 4
            for (size_t r = 0; r < n; r++) {
                __m256i pairs =
                    _mm256_maddubs_epi16(size_w, _mm256_sign_epi8(four(q + r * Q8_BLOCK + g * 4), signed_w));

                sum[r][half] = _mm256_add_epi32(sum[r][half], _mm256_madd_epi16(pairs, ones));
            }
        }
#pragma GCC unroll 2
    for (size_t half = 0; half < HALVES; half++) {
        __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(dw + half * 8)));

#pragma GCC unroll 4
        for (size_t r = 0; r < n; r++) {
            __m256 by = _mm256_mul_ps(scale, _mm256_set1_ps(d[r]));

            _mm256_storeu_ps(acc[r] + half * 8,
                             _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][half]), by, _mm256_loadu_ps(acc[r] + half * 8)));
        }
    }
}

/* All rows of the tile */
static void k_block(const unsigned char *w, const uint16_t *dw, size_t n_rows, const int8_t *q, const float *d,
                    float acc[][OUT_LANES])
{
    size_t left = n_rows, r = 0;

    for (size_t line = 0; line < Q8_TILE_BYTES; line += 64)
        _mm_prefetch((const char *)w + Q8_AHEAD + line, _MM_HINT_T0);
    for (; left >= MOST; left -= MOST, r += MOST)
        block(MOST, w, dw, q + r * Q8_BLOCK, d + r, acc + r);
    if (left == 3)
        block(3, w, dw, q + r * Q8_BLOCK, d + r, acc + r);
    else if (left == 2)
        block(2, w, dw, q + r * Q8_BLOCK, d + r, acc + r);
    else if (left == 1)
        block(1, w, dw, q + r * Q8_BLOCK, d + r, acc + r);
}

void RF_ISA_NAME(q8_tiles)(const q8_source *from, size_t n_units, const size_t *n_kb, const act_tile *x,
                           unit_sums *acc)
{
    size_t kb = 0;

    for (size_t u = 0; u < n_units; u++) {
        size_t end = kb + n_kb[u];

        for (size_t b = 0; b < from->n; b++)
            __builtin_memset(acc[u][b], 0, x->n_rows * sizeof acc[u][b][0]);
        for (; kb < end; kb++)
            for (size_t b = 0; b < from->n; b++)
                k_block(from->w[b] + kb * Q8_TILE_BYTES, from->scales[b] + kb * OUT_LANES, x->n_rows,
                        x->q + kb * x->n_rows * Q8_BLOCK, x->d + kb * x->n_rows, acc[u][b]);
    }
}
