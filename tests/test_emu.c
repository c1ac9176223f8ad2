/* The emulated GPU: right kernels run and give the same bits at both widths and in every order; each broken rule is found
 * and named; an error stays until it is asked for; sizes are what the plan says. */
#include "devices.h"

#include <stdlib.h>
#include <string.h>

#include "emu_kernels.h"
#include "gpu/emu.h"
#include "gpu/gpu.h"

static const unsigned widths[] = {32, 64};

static void right_kernels_run(void **state)
{
    (void)state;
    for (size_t w = 0; w < 2; w++)
        for (uint64_t order = 0; order < 5; order++) {
            float out[2] = {0, 0};

            emu_run_case(EMU_FINE, widths[w], order, out);
            assert_null(rf_emu_take_error());
            assert_true(out[0] == 63 * 32 && out[1] == 63 * 32);
            emu_run_case(EMU_HISTOGRAM, widths[w], order, out);
            assert_null(rf_emu_take_error());
            assert_true(out[0] == 32 && out[1] == 32);
        }
}

static void finds(emu_case which, const char *what)
{
    for (size_t w = 0; w < 2; w++)
        for (uint64_t order = 0; order < 4; order++) {
            float out[2];
            const char *error;

            emu_run_case(which, widths[w], order, out);
            error = rf_emu_take_error();
            if (!error || !strstr(error, what))
                fail_msg("width %u, order %d: said %s, expected %s", widths[w], (int)order, error ? error : "nothing", what);
            assert_null(rf_emu_take_error());
        }
}

static void races_are_found(void **state)
{
    (void)state;
    finds(EMU_RACE_READ, "a race: ");
    finds(EMU_RACE_WRITE, "a race: writes element");
    finds(EMU_RACE_HISTOGRAM, "a race: ");
}

static void bad_accesses_are_found(void **state)
{
    (void)state;
    finds(EMU_OUT_OF_BOUNDS, "element 64 of a shared array of 64");
    finds(EMU_DYNAMIC_TOO_FAR, "of a shared array of 64");
    finds(EMU_UNINITIALISED, "reads element 7 of a shared array, which nobody has written");
    finds(EMU_LEFTOVER, "which nobody has written");
    finds(EMU_TOO_MUCH, "more shared memory than a block may have");
}

static void divergence_is_found(void **state)
{
    float out[2];

    (void)state;
    finds(EMU_DIVERGED_SHUFFLE, "diverge");
    emu_run_case(EMU_MISSED_BARRIER, 32, 0, out); /* whole warps are missing */
    assert_non_null(strstr(rf_emu_take_error(), "others have ended"));
    emu_run_case(EMU_MISSED_BARRIER, 64, 0, out); /* half a warp is */
    assert_non_null(strstr(rf_emu_take_error(), "diverge"));
}

/* The order of threads is what a seed changes, and only that. */
static void orders_show_what_depends_on_them(void **state)
{
    float first[2] = {0, 0}, again[2] = {0, 0};
    int others = 0;

    (void)state;
    emu_run_case(EMU_ORDER, 32, 0, first);
    emu_run_case(EMU_ORDER, 32, 0, again);
    assert_memory_equal(first, again, sizeof first);
    for (uint64_t order = 1; order < 20; order++) {
        float out[2] = {0, 0};

        emu_run_case(EMU_ORDER, 32, order, out);
        others += out[0] != first[0];
    }
    assert_true(others > 10);
    assert_null(rf_emu_take_error());
}

static void errors_reach_sync(void **state)
{
    device d = device_open("auto", 1);
    rf_error err = {RF_OK, ""};
    float out[2] = {5, 5}, x = 3;
    rf_buf *buf = buffer_of(&d, &x, sizeof x);

    (void)state;
    emu_run_case(EMU_OUT_OF_BOUNDS, 32, 0, out);
    out[0] = 5;
    emu_run_case(EMU_FINE, 32, 0, out); /* nothing runs after an error */
    assert_true(out[0] == 5);
    d.ops->download(d.b, buf, 0, &x, sizeof x);
    assert_int_equal(d.ops->sync(d.b, &err), -1);
    assert_int_equal(err.code, RF_ERR_DEVICE);
    assert_non_null(strstr(err.text, "shared array"));
    assert_int_equal(d.ops->sync(d.b, &err), 0); /* it is told once */
    d.ops->buf_destroy(buf);
    device_close(&d);
}

static void widths_are_checked(void **state)
{
    rf_error err = {RF_OK, ""};

    (void)state;
    assert_null(rf_gpu_find("emu")->create(48, &err));
    assert_int_equal(err.code, RF_ERR_DEVICE);
    assert_non_null(strstr(err.text, "32 or 64"));
    assert_null(rf_gpu_find("abacus"));
}

/* ---- memory */

static uint64_t held(const device *d)
{
    return d->ops->stats(d->b).allocated_bytes;
}

static void things_hold_what_the_plan_says(void **state)
{
    static const size_t ends[] = {64, 128};
    static const rf_range node = {0, 2};
    static const float numbers[400];
    static const uint32_t types[] = {RF_TYPE_F32, RF_TYPE_F16, RF_TYPE_BF16, RF_TYPE_Q8_0};
    const rf_ops *pure = rf_gpu_find("emu")->traits();
    device d = device_open("auto", 1);
    rf_kv_spec kvs = {2, 700, 3, 40, RF_TYPE_F16, RF_TYPE_F32, false};
    rf_delta_spec ds = {2, 1, 2, 24, 4, 1e-6f, numbers, numbers, numbers};
    rf_error err;
    uint64_t before;

    (void)state;
    for (size_t i = 0; i < 8; i++) {
        void *data = random_tensor(types[i % 4], 37, 128, i);
        rf_weight_spec spec = {.name = "w", .data = data, .type = types[i % 4], .n_cols = 128, .n_rows = 37};
        rf_weight *w;

        if (i >= 4) {
            spec.unit_end = ends;
            spec.n_units = 2;
            spec.nodes = &node;
            spec.n_nodes = 1;
        }
        before = held(&d);
        w = d.ops->weight_create(d.b, &spec, &err);
        assert_int_equal(held(&d) - before, pure->weight_bytes(&spec));
        d.ops->weight_destroy(w);
        assert_int_equal(held(&d), before);
        free(data);
    }
    d.ops->kv_destroy(d.ops->kv_create(d.b, &kvs, &err)); /* leaves the sums of attention spans */
    before = held(&d);
    {
        rf_kv *kv = d.ops->kv_create(d.b, &kvs, &err);
        uint64_t with_kv = held(&d);
        rf_delta *delta = d.ops->delta_create(d.b, &ds, &err);
        uint64_t with_delta = held(&d);
        rf_rope *rope = d.ops->rope_create(d.b, 20, 1e6, 33, &err);
        uint64_t with_rope = held(&d);
        rf_act *act = d.ops->act_create(d.b, 17, 100, &err);
        uint64_t with_act = held(&d);
        rf_buf *buf = d.ops->buf_create(d.b, 1001, &err);

        assert_int_equal(with_kv - before, pure->kv_bytes(&kvs));
        assert_int_equal(with_delta - with_kv, pure->delta_bytes(&ds));
        assert_int_equal(with_rope - with_delta, pure->rope_bytes(20, 33));
        assert_int_equal(with_act - with_rope, pure->act_bytes(17, 100));
        assert_int_equal(held(&d) - with_act, pure->buf_bytes(1001));
        d.ops->kv_destroy(kv);
        d.ops->delta_destroy(delta);
        d.ops->rope_destroy(rope);
        d.ops->act_destroy(act);
        d.ops->buf_destroy(buf);
    }
    assert_int_equal(held(&d), before);
    assert_null(d.ops->buf_create(d.b, SIZE_MAX - 5, &err));
    assert_int_equal(err.code, RF_ERR_MEMORY);
    device_close(&d);
}

/* Uploads of more than the pinned memory holds, many small ones, and embeddings, arrive whole. */
static void uploads_of_any_size_arrive(void **state)
{
    enum { N = 3000000 };
    device d = device_open("auto", 1);
    float *x = random_floats(N, 3, 1), *got = malloc(N * sizeof *got);
    rf_buf *buf = zero_buffer(&d, N * sizeof *x);

    (void)state;
    assert_non_null(got);
    d.ops->upload(d.b, buf, 0, x, N * sizeof *x);
    read_buffer(&d, buf, got, N * sizeof *got);
    assert_memory_equal(x, got, N * sizeof *got);
    for (size_t i = 0; i < N; i += 1000)
        d.ops->upload(d.b, buf, (N - 1000 - i) * sizeof *x, x + i, 1000 * sizeof *x);
    read_buffer(&d, buf, got, N * sizeof *got);
    for (size_t i = 0; i < N; i += 1000)
        assert_memory_equal(got + N - 1000 - i, x + i, 1000 * sizeof *x);
    d.ops->buf_destroy(buf);
    free(x);
    free(got);
    device_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_kernels_run),
        cmocka_unit_test(races_are_found),
        cmocka_unit_test(bad_accesses_are_found),
        cmocka_unit_test(divergence_is_found),
        cmocka_unit_test(orders_show_what_depends_on_them),
        cmocka_unit_test(errors_reach_sync),
        cmocka_unit_test(widths_are_checked),
        cmocka_unit_test(things_hold_what_the_plan_says),
        cmocka_unit_test(uploads_of_any_size_arrive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
