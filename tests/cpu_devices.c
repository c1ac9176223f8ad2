/* devices.h over the CPU backend: every ISA level of this machine, with several thread counts. */
#include "devices.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const bool slow_devices = false;

device device_open(const char *isa, int n_threads)
{
    rf_error err = {0};
    device d = {rf_cpu_create(n_threads, true, isa, &err), NULL, ""};

    if (d.b)
        d.ops = d.b->ops;
    snprintf(d.name, sizeof d.name, "%s x %d", isa, n_threads);
    return d;
}

void device_close(device *d)
{
    d->ops->destroy(d->b);
}

void run_everywhere(device_run run, const void *input, void *out, size_t bytes, bool floats)
{
    static const char *const levels[] = {"reference", "avx2", "avx512", "amx"};
    device first = device_open("reference", 1);
    void *got = malloc(bytes);

    assert_non_null(first.b);
    assert_non_null(got);
    memset(out, 0, bytes);
    run(&first, input, out);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        for (int threads = i ? 1 : 3; threads <= 3; threads++) {
            device d = device_open(levels[i], threads);

            if (!d.b) /* this CPU lacks the level */
                continue;
            memset(got, 0, bytes);
            run(&d, input, got);
            compare_results(&d, got, out, bytes, floats);
            if (threads == 1) { /* what a run creates it also frees: only the threads' scratch stays */
                uint64_t held = d.ops->stats(d.b).allocated_bytes;

                run(&d, input, got);
                assert_int_equal(d.ops->stats(d.b).allocated_bytes, held);
            }
            device_close(&d);
        }
    free(got);
    device_close(&first);
}

size_t weight_pass_bytes(uint32_t type, size_t n_rows, size_t n_cols)
{
    const rf_format *f = rf_format_find(type);

    return (n_rows + 15) / 16 * 16 * (n_cols / f->block * f->bytes); /* packed in blocks of 16 rows */
}

void assert_ordered(const float *got, const float *want, size_t n, const char *what)
{
    assert_same_bits(got, want, n, what);
}
