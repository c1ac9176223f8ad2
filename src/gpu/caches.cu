/* What a sequence carries from step to step: keys and values, DeltaNet states; and rotary tables. Creation, export and
 * import. */
#include "gpu_internal.h"

namespace RT_SPACE {

/* ---- keys and values */

static size_t kv_bytes(const rf_kv_spec *s)
{
    return rf_kv_bytes(s, gpu_alloc_bytes);
}

static void kv_destroy(rf_kv *kv)
{
    if (!kv)
        return;
    gpu_free(kv->gpu, kv->k, kv->k_bytes);
    gpu_free(kv->gpu, kv->v, kv->v_bytes);
    gpu_free(kv->gpu, kv->table, rf_kv_table_bytes(&kv->spec));
    free(kv->host_table);
    free(kv);
}

static rf_kv *kv_create(rf_backend *b, const rf_kv_spec *s, rf_error *err)
{
    rf_kv *kv = static_cast<rf_kv *>(calloc(1, sizeof *kv));

    if (!kv) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for a cache");
        return NULL;
    }
    kv->gpu = gpu_of(b);
    kv->spec = *s;
    kv->n_blocks = rf_kv_blocks(s);
    kv->k_size = rf_format_find(s->type_k)->bytes;
    kv->v_size = rf_format_find(s->type_v)->bytes;
    kv->k_bytes = rf_kv_side_bytes(s, s->type_k);
    kv->v_bytes = rf_kv_side_bytes(s, s->type_v);
    kv->k = static_cast<unsigned char *>(gpu_alloc(kv->gpu, kv->k_bytes, "cached keys", err));
    kv->v = static_cast<unsigned char *>(kv->k ? gpu_alloc(kv->gpu, kv->v_bytes, "cached values", err) : NULL);
    kv->table = static_cast<uint32_t *>(
        kv->v ? gpu_alloc(kv->gpu, rf_kv_table_bytes(s), "a cache's table", err) : NULL);
    kv->host_table = static_cast<uint32_t *>(kv->table ? malloc(rf_kv_table_bytes(s) + 1) : NULL);
    if (kv->host_table && gpu_need_units(kv->gpu, s->head_dim, err) == 0) {
        for (size_t i = 0; i < s->n_slots * kv->n_blocks; i++)
            kv->host_table[i] = (uint32_t)i;
        gpu_upload(kv->gpu, kv->table, kv->host_table, rf_kv_table_bytes(s));
        return kv;
    }
    if (kv->table && !kv->host_table)
        rf_fail(err, RF_ERR_MEMORY, "no memory for a cache");
    kv_destroy(kv);
    return NULL;
}

/* Element number of (slot, head, position), and how many positions from there on lie side by side. */
static size_t kv_place(const rf_kv *kv, size_t slot, size_t head, int64_t position, size_t *side_by_side)
{
    size_t block = (size_t)position / SPAN, in_block = (size_t)position % SPAN;

    if (kv->spec.ring)
        block %= kv->n_blocks;
    *side_by_side = SPAN - in_block;
    return ((kv->host_table[slot * kv->n_blocks + block] * kv->spec.n_heads + head) * SPAN + in_block) *
           kv->spec.head_dim;
}

static void kv_export(rf_backend *b, const rf_kv *kv, size_t slot, size_t head, int64_t first, size_t n, void *keys,
                      void *values)
{
    size_t d = kv->spec.head_dim;

    for (size_t i = 0, some; i < n; i += some) {
        size_t at = kv_place(kv, slot, head, first + (int64_t)i, &some);

        some = n - i < some ? n - i : some;
        gpu_download(gpu_of(b), static_cast<unsigned char *>(keys) + i * d * kv->k_size, kv->k + at * kv->k_size,
                     some * d * kv->k_size);
        gpu_download(gpu_of(b), static_cast<unsigned char *>(values) + i * d * kv->v_size, kv->v + at * kv->v_size,
                     some * d * kv->v_size);
    }
}

static void kv_import(rf_backend *b, rf_kv *kv, size_t slot, size_t head, int64_t first, size_t n, const void *keys,
                      const void *values)
{
    size_t d = kv->spec.head_dim;

    for (size_t i = 0, some; i < n; i += some) {
        size_t at = kv_place(kv, slot, head, first + (int64_t)i, &some);

        some = n - i < some ? n - i : some;
        gpu_upload(gpu_of(b), kv->k + at * kv->k_size, static_cast<const unsigned char *>(keys) + i * d * kv->k_size,
                   some * d * kv->k_size);
        gpu_upload(gpu_of(b), kv->v + at * kv->v_size, static_cast<const unsigned char *>(values) + i * d * kv->v_size,
                   some * d * kv->v_size);
    }
}

/* ---- DeltaNet */

typedef struct {
    size_t channels, conv, state, window, m, k, u, g, vectors; /* floats of each part */
} delta_sizes;

/* SIZE_MAX where it is too large */
static size_t delta_floats(const rf_delta_spec *s, delta_sizes *z)
{
    size_t d = s->head_dim, pending = s->n_slots * RF_MAX_BLOCK;

    z->channels = (2 * s->n_k_heads + s->n_v_heads) * d;
    z->conv = s->conv_kernel * z->channels;
    z->vectors = 2 * s->n_v_heads;
    z->state = s->n_slots * s->n_v_heads * d * d;
    z->window = s->n_slots * (s->conv_kernel - 1) * z->channels;
    z->m = pending * z->channels;
    z->k = pending * s->n_k_heads * d;
    z->u = pending * s->n_v_heads * d;
    z->g = pending * s->n_v_heads;
    /* more than all of them together, so that no product wrapped around if this does not */
    if (rf_size_product(rf_size_product(s->n_slots, s->n_v_heads * d * d + 4 * RF_MAX_BLOCK * z->channels), 16) ==
        SIZE_MAX)
        return SIZE_MAX;
    return z->conv + z->vectors + z->state + z->window + z->m + z->k + z->u + z->g;
}

static size_t delta_bytes(const rf_delta_spec *s)
{
    delta_sizes z;

    return gpu_alloc_bytes(rf_size_product(delta_floats(s, &z), sizeof(float)));
}

static void delta_destroy(rf_delta *t)
{
    if (!t)
        return;
    gpu_free(t->gpu, t->memory, t->bytes);
    free(t);
}

static float *next_part(float **at, size_t floats)
{
    float *p = *at;

    *at += floats;
    return p;
}

static void place_parts(rf_delta *t, const delta_sizes *z)
{
    const rf_delta_spec *s = &t->spec;
    delta_view *v = &t->view;
    float *at = t->memory;

    v->state = next_part(&at, z->state); /* first: aligned */
    v->window = next_part(&at, z->window);
    v->pending_m = next_part(&at, z->m);
    v->pending_k = next_part(&at, z->k);
    v->pending_u = next_part(&at, z->u);
    v->pending_g = next_part(&at, z->g);
    v->conv = next_part(&at, z->conv);
    v->a = next_part(&at, z->vectors / 2);
    v->dt = next_part(&at, z->vectors / 2);
    v->n_k_heads = (unsigned)s->n_k_heads;
    v->n_v_heads = (unsigned)s->n_v_heads;
    v->d = (unsigned)s->head_dim;
    v->taps = (unsigned)s->conv_kernel;
    v->n_channels = (unsigned)z->channels;
    v->eps = s->eps;
}

static int upload_vectors(rf_delta *t, const rf_delta_spec *s, rf_error *err)
{
    size_t channels = t->view.n_channels, taps = s->conv_kernel;
    float *conv = static_cast<float *>(malloc(taps * channels * sizeof *conv + 1));

    if (!conv)
        return rf_fail(err, RF_ERR_MEMORY, "no memory for DeltaNet states");
    for (size_t c = 0; c < channels; c++)
        for (size_t j = 0; j < taps; j++)
            conv[j * channels + c] = s->conv[c * taps + j];
    gpu_upload(t->gpu, const_cast<float *>(t->view.conv), conv, taps * channels * sizeof *conv);
    gpu_upload(t->gpu, const_cast<float *>(t->view.a), s->a, s->n_v_heads * sizeof(float));
    gpu_upload(t->gpu, const_cast<float *>(t->view.dt), s->dt, s->n_v_heads * sizeof(float));
    free(conv);
    return 0;
}

static rf_delta *delta_create(rf_backend *b, const rf_delta_spec *s, rf_error *err)
{
    rf_delta *t = static_cast<rf_delta *>(calloc(1, sizeof *t));
    delta_sizes z;

    if (!t) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for DeltaNet states");
        return NULL;
    }
    t->gpu = gpu_of(b);
    t->spec = *s;
    t->bytes = rf_size_product(delta_floats(s, &z), sizeof(float));
    t->memory = static_cast<float *>(gpu_alloc(t->gpu, t->bytes, "DeltaNet states", err));
    if (t->memory) {
        place_parts(t, &z);
        if (upload_vectors(t, s, err) == 0) {
            t->spec.conv = t->spec.a = t->spec.dt = NULL;
            return t;
        }
    }
    delta_destroy(t);
    return NULL;
}

static float *state_of(const rf_delta *t, size_t slot, size_t v_head)
{
    return t->view.state + (slot * t->spec.n_v_heads + v_head) * t->spec.head_dim * t->spec.head_dim;
}

static size_t window_floats(const rf_delta *t)
{
    return (t->spec.conv_kernel - 1) * t->view.n_channels;
}

static void delta_reset(rf_backend *b, rf_delta *t, size_t slot)
{
    size_t d = t->spec.head_dim;

    rt_zero(state_of(t, slot, 0), t->spec.n_v_heads * d * d * sizeof(float), gpu_of(b)->stream);
    rt_zero(t->view.window + slot * window_floats(t), window_floats(t) * sizeof(float), gpu_of(b)->stream);
}

static void transpose(float *s, size_t d)
{
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < i; j++) {
            float swap = s[i * d + j];

            s[i * d + j] = s[j * d + i];
            s[j * d + i] = swap;
        }
}

static void delta_export(rf_backend *b, const rf_delta *t, size_t slot, size_t v_head, float *state)
{
    size_t d = t->spec.head_dim;

    gpu_download(gpu_of(b), state, state_of(t, slot, v_head), d * d * sizeof *state);
    transpose(state, d);
}

/* Not in the hot path: it may wait for the device. */
static void delta_import(rf_backend *b, rf_delta *t, size_t slot, size_t v_head, const float *state)
{
    size_t d = t->spec.head_dim;

    for (size_t j = 0; j < d; j++) {
        unsigned char *staged = gpu_stage(gpu_of(b), d * sizeof *state);

        for (size_t i = 0; i < d; i++)
            reinterpret_cast<float *>(staged)[i] = state[i * d + j];
        gpu_push(gpu_of(b), state_of(t, slot, v_head) + j * d, staged, d * sizeof *state);
    }
}

/* Channel by channel on the host, tap by tap on the device. */
static void window_export(rf_backend *b, const rf_delta *t, size_t slot, float *window)
{
    size_t depth = t->spec.conv_kernel - 1, channels = t->view.n_channels, n = window_floats(t);
    rf_gpu *gpu = gpu_of(b);

    for (size_t at = 0; at < n; at += STAGING_BYTES / 8) {
        size_t some = n - at < STAGING_BYTES / 8 ? n - at : STAGING_BYTES / 8;
        unsigned char *staged = gpu_stage(gpu, some * sizeof(float));

        gpu_download(gpu, staged, t->view.window + slot * n + at, some * sizeof(float));
        for (size_t i = 0; i < some; i++)
            window[(at + i) % channels * depth + (at + i) / channels] = reinterpret_cast<float *>(staged)[i];
    }
}

static void window_import(rf_backend *b, rf_delta *t, size_t slot, const float *window)
{
    size_t depth = t->spec.conv_kernel - 1, channels = t->view.n_channels, n = window_floats(t);
    rf_gpu *gpu = gpu_of(b);

    for (size_t at = 0; at < n; at += STAGING_BYTES / 8) {
        size_t some = n - at < STAGING_BYTES / 8 ? n - at : STAGING_BYTES / 8;
        unsigned char *staged = gpu_stage(gpu, some * sizeof(float));

        for (size_t i = 0; i < some; i++)
            reinterpret_cast<float *>(staged)[i] = window[(at + i) % channels * depth + (at + i) / channels];
        gpu_push(gpu, t->view.window + slot * n + at, staged, some * sizeof(float));
    }
}

/* ---- rotary tables */

static size_t rope_bytes(size_t n_rot, size_t max_rows)
{
    size_t half = n_rot / 2, table = gpu_alloc_bytes(rf_size_product(max_rows, half * sizeof(float)));

    return rf_size_sum(gpu_alloc_bytes(half * sizeof(double)), rf_size_sum(table, table));
}

static void rope_destroy(rf_rope *rope)
{
    size_t table;

    if (!rope)
        return;
    table = rope->max_rows * rope->half * sizeof(float);
    gpu_free(rope->gpu, rope->frequency, rope->half * sizeof(double));
    gpu_free(rope->gpu, rope->cosine, table);
    gpu_free(rope->gpu, rope->sine, table);
    free(rope);
}

static rf_rope *rope_create(rf_backend *b, size_t n_rot, double base, size_t max_rows, rf_error *err)
{
    rf_rope *rope = static_cast<rf_rope *>(calloc(1, sizeof *rope));
    size_t half = n_rot / 2, table = rf_size_product(max_rows, half * sizeof(float));
    rf_gpu *gpu = gpu_of(b);

    if (!rope) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for rotary tables");
        return NULL;
    }
    rope->gpu = gpu;
    rope->half = half;
    rope->max_rows = max_rows;
    rope->frequency = static_cast<double *>(gpu_alloc(gpu, half * sizeof(double), "rotary tables", err));
    rope->cosine = static_cast<float *>(gpu_alloc(gpu, table, "rotary tables", err));
    rope->sine = static_cast<float *>(gpu_alloc(gpu, table, "rotary tables", err));
    if (!rope->frequency || !rope->cosine || !rope->sine) {
        rope_destroy(rope);
        return NULL;
    }
    for (size_t i = 0; i < half; i++) {
        double frequency = pow(base, -2.0 * (double)i / (double)n_rot);

        gpu_upload(gpu, rope->frequency + i, &frequency, sizeof frequency);
    }
    return rope;
}

void cache_ops(rf_ops *ops)
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

} /* namespace */
