#include "config.h"

#include "device.h"

#include "../src/gpu/gpu.h"

static const char *const names[] = {
    [RF_WANT_CUDA] = "cuda", [RF_WANT_HIP] = "hip", [RF_WANT_EMU_32] = "emu", [RF_WANT_EMU_64] = "emu"};

static bool is_emulated(const rf_options *o)
{
    return o->backend == RF_WANT_EMU_32 || o->backend == RF_WANT_EMU_64;
}

/* NULL: the CPU, or a vendor that is not built in. */
static const rf_gpu_vendor *vendor_of(const rf_options *o)
{
    const rf_gpu_vendor *v;

    if (o->backend == RF_WANT_CPU || (o->backend == RF_WANT_AUTO && o->n_gpu_layers == 0))
        return NULL;
    if (o->backend != RF_WANT_AUTO)
        return rf_gpu_find(names[o->backend]);
    for (int i = 0; (v = rf_gpu_at(i)) != NULL; i++)
        if (v->count() > 0)
            return v;
    return NULL;
}

int rf_device_number(int wanted, int place, int n_ranks, int count, rf_error *err)
{
    if (wanted >= count)
        return rf_fail(err, RF_ERR_USAGE, "--device %d: there are %d, numbered from 0 (--list-devices shows them)", wanted,
                       count);
    if (wanted >= 0)
        return wanted;
    if (n_ranks > count)
        return rf_fail(err, RF_ERR_USAGE, "%d ranks on this host but %d device%s: start a rank for each, or say --device N",
                       n_ranks, count, count == 1 ? "" : "s");
    return place;
}

rf_backend *rf_device_create(const rf_options *o, const rf_device_spec *spec, rf_error *err)
{
    const rf_gpu_vendor *v = vendor_of(o);
    int count, device;

    if (is_emulated(o) && v)
        return v->create(o->backend == RF_WANT_EMU_64 ? 64 : 32, err);
    if (!v && o->backend != RF_WANT_AUTO && o->backend != RF_WANT_CPU) {
        rf_fail(err, RF_ERR_USAGE, "--backend %s: this build has no code for it (configure --with-cuda, --with-hip)",
                names[o->backend]);
        return NULL;
    }
    if (!v)
        return rf_cpu_create(spec->n_threads, spec->busy, o->isa, err);
    count = v->count();
    if (count == 0)
        return v->create(0, err); /* says what is missing */
    device = rf_device_number(o->device, spec->place, spec->n_ranks, count, err);
    return device < 0 ? NULL : v->create(device, err);
}

const rf_ops *rf_device_traits(const rf_options *o)
{
    const rf_gpu_vendor *v = vendor_of(o);

    return v ? v->traits() : rf_cpu_traits();
}

size_t rf_device_free_memory(const rf_options *o)
{
    const rf_gpu_vendor *v = vendor_of(o);

    return v && v->count() > 0 ? v->free_memory() : 0;
}

void rf_device_list(FILE *out)
{
    const rf_gpu_vendor *v;
    int found = 0;

    for (int i = 0; (v = rf_gpu_at(i)) != NULL; i++)
        for (int d = 0; d < v->count(); d++, found++) {
            char text[160];

            v->describe(d, text, sizeof text);
            fprintf(out, "--backend %s --device %d: %s\n", v->name, d, text);
        }
    if (!found)
        fprintf(out, rf_gpu_at(0) ? "no GPU is visible here\n"
                                  : "this build has no GPU code (configure --with-cuda, --with-hip)\n");
}
