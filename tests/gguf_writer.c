#include "gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

void writer_free(gguf_writer *w)
{
    free(w->bytes);
    *w = (gguf_writer){0};
}

void writer_bytes(gguf_writer *w, const void *bytes, size_t n)
{
    if (w->capacity - w->size < n) {
        w->capacity = 2 * w->capacity + n;
        w->bytes = realloc(w->bytes, w->capacity);
        assert_non_null(w->bytes);
    }
    if (n)
        memcpy(w->bytes + w->size, bytes, n);
    w->size += n;
}

void writer_put(gguf_writer *w, uint64_t value, size_t bytes)
{
    unsigned char little[8];

    for (size_t i = 0; i < 8; i++)
        little[i] = (unsigned char)(value >> (8 * i));
    writer_bytes(w, little, bytes);
}

void writer_text(gguf_writer *w, const char *text)
{
    writer_put(w, strlen(text), 8);
    writer_bytes(w, text, strlen(text));
}

void writer_begin(gguf_writer *w, uint32_t version, uint64_t n_tensors, uint64_t n_keys)
{
    w->size = 0;
    writer_bytes(w, "GGUF", 4);
    writer_put(w, version, 4);
    writer_put(w, n_tensors, 8);
    writer_put(w, n_keys, 8);
}

void writer_scalar(gguf_writer *w, const char *key, uint32_t type, uint64_t bits)
{
    static const size_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

    writer_text(w, key);
    writer_put(w, type, 4);
    writer_put(w, bits, bytes[type]);
}

void writer_string(gguf_writer *w, const char *key, const char *value)
{
    writer_text(w, key);
    writer_put(w, W_STRING, 4);
    writer_text(w, value);
}

void writer_array(gguf_writer *w, const char *key, uint32_t element, uint64_t count)
{
    writer_text(w, key);
    writer_put(w, W_ARRAY, 4);
    writer_put(w, element, 4);
    writer_put(w, count, 8);
}

void writer_tensor(gguf_writer *w, const char *name, const uint64_t dims[4], uint32_t type, uint64_t offset)
{
    uint32_t n_dims = 0;

    while (n_dims < 4 && dims[n_dims])
        n_dims++;
    writer_text(w, name);
    writer_put(w, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++)
        writer_put(w, dims[i], 8);
    writer_put(w, type, 4);
    writer_put(w, offset, 8);
}

void writer_data(gguf_writer *w, size_t alignment, size_t bytes)
{
    while (w->size % alignment)
        writer_put(w, 0, 1);
    w->data = w->size;
    for (size_t i = 0; i < bytes; i++)
        writer_put(w, i % 251, 1);
}

void writer_save(const gguf_writer *w, const char *path)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(w->bytes, 1, w->size, f), w->size);
    assert_int_equal(fclose(f), 0);
}
