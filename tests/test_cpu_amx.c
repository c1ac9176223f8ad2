/* The AMX kernel, its tile instructions emulated, against the portable one, by bits. (Where the processor has tiles, the
 * tests of the ops run the real ones.) */
#include "config.h"

#include <immintrin.h>
#include <stdlib.h>

#include "emulated_tiles.h"

#define RF_ISA amx_emulated
#include "../src/cpu/q8_amx.c"

#define MOST_KB 24

void q8_tiles_reference(const q8_source *from, size_t n_units, const size_t *n_kb, const act_tile *x, unit_sums *acc);

typedef struct {
    unsigned char w[2][MOST_KB * Q8_TILE_BYTES];
    uint16_t scales[2][MOST_KB * OUT_LANES];
    int8_t q[MOST_KB * MAX_TILE_ROWS * Q8_BLOCK];
    float d[MOST_KB * MAX_TILE_ROWS];
    int32_t offset[MOST_KB * MAX_TILE_ROWS];
} inputs;

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static inputs *random_inputs(uint32_t seed)
{
    inputs *in = malloc(sizeof *in);

    assert_non_null(in);
    for (size_t b = 0; b < 2; b++) {
        for (size_t i = 0; i < sizeof in->w[b]; i++)
            in->w[b][i] = (unsigned char)next(&seed);
        for (size_t i = 0; i < MOST_KB * OUT_LANES; i++)
            in->scales[b][i] = (uint16_t)(0x1400 + next(&seed) % 0x1000);
    }
    for (size_t i = 0; i < MOST_KB * MAX_TILE_ROWS; i++) {
        int32_t sum = 0;

        for (size_t k = 0; k < Q8_BLOCK; k++) {
            int8_t v = (int8_t)((int)(next(&seed) % 255) - 127);

            in->q[i * Q8_BLOCK + k] = v;
            sum += v;
        }
        in->d[i] = (float)(next(&seed) % 1000) / 4096;
        in->offset[i] = -128 * sum;
    }
    return in;
}

static void compare(size_t n_blocks, size_t n_units, const size_t *n_kb, uint32_t seed)
{
    inputs *in = random_inputs(seed);
    q8_source from = {n_blocks, {in->w[0], in->w[1]}, {in->scales[0], in->scales[1]}};
    act_tile x = {MAX_TILE_ROWS, in->q, in->d, in->offset};
    unit_sums *want = calloc(n_units, sizeof *want), *got = calloc(n_units, sizeof *got);

    assert_true(want && got);
    q8_tiles_reference(&from, n_units, n_kb, &x, want);
    q8_sixteen_amx_emulated(&from, n_units, n_kb, &x, got);
    for (size_t u = 0; u < n_units; u++)
        for (size_t b = 0; b < n_blocks; b++)
            assert_memory_equal(got[u][b], want[u][b], sizeof want[u][b]);
    assert_false(tiles.configured);
    free(want);
    free(got);
    free(in);
}

static void same_bits_as_the_reference(void **state)
{
    static const size_t one[] = {MOST_KB}, single[] = {1}, odd[] = {1, 3, 2, 8}, most[] = {3, 3, 3, 3, 3, 3, 3, 3};

    (void)state;
    if (!__builtin_cpu_supports("avx512vnni"))
        skip(); /* the conversions around the tiles are AVX-512 */
    for (uint32_t seed = 1; seed <= 3; seed++)
        for (size_t blocks = 1; blocks <= 2; blocks++) {
            compare(blocks, 1, one, seed);
            compare(blocks, 1, single, seed);
            compare(blocks, 4, odd, seed);
            compare(blocks, UNITS_AT_ONCE, most, seed);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits_as_the_reference)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
