/* The devices that tests of ops go over, linked in: cpu_devices.c (every ISA level of this machine, several thread counts)
 * or emu_devices.c (the emulated GPU, both widths, several orders of its threads); data; comparisons. */
#ifndef RF_TESTS_DEVICES_H
#define RF_TESTS_DEVICES_H

#include "check.h"

#include <stdbool.h>

#include "backend.h"
#include "quant.h"

typedef struct {
    rf_backend *b;
    const rf_ops *ops;
    char name[32]; /* "avx2 x 3", "emu 64" */
} device;

extern const bool slow_devices; /* long tests take less */
/* emu: 32 lanes where n_threads is 1, else 64 */
device device_open(const char *isa, int n_threads);
void device_close(device *d);

/* Runs the same work on the first device and on all others, and fails where a bit of out[0..bytes) differs from the first
 * one's (NaN equals NaN where floats is true). out holds the first one's result. CPU: the reference level first, then
 * every level with 1, 2 and 3 threads. */
typedef void (*device_run)(const device *d, const void *input, void *out);
void run_everywhere(device_run run, const void *input, void *out, size_t bytes, bool floats);

/* Repeatable: values in (-scale, scale), a few of them tiny. Freed by the caller. */
float *random_floats(size_t n, uint64_t seed, float scale);
uint64_t random_bits(uint64_t *state);

rf_buf *buffer_of(const device *d, const void *data, size_t bytes);
rf_buf *zero_buffer(const device *d, size_t bytes);
void read_buffer(const device *d, const rf_buf *buf, void *out, size_t bytes);
rf_batch *batch_of(const device *d, const rf_batch_seq *seqs, size_t n_seqs, const int32_t *tokens);

/* A random matrix as a file holds it; Q8_0 has weights of -128 and a block whose scale is 0. Freed by the caller. */
void *random_tensor(uint32_t type, size_t n_rows, size_t n_cols, uint64_t seed);

/* |got - want| <= tolerance * (1 + |want|) for every element */
void assert_near(const float *got, const double *want, size_t n, double tolerance);
void compare_results(const device *d, const void *got, const void *want, size_t bytes, bool floats);
/* What a pass over a matrix reads. */
size_t weight_pass_bytes(uint32_t type, size_t n_rows, size_t n_cols);
/* want: sums in the order that backend.h writes down. The CPU has its bits; a GPU sums in an order of its own, and may be
 * off by 4e-6 of the largest of them. */
void assert_ordered(const float *got, const float *want, size_t n, const char *what);
void assert_same_bits(const float *got, const float *want, size_t n, const char *what);

#endif
