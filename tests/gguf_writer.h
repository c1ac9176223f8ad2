/* Writes small GGUF files, good ones and (by hand) bad ones, for tests. */
#ifndef RF_TESTS_GGUF_WRITER_H
#define RF_TESTS_GGUF_WRITER_H

#include <stddef.h>
#include <stdint.h>

enum { /* value types of keys */
       W_U8,
       W_I8,
       W_U16,
       W_I16,
       W_U32,
       W_I32,
       W_F32,
       W_BOOL,
       W_STRING,
       W_ARRAY,
       W_U64,
       W_I64,
       W_F64
};

typedef struct {
    unsigned char *bytes; /* owned */
    size_t size, capacity;
    size_t data; /* where the data section begins, after writer_data */
} gguf_writer;

void writer_free(gguf_writer *w);
void writer_put(gguf_writer *w, uint64_t value, size_t bytes); /* little-endian */
void writer_bytes(gguf_writer *w, const void *bytes, size_t n);
void writer_text(gguf_writer *w, const char *text); /* length and characters */

void writer_begin(gguf_writer *w, uint32_t version, uint64_t n_tensors, uint64_t n_keys);
/* The value is put by bits in as many bytes as the type has. */
void writer_scalar(gguf_writer *w, const char *key, uint32_t type, uint64_t bits);
void writer_string(gguf_writer *w, const char *key, const char *value);
void writer_array(gguf_writer *w, const char *key, uint32_t element, uint64_t count); /* the elements follow by hand */
/* dims: as many as are not 0, at most 4. */
void writer_tensor(gguf_writer *w, const char *name, const uint64_t dims[4], uint32_t type, uint64_t offset);
void writer_data(gguf_writer *w, size_t alignment, size_t bytes); /* padding, then byte i of the data is i mod 251 */

void writer_save(const gguf_writer *w, const char *path);

#endif
