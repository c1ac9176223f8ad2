/* GGUF files, versions 2 and 3, little-endian, one file or a split set. The file is hostile until proved: every count
 * is checked against the bytes that are left before anything is allocated; tensors may not overlap or leave the file.
 * Mapped read-only. Format: docs/gguf.md of ggml. */
#ifndef RF_GGUF_H
#define RF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "quant.h"
#include "text.h"

typedef struct rf_gguf rf_gguf;

typedef struct {
    const char *name;        /* printable ASCII, at most 64 bytes */
    size_t n_dims, dims[4];  /* contiguous first; unused ones are 1, none is 0 */
    const rf_format *format; /* its unpack is NULL where this version cannot compute with the type */
    size_t bytes;            /* of the whole tensor */
    const void *data;        /* in the map; aligned to general.alignment */
} rf_tensor;

/* Opens path and, for part 1 of a split set (NAME-00001-of-0000N.gguf), the other parts beside it. NULL and *err:
 * RF_ERR_FILE with the path and what was wrong, or RF_ERR_MEMORY. Pair with rf_gguf_close (NULL is legal). */
rf_gguf *rf_gguf_open(const char *path, rf_error *err);
void rf_gguf_close(rf_gguf *f);

const char *rf_gguf_path(const rf_gguf *f); /* for messages: of the first part, printable, cut from the left if long */
size_t rf_gguf_n_tensors(const rf_gguf *f);
const rf_tensor *rf_gguf_tensor(const rf_gguf *f, size_t i);       /* in file order, part after part */
const rf_tensor *rf_gguf_find(const rf_gguf *f, const char *name); /* NULL: not there */
size_t rf_gguf_file_size(const rf_gguf *f);                        /* bytes of all parts */
size_t rf_gguf_header_bytes(const rf_gguf *f);                     /* up to the data, all parts */
uint64_t rf_gguf_header_hash(const rf_gguf *f);                    /* FNV-1a over the header bytes of all parts */

/* ---- Keys: those of the first part. Each getter returns 0, or -1 and the sentence "PATH: KEY: missing" or "PATH: KEY:
 * expected an integer, the file has a string" (RF_ERR_FILE). Integers of any width are read by value; one above max (or
 * negative) is an error. */
bool rf_gguf_has(const rf_gguf *f, const char *key);
bool rf_gguf_is_array(const rf_gguf *f, const char *key); /* false also when it is not there */
int rf_gguf_get_uint(const rf_gguf *f, const char *key, uint64_t max, uint64_t *out, rf_error *err);
/* Floats and integers; must be finite. */
int rf_gguf_get_float(const rf_gguf *f, const char *key, double *out, rf_error *err);
int rf_gguf_get_bool(const rf_gguf *f, const char *key, bool *out, rf_error *err);
int rf_gguf_get_string(const rf_gguf *f, const char *key, rf_text *out, rf_error *err);
int rf_gguf_array_length(const rf_gguf *f, const char *key, size_t *out, rf_error *err);
/* Element i < length of an array; constant time, strings too. Booleans count as integers 0 and 1. */
int rf_gguf_array_uint(const rf_gguf *f, const char *key, size_t i, uint64_t max, uint64_t *out, rf_error *err);
int rf_gguf_array_int(const rf_gguf *f, const char *key, size_t i, int64_t min, int64_t max, int64_t *out,
                      rf_error *err);
int rf_gguf_array_float(const rf_gguf *f, const char *key, size_t i, double *out, rf_error *err);
int rf_gguf_array_string(const rf_gguf *f, const char *key, size_t i, rf_text *out, rf_error *err);

/* A mapped file that was truncated under us ends in one sentence on stderr and exit code 3, not in a crash. Once, at
 * start. */
void rf_gguf_guard_sigbus(void);

#endif
