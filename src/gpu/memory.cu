/* Memory of the device; uploads through pinned memory; errors that stay until sync. */
#include "gpu_internal.h"

namespace RT_SPACE {

#define ALIGNMENT ((size_t)256) /* of what a device allocator hands out */

size_t gpu_alloc_bytes(size_t bytes)
{
    if (bytes == 0)
        return ALIGNMENT;
    return bytes > SIZE_MAX - ALIGNMENT ? SIZE_MAX : divide_up(bytes, ALIGNMENT) * ALIGNMENT;
}

void *gpu_alloc(rf_gpu *gpu, size_t bytes, const char *what, rf_error *err)
{
    size_t held = gpu_alloc_bytes(bytes);
    void *p = NULL;
    const char *refused = held == SIZE_MAX ? "too large" : rt_malloc(&p, held);

    if (refused) {
        rf_fail(err, RF_ERR_MEMORY, "no memory on %s for %s (%zu bytes): %s", gpu->name, what, bytes, refused);
        return NULL;
    }
    rt_zero(p, held, gpu->stream);
    gpu->stats.allocated_bytes += held;
    gpu->stats.n_allocations++;
    return p;
}

void gpu_free(rf_gpu *gpu, void *p, size_t bytes)
{
    if (!p)
        return;
    rt_free(p, gpu_alloc_bytes(bytes));
    gpu->stats.allocated_bytes -= gpu_alloc_bytes(bytes);
}

void gpu_note(rf_gpu *gpu, const char *said)
{
    if (said && gpu->error.code == RF_OK)
        rf_fail(&gpu->error, RF_ERR_DEVICE, "%s: %s", gpu->name, said);
}

/* ---- uploads */

int gpu_open_staging(rf_gpu *gpu, rf_error *err)
{
    void *p = NULL;
    const char *refused = rt_pinned(&p, STAGING_BYTES);

    for (; !refused && gpu->n_events < 2; gpu->n_events++) {
        refused = rt_event_create(&gpu->done[gpu->n_events]);
        if (refused)
            break;
        rt_event_record(gpu->done[gpu->n_events], gpu->stream);
    }
    gpu->staging = static_cast<unsigned char *>(p);
    return refused ? rf_fail(err, RF_ERR_MEMORY, "no pinned memory for uploads to %s: %s", gpu->name, refused) : 0;
}

void gpu_close_staging(rf_gpu *gpu)
{
    if (gpu->staging)
        rt_pinned_free(gpu->staging);
    while (gpu->n_events)
        rt_event_destroy(gpu->done[--gpu->n_events]);
}

unsigned char *gpu_stage(rf_gpu *gpu, size_t bytes)
{
    unsigned char *p;

    if (gpu->staged + bytes > STAGING_BYTES / 2) { /* the other half, when the device has read it */
        rt_event_record(gpu->done[gpu->half], gpu->stream);
        gpu->half ^= 1;
        rt_event_wait(gpu->done[gpu->half]);
        gpu->staged = 0;
    }
    p = gpu->staging + (size_t)gpu->half * (STAGING_BYTES / 2) + gpu->staged;
    gpu->staged += divide_up(bytes, 16) * 16;
    return p;
}

void gpu_push(rf_gpu *gpu, void *to, const unsigned char *staged, size_t bytes)
{
    rt_to_device(to, staged, bytes, gpu->stream);
}

void gpu_upload(rf_gpu *gpu, void *to, const void *src, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += STAGING_BYTES / 2) {
        size_t n = bytes - at < STAGING_BYTES / 2 ? bytes - at : STAGING_BYTES / 2;
        unsigned char *p = gpu_stage(gpu, n);

        memcpy(p, static_cast<const unsigned char *>(src) + at, n);
        gpu_push(gpu, static_cast<unsigned char *>(to) + at, p, n);
    }
}

void gpu_download(rf_gpu *gpu, void *to, const void *from, size_t bytes)
{
    rt_to_host(to, from, bytes, gpu->stream);
    gpu_note(gpu, rt_wait(gpu->stream));
}

/* ---- sums of attention spans: m, l and o of every unit; then m and l of every query so far, twice (attention.cu) */

int gpu_need_units(rf_gpu *gpu, size_t head_dim, rf_error *err)
{
    size_t floats = ATTENTION_UNITS * (2 + head_dim + 4);
    float *p;

    if (floats <= gpu->units_floats)
        return 0;
    p = static_cast<float *>(gpu_alloc(gpu, floats * sizeof(float), "sums of attention spans", err));
    if (!p)
        return -1;
    gpu_free(gpu, gpu->units, gpu->units_floats * sizeof(float));
    gpu->units = p;
    gpu->units_floats = floats;
    return 0;
}

/* ---- buffers */

static size_t buf_bytes(size_t bytes)
{
    return gpu_alloc_bytes(bytes);
}

static rf_buf *buf_create(rf_backend *b, size_t bytes, rf_error *err)
{
    rf_buf *buf = static_cast<rf_buf *>(calloc(1, sizeof *buf));

    if (!buf) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for a buffer");
        return NULL;
    }
    buf->gpu = gpu_of(b);
    buf->bytes = bytes;
    buf->data = gpu_alloc(buf->gpu, bytes, "a buffer", err);
    if (buf->data)
        return buf;
    free(buf);
    return NULL;
}

static void buf_destroy(rf_buf *buf)
{
    if (!buf)
        return;
    gpu_free(buf->gpu, buf->data, buf->bytes);
    free(buf);
}

static void *buf_host(rf_buf *)
{
    return NULL;
}

static void upload(rf_backend *b, rf_buf *dst, size_t offset, const void *src, size_t bytes)
{
    gpu_upload(gpu_of(b), data_of<unsigned char>(dst) + offset, src, bytes);
}

static void download(rf_backend *b, const rf_buf *src, size_t offset, void *dst, size_t bytes)
{
    gpu_download(gpu_of(b), dst, data_of<unsigned char>(src) + offset, bytes);
}

static int sync_device(rf_backend *b, rf_error *err)
{
    rf_gpu *gpu = gpu_of(b);

    gpu_note(gpu, rt_wait(gpu->stream));
    if (gpu->error.code == RF_OK)
        return 0;
    rf_fail(err, gpu->error.code, "%s", gpu->error.text);
    gpu->error.code = RF_OK;
    return -1;
}

void memory_ops(rf_ops *ops)
{
    ops->buf_bytes = buf_bytes;
    ops->buf_create = buf_create;
    ops->buf_destroy = buf_destroy;
    ops->buf_host = buf_host;
    ops->upload = upload;
    ops->download = download;
    ops->sync = sync_device;
}

} /* namespace */
