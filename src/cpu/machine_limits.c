/* Read loops and int8 products at their fastest. Only what is measured matters here, so the loops are written for each
 * vector width and the processor's best is taken at run time. */
#include "config.h"

#include "machine_limits.h"

#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef RF_X86
#include <immintrin.h>
#endif

#include "clock.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define LINE      ((size_t)64)
#define STEP      ((size_t)256) /* bytes of a stream before the next one's turn */

struct rf_read_memory {
    unsigned char *data;
    size_t bytes, share, at; /* share: of a thread; at: where in its share the next run begins */
    int n_threads;
    bool huge_pages;
    uint64_t sum; /* of what was read, so that reading cannot be left out */
};

rf_read_memory *rf_read_memory_create(int n_threads, size_t bytes, bool huge_pages, rf_error *err)
{
    rf_read_memory *m = calloc(1, sizeof *m);
    size_t share = bytes / (size_t)n_threads / HUGE_PAGE * HUGE_PAGE;

    if (share < RF_READ_LEAST)
        share = HUGE_PAGE;
    if (m) {
        *m = (rf_read_memory){.share = share,
                              .bytes = share * (size_t)n_threads,
                              .n_threads = n_threads,
                              .huge_pages = huge_pages};
        m->data = aligned_alloc(HUGE_PAGE, m->bytes);
    }
    if (!m || !m->data) {
        free(m);
        rf_fail(err, RF_ERR_MEMORY, "no memory to measure reading with (%zu bytes)", bytes);
        return NULL;
    }
    madvise(m->data, m->bytes, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#pragma omp parallel num_threads(n_threads)
    memset(m->data + (size_t)omp_get_thread_num() * share, 1, share);
    return m;
}

void rf_read_memory_destroy(rf_read_memory *m)
{
    if (!m)
        return;
    free(m->data);
    free(m);
}

/* One thread's part: `streams` pieces of `piece` bytes each (a multiple of STEP), side by side. The sum of all words.
 */
typedef uint64_t (*read_part)(const unsigned char *from, size_t piece, int streams, size_t ahead);

#define READ_BODY(vector, add)                                                      \
    for (size_t i = 0; i < piece; i += STEP)                                        \
        for (int s = 0; s < streams; s++) {                                         \
            const unsigned char *x = from + (size_t)s * piece + i;                  \
                                                                                    \
            for (size_t k = 0; ahead && k < STEP; k += LINE)                        \
                __builtin_prefetch(x + ahead + k, 0, 3);                            \
            for (size_t k = 0; k < STEP / sizeof(vector); k++)                      \
                sum[k % 4] = add(sum[k % 4], ((const vector *)(const void *)x)[k]); \
        }

#define PLAIN_ADD(a, b) ((a) + (b))

static uint64_t read_portable(const unsigned char *from, size_t piece, int streams, size_t ahead)
{
    uint64_t sum[4] = {0};

    READ_BODY(uint64_t, PLAIN_ADD)
    return sum[0] + sum[1] + sum[2] + sum[3];
}

#ifdef RF_X86
__attribute__((target("avx2"))) static uint64_t read_avx2(const unsigned char *from, size_t piece, int streams,
                                                          size_t ahead)
{
    __m256i sum[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    uint64_t out[4];

    READ_BODY(__m256i, _mm256_xor_si256)
    _mm256_storeu_si256((__m256i *)(void *)out,
                        _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3])));
    return out[0] + out[1] + out[2] + out[3];
}

__attribute__((target("avx512f"))) static uint64_t read_avx512(const unsigned char *from, size_t piece, int streams,
                                                               size_t ahead)
{
    __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    uint64_t out[8];

    READ_BODY(__m512i, _mm512_xor_si512)
    _mm512_storeu_si512(out, _mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3])));
    return out[0] + out[1] + out[2] + out[3];
}
#endif

static read_part best_read(void)
{
#ifdef RF_X86
    if (__builtin_cpu_supports("avx512f"))
        return read_avx512;
    if (__builtin_cpu_supports("avx2"))
        return read_avx2;
#endif
    return read_portable;
}

double rf_read_memory_run(rf_read_memory *m, const rf_read_loop *loop, size_t bytes, size_t *done)
{
    size_t streams = (size_t)loop->streams, per = bytes / (size_t)m->n_threads, piece, at = m->at;
    read_part part = best_read();
    uint64_t sum = 0;
    double start;

    if (per > m->share)
        per = m->share;
    piece = per / streams / STEP * STEP;
    if (at + piece * streams > m->share)
        at = 0;
    start = rf_seconds();
#pragma omp parallel num_threads(m->n_threads) reduction(+ : sum)
    sum += part(m->data + (size_t)omp_get_thread_num() * m->share + at, piece, loop->streams, loop->ahead);
    start = rf_seconds() - start;
    m->sum += sum;
    m->at = at + piece * streams;
    *done = piece * streams * (size_t)m->n_threads;
    return start;
}

/* ---- int8 products. By hand: compilers put copies of registers between the intrinsics. What is in the registers does
 * not matter. */

#define N_SUMS     12 /* independent sums: enough to hide the latency of an instruction */
#define PEAK_TURNS ((size_t)1 << 17) /* about half a millisecond */

typedef void (*int8_turns)(size_t n);

#ifdef RF_X86
#define TWELVE(one) one(0) one(1) one(2) one(3) one(4) one(5) one(6) one(7) one(8) one(9) one(10) one(11)
#define VNNI_SUM(i) "vpdpbusd %%zmm13, %%zmm12, %%zmm" #i "\n\t"
#define AVX2_SUM(i)                            \
    "vpmaddubsw %%ymm13, %%ymm12, %%ymm14\n\t" \
    "vpmaddwd %%ymm15, %%ymm14, %%ymm14\n\t"   \
    "vpaddd %%ymm14, %%ymm" #i ", %%ymm" #i "\n\t"
#define USED                                                                                                   \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", \
        "xmm13", "xmm14", "xmm15"

__attribute__((target("avx512f,avx512vnni"))) static void turns_vnni(size_t n)
{
    for (size_t k = 0; k < n; k++)
        __asm__ volatile(TWELVE(VNNI_SUM) : : : USED);
}

__attribute__((target("avx2"))) static void turns_avx2(size_t n)
{
    for (size_t k = 0; k < n; k++)
        __asm__ volatile(TWELVE(AVX2_SUM) : : : USED);
}
#endif

static int8_turns best_int8(size_t *products, const char **name)
{
#ifdef RF_X86
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni")) {
        *products = 64;
        *name = "AVX-512 VNNI";
        return turns_vnni;
    }
    if (__builtin_cpu_supports("avx2")) {
        *products = 32;
        *name = "AVX2";
        return turns_avx2;
    }
#endif
    *products = 0;
    *name = "none";
    return NULL;
}

double rf_int8_peak(int n_threads, double seconds, const char **name)
{
    size_t products;
    int8_turns run = best_int8(&products, name);
    double start = rf_seconds(), best = 0;

    while (run && rf_seconds() - start < seconds) {
        double t = rf_seconds();

#pragma omp parallel num_threads(n_threads)
        run(PEAK_TURNS);
        t = (double)(PEAK_TURNS * N_SUMS * products) * n_threads / (rf_seconds() - t);
        best = t > best ? t : best;
    }
    return best;
}
