/* Sixteen float lanes: the one shim between the ops (written once) and the ISA they are compiled for.
 *
 * Every operation is defined lane by lane and rounds once, so all levels give the same bits. max and min return the
 * second operand when either is NaN, as the hardware does. */
#ifndef RF_VEC16_H
#define RF_VEC16_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../half.h"

#define LANES 16

/* How many 16-lane vectors the registers hold: what a kernel may keep in them. */
#if defined(RF_ISA_AVX512)
#define V_REGISTERS 32
#else
#define V_REGISTERS 8
#endif

#if defined(RF_ISA_AVX512)
#include <immintrin.h>
typedef __m512 v16;

static inline v16 v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v_store(float *p, v16 a) { _mm512_storeu_ps(p, a); }
static inline v16 v_set1(float x) { return _mm512_set1_ps(x); }
static inline v16 v_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
static inline v16 v_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
static inline v16 v_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
static inline v16 v_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
static inline v16 v_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
static inline v16 v_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
static inline v16 v_min(v16 a, v16 b) { return _mm512_min_ps(a, b); }
static inline v16 v_round(v16 a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline v16 v_load_n(const float *p, size_t n) { return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p); }
static inline void v_store_n(float *p, v16 a, size_t n) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a); }
static inline v16 v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline v16 v_load_bf16(const uint16_t *p)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)), 16));
}
static inline void v_store_f16(uint16_t *p, v16 a)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/* whole numbers from -128 to 127 */
static inline void v_store_i8(int8_t *p, v16 a)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a)));
}
/* x rounded to f16 */
static inline float s_round_f16(float x) { return _cvtsh_ss(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT)); }
/* 2^n for whole n in [-126, 127] */
static inline v16 v_pow2(v16 n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
/* a where a is NaN, else b */
static inline v16 v_keep_nan(v16 a, v16 b)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), b, a);
}

#elif defined(RF_ISA_AVX2)
#include <immintrin.h>
typedef struct {
    __m256 a, b;
} v16;

static inline v16 v_load(const float *p) { return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void v_store(float *p, v16 x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
static inline v16 v_set1(float x) { return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline v16 v_add(v16 x, v16 y) { return (v16){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
static inline v16 v_sub(v16 x, v16 y) { return (v16){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
static inline v16 v_mul(v16 x, v16 y) { return (v16){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
static inline v16 v_div(v16 x, v16 y) { return (v16){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
static inline v16 v_fma(v16 x, v16 y, v16 z)
{
    return (v16){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
static inline v16 v_max(v16 x, v16 y) { return (v16){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
static inline v16 v_min(v16 x, v16 y) { return (v16){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
static inline v16 v_round(v16 x)
{
    return (v16){_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                 _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
static inline v16 v_load_n(const float *p, size_t n)
{
    float t[LANES] = {0};

    if (n == LANES)
        return v_load(p);
    memcpy(t, p, n * sizeof *t);
    return v_load(t);
}
static inline void v_store_n(float *p, v16 x, size_t n)
{
    float t[LANES];

    if (n == LANES) {
        v_store(p, x);
        return;
    }
    v_store(t, x);
    memcpy(p, t, n * sizeof *t);
}
static inline v16 v_load_f16(const uint16_t *p)
{
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 8)))};
}
static inline __m256 v_widen_bf16(const uint16_t *p)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 16));
}
static inline v16 v_load_bf16(const uint16_t *p) { return (v16){v_widen_bf16(p), v_widen_bf16(p + 8)}; }
static inline void v_store_f16(uint16_t *p, v16 x)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((__m128i *)(void *)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline void v_store_i8(int8_t *p, v16 x)
{
    __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)); /* quarters 0 2 1 3 */

    words = _mm256_permute4x64_epi64(words, 0xd8);
    _mm_storeu_si128((__m128i *)(void *)p,
                     _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
static inline float s_round_f16(float x) { return _cvtsh_ss(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT)); }
static inline __m256 v_pow2_half(__m256 n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
static inline v16 v_pow2(v16 n) { return (v16){v_pow2_half(n.a), v_pow2_half(n.b)}; }
static inline v16 v_keep_nan(v16 x, v16 y)
{
    return (v16){_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q)),
                 _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q))};
}

#else /* portable reference */
typedef struct {
    float l[LANES];
} v16;

#define V_EACH(expression)              \
    v16 r;                              \
    for (int i = 0; i < LANES; i++)     \
        r.l[i] = (expression);          \
    return r

static inline v16 v_load(const float *p)
{
    v16 r;

    memcpy(r.l, p, sizeof r.l);
    return r;
}
static inline void v_store(float *p, v16 a) { memcpy(p, a.l, sizeof a.l); }
static inline v16 v_set1(float x) { V_EACH(x); }
static inline v16 v_add(v16 a, v16 b) { V_EACH(a.l[i] + b.l[i]); }
static inline v16 v_sub(v16 a, v16 b) { V_EACH(a.l[i] - b.l[i]); }
static inline v16 v_mul(v16 a, v16 b) { V_EACH(a.l[i] * b.l[i]); }
static inline v16 v_div(v16 a, v16 b) { V_EACH(a.l[i] / b.l[i]); }
static inline v16 v_fma(v16 a, v16 b, v16 c) { V_EACH(fmaf(a.l[i], b.l[i], c.l[i])); }
static inline v16 v_max(v16 a, v16 b) { V_EACH(a.l[i] > b.l[i] ? a.l[i] : b.l[i]); }
static inline v16 v_min(v16 a, v16 b) { V_EACH(a.l[i] < b.l[i] ? a.l[i] : b.l[i]); }
static inline v16 v_round(v16 a) { V_EACH(rintf(a.l[i])); }
static inline v16 v_load_n(const float *p, size_t n)
{
    v16 r = {{0}};

    memcpy(r.l, p, n * sizeof *r.l);
    return r;
}
static inline void v_store_n(float *p, v16 a, size_t n) { memcpy(p, a.l, n * sizeof *a.l); }
static inline v16 v_load_f16(const uint16_t *p) { V_EACH(rf_f16_to_f32(p[i])); }
static inline v16 v_load_bf16(const uint16_t *p) { V_EACH(rf_bf16_to_f32(p[i])); }
static inline void v_store_f16(uint16_t *p, v16 a)
{
    for (int i = 0; i < LANES; i++)
        p[i] = rf_f32_to_f16(a.l[i]);
}
static inline void v_store_i8(int8_t *p, v16 a)
{
    for (int i = 0; i < LANES; i++)
        p[i] = (int8_t)a.l[i];
}
static inline float s_round_f16(float x) { return rf_f16_to_f32(rf_f32_to_f16(x)); }
static inline v16 v_pow2(v16 n) { V_EACH(rf_bits_to_f32((uint32_t)((int32_t)n.l[i] + 127) << 23)); }
static inline v16 v_keep_nan(v16 a, v16 b) { V_EACH(isnan(a.l[i]) ? a.l[i] : b.l[i]); }
#endif

/* lane l += lane l + 8, then l + 4, l + 2, l + 1 */
static inline float v_sum(v16 a)
{
    float t[LANES];

    v_store(t, a);
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++)
            t[i] = t[i] + t[i + width];
    return t[0];
}

#if defined(RF_ISA_AVX512)
static inline __m512 v_halves(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
static inline __m512 v_quarters(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
static inline __m512 v_pairs(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
}
static inline __m512 v_ones(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

/* Lane i = v_sum(a[i]). Two vectors are folded into one at each width: l + 8, l + 4, l + 2, l + 1. */
static inline v16 v_sums(const v16 a[LANES])
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    v16 four[4], two[2];

    for (int i = 0; i < 4; i++)
        four[i] = v_quarters(v_halves(a[4 * i], a[4 * i + 1]), v_halves(a[4 * i + 2], a[4 * i + 3]));
    for (int i = 0; i < 2; i++)
        two[i] = v_pairs(four[2 * i], four[2 * i + 1]);
    return _mm512_permutexvar_ps(order, v_ones(two[0], two[1]));
}

static inline float v_first(v16 a) { return _mm512_cvtss_f32(a); }

#elif defined(RF_ISA_AVX2)
static inline __m256 v_quarters(__m256 a, __m256 b)
{
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
static inline __m256 v_pairs(__m256 a, __m256 b)
{
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
}
static inline __m256 v_ones(__m256 a, __m256 b)
{
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}

/* Lanes 0..7 = v_sum(a[0..7]): l + 8 adds the two halves, then l + 4, l + 2, l + 1 fold two vectors into one. */
static inline __m256 v_eight_sums(const v16 a[8])
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256 half[8], four[4];

    for (int i = 0; i < 8; i++)
        half[i] = _mm256_add_ps(a[i].a, a[i].b);
    for (int i = 0; i < 4; i++)
        four[i] = v_quarters(half[2 * i], half[2 * i + 1]);
    return _mm256_permutevar8x32_ps(v_ones(v_pairs(four[0], four[1]), v_pairs(four[2], four[3])), order);
}

static inline v16 v_sums(const v16 a[LANES]) { return (v16){v_eight_sums(a), v_eight_sums(a + 8)}; }
static inline float v_first(v16 a) { return _mm256_cvtss_f32(a.a); }

#else
static inline v16 v_sums(const v16 a[LANES]) { V_EACH(v_sum(a[i])); }
static inline float v_first(v16 a) { return a.l[0]; }
#endif

/* The sum where any order gives the same: of whole numbers, of zeros and NaN. */
static inline float v_total(v16 a)
{
#if defined(RF_ISA_AVX512)
    return _mm512_reduce_add_ps(a);
#elif defined(RF_ISA_AVX2)
    __m256 s = _mm256_add_ps(a.a, a.b);
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));

    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
#else
    return v_sum(a);
#endif
}

/* Folded by v_max as v_sum folds by addition */
static inline float v_largest(v16 a)
{
#if defined(RF_ISA_AVX512)
    a = _mm512_max_ps(a, _mm512_shuffle_f32x4(a, a, 0x4e));
    a = _mm512_max_ps(a, _mm512_shuffle_f32x4(a, a, 0xb1));
    a = _mm512_max_ps(a, _mm512_permute_ps(a, 0x4e));
    return _mm512_cvtss_f32(_mm512_max_ps(a, _mm512_permute_ps(a, 0xb1)));
#elif defined(RF_ISA_AVX2)
    __m256 m = _mm256_max_ps(a.a, a.b);

    m = _mm256_max_ps(m, _mm256_permute2f128_ps(m, m, 0x01));
    m = _mm256_max_ps(m, _mm256_permute_ps(m, 0x4e));
    return _mm256_cvtss_f32(_mm256_max_ps(m, _mm256_permute_ps(m, 0xb1)));
#else
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++)
            a.l[i] = a.l[i] > a.l[i + width] ? a.l[i] : a.l[i + width];
    return a.l[0];
#endif
}

/* exp within 1.5 ulp: n = round(x / ln 2), r = x - n ln 2 in two steps, a polynomial of degree 7 on |r| <= 0.347,
 * scaled by 2^n in two exact steps (so that subnormal results round once). exp(-inf) = 0, exp of 89 and more is
 * infinite, NaN stays. */
static inline v16 v_exp(v16 x)
{
    v16 t = v_min(v_max(x, v_set1(-105.0f)), v_set1(89.0f));
    v16 n = v_round(v_mul(t, v_set1(1.44269504088896341f)));
    v16 r = v_fma(n, v_set1(-0.693145751953125f), t), p, half;

    r = v_fma(n, v_set1(-1.42860682030941723212e-6f), r);
    p = v_set1(1.98412698e-4f);
    p = v_fma(p, r, v_set1(1.38888889e-3f));
    p = v_fma(p, r, v_set1(8.33333333e-3f));
    p = v_fma(p, r, v_set1(4.16666667e-2f));
    p = v_fma(p, r, v_set1(1.66666667e-1f));
    p = v_fma(p, r, v_set1(0.5f));
    p = v_fma(p, r, v_set1(1.0f));
    p = v_fma(p, r, v_set1(1.0f));
    half = v_round(v_mul(n, v_set1(0.5f)));
    p = v_mul(v_mul(p, v_pow2(half)), v_pow2(v_sub(n, half)));
    return v_keep_nan(x, p);
}

static inline v16 v_sigmoid(v16 x)
{
    return v_div(v_set1(1.0f), v_add(v_set1(1.0f), v_exp(v_sub(v_set1(0.0f), x))));
}

static inline v16 v_silu(v16 x)
{
    return v_mul(x, v_sigmoid(x));
}

/* the same arithmetic for one number */
static inline float s_exp(float x)
{
    float t[LANES];

    v_store(t, v_exp(v_set1(x)));
    return t[0];
}

static inline float s_sigmoid(float x)
{
    float t[LANES];

    v_store(t, v_sigmoid(v_set1(x)));
    return t[0];
}

/* log(1 + e^x) within 2 ulp: max(x, 0) + log(1 + e), e = exp(-|x|); log(1 + e) = 2 artanh(s), s = e / (2 + e) <= 1/3,
 * by its series. */
static inline v16 v_softplus(v16 x)
{
    v16 zero = v_set1(0.0f), e = v_exp(v_min(x, v_sub(zero, x))), s = v_div(e, v_add(v_set1(2.0f), e)),
        square = v_mul(s, s), p;

    p = v_set1(2.0f / 15);
    p = v_fma(p, square, v_set1(2.0f / 13));
    p = v_fma(p, square, v_set1(2.0f / 11));
    p = v_fma(p, square, v_set1(2.0f / 9));
    p = v_fma(p, square, v_set1(2.0f / 7));
    p = v_fma(p, square, v_set1(2.0f / 5));
    p = v_fma(p, square, v_set1(2.0f / 3));
    return v_add(v_max(x, zero), v_fma(v_mul(s, square), p, v_add(s, s)));
}

static inline float s_softplus(float x)
{
    float t[LANES];

    v_store(t, v_softplus(v_set1(x)));
    return t[0];
}

/* sum of fma(a, b, lane) by 16 lanes */
static inline float v_dot(const float *a, const float *b, size_t n)
{
    v16 acc = v_set1(0);
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        acc = v_fma(v_load(a + i), v_load(b + i), acc);
    if (i < n)
        acc = v_fma(v_load_n(a + i, n - i), v_load_n(b + i, n - i), acc);
    return v_sum(acc);
}

#endif
