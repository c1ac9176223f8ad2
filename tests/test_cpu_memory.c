/* Memory of the CPU backend: pure sizes are what is held, absurd sizes are a sentence, the hot path allocates nothing;
 * levels. */
#include "devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t heap_calls;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size)
{
    heap_calls++;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    heap_calls++;
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    heap_calls++;
    return __real_realloc(p, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    heap_calls++;
    return __real_aligned_alloc(alignment, size);
}

static uint64_t held(const device *d)
{
    return d->ops->stats(d->b).allocated_bytes;
}

static rf_delta_spec delta_spec(size_t n_slots, size_t n_k, size_t n_v, size_t dim)
{
    static float zeros[1 << 16];

    return (rf_delta_spec){n_slots, n_k, n_v, dim, 4, 1e-6f, zeros, zeros, zeros};
}

static void check_weight(const device *d, uint32_t type, size_t n_rows, size_t n_cols, const rf_range *rows,
                         size_t n_runs)
{
    rf_error err = {0};
    void *data = random_tensor(type, n_rows, n_cols, 1);
    rf_weight_spec spec = {.name = "w",
                           .data = data,
                           .type = type,
                           .n_cols = n_cols,
                           .n_rows = n_rows,
                           .row_runs = rows,
                           .n_row_runs = n_runs};
    uint64_t before = held(d);
    rf_weight *w = d->ops->weight_create(d->b, &spec, &err);

    assert_non_null(w);
    assert_int_equal(held(d) - before, rf_cpu_traits()->weight_bytes(&spec));
    assert_in_range(held(d) - before, 1, 2 * n_rows * n_cols * 4 + 4096);
    d->ops->weight_destroy(w);
    assert_int_equal(held(d), before);
    free(data);
}

static void weights_hold_what_the_plan_says(void **state)
{
    static const uint32_t types[] = {RF_TYPE_F32, RF_TYPE_F16, RF_TYPE_BF16, RF_TYPE_Q8_0};
    static const rf_range rows[] = {{100, 30}, {0, 3}};
    device d = device_open("auto", 2);

    (void)state;
    for (size_t t = 0; t < 4; t++) {
        check_weight(&d, types[t], 1, 32, NULL, 0);
        check_weight(&d, types[t], 130, 96, rows, 2);
        check_weight(&d, types[t], 1030, 1056, NULL, 0); /* mapped */
    }
    device_close(&d);
}

static void caches_hold_what_the_plan_says(void **state)
{
    static const size_t positions[] = {1, 256, 1000, 20000};
    device d = device_open("auto", 2);
    const rf_ops *o = d.ops;
    rf_error err = {0};

    (void)state;
    for (int round = 0; round < 2; round++) /* the first round also grows the threads' scratch */
        for (size_t i = 0; i < 4; i++) {
            rf_kv_spec kv = {2, positions[i], 2, 64, RF_TYPE_F16, i % 2 ? RF_TYPE_F16 : RF_TYPE_F32, false};
            rf_delta_spec ds = delta_spec(1 + i, 2, 4, 32);
            uint64_t at[7] = {held(&d)};
            rf_kv *k = o->kv_create(d.b, &kv, &err);
            rf_delta *t;
            rf_rope *rope;
            rf_act *act;
            rf_buf *buf;

            at[1] = held(&d);
            t = o->delta_create(d.b, &ds, &err);
            at[2] = held(&d);
            rope = o->rope_create(d.b, 64, 1e7, positions[i], &err);
            at[3] = held(&d);
            act = o->act_create(d.b, 3 * i + 1, positions[i], &err);
            at[4] = held(&d);
            buf = o->buf_create(d.b, positions[i] * 100, &err);
            at[5] = held(&d);
            assert_true(k && t && rope && act && buf);
            if (round) {
                assert_int_equal(at[1] - at[0], rf_cpu_traits()->kv_bytes(&kv));
                assert_int_equal(at[2] - at[1], rf_cpu_traits()->delta_bytes(&ds));
            }
            assert_int_equal(at[3] - at[2], rf_cpu_traits()->rope_bytes(64, positions[i]));
            assert_int_equal(at[4] - at[3], rf_cpu_traits()->act_bytes(3 * i + 1, positions[i]));
            assert_int_equal(at[5] - at[4], rf_cpu_traits()->buf_bytes(positions[i] * 100));
            o->kv_destroy(k);
            o->delta_destroy(t);
            o->rope_destroy(rope);
            o->act_destroy(act);
            o->buf_destroy(buf);
            if (round)
                assert_int_equal(held(&d), at[0]);
        }
    device_close(&d);
}

static void check_refusal(rf_error *err, const void *created)
{
    assert_null(created);
    assert_int_equal(err->code, RF_ERR_MEMORY);
    assert_non_null(strpbrk(err->text, "123456789")); /* the size */
    assert_null(strchr(err->text, '\n'));
    *err = (rf_error){0};
}

static void absurd_sizes_are_a_sentence(void **state)
{
    device d = device_open("auto", 2);
    const rf_ops *o = d.ops;
    rf_error err = {0};
    static const size_t absurd[] = {(size_t)1 << 45, (size_t)1 << 60, SIZE_MAX / 2, SIZE_MAX - 3};
    uint64_t before = held(&d);

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        size_t n = absurd[i];
        rf_kv_spec kv = {3, n, 2, 64, RF_TYPE_F16, RF_TYPE_F16, false},
                   slots = {n, 1000, 2, 64, RF_TYPE_F16, RF_TYPE_F16, false};
        rf_delta_spec ds = delta_spec(n, 2, 4, 32);

        check_refusal(&err, o->buf_create(d.b, n, &err));
        check_refusal(&err, o->kv_create(d.b, &kv, &err));
        check_refusal(&err, o->kv_create(d.b, &slots, &err));
        check_refusal(&err, o->delta_create(d.b, &ds, &err));
        check_refusal(&err, o->rope_create(d.b, 64, 1e7, n, &err));
        check_refusal(&err, o->act_create(d.b, n, 4096, &err));
        check_refusal(&err, o->act_create(d.b, 4096, n, &err));
        check_refusal(&err, o->batch_create(d.b, 4, n, &err));
        assert_true(o->kv_bytes(&kv) >= n); /* too large stays too large: no wrap-around */
        assert_true(o->kv_bytes(&slots) >= n);
        assert_true(o->delta_bytes(&ds) >= n);
        assert_true(o->act_bytes(4096, n) >= n);
        assert_true(o->rope_bytes(64, n) >= n);
        assert_true(o->buf_bytes(n) >= n);
    }
    assert_int_equal(held(&d), before);
    device_close(&d);
}

static void destroying_nothing_is_legal(void **state)
{
    device d = device_open("auto", 1);

    (void)state;
    d.ops->buf_destroy(NULL);
    d.ops->batch_destroy(NULL);
    d.ops->weight_destroy(NULL);
    d.ops->act_destroy(NULL);
    d.ops->rope_destroy(NULL);
    d.ops->kv_destroy(NULL);
    d.ops->delta_destroy(NULL);
    d.ops->destroy(NULL);
    device_close(&d);
}

/* ---- the hot path: everything a model queues, twice, between two looks at the heap */

enum { E = 64, HEADS = 2, DIM = 32, ROWS = 8 };

typedef struct {
    rf_batch *batch;
    rf_buf *x, *y, *z, *w, *store, *small;
    rf_weight *matrix, *nodes;
    rf_act *act;
    rf_rope *rope;
    rf_kv *kv;
    rf_delta *delta;
    rf_weight_spec table;
} things;

static void make_things(const device *d, things *t, const void *data)
{
    static const size_t ends[] = {32, 64};
    static const rf_range node = {0, 2};
    rf_error err = {0};
    rf_kv_spec kv = {1, 300, HEADS, DIM, RF_TYPE_F16, RF_TYPE_F16, false};
    rf_delta_spec ds = delta_spec(1, 1, 2, 16);
    rf_weight_spec nodes;

    t->table = (rf_weight_spec){.name = "w", .data = data, .type = RF_TYPE_Q8_0, .n_cols = E, .n_rows = E};
    nodes = t->table;
    nodes.unit_end = ends;
    nodes.n_units = 2;
    nodes.nodes = &node;
    nodes.n_nodes = 1;
    t->batch = batch_of(d, &(rf_batch_seq){0, ROWS, 280, RF_ROLE_GENERATED, RF_LOGITS_ALL}, 1, NULL);
    t->x = zero_buffer(d, ROWS * E * 8);
    t->y = zero_buffer(d, ROWS * E * 8);
    t->z = zero_buffer(d, ROWS * E * 8);
    t->w = zero_buffer(d, 4096);
    t->store = zero_buffer(d, RF_MAX_BLOCK * E * 4);
    t->small = zero_buffer(d, ROWS * 64 * sizeof(rf_candidate));
    t->matrix = d->ops->weight_create(d->b, &t->table, &err);
    t->nodes = d->ops->weight_create(d->b, &nodes, &err);
    t->act = d->ops->act_create(d->b, ROWS, E, &err);
    t->rope = d->ops->rope_create(d->b, DIM, 1e4, ROWS, &err);
    t->kv = d->ops->kv_create(d->b, &kv, &err);
    t->delta = d->ops->delta_create(d->b, &ds, &err);
    assert_true(t->matrix && t->nodes && t->act && t->rope && t->kv && t->delta);
}

static void free_things(const device *d, things *t)
{
    rf_buf *bufs[] = {t->x, t->y, t->z, t->w, t->store, t->small};

    for (size_t i = 0; i < 6; i++)
        d->ops->buf_destroy(bufs[i]);
    d->ops->weight_destroy(t->matrix);
    d->ops->weight_destroy(t->nodes);
    d->ops->act_destroy(t->act);
    d->ops->rope_destroy(t->rope);
    d->ops->kv_destroy(t->kv);
    d->ops->delta_destroy(t->delta);
    d->ops->batch_destroy(t->batch);
}

static void queue_layers(const device *d, const things *t)
{
    const rf_ops *o = d->ops;
    rf_mat x = {t->x, 0, E}, y = {t->y, 0, E}, z = {t->z, 0, E};
    rf_attention_spec spec = {.n_heads = HEADS, .head_dim = DIM, .head_stride = DIM, .heads_per_kv = 1};

    o->embed(d->b, t->batch, &t->table, 2, x);
    o->rms_norm(d->b, ROWS, E, x, t->w, 1e-6f, y);
    o->quantize(d->b, ROWS, E, y, 3, t->act);
    o->matmul(d->b, ROWS, t->matrix, t->act, z);
    o->matmul_nodes(d->b, ROWS, t->nodes, t->act, t->y);
    o->rope_prepare(d->b, t->batch, t->rope);
    o->head_norm_rope(d->b, t->batch, t->rope, HEADS, DIM, DIM, t->w, 1e-6f, z);
    o->kv_store(d->b, t->batch, t->kv, y, z);
    o->attention(d->b, t->batch, t->kv, &spec, z, y);
    o->attention_block(d->b, t->batch, t->kv, &spec, z, x, x, y);
    o->sigmoid_mul(d->b, ROWS, HEADS, DIM, x, z, DIM);
    o->gated_norm(d->b, ROWS, HEADS, DIM, x, t->w, 1e-6f, z);
    o->silu_mul(d->b, ROWS, E, x, z, y);
    o->add(d->b, ROWS, E, x, y);
    o->sanitize(d->b, ROWS, E, x, t->small);
    o->dynamic_conv(d->b, t->batch, E, 2, 16, 1, y, t->w, x, z);
    o->delta(d->b, t->batch, t->delta, x, y, z, (rf_mat){t->z, 0, E});
    o->delta_commit(d->b, t->batch, t->delta);
}

static void queue_rest(const device *d, const things *t)
{
    const rf_ops *o = d->ops;
    rf_mat x = {t->x, 0, E}, y = {t->y, 0, E};
    rf_gumbel_row rows[ROWS] = {{1, 2, 1}};
    rf_error err = {0};

    for (size_t i = 0; i < ROWS; i++)
        rows[i] = (rf_gumbel_row){i, 5, 0.5};
    o->copy(d->b, ROWS, E, x, y);
    o->gather_logit_rows(d->b, t->batch, E, x, y);
    o->keep_rows(d->b, t->batch, E, x, t->store);
    o->take_rows(d->b, t->batch, E, t->store, y);
    o->keep_last(d->b, t->batch, E, x, t->store);
    o->shift_rows(d->b, t->batch, E, t->store, x, y);
    o->logit_scale(d->b, ROWS, E, 0.5f, 30, x);
    o->top_k(d->b, ROWS, E, x, 0, 40, t->small);
    o->upload(d->b, t->w, 0, rows, sizeof rows);
    o->gumbel_argmax(d->b, ROWS, E, x, 0, t->w, t->small);
    o->log_mass(d->b, ROWS, E, x, t->w, t->small);
    o->row_hash(d->b, ROWS, E, x, 0, t->small);
    assert_int_equal(o->sync(d->b, &err), 0);
}

static void the_hot_path_allocates_nothing(void **state)
{
    static const char *const levels[] = {"reference", "avx2", "avx512", "amx"};
    void *data = random_tensor(RF_TYPE_Q8_0, E, E, 1);

    (void)state;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        device d = device_open(levels[i], 2);
        things t;
        uint64_t calls, allocations;

        if (!d.b)
            continue;
        make_things(&d, &t, data);
        calls = heap_calls;
        allocations = d.ops->stats(d.b).n_allocations;
        assert_true(calls > 10 && allocations > 10); /* the counters count */
        queue_layers(&d, &t);
        queue_rest(&d, &t);
        assert_int_equal(heap_calls, calls);
        assert_int_equal(d.ops->stats(d.b).n_allocations, allocations);
        free_things(&d, &t);
        device_close(&d);
    }
    free(data);
}

/* ---- levels */

static char reported[4096];

static void keep_line(const char *text)
{
    assert_null(strchr(text, '\n'));
    snprintf(reported + strlen(reported), sizeof reported - strlen(reported), "%s\n", text);
}

static void levels_are_named(void **state)
{
    static const char *const levels[] = {"reference", "avx2", "avx512", "amx"};
    rf_error err = {0};

    (void)state;
    assert_null(rf_cpu_create(1, true, "neon", &err));
    assert_int_equal(err.code, RF_ERR_USAGE);
    assert_non_null(strstr(err.text, "neon"));
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        device d = device_open(levels[i], 1);

        if (!d.b)
            continue;
        reported[0] = 0;
        d.ops->report(d.b, keep_line);
        assert_non_null(strstr(reported, levels[i]));
        assert_non_null(strstr(reported, "attention"));
        assert_string_equal(d.ops->arithmetic(d.b), "cpu-f32-1"); /* the same bits, so the same name */
        assert_string_equal(d.ops->name, "cpu");
        assert_true(strlen(d.ops->device_name(d.b)) > 0);
        for (const void *const *slot = (const void *const *)(const void *)d.ops;
             slot < (const void *const *)(const void *)(d.ops + 1); slot++)
            assert_non_null(*slot); /* no op is missing */
        device_close(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_hold_what_the_plan_says),
        cmocka_unit_test(caches_hold_what_the_plan_says),
        cmocka_unit_test(absurd_sizes_are_a_sentence),
        cmocka_unit_test(destroying_nothing_is_legal),
        cmocka_unit_test(the_hot_path_allocates_nothing),
        cmocka_unit_test(levels_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
