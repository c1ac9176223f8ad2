#include "quant.h"

#include <string.h>

#include "half.h"

static void unpack_f32(const void *src, float *dst, size_t n)
{
    memcpy(dst, src, n * sizeof *dst);
}

static uint16_t u16_at(const unsigned char *p)
{
    uint16_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static void unpack_f16(const void *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = rf_f16_to_f32(u16_at((const unsigned char *)src + 2 * i));
}

static void unpack_bf16(const void *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = rf_bf16_to_f32(u16_at((const unsigned char *)src + 2 * i));
}

static void unpack_q8_0(const void *src, float *dst, size_t n)
{
    const unsigned char *block = src;

    for (size_t at = 0; at < n; at += 32, block += 34) {
        float d = rf_f16_to_f32(u16_at(block));

        for (size_t i = 0; i < 32; i++)
            dst[at + i] = d * (float)(int8_t)block[2 + i];
    }
}

/* Geometry as ggml lays the types out. */
static const rf_format formats[] = {
    {RF_TYPE_F32, "F32", 1, 4, 1, unpack_f32},
    {RF_TYPE_F16, "F16", 1, 2, 1, unpack_f16},
    {2, "Q4_0", 32, 18, 32, NULL},
    {3, "Q4_1", 32, 20, 32, NULL},
    {6, "Q5_0", 32, 22, 32, NULL},
    {7, "Q5_1", 32, 24, 32, NULL},
    {RF_TYPE_Q8_0, "Q8_0", 32, 34, 32, unpack_q8_0},
    {9, "Q8_1", 32, 36, 32, NULL},
    {10, "Q2_K", 256, 84, 32, NULL},
    {11, "Q3_K", 256, 110, 32, NULL},
    {12, "Q4_K", 256, 144, 32, NULL},
    {13, "Q5_K", 256, 176, 32, NULL},
    {14, "Q6_K", 256, 210, 32, NULL},
    {15, "Q8_K", 256, 292, 32, NULL},
    {16, "IQ2_XXS", 256, 66, 32, NULL},
    {17, "IQ2_XS", 256, 74, 32, NULL},
    {18, "IQ3_XXS", 256, 98, 32, NULL},
    {19, "IQ1_S", 256, 50, 32, NULL},
    {20, "IQ4_NL", 32, 18, 32, NULL},
    {21, "IQ3_S", 256, 110, 32, NULL},
    {22, "IQ2_S", 256, 82, 32, NULL},
    {23, "IQ4_XS", 256, 136, 32, NULL},
    {24, "I8", 1, 1, 1, NULL},
    {25, "I16", 1, 2, 1, NULL},
    {26, "I32", 1, 4, 1, NULL},
    {RF_TYPE_I64, "I64", 1, 8, 1, NULL},
    {28, "F64", 1, 8, 1, NULL},
    {29, "IQ1_M", 256, 56, 32, NULL},
    {RF_TYPE_BF16, "BF16", 1, 2, 1, unpack_bf16},
    {34, "TQ1_0", 256, 54, 32, NULL},
    {35, "TQ2_0", 256, 66, 32, NULL},
    {39, "MXFP4", 32, 17, 32, NULL},
    {40, "NVFP4", 64, 36, 64, NULL},
    {41, "Q1_0", 128, 18, 128, NULL},
    {42, "Q2_0", 64, 18, 64, NULL},
};

const rf_format *rf_format_find(uint32_t type)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].type == type)
            return &formats[i];
    return NULL;
}
