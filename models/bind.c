#include "bind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


/* ---- checking */

static void shape_text(const size_t *dims, size_t n, char *text, size_t size)
{
    size_t at = (size_t)snprintf(text, size, "[");

    for (size_t i = 0; i < n && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%zu", i ? ", " : "", dims[i]);
    if (at < size)
        snprintf(text + at, size - at, "]");
}

/* Trailing dimensions of 1 make no difference. */
static bool same_shape(const rf_tensor_want *want, const rf_tensor *t)
{
    for (size_t i = 0; i < 4; i++) {
        size_t wanted = i < want->n_dims ? want->dims[i] : 1, found = i < t->n_dims ? t->dims[i] : 1;

        if (wanted != found)
            return false;
    }
    return true;
}

static int check_shape(const rf_gguf *file, const rf_tensor_want *want, const rf_tensor *t, rf_error *err)
{
    char wanted[96], found[96];

    if (same_shape(want, t))
        return 0;
    shape_text(want->dims, want->n_dims, wanted, sizeof wanted);
    shape_text(t->dims, t->n_dims, found, sizeof found);
    return rf_fail(err, RF_ERR_FILE, "%s: %s: expected %s, file has %s", rf_gguf_path(file), want->name, wanted, found);
}

/* 64-bit integers are for d2t (a mapped vector) alone; everything else can be any format of numbers. */
static int check_type(const rf_gguf *file, const rf_tensor_want *want, const rf_tensor *t,
                      const rf_axis axes[RF_N_AXES], rf_error *err)
{
    bool table = want->cut == RF_CUT_MAPPED && want->n_dims == 1, integers = t->format->type == RF_TYPE_I64;
    size_t uneven;

    if (table != integers)
        return rf_fail(err, RF_ERR_FILE, "%s: %s: expected type %s, file has %s", rf_gguf_path(file), want->name,
                       table ? "I64" : "F32, F16, BF16 or a block type", t->format->name);
    if (!integers && !t->format->unpack)
        return rf_fail(err, RF_ERR_FILE, "%s: %s: this version cannot compute with type %s", rf_gguf_path(file),
                       want->name, t->format->name);
    if (t->format->block == 1)
        return 0;
    uneven = rf_slice_uneven_columns(want, &axes[want->axis]);
    if (uneven)
        return rf_fail(err, RF_ERR_FILE,
                       "%s: %s: type %s needs units of a multiple of 32 columns, but this model's have %zu",
                       rf_gguf_path(file), want->name, t->format->name, uneven);
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool starts_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Every tensor of the file is one of ours. */
static int check_claims(const rf_gguf *file, const rf_tensor_want *wants, size_t n, rf_error *err)
{
    const char **names = malloc((n + 1) * sizeof *names);
    int status = 0;

    if (!names)
        return rf_fail(err, RF_ERR_MEMORY, "no memory to check %zu tensors", n);
    for (size_t i = 0; i < n; i++)
        names[i] = wants[i].name;
    qsort(names, n, sizeof *names, compare_names);
    for (size_t i = 0; status == 0 && i < rf_gguf_n_tensors(file); i++) {
        const char *name = rf_gguf_tensor(file, i)->name;

        if (starts_with(name, "v.") || starts_with(name, "mm.") ||
            bsearch(&name, names, n, sizeof *names, compare_names))
            continue;
        status =
            rf_fail(err, RF_ERR_FILE, "%s: %s: a tensor this architecture does not know", rf_gguf_path(file), name);
    }
    free(names);
    return status;
}

int rf_bind_check(const rf_gguf *file, const rf_tensor_want *wants, size_t n, const rf_axis axes[RF_N_AXES],
                  rf_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const rf_tensor *t = rf_gguf_find(file, wants[i].name);

        if (wants[i].cut == RF_CUT_UNUSED)
            continue;
        if (!t)
            return rf_fail(err, RF_ERR_FILE, "%s: %s: the tensor is missing", rf_gguf_path(file), wants[i].name);
        if (check_shape(file, &wants[i], t, err) != 0 || check_type(file, &wants[i], t, axes, err) != 0)
            return -1;
    }
    return check_claims(file, wants, n, err);
}

size_t rf_bind_n_rows(const rf_gguf *file, const char *name, size_t most, rf_error *err)
{
    const rf_tensor *t = rf_gguf_find(file, name);

    if (t && t->n_dims == 2 && t->dims[1] >= 1 && t->dims[1] <= most)
        return t->dims[1];
    if (!t)
        rf_fail(err, RF_ERR_FILE, "%s: %s: the tensor is missing", rf_gguf_path(file), name);
    else
        rf_fail(err, RF_ERR_FILE, "%s: %s: expected a matrix of 1 to %zu rows", rf_gguf_path(file), name, most);
    return 0;
}

/* ---- creating and counting */

static void *fail(rf_binder *b)
{
    b->failed = true;
    return NULL;
}

static const rf_tensor_want *want_of(const rf_binder *b, size_t id, size_t layer)
{
    return rf_table_find(b->wants, b->n_wants, id, layer);
}

static void count_weights(rf_binder *b, size_t bytes)
{
    b->bytes.weights += bytes;
    if (!b->dry && b->progress)
        b->progress(b->context, b->bytes.weights, b->all);
}

static rf_weight_spec spec_of(const rf_tensor_want *want, const rf_tensor *t, const rf_slice *s)
{
    return (rf_weight_spec){.name = want->name,
                            .data = t->data,
                            .type = t->format->type,
                            .n_cols = rf_want_cols(want),
                            .n_rows = rf_want_rows(want),
                            .row_runs = s->row_runs,
                            .col_runs = s->col_runs,
                            .n_row_runs = s->n_row_runs,
                            .n_col_runs = s->n_col_runs,
                            .unit_end = s->unit_end,
                            .n_units = s->n_units,
                            .nodes = s->nodes,
                            .n_nodes = s->n_nodes};
}

static rf_weight *matrix(rf_binder *b, size_t id, size_t layer, size_t *n_cols)
{
    const rf_tensor_want *want = want_of(b, id, layer);
    rf_weight *w = NULL;
    rf_weight_spec spec;
    rf_slice slice;

    if (b->failed || rf_slice_make(want, b->env->shard, &slice, b->err) != 0)
        return fail(b);
    spec = spec_of(want, rf_gguf_find(b->file, want->name), &slice);
    *n_cols = slice.n_cols;
    if (!b->dry && !(w = b->ops->weight_create(b->env->backend, &spec, b->err)))
        fail(b);
    count_weights(b, b->ops->weight_bytes(&spec));
    rf_slice_free(&slice);
    return w;
}

rf_weight *rf_bind_matrix(rf_binder *b, size_t id, size_t layer)
{
    size_t n_cols;

    return matrix(b, id, layer, &n_cols);
}

void rf_bind_row_parallel(rf_binder *b, size_t id, size_t layer, const rf_sum_plan *plan, rf_row_parallel *w)
{
    w->plan = plan;
    w->w = matrix(b, id, layer, &w->n_cols);
}

/* The slice's rows as float32, in local order. Vectors are small and never cut by columns; a run may start inside a
 * block, so the tensor is unpacked whole. */
static int read_rows(const rf_tensor *t, const rf_tensor_want *want, const rf_slice *s, float *out)
{
    size_t n = rf_want_rows(want) * s->n_cols;
    rf_range all = {0, s->n_rows};
    const rf_range *runs = s->n_row_runs ? s->row_runs : &all;
    float *whole = malloc(n * sizeof *whole);

    if (!whole)
        return -1;
    t->format->unpack(t->data, whole, n);
    for (size_t i = 0; i < (s->n_row_runs ? s->n_row_runs : 1); i++) {
        size_t count = runs[i].count * s->n_cols;

        memcpy(out, whole + runs[i].first * s->n_cols, count * sizeof *out);
        out += count;
    }
    free(whole);
    return 0;
}

static float *vector(rf_binder *b, size_t id, size_t layer, size_t *n)
{
    const rf_tensor_want *want = want_of(b, id, layer);
    rf_slice slice;
    float *out = NULL;

    if (b->failed || rf_slice_make(want, b->env->shard, &slice, b->err) != 0)
        return fail(b);
    *n = slice.n_rows * slice.n_cols;
    if (!b->dry) {
        out = malloc(*n * sizeof *out);
        if (!out || read_rows(rf_gguf_find(b->file, want->name), want, &slice, out) != 0) {
            rf_fail(b->err, RF_ERR_MEMORY, "no memory for %s", want->name);
            free(out);
            out = fail(b);
        }
    }
    rf_slice_free(&slice);
    return out;
}

float *rf_bind_host(rf_binder *b, size_t id, size_t layer)
{
    size_t n;

    return vector(b, id, layer, &n);
}

rf_buf *rf_bind_vector(rf_binder *b, size_t id, size_t layer)
{
    size_t n = 0;
    float *values = vector(b, id, layer, &n);
    rf_buf *buf = rf_bind_floats(b, &b->bytes.weights, n);

    if (buf)
        b->ops->upload(b->env->backend, buf, 0, values, n * sizeof *values);
    free(values);
    return buf;
}

rf_weight_spec rf_bind_table(rf_binder *b, size_t id, size_t layer)
{
    const rf_tensor_want *want = want_of(b, id, layer);
    const rf_slice whole = {0};

    return b->failed ? (rf_weight_spec){0} : spec_of(want, rf_gguf_find(b->file, want->name), &whole);
}

unsigned rf_bind_wants(const rf_binder *b, const rf_weight *w)
{
    return w ? b->ops->weight_wants(w) : 0;
}

rf_buf *rf_bind_floats(rf_binder *b, size_t *category, size_t n)
{
    size_t bytes = n * sizeof(float);
    rf_buf *buf = NULL;

    if (b->failed || (!b->dry && !(buf = b->ops->buf_create(b->env->backend, bytes, b->err))))
        return fail(b);
    *category += b->ops->buf_bytes(bytes);
    return buf;
}

rf_act *rf_bind_act(rf_binder *b, size_t max_rows, size_t max_cols)
{
    rf_act *act = NULL;

    if (b->failed || (!b->dry && !(act = b->ops->act_create(b->env->backend, max_rows, max_cols, b->err))))
        return fail(b);
    b->bytes.scratch += b->ops->act_bytes(max_rows, max_cols);
    return act;
}

rf_rope *rf_bind_rope(rf_binder *b, size_t n_rot, double base, size_t max_rows)
{
    rf_rope *rope = NULL;

    if (b->failed || (!b->dry && !(rope = b->ops->rope_create(b->env->backend, n_rot, base, max_rows, b->err))))
        return fail(b);
    b->bytes.scratch += b->ops->rope_bytes(n_rot, max_rows);
    return rope;
}

rf_kv *rf_bind_kv(rf_binder *b, const rf_kv_spec *spec)
{
    rf_kv *kv = NULL;

    if (b->failed || (!b->dry && !(kv = b->ops->kv_create(b->env->backend, spec, b->err))))
        return fail(b);
    b->bytes.caches += b->ops->kv_bytes(spec);
    return kv;
}

rf_delta *rf_bind_delta(rf_binder *b, const rf_delta_spec *spec)
{
    rf_delta *delta = NULL;

    if (b->failed || (!b->dry && !(delta = b->ops->delta_create(b->env->backend, spec, b->err))))
        return fail(b);
    b->bytes.states += b->ops->delta_bytes(spec);
    return delta;
}

/* ---- cuts */

static int ranks(const rf_binder *b)
{
    return b->env->shard->split == RF_SPLIT_TENSOR ? b->env->shard->n_ranks : 1;
}

rf_sum_plan *rf_bind_sum_plan(rf_binder *b, rf_axis_id axis)
{
    const rf_axis *a = &b->env->shard->axis[axis];
    const size_t alone[] = {0, a->n_units};
    bool tensor = b->env->shard->split == RF_SPLIT_TENSOR;
    rf_sum_plan *plan = b->failed ? NULL : rf_sum_plan_create(a->n_units, ranks(b), tensor ? a->begin : alone, b->err);

    return plan ? plan : fail(b);
}

size_t rf_bind_n_nodes(const rf_binder *b, const rf_sum_plan *plan)
{
    return plan ? rf_sum_plan_n_nodes(plan, b->env->shard->split == RF_SPLIT_TENSOR ? b->env->shard->rank : 0) : 0;
}

size_t *rf_bind_boundaries(rf_binder *b, rf_axis_id axis)
{
    const rf_axis *a = &b->env->shard->axis[axis];
    size_t n = (size_t)ranks(b), *begin = b->failed ? NULL : malloc((n + 1) * sizeof *begin);

    if (!begin) {
        if (!b->failed)
            rf_fail(b->err, RF_ERR_MEMORY, "no memory for %zu boundaries", n);
        return fail(b);
    }
    for (size_t r = 0; r <= n; r++) {
        size_t unit = b->env->shard->split == RF_SPLIT_TENSOR ? a->begin[r] : r * a->n_units;

        begin[r] = unit * a->unit < a->size ? unit * a->unit : a->size;
    }
    return begin;
}
