/* Creation of a GPU backend on one device. */
#include "gpu_internal.h"

namespace RT_SPACE {

/* Bits may differ between vendors (their double logarithms and exponentials), not between cards of one. */
#define ARITHMETIC "gpu-" RT_NAME "-f32-1"

static void destroy(rf_backend *b)
{
    rf_gpu *gpu = gpu_of(b);

    if (!b)
        return;
    (void)rt_wait(gpu->stream);
    gpu_free(gpu, gpu->units, gpu->units_floats * sizeof(float));
    gpu_close_staging(gpu);
    rt_close(gpu->stream);
    free(gpu);
}

static const char *device_name(const rf_backend *b)
{
    return gpu_of(b)->name;
}

static const char *arithmetic(const rf_backend *b)
{
    return gpu_of(b)->arithmetic;
}

static void report(const rf_backend *b, void (*line)(const char *text))
{
    char text[240];

    snprintf(text, sizeof text, "ops: all on %s by " RT_NAME " kernels; token embeddings are unpacked on the host",
             gpu_of(b)->name);
    line(text);
}

static rf_backend_stats stats(const rf_backend *b)
{
    return gpu_of(b)->stats;
}

/* Ops go to the stream as they come. */
static void step(rf_backend *, void (*body)(void *context), void *context)
{
    body(context);
}

static void fill(rf_ops *ops)
{
    ops->name = RT_NAME;
    ops->destroy = destroy;
    ops->device_name = device_name;
    ops->arithmetic = arithmetic;
    ops->report = report;
    ops->stats = stats;
    ops->step = step;
    memory_ops(ops);
    batch_ops(ops);
    weight_ops(ops);
    matmul_ops(ops);
    basic_ops(ops);
    row_ops(ops);
    cache_ops(ops);
    attention_ops(ops);
    delta_ops(ops);
    logit_ops(ops);
    choice_ops(ops);
}

static const rf_ops *traits(void)
{
    static rf_ops table;

    fill(&table);
    return &table;
}

static int count(void)
{
    return rt_count();
}

static void describe(int device, char *text, size_t size)
{
    rt_describe(device, text, size);
}

static int open_device(rf_gpu *gpu, int device, rf_error *err)
{
    const char *refused;

    if (rt_count() == 0)
        return rf_fail(err, RF_ERR_DEVICE, "--backend " RT_NAME ": this machine has no such GPU, or no driver for it");
    refused = rt_open(device, &gpu->stream);
    if (refused)
        return rf_fail(err, RF_ERR_DEVICE, "--backend " RT_NAME ": device %d cannot be used: %s", device, refused);
    rt_describe(device, gpu->name, sizeof gpu->name);
    if (gpu_open_staging(gpu, err) == 0)
        return 0;
    gpu_close_staging(gpu);
    rt_close(gpu->stream);
    return -1;
}

static rf_backend *create(int device, rf_error *err)
{
    rf_gpu *gpu = static_cast<rf_gpu *>(calloc(1, sizeof *gpu));

    if (!gpu) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for the GPU backend");
        return NULL;
    }
    gpu->device = device;
    snprintf(gpu->arithmetic, sizeof gpu->arithmetic, "%s", ARITHMETIC);
    fill(&gpu->table);
    gpu->base.ops = &gpu->table;
    if (open_device(gpu, device, err) == 0)
        return &gpu->base;
    free(gpu);
    return NULL;
}

static size_t free_memory(void)
{
    return rt_free_memory();
}

} /* namespace */

extern "C" const rf_gpu_vendor *RT_VENDOR_FUNCTION(void)
{
    static const rf_gpu_vendor vendor = {RT_NAME,           RT_SPACE::create,   RT_SPACE::traits,
                                         RT_SPACE::count,   RT_SPACE::describe, RT_SPACE::free_memory};

    return &vendor;
}
