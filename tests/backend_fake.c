#include "backend_fake.h"

#include <stdlib.h>

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

static const rf_ops host_ops = {
    .name = "fake", .buf_create = buf_create, .buf_destroy = buf_destroy, .buf_host = host_address};
static const rf_ops device_ops = {
    .name = "fake-device", .buf_create = buf_create, .buf_destroy = buf_destroy, .buf_host = no_address};

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
