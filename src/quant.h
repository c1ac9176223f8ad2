/* Block formats of GGUF tensors, by ggml type id: geometry of all, arithmetic of those this version computes with. */
#ifndef RF_QUANT_H
#define RF_QUANT_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
    RF_TYPE_F32 = 0,
    RF_TYPE_F16 = 1,
    RF_TYPE_Q8_0 = 8, /* 32 weights: f16 scale d, int8 q[32]; w = d * q */
    RF_TYPE_I64 = 27,
    RF_TYPE_BF16 = 30
} rf_type;

typedef struct {
    uint32_t type;
    const char *name;
    size_t block;     /* weights a block */
    size_t bytes;     /* bytes a block */
    size_t sub_block; /* a cut may fall at any multiple of this */
    /* n weights (a multiple of block), exact values; NULL: this version cannot compute with the type */
    void (*unpack)(const void *src, float *dst, size_t n);
} rf_format;

/* NULL: no such type. */
const rf_format *rf_format_find(uint32_t type);

#endif
