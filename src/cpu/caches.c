/* What a sequence carries from step to step: keys and values, DeltaNet states; and rotary tables. Creation, export and
 * import. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../quant.h"
#include "cpu_internal.h"

/* ---- keys and values */

static size_t kv_bytes(const rf_kv_spec *s)
{
    return rf_kv_bytes(s, cpu_alloc_bytes);
}

static void kv_destroy(rf_kv *kv)
{
    if (!kv)
        return;
    cpu_free(kv->cpu, kv->k, kv->k_bytes);
    cpu_free(kv->cpu, kv->v, kv->v_bytes);
    cpu_free(kv->cpu, kv->table, rf_kv_table_bytes(&kv->spec));
    free(kv);
}

static rf_kv *kv_create(rf_backend *b, const rf_kv_spec *s, rf_error *err)
{
    rf_kv *kv = calloc(1, sizeof *kv);

    if (!kv) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for a cache");
        return NULL;
    }
    kv->cpu = cpu_of(b);
    kv->spec = *s;
    kv->n_blocks = rf_kv_blocks(s);
    kv->k_size = rf_format_find(s->type_k)->bytes;
    kv->v_size = rf_format_find(s->type_v)->bytes;
    kv->k_bytes = rf_kv_side_bytes(s, s->type_k);
    kv->v_bytes = rf_kv_side_bytes(s, s->type_v);
    kv->k = cpu_alloc(kv->cpu, kv->k_bytes, "cached keys", err);
    kv->v = cpu_alloc(kv->cpu, kv->v_bytes, "cached values", err);
    kv->table = cpu_alloc(kv->cpu, rf_kv_table_bytes(s), "a cache's table", err);
    if (kv->k && kv->v && kv->table && cpu_need_scratch(kv->cpu, attention_scratch_floats(s->head_dim), err) == 0 &&
        cpu_need_units(kv->cpu, s->head_dim, err) == 0) {
        for (size_t i = 0; i < s->n_slots * kv->n_blocks; i++)
            kv->table[i] = (uint32_t)i;
        return kv;
    }
    kv_destroy(kv);
    return NULL;
}

static void kv_export(rf_backend *b, const rf_kv *kv, size_t slot, size_t head, int64_t first, size_t n, void *keys,
                      void *values)
{
    size_t d = kv->spec.head_dim;

    (void)b;
    for (size_t i = 0; i < n; i++) {
        size_t at = kv_place(kv, slot, head, first + (int64_t)i);

        memcpy((unsigned char *)keys + i * d * kv->k_size, kv->k + at * kv->k_size, d * kv->k_size);
        memcpy((unsigned char *)values + i * d * kv->v_size, kv->v + at * kv->v_size, d * kv->v_size);
    }
}

static void kv_import(rf_backend *b, rf_kv *kv, size_t slot, size_t head, int64_t first, size_t n, const void *keys,
                      const void *values)
{
    size_t d = kv->spec.head_dim;

    (void)b;
    for (size_t i = 0; i < n; i++) {
        size_t at = kv_place(kv, slot, head, first + (int64_t)i);

        memcpy(kv->k + at * kv->k_size, (const unsigned char *)keys + i * d * kv->k_size, d * kv->k_size);
        memcpy(kv->v + at * kv->v_size, (const unsigned char *)values + i * d * kv->v_size, d * kv->v_size);
    }
}

/* ---- DeltaNet */

typedef struct {
    size_t channels, conv, state, window, m, k, u, g, due, vectors; /* floats of each part */
} delta_sizes;

/* SIZE_MAX where it is too large */
static size_t delta_floats(const rf_delta_spec *s, delta_sizes *z)
{
    size_t d = s->head_dim, pending = s->n_slots * RF_MAX_BLOCK;

    z->channels = (2 * s->n_k_heads + s->n_v_heads) * d;
    z->conv = s->conv_kernel * z->channels;
    z->vectors = 2 * s->n_v_heads;
    z->state = s->n_slots * s->n_v_heads * cpu_state_floats(d);
    z->window = s->n_slots * (s->conv_kernel - 1) * z->channels;
    z->m = pending * z->channels;
    z->k = z->u = pending * s->n_v_heads * d;
    z->g = pending * s->n_v_heads;
    z->due = s->n_slots * s->n_v_heads;
    /* more than all of them together, so that no product wrapped around if this does not */
    if (rf_size_product(rf_size_product(s->n_slots, s->n_v_heads * cpu_state_floats(d) +
                                                        8 * RF_MAX_BLOCK * z->channels), 16) == SIZE_MAX)
        return SIZE_MAX;
    return z->conv + z->vectors + z->state + z->window + z->m + z->k + z->u + z->g + z->due;
}

static size_t delta_bytes(const rf_delta_spec *s)
{
    delta_sizes z;

    return cpu_alloc_bytes(rf_size_product(delta_floats(s, &z), sizeof(float)));
}

static void delta_destroy(rf_delta *delta)
{
    if (!delta)
        return;
    cpu_free(delta->cpu, delta->memory, delta->bytes);
    free(delta);
}

static float *next_part(float **at, size_t floats)
{
    float *p = *at;

    *at += floats;
    return p;
}

static void place_parts(rf_delta *t, const delta_sizes *z)
{
    float *at = t->memory;

    t->state = next_part(&at, z->state); /* first: aligned */
    t->window = next_part(&at, z->window);
    t->pending_m = next_part(&at, z->m);
    t->pending_k = next_part(&at, z->k);
    t->pending_u = next_part(&at, z->u);
    t->pending_g = next_part(&at, z->g);
    t->due = (int32_t *)(void *)next_part(&at, z->due);
    t->conv = next_part(&at, z->conv);
    t->a = next_part(&at, z->vectors / 2);
    t->dt = next_part(&at, z->vectors / 2);
}

static rf_delta *delta_create(rf_backend *b, const rf_delta_spec *s, rf_error *err)
{
    rf_delta *t = calloc(1, sizeof *t);
    delta_sizes z;

    if (!t) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for DeltaNet states");
        return NULL;
    }
    t->cpu = cpu_of(b);
    t->spec = *s;
    t->tiles = s->n_v_heads / s->n_k_heads;
    t->bytes = rf_size_product(delta_floats(s, &z), sizeof(float));
    t->n_channels = z.channels;
    t->memory = cpu_alloc(t->cpu, t->bytes, "DeltaNet states", err);
    if (!t->memory || cpu_need_scratch(t->cpu, delta_scratch_floats(s->head_dim), err) != 0) {
        delta_destroy(t);
        return NULL;
    }
    place_parts(t, &z);
    for (size_t c = 0; c < z.channels; c++)
        for (size_t j = 0; j < s->conv_kernel; j++)
            t->conv[j * z.channels + c] = s->conv[c * s->conv_kernel + j];
    memcpy(t->a, s->a, s->n_v_heads * sizeof *t->a);
    memcpy(t->dt, s->dt, s->n_v_heads * sizeof *t->dt);
    t->spec.conv = t->spec.a = t->spec.dt = NULL;
    return t;
}

static size_t window_floats(const rf_delta *t)
{
    return (t->spec.conv_kernel - 1) * t->n_channels;
}

static void delta_reset(rf_backend *b, rf_delta *t, size_t slot)
{
    (void)b;
    memset(cpu_state_at(t, slot, 0, 0), 0, t->spec.n_v_heads * cpu_state_floats(t->spec.head_dim) * sizeof(float));
    memset(t->window + slot * window_floats(t), 0, window_floats(t) * sizeof(float));
    memset(cpu_due(t, slot, 0), 0, t->spec.n_v_heads * sizeof *t->due);
}

static void delta_export(rf_backend *b, const rf_delta *t, size_t slot, size_t v_head, float *state)
{
    size_t d = t->spec.head_dim;

    (void)b;
    for (size_t j = 0; j < d; j++)
        for (size_t i = 0; i < d; i++)
            state[i * d + j] = cpu_state_at(t, slot, v_head, j)[i * cpu_state_stride(t, j)];
    for (int32_t r = 0; r < *cpu_due(t, slot, v_head); r++) { /* as the op would put it in */
        const float *k = cpu_pending_k(t, slot, v_head, (size_t)r), *u = cpu_pending_u(t, slot, v_head, (size_t)r);
        float g = *cpu_pending_g(t, slot, v_head, (size_t)r);

        for (size_t i = 0; i < d; i++)
            for (size_t j = 0; j < d; j++)
                state[i * d + j] = fmaf(k[i], u[j], state[i * d + j] * g);
    }
}

static void delta_import(rf_backend *b, rf_delta *t, size_t slot, size_t v_head, const float *state)
{
    size_t d = t->spec.head_dim;

    (void)b;
    for (size_t j = 0; j < d; j++)
        for (size_t i = 0; i < d; i++)
            cpu_state_at(t, slot, v_head, j)[i * cpu_state_stride(t, j)] = state[i * d + j];
    *cpu_due(t, slot, v_head) = 0;
}

static void window_export(rf_backend *b, const rf_delta *t, size_t slot, float *window)
{
    size_t depth = t->spec.conv_kernel - 1;

    (void)b;
    for (size_t c = 0; c < t->n_channels; c++)
        for (size_t j = 0; j < depth; j++)
            window[c * depth + j] = t->window[slot * window_floats(t) + j * t->n_channels + c];
}

static void window_import(rf_backend *b, rf_delta *t, size_t slot, const float *window)
{
    size_t depth = t->spec.conv_kernel - 1;

    (void)b;
    for (size_t c = 0; c < t->n_channels; c++)
        for (size_t j = 0; j < depth; j++)
            t->window[slot * window_floats(t) + j * t->n_channels + c] = window[c * depth + j];
}

/* ---- rotary tables */

static size_t rope_bytes(size_t n_rot, size_t max_rows)
{
    size_t half = n_rot / 2;

    size_t table = cpu_alloc_bytes(rf_size_product(max_rows, half * sizeof(float)));

    return rf_size_sum(cpu_alloc_bytes(half * sizeof(double)), rf_size_sum(table, table));
}

static void rope_destroy(rf_rope *rope)
{
    if (!rope)
        return;
    cpu_free(rope->cpu, rope->frequency, rope->half * sizeof *rope->frequency);
    cpu_free(rope->cpu, rope->cosine, rope->max_rows * rope->half * sizeof *rope->cosine);
    cpu_free(rope->cpu, rope->sine, rope->max_rows * rope->half * sizeof *rope->sine);
    free(rope);
}

static rf_rope *rope_create(rf_backend *b, size_t n_rot, double base, size_t max_rows, rf_error *err)
{
    rf_rope *rope = calloc(1, sizeof *rope);

    if (!rope) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for rotary tables");
        return NULL;
    }
    rope->cpu = cpu_of(b);
    rope->half = n_rot / 2;
    rope->max_rows = max_rows;
    rope->frequency = cpu_alloc(rope->cpu, rope->half * sizeof *rope->frequency, "rotary tables", err);
    rope->cosine = cpu_alloc(rope->cpu, rf_size_product(max_rows, rope->half * sizeof(float)), "rotary tables", err);
    rope->sine = cpu_alloc(rope->cpu, rf_size_product(max_rows, rope->half * sizeof(float)), "rotary tables", err);
    if (!rope->frequency || !rope->cosine || !rope->sine) {
        rope_destroy(rope);
        return NULL;
    }
    for (size_t i = 0; i < rope->half; i++)
        rope->frequency[i] = pow(base, -2.0 * (double)i / (double)n_rot);
    return rope;
}

void cpu_cache_ops(rf_ops *ops)
{
    ops->kv_bytes = kv_bytes;
    ops->kv_create = kv_create;
    ops->kv_destroy = kv_destroy;
    ops->kv_export = kv_export;
    ops->kv_import = kv_import;
    ops->delta_bytes = delta_bytes;
    ops->delta_create = delta_create;
    ops->delta_destroy = delta_destroy;
    ops->delta_reset = delta_reset;
    ops->delta_export = delta_export;
    ops->delta_import = delta_import;
    ops->window_export = window_export;
    ops->window_import = window_import;
    ops->rope_bytes = rope_bytes;
    ops->rope_create = rope_create;
    ops->rope_destroy = rope_destroy;
}
