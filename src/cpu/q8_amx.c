/* Q8_0 dot products of 16 rows by AMX: a k block of 16 rows (A: 16 x 32 signed bytes) times one of 16 outputs (B: 8
 * groups x 16 outputs x 4 unsigned bytes, as they are packed) is one tile product. The sums are integers, so the bits
 * are the other levels'. Fewer rows are faster by VNNI. */
#include <immintrin.h>

#include "isa.h"

#define GROUPS (Q8_BLOCK / 4)

/* Which tile holds what. Two of each, so that a product runs while the one before it is converted. */
#define A0 0
#define B0 1
#define C0 2
#define A1 3
#define B1 4
#define C1 5

/* As the processor reads it (palette 1). */
typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

static void configure(void)
{
    tile_config c = {.palette = 1};

    for (int half = 0; half < 2; half++) {
        int first = half ? A1 : A0;

        c.rows[first] = MAX_TILE_ROWS;
        c.row_bytes[first] = Q8_BLOCK;
        c.rows[first + 1] = GROUPS;
        c.row_bytes[first + 1] = 4 * OUT_LANES;
        c.rows[first + 2] = MAX_TILE_ROWS;
        c.row_bytes[first + 2] = sizeof(int32_t) * OUT_LANES;
    }
    /* gcc 12 believes that the instruction reads 8 bytes, and drops stores to the others */
    __asm__ volatile("" : : "r"(&c) : "memory");
    _tile_loadconfig(&c);
}

/* sums = the integer products of one k block: [row][output]. The tiles are constants. */
#define PRODUCT(a, b, c, x, w, sums)                           \
    do {                                                       \
        _tile_zero(c);                                         \
        _tile_loadd(a, x, Q8_BLOCK);                           \
        _tile_loadd(b, w, 4 * OUT_LANES);                      \
        _tile_dpbsud(c, a, b);                                 \
        _tile_stored(c, sums, sizeof(int32_t) * OUT_LANES);    \
    } while (0)

/* acc[row] = fma((float)(sum + offset), dw * dx, acc[row]) for all rows */
static inline __attribute__((always_inline)) void add_block(const int32_t sums[][OUT_LANES], const uint16_t *dw,
                                                            const float *d, const int32_t *offset, __m512 *acc)
{
    __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)dw));

#pragma GCC unroll 16
    for (size_t r = 0; r < MAX_TILE_ROWS; r++) {
        __m512i sum = _mm512_add_epi32(_mm512_load_si512(sums[r]), _mm512_set1_epi32(offset[r]));

        acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale, _mm512_set1_ps(d[r])), acc[r]);
    }
}

static void ask_ahead(const unsigned char *w, const uint16_t *dw)
{
    for (size_t line = 0; line < Q8_TILE_BYTES; line += 64)
        _mm_prefetch((const char *)w + Q8_AHEAD + line, _MM_HINT_T0);
    _mm_prefetch((const char *)dw + SCALES_AHEAD, _MM_HINT_T0);
}

/* One unit of n_kb k blocks, from k block kb of x on. */
static void unit(const unsigned char *w, const uint16_t *dw, const act_tile *x, size_t kb, size_t n_kb,
                 float out[][OUT_LANES])
{
    _Alignas(64) int32_t sums[2][MAX_TILE_ROWS][OUT_LANES];
    __m512 acc[MAX_TILE_ROWS];

#pragma GCC unroll 16
    for (size_t r = 0; r < MAX_TILE_ROWS; r++)
        acc[r] = _mm512_setzero_ps();
    for (size_t end = kb + n_kb; kb < end; kb++, w += Q8_TILE_BYTES, dw += OUT_LANES) {
        size_t at = kb * MAX_TILE_ROWS;

        ask_ahead(w, dw);
        if (kb % 2 == 0)
            PRODUCT(A0, B0, C0, x->q + at * Q8_BLOCK, w, sums[0]);
        else
            PRODUCT(A1, B1, C1, x->q + at * Q8_BLOCK, w, sums[1]);
        add_block(sums[kb % 2], dw, x->d + at, x->offset + at, acc);
    }
#pragma GCC unroll 16
    for (size_t r = 0; r < MAX_TILE_ROWS; r++)
        _mm512_storeu_ps(out[r], acc[r]);
}

void RF_ISA_NAME(q8_sixteen)(const q8_source *from, size_t n_units, const size_t *n_kb, const act_tile *x,
                             unit_sums *acc)
{
    configure();
    for (size_t b = 0; b < from->n; b++) {
        size_t kb = 0;

        for (size_t u = 0; u < n_units; kb += n_kb[u++])
            unit(from->w[b] + kb * Q8_TILE_BYTES, from->scales[b] + kb * OUT_LANES, x, kb, n_kb[u], acc[u][b]);
    }
    _tile_release(); /* states without tiles are cheaper to switch */
}
