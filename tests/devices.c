#include "devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "half.h"

void compare_results(const device *d, const void *got, const void *want, size_t bytes, bool floats)
{
    for (size_t i = 0; floats && i < bytes / sizeof(float); i++) {
        float a = ((const float *)got)[i], b = ((const float *)want)[i];

        if (memcmp(&a, &b, sizeof a) != 0 && !(isnan(a) && isnan(b)))
            fail_msg("%s: element %zu is %.9g, the reference has %.9g", d->name, i, (double)a, (double)b);
    }
    for (size_t i = 0; !floats && i < bytes; i++)
        if (((const unsigned char *)got)[i] != ((const unsigned char *)want)[i])
            fail_msg("%s: byte %zu differs from the reference's", d->name, i);
}

uint64_t random_bits(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);

    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

float *random_floats(size_t n, uint64_t seed, float scale)
{
    float *x = malloc((n + 1) * sizeof *x);

    assert_non_null(x);
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = random_bits(&seed);

        x[i] = scale * (float)((double)(bits >> 11) * 0x1p-52 - 1);
        if (bits % 37 == 0)
            x[i] *= 1e-6f;
    }
    return x;
}

rf_buf *zero_buffer(const device *d, size_t bytes)
{
    rf_error err = {0};
    rf_buf *buf = d->ops->buf_create(d->b, bytes, &err);

    assert_non_null(buf);
    return buf;
}

rf_buf *buffer_of(const device *d, const void *data, size_t bytes)
{
    rf_buf *buf = zero_buffer(d, bytes);

    d->ops->upload(d->b, buf, 0, data, bytes);
    return buf;
}

void read_buffer(const device *d, const rf_buf *buf, void *out, size_t bytes)
{
    rf_error err = {0};

    d->ops->download(d->b, buf, 0, out, bytes);
    assert_int_equal(d->ops->sync(d->b, &err), 0);
}

rf_batch *batch_of(const device *d, const rf_batch_seq *seqs, size_t n_seqs, const int32_t *tokens)
{
    rf_error err = {0};
    size_t n_rows = 0;
    int32_t *none = NULL;
    rf_batch *batch;

    for (size_t i = 0; i < n_seqs; i++)
        n_rows += (size_t)seqs[i].n_rows;
    if (!tokens)
        tokens = none = calloc(n_rows, sizeof *none);
    batch = d->ops->batch_create(d->b, n_seqs, n_rows, &err);
    assert_non_null(batch);
    d->ops->batch_set(d->b, batch, n_seqs, seqs, tokens);
    free(none);
    return batch;
}

static void random_q8_block(unsigned char *block, size_t index, uint64_t *state)
{
    uint16_t scale = rf_f32_to_f16(0.001f * (float)(1 + random_bits(state) % 50));

    if (index % 11 == 5)
        scale = 0;
    memcpy(block, &scale, sizeof scale);
    for (size_t i = 0; i < 32; i++)
        block[2 + i] = (unsigned char)random_bits(state);
    if (index % 3 == 0)
        memset(block + 2, 0x80, 32); /* all -128 */
}

void *random_tensor(uint32_t type, size_t n_rows, size_t n_cols, uint64_t seed)
{
    const rf_format *f = rf_format_find(type);
    size_t n = n_rows * n_cols;
    unsigned char *data = malloc(n / f->block * f->bytes + 1);
    float *x = random_floats(n, seed, 0.5f);

    assert_non_null(data);
    for (size_t i = 0; i < n; i++) {
        uint16_t half = type == RF_TYPE_F16 ? rf_f32_to_f16(x[i]) : rf_f32_to_bf16(x[i]);

        if (type == RF_TYPE_F32)
            memcpy(data + 4 * i, &x[i], 4);
        else if (type != RF_TYPE_Q8_0)
            memcpy(data + 2 * i, &half, 2);
        else if (i % 32 == 0)
            random_q8_block(data + i / 32 * 34, i / 32, &seed);
    }
    free(x);
    return data;
}

void assert_near(const float *got, const double *want, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance * (1 + fabs(want[i]))))
            fail_msg("element %zu is %.9g, expected %.9g", i, (double)got[i], want[i]);
}

void assert_same_bits(const float *got, const float *want, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s: element %zu is %.9g, not %.9g", what, i, (double)got[i], (double)want[i]);
}
