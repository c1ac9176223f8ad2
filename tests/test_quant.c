/* Block formats against blocks whose exact values are known, and 16-bit floats against the compiler's own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "half.h"
#include "quant.h"

#define N_WEIGHTS 2048

static void *read_data(const char *name, size_t bytes)
{
    char path[1024];
    void *data = malloc(bytes);
    FILE *f;

    snprintf(path, sizeof path, "%s/blocks/%s", RF_TEST_DATA, name);
    f = fopen(path, "rb");
    if (!f)
        fail_msg("%s cannot be opened", path);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, bytes, f), bytes);
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
    return data;
}

static void unpacks_exactly(uint32_t type)
{
    const rf_format *format = rf_format_find(type);
    size_t bytes = N_WEIGHTS / format->block * format->bytes;
    char name[32];
    float *wanted, *found = malloc(N_WEIGHTS * sizeof *found);
    void *blocks;

    snprintf(name, sizeof name, "%s.bin", format->name);
    blocks = read_data(name, bytes);
    snprintf(name, sizeof name, "%s.f32", format->name);
    wanted = read_data(name, N_WEIGHTS * sizeof *wanted);
    format->unpack(blocks, found, N_WEIGHTS);
    for (size_t i = 0; i < N_WEIGHTS; i++)
        if (rf_f32_to_bits(found[i]) != rf_f32_to_bits(wanted[i]))
            fail_msg("%s: weight %zu is %.9g, %.9g is expected", format->name, i, (double)found[i], (double)wanted[i]);
    free(blocks);
    free(wanted);
    free(found);
}

static void blocks(void **state)
{
    static const float plain[] = {1.5f, -0.0f, 3e-40f, 1e30f};
    float out[4];

    (void)state;
    unpacks_exactly(RF_TYPE_F16);
    unpacks_exactly(RF_TYPE_BF16);
    unpacks_exactly(RF_TYPE_Q8_0);
    rf_format_find(RF_TYPE_F32)->unpack(plain, out, 4);
    assert_memory_equal(out, plain, sizeof plain);
}

static void format_table(void **state)
{
    static const struct {
        uint32_t type;
        const char *name;
        size_t block, bytes, sub_block;
    } wanted[] = {
        {0, "F32", 1, 4, 1},          {1, "F16", 1, 2, 1},        {30, "BF16", 1, 2, 1},
        {27, "I64", 1, 8, 1},         {8, "Q8_0", 32, 34, 32},    {2, "Q4_0", 32, 18, 32},
        {3, "Q4_1", 32, 20, 32},      {6, "Q5_0", 32, 22, 32},    {7, "Q5_1", 32, 24, 32},
        {10, "Q2_K", 256, 84, 32},    {11, "Q3_K", 256, 110, 32}, {12, "Q4_K", 256, 144, 32},
        {13, "Q5_K", 256, 176, 32},   {14, "Q6_K", 256, 210, 32}, {20, "IQ4_NL", 32, 18, 32},
        {23, "IQ4_XS", 256, 136, 32},
    };
    static const uint32_t unknown[] = {4, 5, 31, 32, 33, 36, 37, 38, 1000, 0x80000000u, UINT32_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const rf_format *f = rf_format_find(wanted[i].type);

        assert_non_null(f);
        assert_int_equal(f->type, wanted[i].type);
        assert_string_equal(f->name, wanted[i].name);
        assert_int_equal(f->block, wanted[i].block);
        assert_int_equal(f->bytes, wanted[i].bytes);
        assert_int_equal(f->sub_block, wanted[i].sub_block);
    }
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_null(rf_format_find(unknown[i]));
}

/* Every f16 goes to f32 and back. */
static void f16_round_trip(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint16_t back = rf_f32_to_f16(rf_f16_to_f32((uint16_t)h));
        uint32_t wanted = (h & 0x7fff) > 0x7c00 ? h | 0x200 : h; /* a NaN comes back quiet */

        if (back != wanted)
            fail_msg("%04x comes back as %04x", h, back);
    }
    assert_true(rf_f16_to_f32(0x0001) == 0x1p-24f);
    assert_true(rf_f16_to_f32(0x03ff) == 0x3ffp-24f);
    assert_true(rf_f16_to_f32(0x7bff) == 65504.0f);
    assert_int_equal(rf_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(rf_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(rf_f32_to_f16(0x1p-25f), 0); /* half of the least subnormal: to even */
    assert_int_equal(rf_f32_to_f16(0x1.000002p-25f), 1);
    assert_int_equal(rf_f32_to_f16(-0.0f), 0x8000);
    assert_int_equal(rf_f32_to_f16(-INFINITY), 0xfc00);
}

/* One float of each class that rounding can tell apart: all upper 20 bits (sign, exponent, the 10 bits that are kept,
 * the first that is not, and the next), with the lower 12 at zero, just above, in the middle and at their greatest. */
static const uint32_t low_bits[] = {0, 1, 0x7ff, 0x800, 0x801, 0xfff};

static void f16_as_the_compiler(void **state)
{
    (void)state;
#ifdef __FLT16_MAX__
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint16_t bits = (uint16_t)h;
        _Float16 half;

        memcpy(&half, &bits, sizeof half);
        if (rf_f32_to_bits(rf_f16_to_f32(bits)) != rf_f32_to_bits((float)half))
            fail_msg("f16 %04x to f32: %.9g, the compiler has %.9g", h, (double)rf_f16_to_f32(bits), (double)half);
    }
    for (uint32_t high = 0; high < 1u << 20; high++)
        for (size_t k = 0; k < sizeof low_bits / sizeof *low_bits; k++) {
            float f = rf_bits_to_f32(high << 12 | low_bits[k]);
            _Float16 half = (_Float16)f;
            uint16_t wanted;

            memcpy(&wanted, &half, sizeof wanted);
            if (rf_f32_to_f16(f) != wanted && !(isnan(f) && (rf_f32_to_f16(f) & 0x7fff) > 0x7c00))
                fail_msg("%a to f16: %04x, the compiler has %04x", (double)f, rf_f32_to_f16(f), wanted);
        }
#else
    skip(); /* a compiler without _Float16 */
#endif
}

/* Rounded to the nearest of the two neighbours, in double; the even one when both are as near. */
static void bf16(void **state)
{
    (void)state;
    for (uint32_t high = 0; high < 1u << 20; high++)
        for (size_t k = 0; k < sizeof low_bits / sizeof *low_bits; k++) {
            uint32_t bits = high << 12 | low_bits[k];
            float f = rf_bits_to_f32(bits);
            uint16_t down = (uint16_t)(bits >> 16), up = (uint16_t)(down + 1), wanted;
            double below, above;

            if (!isfinite(f)) {
                assert_int_equal(isnan(f), isnan(rf_bf16_to_f32(rf_f32_to_bf16(f))));
                assert_int_equal(isinf(f), isinf(rf_bf16_to_f32(rf_f32_to_bf16(f))));
                assert_int_equal(signbit(f) != 0, signbit(rf_bf16_to_f32(rf_f32_to_bf16(f))) != 0);
                continue;
            }
            below = fabs((double)f - (double)rf_bf16_to_f32(down));
            above = (up & 0x7fff) == 0x7f80 ? 0x1p128 - fabs((double)f) : fabs((double)rf_bf16_to_f32(up) - (double)f);
            wanted = below < above || (below == above && !(down & 1)) ? down : up;
            if (rf_f32_to_bf16(f) != wanted)
                fail_msg("%a to bf16: %04x, %04x is expected", (double)f, rf_f32_to_bf16(f), wanted);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks),         cmocka_unit_test(format_table),
        cmocka_unit_test(f16_round_trip), cmocka_unit_test(f16_as_the_compiler),
        cmocka_unit_test(bf16),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
