/* The tile instructions of AMX in plain C, for processors that do not have them: include it before code that uses them,
 * after immintrin.h. What the processor would refuse fails the test. */
#ifndef RF_EMULATED_TILES_H
#define RF_EMULATED_TILES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

#define MOST_ROWS 16
#define MOST_BYTES 64

static struct {
    bool configured;
    size_t rows[8], bytes[8];
    unsigned char data[8][MOST_ROWS][MOST_BYTES];
} tiles;

static inline void emulated_loadconfig(const void *memory)
{
    const unsigned char *c = memory;

    assert_int_equal(c[0], 1); /* palette */
    for (int i = 1; i < 16; i++)
        assert_int_equal(c[i], 0);
    memset(&tiles, 0, sizeof tiles);
    for (int t = 0; t < 8; t++) {
        uint16_t bytes;

        memcpy(&bytes, c + 16 + 2 * t, 2);
        assert_true(c[48 + t] <= MOST_ROWS && bytes <= MOST_BYTES && (c[48 + t] == 0) == (bytes == 0));
        tiles.rows[t] = c[48 + t];
        tiles.bytes[t] = bytes;
    }
    for (int i = 32; i < 48; i++)
        assert_int_equal(c[i], 0);
    for (int i = 56; i < 64; i++)
        assert_int_equal(c[i], 0);
    tiles.configured = true;
}

static inline void emulated_release(void)
{
    tiles.configured = false;
}

static inline void usable(int t)
{
    assert_true(tiles.configured && t >= 0 && t < 8 && tiles.rows[t] > 0);
}

static inline void emulated_zero(int t)
{
    usable(t);
    memset(tiles.data[t], 0, sizeof tiles.data[t]);
}

static inline void emulated_load(int t, const void *from, size_t stride)
{
    usable(t);
    for (size_t r = 0; r < tiles.rows[t]; r++)
        memcpy(tiles.data[t][r], (const unsigned char *)from + r * stride, tiles.bytes[t]);
}

static inline void emulated_store(int t, void *to, size_t stride)
{
    usable(t);
    for (size_t r = 0; r < tiles.rows[t]; r++)
        memcpy((unsigned char *)to + r * stride, tiles.data[t][r], tiles.bytes[t]);
}

/* c[m][n] += sum over k and i of a[m][4k + i] (signed) * b[k][4n + i] (unsigned) */
static inline void emulated_dpbsud(int c, int a, int b)
{
    usable(a);
    usable(b);
    usable(c);
    assert_true(tiles.rows[a] == tiles.rows[c] && tiles.bytes[b] == tiles.bytes[c]);
    assert_true(tiles.rows[b] * 4 == tiles.bytes[a]);
    for (size_t m = 0; m < tiles.rows[c]; m++)
        for (size_t n = 0; n < tiles.bytes[c] / 4; n++) {
            int32_t sum;

            memcpy(&sum, &tiles.data[c][m][4 * n], sizeof sum);
            for (size_t k = 0; k < tiles.bytes[a]; k++)
                sum += (int8_t)tiles.data[a][m][k] * (int32_t)tiles.data[b][k / 4][4 * n + k % 4];
            memcpy(&tiles.data[c][m][4 * n], &sum, sizeof sum);
        }
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbsud
#define _tile_loadconfig(memory) emulated_loadconfig(memory)
#define _tile_release() emulated_release()
#define _tile_loadd(tile, from, stride) emulated_load(tile, from, stride)
#define _tile_stored(tile, to, stride) emulated_store(tile, to, stride)
#define _tile_zero(tile) emulated_zero(tile)
#define _tile_dpbsud(c, a, b) emulated_dpbsud(c, a, b)

#endif
