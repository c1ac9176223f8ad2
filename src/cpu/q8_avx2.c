/* Q8_0 dot products by AVX2: both sides are widened to 16 bits, so that every product and pair sum is exact (also for weights of -128). */
#include <immintrin.h>

#include "isa.h"

#define GROUPS (Q8_BLOCK / 4)

/* Sums of pairs for rows 4q .. 4q+3: {row, row, next, next, ...} */
static inline __m256i pairs(const unsigned char *w, __m256i x)
{
    const __m128i signs = _mm_set1_epi8((char)0x80);
    __m128i bytes = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(const void *)w), signs); /* q + 128 -> q */

    return _mm256_madd_epi16(_mm256_cvtepi8_epi16(bytes), x);
}

/* 16 block sums from 4 vectors of pairs */
static inline void fold(const __m256i p[4], __m256i *low, __m256i *high)
{
    __m256i a = _mm256_hadd_epi32(p[0], p[1]), b = _mm256_hadd_epi32(p[2], p[3]);

    *low = _mm256_permute4x64_epi64(a, 0xd8);
    *high = _mm256_permute4x64_epi64(b, 0xd8);
}

static inline void block_sums(const unsigned char *w, const int8_t *x, __m256i *low, __m256i *high)
{
    __m256i sums[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};

    for (size_t g = 0; g < GROUPS; g++) {
        int32_t x4;
        __m256i wide;

        __builtin_memcpy(&x4, x + g * 4, sizeof x4);
        wide = _mm256_cvtepi8_epi16(_mm_set1_epi32(x4));
        for (size_t q = 0; q < 4; q++)
            sums[q] = _mm256_add_epi32(sums[q], pairs(w + (g * OUT_LANES + q * 4) * 4, wide));
    }
    fold(sums, low, high);
}

void RF_ISA_NAME(q8_tile)(size_t n_kb, const unsigned char *w, const uint16_t *dw, size_t n_rows, const int8_t *x, size_t x_stride,
                          const float *dx, const int32_t *offset, size_t d_stride, float acc[][OUT_LANES])
{
    (void)offset;
    for (size_t r = 0; r < n_rows; r++)
        for (size_t lane = 0; lane < OUT_LANES; lane++)
            acc[r][lane] = 0;
    for (size_t kb = 0; kb < n_kb; kb++) {
        __m256 scale_low = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(dw + kb * OUT_LANES)));
        __m256 scale_high = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(dw + kb * OUT_LANES + 8)));

        for (size_t r = 0; r < n_rows; r++) {
            __m256 d = _mm256_set1_ps(dx[r * d_stride + kb]);
            __m256i low, high;

            block_sums(w + kb * Q8_TILE_BYTES, x + r * x_stride + kb * Q8_BLOCK, &low, &high);
            _mm256_storeu_ps(acc[r], _mm256_fmadd_ps(_mm256_cvtepi32_ps(low), _mm256_mul_ps(scale_low, d), _mm256_loadu_ps(acc[r])));
            _mm256_storeu_ps(acc[r] + 8,
                             _mm256_fmadd_ps(_mm256_cvtepi32_ps(high), _mm256_mul_ps(scale_high, d), _mm256_loadu_ps(acc[r] + 8)));
        }
    }
}
