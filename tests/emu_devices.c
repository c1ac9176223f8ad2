/* devices.h over the emulated GPU: both widths and several orders of threads must give the same bits, and no kernel may do
 * what the emulator forbids. */
#include "devices.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/emu.h"
#include "gpu/gpu.h"

#define TOLERANCE 4e-6

static device open_emu(unsigned width, uint64_t order)
{
    rf_error err = {0};
    device d = {NULL, NULL, ""};

    rf_emu_set_order(order);
    d.b = rf_gpu_find("emu")->create((int)width, &err);
    rf_emu_set_order(0);
    if (d.b)
        d.ops = d.b->ops;
    snprintf(d.name, sizeof d.name, "emu %u%s", width, order ? ", another order" : "");
    return d;
}

const bool slow_devices = true;

device device_open(const char *isa, int n_threads)
{
    (void)isa;
    return open_emu(n_threads == 1 ? 32 : 64, 0);
}

void device_close(device *d)
{
    d->ops->destroy(d->b);
}

/* What a run creates it also frees: only scratch of the first one stays. */
static void run_twice(const device *d, device_run run, const void *input, void *out, size_t bytes)
{
    uint64_t held;

    memset(out, 0, bytes);
    run(d, input, out);
    held = d->ops->stats(d->b).allocated_bytes;
    run(d, input, out);
    assert_int_equal(d->ops->stats(d->b).allocated_bytes, held);
}

void run_everywhere(device_run run, const void *input, void *out, size_t bytes, bool floats)
{
    static const struct {
        unsigned width;
        uint64_t order;
    } others[] = {{64, 0}, {32, 12345}, {64, 6}};
    device first = open_emu(32, 0);
    void *got = malloc(bytes);

    assert_non_null(first.b);
    assert_non_null(got);
    run_twice(&first, run, input, out, bytes);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        device d = open_emu(others[i].width, others[i].order);

        assert_non_null(d.b);
        memset(got, 0, bytes);
        run(&d, input, got);
        compare_results(&d, got, out, bytes, floats);
        device_close(&d);
    }
    free(got);
    device_close(&first);
}

size_t weight_pass_bytes(uint32_t type, size_t n_rows, size_t n_cols)
{
    const rf_format *f = rf_format_find(type);

    return n_rows * (n_cols / f->block * f->bytes);
}

void assert_ordered(const float *got, const float *want, size_t n, const char *what)
{
    double largest = 1e-30;

    for (size_t i = 0; i < n; i++)
        largest = fabs((double)want[i]) > largest ? fabs((double)want[i]) : largest;
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= TOLERANCE * largest))
            fail_msg("%s: element %zu is %.9g, not near %.9g (largest %.3g)", what, i, (double)got[i], (double)want[i],
                     largest);
}
