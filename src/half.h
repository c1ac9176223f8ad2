/* 16-bit floats, by bits and portable: round to nearest even, subnormals, infinities and NaN kept. */
#ifndef RF_HALF_H
#define RF_HALF_H

#include <stdint.h>
#include <string.h>

static inline float rf_bits_to_f32(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t rf_f32_to_bits(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float rf_bf16_to_f32(uint16_t h)
{
    return rf_bits_to_f32((uint32_t)h << 16);
}

static inline uint16_t rf_f32_to_bf16(float f)
{
    uint32_t bits = rf_f32_to_bits(f);

    if ((bits & 0x7fffffffu) > 0x7f800000u) /* NaN stays NaN: keep it quiet */
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float rf_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 0x1f, mantissa = h & 0x3ff;

    if (exponent == 0x1f)
        return rf_bits_to_f32(sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0));
    if (exponent)
        return rf_bits_to_f32(sign | (exponent + 112) << 23 | mantissa << 13);
    /* zero or subnormal: mantissa * 2^-24 is exact */
    return rf_bits_to_f32(sign | rf_f32_to_bits((float)mantissa * 0x1p-24f));
}

static inline uint16_t rf_f32_to_f16(float f)
{
    uint32_t bits = rf_f32_to_bits(f), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffffu;

    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000u) {
        /* below 2^-14: adding 0.5 aligns the mantissa, and the addition rounds to nearest even */
        float aligned = rf_bits_to_f32(magnitude) + 0.5f;

        return (uint16_t)(sign | (rf_f32_to_bits(aligned) - 0x3f000000u));
    }
    magnitude += 0xc8000fffu + (magnitude >> 13 & 1); /* rebias the exponent by -112, round to nearest even */
    return (uint16_t)(sign | magnitude >> 13);
}

#endif
