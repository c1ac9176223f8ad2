#include "config.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu_internal.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define MAPPED_FROM ((size_t)1 << 20) /* smaller blocks come from the heap */
#define PAGE ((size_t)4096)
#define CACHE_LINE ((size_t)64)

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

size_t cpu_alloc_bytes(size_t bytes)
{
    if (bytes == 0)
        return 0;
    if (bytes > SIZE_MAX - HUGE_PAGE)
        return SIZE_MAX;
    return bytes >= MAPPED_FROM ? round_up(bytes, PAGE) : round_up(bytes, CACHE_LINE);
}

/* A mapping aligned to 2 MiB: what is mapped too much at both ends is given back. */
static void *map_aligned(size_t bytes)
{
    size_t most = bytes + HUGE_PAGE, head;
    unsigned char *p = mmap(NULL, most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    head = round_up((uintptr_t)p, HUGE_PAGE) - (uintptr_t)p;
    if (head)
        munmap(p, head);
    munmap(p + head + bytes, most - head - bytes);
    if (bytes >= HUGE_PAGE)
        madvise(p + head, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    return p + head;
}

/* More than the machine has would only be refused page by page, by a signal. */
static bool beyond_the_machine(size_t bytes)
{
    long pages = sysconf(_SC_PHYS_PAGES);

    return pages > 0 && bytes / (size_t)sysconf(_SC_PAGESIZE) >= (size_t)pages;
}

void *cpu_alloc(rf_cpu *cpu, size_t bytes, const char *what, rf_error *err)
{
    size_t held = cpu_alloc_bytes(bytes ? bytes : 1);
    void *p = NULL;

    if (!beyond_the_machine(bytes)) {
        p = bytes >= MAPPED_FROM ? map_aligned(held) : aligned_alloc(CACHE_LINE, held);
        if (p && bytes < MAPPED_FROM)
            memset(p, 0, held);
    }
    if (!p) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for %s (%zu bytes)", what, bytes);
        return NULL;
    }
    cpu->stats.allocated_bytes += held;
    cpu->stats.n_allocations++;
    return p;
}

void cpu_free(rf_cpu *cpu, void *p, size_t bytes)
{
    size_t held = cpu_alloc_bytes(bytes ? bytes : 1);

    if (!p)
        return;
    cpu->stats.allocated_bytes -= held;
    if (bytes >= MAPPED_FROM)
        munmap(p, held);
    else
        free(p);
}

int cpu_need_scratch(rf_cpu *cpu, size_t floats, rf_error *err)
{
    size_t wanted = floats < SIZE_MAX / 2 ? round_up(floats, CACHE_LINE / sizeof(float)) : floats,
           threads = (size_t)cpu->team.n_threads;
    float *p;

    if (wanted <= cpu->scratch_floats)
        return 0;
    p = cpu_alloc(cpu, rf_size_product(threads * sizeof(float), wanted), "scratch of the threads", err);
    if (!p)
        return -1;
    cpu_free(cpu, cpu->scratch, threads * cpu->scratch_floats * sizeof(float));
    cpu->scratch = p;
    cpu->scratch_floats = wanted;
    return 0;
}

int cpu_need_units(rf_cpu *cpu, size_t head_dim, rf_error *err)
{
    size_t n = ATTENTION_UNITS * (size_t)cpu->team.n_threads,
           wanted = n * (attention_unit_floats(head_dim) + 2 * ATTENTION_QUERIES);
    float *p;

    if (cpu->team.n_threads == 1 || wanted <= cpu->units_floats)
        return 0;
    p = cpu_alloc(cpu, wanted * sizeof(float), "sums of attention spans", err);
    if (!p)
        return -1;
    cpu_free(cpu, cpu->units, cpu->units_floats * sizeof(float));
    cpu->units = p;
    cpu->n_units = n;
    cpu->units_floats = wanted;
    return 0;
}

float *cpu_scratch(rf_cpu *cpu)
{
    return cpu->scratch + (size_t)omp_get_thread_num() * cpu->scratch_floats;
}

static size_t buf_bytes(size_t bytes)
{
    return cpu_alloc_bytes(bytes ? bytes : 1);
}

static rf_buf *buf_create(rf_backend *b, size_t bytes, rf_error *err)
{
    rf_buf *buf = calloc(1, sizeof *buf);

    if (!buf) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for a buffer");
        return NULL;
    }
    buf->cpu = cpu_of(b);
    buf->bytes = bytes;
    buf->data = cpu_alloc(buf->cpu, bytes, "a buffer", err);
    if (buf->data)
        return buf;
    free(buf);
    return NULL;
}

static void buf_destroy(rf_buf *buf)
{
    if (!buf)
        return;
    cpu_free(buf->cpu, buf->data, buf->bytes);
    free(buf);
}

static void *buf_host(rf_buf *buf)
{
    return buf->data;
}

static void upload(rf_backend *b, rf_buf *dst, size_t offset, const void *src, size_t bytes)
{
    (void)b;
    memcpy((unsigned char *)dst->data + offset, src, bytes);
}

static void download(rf_backend *b, const rf_buf *src, size_t offset, void *dst, size_t bytes)
{
    (void)b;
    memcpy(dst, (const unsigned char *)src->data + offset, bytes);
}

static int sync_device(rf_backend *b, rf_error *err)
{
    (void)b;
    (void)err;
    return 0;
}

void cpu_memory_ops(rf_ops *ops)
{
    ops->buf_bytes = buf_bytes;
    ops->buf_create = buf_create;
    ops->buf_destroy = buf_destroy;
    ops->buf_host = buf_host;
    ops->upload = upload;
    ops->download = download;
    ops->sync = sync_device;
}
