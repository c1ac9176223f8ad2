#include "backend_fake.h"

#include <stdlib.h>
#include <string.h>

struct rf_buf {
    void *data;
};

static rf_buf *buf_create(rf_backend *b, size_t bytes, rf_error *err)
{
    rf_buf *buf = malloc(sizeof *buf);

    (void)b;
    if (buf && (buf->data = calloc(1, bytes)) != NULL)
        return buf;
    free(buf);
    rf_fail(err, RF_ERR_MEMORY, "no memory for %zu bytes", bytes);
    return NULL;
}

static void buf_destroy(rf_buf *buf)
{
    if (buf)
        free(buf->data);
    free(buf);
}

static void *host_address(rf_buf *buf)
{
    return buf->data;
}

static void *no_address(rf_buf *buf)
{
    (void)buf;
    return NULL;
}

static void upload(rf_backend *b, rf_buf *dst, size_t offset, const void *src, size_t bytes)
{
    (void)b;
    memcpy((char *)dst->data + offset, src, bytes);
}

static void download(rf_backend *b, const rf_buf *src, size_t offset, void *dst, size_t bytes)
{
    (void)b;
    memcpy(dst, (const char *)src->data + offset, bytes);
}

static void copy(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat src, rf_mat dst)
{
    (void)b;
    for (size_t r = 0; r < n_rows; r++)
        memcpy((float *)dst.buf->data + dst.offset + r * dst.stride,
               (const float *)src.buf->data + src.offset + r * src.stride, n_cols * sizeof(float));
}

static const rf_ops host_ops = {
    .name = "fake", .buf_create = buf_create, .buf_destroy = buf_destroy, .buf_host = host_address};
static const rf_ops device_ops = {.name = "fake-device",
                                  .buf_create = buf_create,
                                  .buf_destroy = buf_destroy,
                                  .buf_host = no_address,
                                  .upload = upload,
                                  .download = download,
                                  .copy = copy};

rf_backend *rf_fake_host(void)
{
    static rf_backend b = {&host_ops};

    return &b;
}

rf_backend *rf_fake_device(void)
{
    static rf_backend b = {&device_ops};

    return &b;
}

void *rf_fake_data(rf_buf *buf)
{
    return buf->data;
}
