#include "config.h"

#include "gguf_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define START_BYTES 24 /* magic, version, counts */

/* ---- Pieces */

void rf_gguf_bytes_free(rf_gguf_bytes *b)
{
    free(b->data);
    *b = (rf_gguf_bytes){0};
}

void rf_gguf_put_bytes(rf_gguf_bytes *b, const void *bytes, size_t n)
{
    if (b->failed || n == 0)
        return;
    if (b->capacity - b->size < n) {
        size_t capacity = 2 * b->capacity + n;
        unsigned char *grown = realloc(b->data, capacity);

        if (!grown) {
            b->failed = 1;
            return;
        }
        b->data = grown;
        b->capacity = capacity;
    }
    memcpy(b->data + b->size, bytes, n);
    b->size += n;
}

void rf_gguf_put(rf_gguf_bytes *b, uint64_t value, size_t bytes)
{
    unsigned char little[8];

    for (size_t i = 0; i < 8; i++)
        little[i] = (unsigned char)(value >> (8 * i));
    rf_gguf_put_bytes(b, little, bytes);
}

void rf_gguf_put_text(rf_gguf_bytes *b, const char *text, size_t n)
{
    rf_gguf_put(b, n, 8);
    rf_gguf_put_bytes(b, text, n);
}

void rf_gguf_put_string(rf_gguf_bytes *b, const char *text)
{
    rf_gguf_put_text(b, text, strlen(text));
}

void rf_gguf_put_padding(rf_gguf_bytes *b, size_t alignment)
{
    while (!b->failed && b->size % alignment)
        rf_gguf_put(b, 0, 1);
}

void rf_gguf_put_start(rf_gguf_bytes *b, uint32_t version, uint64_t n_tensors, uint64_t n_keys)
{
    rf_gguf_put_bytes(b, "GGUF", 4);
    rf_gguf_put(b, version, 4);
    rf_gguf_put(b, n_tensors, 8);
    rf_gguf_put(b, n_keys, 8);
}

void rf_gguf_put_key(rf_gguf_bytes *b, const char *key)
{
    rf_gguf_put_string(b, key);
    b->n_keys++;
}

void rf_gguf_key_scalar(rf_gguf_bytes *b, const char *key, rf_gguf_type type, uint64_t bits)
{
    static const size_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

    rf_gguf_put_key(b, key);
    rf_gguf_put(b, type, 4);
    rf_gguf_put(b, bits, bytes[type]);
}

void rf_gguf_key_u32(rf_gguf_bytes *b, const char *key, uint32_t value)
{
    rf_gguf_key_scalar(b, key, RF_GGUF_U32, value);
}

void rf_gguf_key_f32(rf_gguf_bytes *b, const char *key, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    rf_gguf_key_scalar(b, key, RF_GGUF_F32, bits);
}

void rf_gguf_key_bool(rf_gguf_bytes *b, const char *key, int value)
{
    rf_gguf_key_scalar(b, key, RF_GGUF_BOOL, value != 0);
}

void rf_gguf_key_string(rf_gguf_bytes *b, const char *key, const char *value)
{
    rf_gguf_put_key(b, key);
    rf_gguf_put(b, RF_GGUF_STRING, 4);
    rf_gguf_put_string(b, value);
}

void rf_gguf_key_array(rf_gguf_bytes *b, const char *key, rf_gguf_type element, uint64_t count)
{
    rf_gguf_put_key(b, key);
    rf_gguf_put(b, RF_GGUF_ARRAY, 4);
    rf_gguf_put(b, element, 4);
    rf_gguf_put(b, count, 8);
}

void rf_gguf_key_u32s(rf_gguf_bytes *b, const char *key, const uint32_t *values, size_t n)
{
    rf_gguf_key_array(b, key, RF_GGUF_U32, n);
    for (size_t i = 0; i < n; i++)
        rf_gguf_put(b, values[i], 4);
}

void rf_gguf_put_tensor(rf_gguf_bytes *b, const char *name, size_t n_dims, const uint64_t *dims, uint32_t type,
                        uint64_t offset)
{
    rf_gguf_put_string(b, name);
    rf_gguf_put(b, n_dims, 4);
    for (size_t i = 0; i < n_dims; i++)
        rf_gguf_put(b, dims[i], 8);
    rf_gguf_put(b, type, 4);
    rf_gguf_put(b, offset, 8);
}

/* ---- Files */

struct rf_gguf_writer {
    char *path, *temporary;    /* owned */
    int file;
    rf_gguf_bytes keys, infos;
    size_t *offsets;           /* [n_tensors] in the data section; owned */
    size_t n_tensors, data;    /* data: bytes of the data section */
    size_t header;             /* bytes before it, once it is started */
    atomic_int failure;        /* errno of the first write that failed */
};

static size_t aligned(size_t n)
{
    return (n + RF_GGUF_ALIGNMENT - 1) / RF_GGUF_ALIGNMENT * RF_GGUF_ALIGNMENT;
}

static void discard(rf_gguf_writer *w)
{
    if (w->file >= 0)
        close(w->file);
    rf_gguf_bytes_free(&w->keys);
    rf_gguf_bytes_free(&w->infos);
    free(w->offsets);
    free(w->temporary);
    free(w->path);
    free(w);
}

rf_gguf_writer *rf_gguf_writer_open(const char *path, rf_error *err)
{
    rf_gguf_writer *w = calloc(1, sizeof *w);
    size_t n = strlen(path) + sizeof ".XXXXXX";
    mode_t mask = umask(0);

    umask(mask);
    if (!w) {
        rf_fail(err, RF_ERR_MEMORY, "%s: no memory to write it", path);
        return NULL;
    }
    w->file = -1;
    w->path = strdup(path);
    w->temporary = malloc(n);
    if (!w->path || !w->temporary) {
        rf_fail(err, RF_ERR_MEMORY, "%s: no memory to write it", path);
        discard(w);
        return NULL;
    }
    snprintf(w->temporary, n, "%s.XXXXXX", path);
    w->file = mkstemp(w->temporary);
    if (w->file < 0 || fchmod(w->file, 0666 & ~mask) != 0) { /* mkstemp makes it private */
        rf_fail(err, RF_ERR_FILE, "%s: cannot be written there: %s", path, strerror(errno));
        if (w->file >= 0)
            unlink(w->temporary);
        discard(w);
        return NULL;
    }
    return w;
}

rf_gguf_bytes *rf_gguf_writer_keys(rf_gguf_writer *w)
{
    return &w->keys;
}

void rf_gguf_writer_tensor(rf_gguf_writer *w, const char *name, size_t n_dims, const uint64_t *dims, uint32_t type,
                           size_t bytes)
{
    size_t *grown = realloc(w->offsets, (w->n_tensors + 1) * sizeof *grown);

    if (!grown) {
        w->infos.failed = 1;
        return;
    }
    w->offsets = grown;
    grown[w->n_tensors++] = w->data;
    rf_gguf_put_tensor(&w->infos, name, n_dims, dims, type, w->data);
    w->data += aligned(bytes);
}

size_t rf_gguf_writer_size(const rf_gguf_writer *w)
{
    return aligned(START_BYTES + w->keys.size + w->infos.size) + w->data;
}

static int write_at(int file, const unsigned char *bytes, size_t n, size_t at)
{
    while (n) {
        ssize_t written = pwrite(file, bytes, n, (off_t)at);

        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return written < 0 ? errno : EIO;
        bytes += written;
        at += (size_t)written;
        n -= (size_t)written;
    }
    return 0;
}

static void note_failure(rf_gguf_writer *w, int code)
{
    int none = 0;

    if (code)
        atomic_compare_exchange_strong(&w->failure, &none, code);
}

static int report(const rf_gguf_writer *w, int code, rf_error *err)
{
    return rf_fail(err, RF_ERR_FILE, "%s: %zu bytes could not be written: %s", w->path, rf_gguf_writer_size(w),
                   strerror(code));
}

int rf_gguf_writer_start_data(rf_gguf_writer *w, int reserve, rf_error *err)
{
    rf_gguf_bytes start = {0};
    size_t size = rf_gguf_writer_size(w);
    int code = 0, memory;

    w->header = size - w->data;
    rf_gguf_put_start(&start, 3, w->n_tensors, w->keys.n_keys);
    memory = start.failed || w->keys.failed || w->infos.failed;
    if (!memory) {
        code = ftruncate(w->file, (off_t)size) != 0 ? errno : 0;
        /* File systems that cannot reserve fill up while writing, which is told as well. */
        if (!code && reserve && fallocate(w->file, 0, 0, (off_t)size) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
            code = errno;
        if (!code)
            code = write_at(w->file, start.data, start.size, 0);
        if (!code)
            code = write_at(w->file, w->keys.data, w->keys.size, start.size);
        if (!code)
            code = write_at(w->file, w->infos.data, w->infos.size, start.size + w->keys.size);
    }
    rf_gguf_bytes_free(&start);
    if (memory)
        return rf_fail(err, RF_ERR_MEMORY, "%s: no memory for its header", w->path);
    note_failure(w, code);
    return code ? report(w, code, err) : 0;
}

void rf_gguf_writer_data(rf_gguf_writer *w, size_t i, size_t at, const void *bytes, size_t n)
{
    if (atomic_load(&w->failure) == 0)
        note_failure(w, write_at(w->file, bytes, n, w->header + w->offsets[i] + at));
}

int rf_gguf_writer_finish(rf_gguf_writer *w, rf_error *err)
{
    int code = atomic_load(&w->failure);

    if (close(w->file) != 0 && !code)
        code = errno;
    w->file = -1;
    if (!code && rename(w->temporary, w->path) != 0)
        code = errno;
    if (code) {
        report(w, code, err);
        unlink(w->temporary);
    }
    discard(w);
    return code ? -1 : 0;
}

void rf_gguf_writer_cancel(rf_gguf_writer *w)
{
    if (!w)
        return;
    unlink(w->temporary);
    discard(w);
}

const char *rf_gguf_writer_temporary(const rf_gguf_writer *w)
{
    return w->temporary;
}
