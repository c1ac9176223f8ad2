/* Random weights and the files they go into. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "gguf.h"
#include "gguf_writer.h"
#include "synth_options.h"
#include "synth_weights.h"

enum { BLOCKS = 4096 };

static const rf_format *format_of(const char *name)
{
    rf_error err;
    const rf_format *f = rf_synth_format("--type", name, &err);

    assert_non_null(f);
    return f;
}

/* Every type that computes can be drawn: mean 0 and the spread that was asked for, within sampling error (a float range
 * of 2^20 weights has 0.1 %; scales are rounded to f16, and blocks differ by a quarter). */
static void spread_is_as_asked(void **state)
{
    const double wanted = 0.02;

    (void)state;
    for (uint32_t type = 0; type < 64; type++) {
        const rf_format *f = rf_format_find(type);
        size_t n_blocks, n;
        double sum = 0, squares = 0;
        rf_synth_source s;
        unsigned char *bytes;
        float *weights;

        if (!f || !f->unpack)
            continue;
        assert_ptr_equal(format_of(f->name), f);
        n_blocks = (1u << 20) / f->block;
        n = n_blocks * f->block;
        bytes = malloc(n_blocks * f->bytes);
        weights = malloc(n * sizeof *weights);
        assert_true(bytes && weights);
        rf_synth_source_init(&s, f, 5, "blk.0.ffn_up.weight", (rf_synth_range){0, wanted});
        rf_synth_blocks(&s, 0, n_blocks, bytes);
        f->unpack(bytes, weights, n);
        for (size_t i = 0; i < n; i++) {
            assert_true(isfinite(weights[i]));
            sum += weights[i];
            squares += (double)weights[i] * weights[i];
        }
        if (fabs(sqrt(squares / (double)n) / wanted - 1) > 0.03 || fabs(sum / (double)n) > 0.02 * wanted)
            fail_msg("%s: mean %g, spread %g", f->name, sum / (double)n, sqrt(squares / (double)n));
        free(weights);
        free(bytes);
    }
}

static void vectors_have_their_center(void **state)
{
    rf_synth_source s;
    float v[BLOCKS], low = 9, high = -9;
    double sum = 0;

    (void)state;
    rf_synth_source_init(&s, rf_format_find(RF_TYPE_F32), 0, "output_norm.weight", (rf_synth_range){1, 0.06});
    rf_synth_blocks(&s, 0, BLOCKS, (unsigned char *)v);
    for (size_t i = 0; i < BLOCKS; i++) {
        sum += v[i];
        low = fminf(low, v[i]);
        high = fmaxf(high, v[i]);
    }
    assert_true(fabs(sum / BLOCKS - 1) < 0.005);
    assert_true(low > 0.89 && low < 0.9 && high > 1.1 && high < 1.11);
}

/* In any pieces the same bytes; another name, seed or place has others. */
static void pieces_make_the_whole(void **state)
{
    static const char *const names[] = {"F32", "F16", "BF16", "Q8_0"};

    (void)state;
    for (size_t t = 0; t < sizeof names / sizeof *names; t++) {
        const rf_format *f = format_of(names[t]);
        unsigned char *whole = malloc(BLOCKS * f->bytes), *part = malloc(BLOCKS * f->bytes);
        rf_synth_source s, other;

        assert_true(whole && part);
        rf_synth_source_init(&s, f, 1, "a.weight", (rf_synth_range){0, 0.1});
        rf_synth_blocks(&s, 0, BLOCKS, whole);
        for (size_t first = BLOCKS; first > 0;) { /* backwards, in uneven steps */
            size_t n = first < 13 ? first : 13;

            first -= n;
            rf_synth_blocks(&s, first, n, part + first * f->bytes);
        }
        assert_memory_equal(whole, part, BLOCKS * f->bytes);
        rf_synth_source_init(&other, f, 1, "b.weight", (rf_synth_range){0, 0.1});
        rf_synth_blocks(&other, 0, BLOCKS, part);
        assert_memory_not_equal(whole, part, BLOCKS * f->bytes);
        rf_synth_source_init(&other, f, 2, "a.weight", (rf_synth_range){0, 0.1});
        rf_synth_blocks(&other, 0, BLOCKS, part);
        assert_memory_not_equal(whole, part, BLOCKS * f->bytes);
        assert_memory_not_equal(whole, whole + BLOCKS / 2 * f->bytes, BLOCKS / 2 * f->bytes);
        free(part);
        free(whole);
    }
}

static void q8_0_has_no_minus_128(void **state)
{
    unsigned char bytes[34 * BLOCKS];
    size_t n127 = 0;
    rf_synth_source s;

    (void)state;
    rf_synth_source_init(&s, format_of("Q8_0"), 3, "a.weight", (rf_synth_range){0, 0.1});
    rf_synth_blocks(&s, 0, BLOCKS, bytes);
    for (size_t b = 0; b < BLOCKS; b++)
        for (size_t i = 2; i < 34; i++) {
            assert_int_not_equal(bytes[34 * b + i], 0x80);
            n127 += bytes[34 * b + i] == 0x81;
        }
    assert_in_range(n127, 400, 624); /* 1/256 of 131072, within five deviations */
}

/* ---- Shapes */

static rf_synth_shape shape(int argc, char **argv)
{
    rf_synth_options o;
    rf_error err;

    if (rf_synth_options_parse(&o, argc, argv, &err) != 0)
        fail_msg("%s", err.text);
    return o.shape;
}

/* Weights of the target without its MTP head, as spec'd: docs/models.md. */
static int64_t n_weights(const rf_synth_shape *s)
{
    int64_t E = s->n_embd, qkv = (2 * s->n_key_heads + s->n_value_heads) * s->state_size,
            value = (int64_t)s->n_value_heads * s->state_size, query = (int64_t)s->n_head * s->head_dim,
            kv = (int64_t)s->n_head_kv * s->head_dim, full = s->n_layer / s->interval;
    int64_t attention = E * (3 * query + 2 * kv), delta = E * (qkv + 2 * value + 2 * s->n_value_heads);

    return full * attention + (s->n_layer - full) * delta + 3 * E * s->n_ff * s->n_layer +
           E * s->n_vocab * (s->tied == RF_SYNTH_ON ? 1 : 2);
}

/* Against the sizes that published files state: 8.95 and 26.9 billion weights; the small ones by their names. */
static void presets_have_their_sizes(void **state)
{
    static const struct {
        const char *name;
        double billions, within;
    } cases[] = {{"0.8B", 0.75, 0.01}, {"2B", 1.88, 0.01}, {"4B", 4.21, 0.01}, {"9B", 8.95, 0.01}, {"27B", 26.9, 0.02}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *argv[] = {"x", "-o", "f", "--shape", (char *)cases[i].name, NULL};
        rf_synth_shape s = shape(5, argv);
        double billions = (double)n_weights(&s) / 1e9;

        if (fabs(billions - cases[i].billions) > cases[i].within)
            fail_msg("%s has %.3f billion weights", cases[i].name, billions);
    }
}

/* Flags change the shape whichever comes first. */
static void flags_change_the_shape(void **state)
{
    char *before[] = {"x", "--layers", "5", "--shape", "4B", "--tied", "off", "-o", "f", NULL};
    char *after[] = {"x", "-o", "f", "--shape", "4B", "--layers", "5", "--tied", "off", NULL};
    rf_synth_shape a = shape(9, before), b = shape(9, after);

    (void)state;
    assert_int_equal(a.n_layer, 5);
    assert_int_equal(a.n_embd, 2560);
    assert_int_equal(a.draft_heads, 32);
    assert_int_equal(a.tied, RF_SYNTH_OFF);
    assert_int_equal(a.mtp, RF_SYNTH_ON);
    a.name = b.name = NULL;
    assert_memory_equal(&a, &b, sizeof a);
}

/* ---- The writer */

static char folder[] = "/tmp/test_synth.XXXXXX";

static char *path_of(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Tensors written in pieces and out of order stand where the reader finds them; what is not written is zero. */
static void files_read_back(void **state)
{
    static const uint64_t dims[2] = {5, 3};
    const float one[15] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    rf_error err;
    rf_gguf_writer *w = rf_gguf_writer_open(path_of("a.gguf"), &err);
    rf_gguf *f;
    uint64_t value;

    (void)state;
    assert_non_null(w);
    rf_gguf_key_u32(rf_gguf_writer_keys(w), "k", 77);
    rf_gguf_writer_tensor(w, "first", 2, dims, RF_TYPE_F32, sizeof one);
    rf_gguf_writer_tensor(w, "second", 1, dims, RF_TYPE_F32, 20);
    assert_int_equal(rf_gguf_writer_start_data(w, 1, &err), 0);
    assert_int_equal(access(path_of("a.gguf"), F_OK), -1);
    rf_gguf_writer_data(w, 0, 28, one + 7, 32);
    rf_gguf_writer_data(w, 0, 0, one, 28);
    assert_int_equal(rf_gguf_writer_finish(w, &err), 0);
    f = rf_gguf_open(path_of("a.gguf"), &err);
    if (!f)
        fail_msg("%s", err.text);
    assert_int_equal(rf_gguf_get_uint(f, "k", 100, &value, &err), 0);
    assert_int_equal(value, 77);
    assert_int_equal(rf_gguf_n_tensors(f), 2);
    assert_memory_equal(rf_gguf_tensor(f, 0)->data, one, sizeof one);
    for (size_t i = 0; i < 5; i++)
        assert_true(((const float *)rf_gguf_tensor(f, 1)->data)[i] == 0);
    rf_gguf_close(f);
    unlink(path_of("a.gguf"));
}

static void cancelled_files_are_gone(void **state)
{
    rf_error err;
    rf_gguf_writer *w = rf_gguf_writer_open(path_of("b.gguf"), &err);
    char temporary[160];

    (void)state;
    assert_non_null(w);
    snprintf(temporary, sizeof temporary, "%s", rf_gguf_writer_temporary(w));
    assert_int_equal(access(temporary, F_OK), 0);
    rf_gguf_writer_cancel(w);
    assert_int_equal(access(temporary, F_OK), -1);
    assert_int_equal(rmdir(folder), 0); /* nothing is left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spread_is_as_asked),       cmocka_unit_test(vectors_have_their_center),
        cmocka_unit_test(pieces_make_the_whole),    cmocka_unit_test(q8_0_has_no_minus_128),
        cmocka_unit_test(presets_have_their_sizes), cmocka_unit_test(flags_change_the_shape),
        cmocka_unit_test(files_read_back),          cmocka_unit_test(cancelled_files_are_gone),
    };

    if (!mkdtemp(folder))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
