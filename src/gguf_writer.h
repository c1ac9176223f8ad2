/* Writing GGUF files, version 3, little-endian: the pieces of a header in memory, and a file that is streamed under a
 * temporary name and takes its own when it is whole. Format: docs/gguf.md of ggml. */
#ifndef RF_GGUF_WRITER_H
#define RF_GGUF_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

#define RF_GGUF_ALIGNMENT 32 /* of the data section and of every tensor in it, where no key says otherwise */

typedef enum { /* value types of keys */
    RF_GGUF_U8,
    RF_GGUF_I8,
    RF_GGUF_U16,
    RF_GGUF_I16,
    RF_GGUF_U32,
    RF_GGUF_I32,
    RF_GGUF_F32,
    RF_GGUF_BOOL,
    RF_GGUF_STRING,
    RF_GGUF_ARRAY,
    RF_GGUF_U64,
    RF_GGUF_I64,
    RF_GGUF_F64
} rf_gguf_type;

/* ---- Pieces. Nothing is checked: a test may write what no reader accepts. Start from zeroes, end with
 * rf_gguf_bytes_free. */

typedef struct {
    unsigned char *data; /* owned */
    size_t size, capacity;
    size_t n_keys;       /* rf_gguf_put_key so far */
    int failed;          /* no memory: what follows is lost */
} rf_gguf_bytes;

void rf_gguf_bytes_free(rf_gguf_bytes *b);
void rf_gguf_put(rf_gguf_bytes *b, uint64_t value, size_t bytes); /* little-endian, at most 8 bytes */
void rf_gguf_put_bytes(rf_gguf_bytes *b, const void *bytes, size_t n);
void rf_gguf_put_text(rf_gguf_bytes *b, const char *text, size_t n); /* length and characters */
void rf_gguf_put_string(rf_gguf_bytes *b, const char *text);         /* the same, up to its NUL */
void rf_gguf_put_padding(rf_gguf_bytes *b, size_t alignment);        /* zeroes up to a multiple */

/* Magic, version and counts; the keys and then the tensors follow. */
void rf_gguf_put_start(rf_gguf_bytes *b, uint32_t version, uint64_t n_tensors, uint64_t n_keys);
/* A key's name; its value's type and the value follow by hand. */
void rf_gguf_put_key(rf_gguf_bytes *b, const char *key);
/* The value is put by bits in as many bytes as the type has. */
void rf_gguf_key_scalar(rf_gguf_bytes *b, const char *key, rf_gguf_type type, uint64_t bits);
void rf_gguf_key_u32(rf_gguf_bytes *b, const char *key, uint32_t value);
void rf_gguf_key_f32(rf_gguf_bytes *b, const char *key, float value);
void rf_gguf_key_bool(rf_gguf_bytes *b, const char *key, int value);
void rf_gguf_key_string(rf_gguf_bytes *b, const char *key, const char *value);
void rf_gguf_key_u32s(rf_gguf_bytes *b, const char *key, const uint32_t *values, size_t n);
/* The elements follow by hand. */
void rf_gguf_key_array(rf_gguf_bytes *b, const char *key, rf_gguf_type element, uint64_t count);
/* dims: contiguous first; offset in the data section. */
void rf_gguf_put_tensor(rf_gguf_bytes *b, const char *name, size_t n_dims, const uint64_t *dims, uint32_t type,
                        uint64_t offset);

/* ---- Files. Add keys and tensors, start the data, write it in any order (also from several threads), finish. After
 * the first failure everything else does nothing and rf_gguf_writer_finish reports it. */

typedef struct rf_gguf_writer rf_gguf_writer;

/* Creates a file of a temporary name beside path. NULL and *err: RF_ERR_FILE, RF_ERR_MEMORY. */
rf_gguf_writer *rf_gguf_writer_open(const char *path, rf_error *err);
/* Where keys go, in order. */
rf_gguf_bytes *rf_gguf_writer_keys(rf_gguf_writer *w);
/* Declares the next tensor of this many bytes; its data begins at the next multiple of RF_GGUF_ALIGNMENT. */
void rf_gguf_writer_tensor(rf_gguf_writer *w, const char *name, size_t n_dims, const uint64_t *dims, uint32_t type,
                           size_t bytes);
/* Bytes the whole file will have, header and data, with what has been added so far. */
size_t rf_gguf_writer_size(const rf_gguf_writer *w);
/* Writes the header and gives the file its size: what is never written reads as zeroes. reserve: also takes the disk
 * space, so that a full disk is told before the data is made. 0, or -1 with *err. */
int rf_gguf_writer_start_data(rf_gguf_writer *w, int reserve, rf_error *err);
/* n bytes of tensor i (in order of declaration), from byte `at` of it on. Any thread. */
void rf_gguf_writer_data(rf_gguf_writer *w, size_t i, size_t at, const void *bytes, size_t n);
/* Gives the file its name (replacing what had it) and frees w: 0, or -1 with *err and no file left. */
int rf_gguf_writer_finish(rf_gguf_writer *w, rf_error *err);
/* Removes the file and frees w (NULL is legal). */
void rf_gguf_writer_cancel(rf_gguf_writer *w);
/* The temporary name, for a handler of signals that must not leave it behind. */
const char *rf_gguf_writer_temporary(const rf_gguf_writer *w);

#endif
