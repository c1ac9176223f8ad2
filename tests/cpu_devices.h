/* The CPU backend at every ISA level of this machine and with several thread counts; data; comparisons. */
#ifndef RF_TESTS_CPU_DEVICES_H
#define RF_TESTS_CPU_DEVICES_H

#include "check.h"

#include <stdbool.h>

#include "backend.h"
#include "quant.h"

typedef struct {
    rf_backend *b;
    const rf_ops *ops;
    char name[32]; /* "avx2 x 3" */
} device;

device device_open(const char *isa, int n_threads);
void device_close(device *d);

/* Runs the same work on the reference and on every level of this machine with 1, 2 and 3 threads, and fails where a bit
 * of out[0..bytes) differs from the reference's (NaN equals NaN where floats is true). out holds the reference's
 * result. */
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
void assert_same_bits(const float *got, const float *want, size_t n, const char *what);

#endif
