#include "gguf_files.h"

#include <stdio.h>

#include "check.h"

void gguf_tensor(rf_gguf_bytes *b, const char *name, const uint64_t dims[4], uint32_t type, uint64_t offset)
{
    size_t n_dims = 0;

    while (n_dims < 4 && dims[n_dims])
        n_dims++;
    rf_gguf_put_tensor(b, name, n_dims, dims, type, offset);
}

size_t gguf_data(rf_gguf_bytes *b, size_t alignment, size_t bytes)
{
    size_t start;

    rf_gguf_put_padding(b, alignment);
    start = b->size;
    for (size_t i = 0; i < bytes; i++)
        rf_gguf_put(b, i % 251, 1);
    assert_false(b->failed);
    return start;
}

void gguf_save(const rf_gguf_bytes *b, const char *path)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, b->size, f), b->size);
    assert_int_equal(fclose(f), 0);
}
