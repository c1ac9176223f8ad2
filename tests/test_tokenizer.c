/* Real vocabularies: ids against those of an independent engine, and texts that are long or no text at all. */
#include "config.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "check.h"
#include "chat.h"
#include "gguf.h"
#include "tokenizer.h"
#include "utf8.h"

#define QWEN3 RF_TEST_DATA "/tokenizer/qwen3-vocab.gguf"
#define TINY RF_SHARE "/factbook-tiny/factbook-tiny-Q8_0.gguf"

static rf_tokenizer *qwen3, *tiny;
static rf_gguf *tiny_file;

static rf_tokenizer *open_vocabulary(const char *path, rf_gguf **file)
{
    rf_error err = {0};
    rf_tokenizer *t;

    *file = rf_gguf_open(path, &err);
    t = *file ? rf_tokenizer_from_gguf(*file, &err) : NULL;
    if (!t)
        print_error("%s\n", err.text);
    return t;
}

static int open_all(void **state)
{
    rf_gguf *file;

    (void)state;
    qwen3 = open_vocabulary(QWEN3, &file);
    rf_gguf_close(file); /* the tokenizer needs it no longer */
    tiny = open_vocabulary(TINY, &tiny_file);
    return qwen3 && tiny ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    rf_tokenizer_destroy(qwen3);
    rf_tokenizer_destroy(tiny);
    rf_gguf_close(tiny_file);
    return 0;
}

static json_t *load(const char *path)
{
    json_error_t error;
    json_t *j = json_load_file(path, 0, &error);

    if (!j)
        fail_msg("%s: %s", path, error.text);
    return j;
}

/* The bytes of pairs of hexadecimal digits, malloc'd. */
static char *bytes_of_hex(const char *hex, size_t *length)
{
    char *bytes;

    *length = strlen(hex) / 2;
    bytes = malloc(*length + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < *length; i++) {
        const char digits[3] = {hex[2 * i], hex[2 * i + 1], 0};

        bytes[i] = (char)strtoul(digits, NULL, 16);
    }
    return bytes;
}

static bool well_formed(rf_text text)
{
    size_t at = 0, length;

    while (at < text.length && (length = rf_utf8_length(text.data + at, text.length - at)) > 0)
        at += length;
    return at == text.length;
}

/* Tokenises text and checks that its bytes come back. */
static rf_tokens encode(rf_tokenizer *t, rf_text text, bool special)
{
    rf_tokens out = {0};
    rf_error err = {0};
    size_t at = 0;

    assert_int_equal(rf_tokenizer_encode(t, text, special, &out, &err), 0);
    for (size_t i = 0; i < out.count; i++) {
        rf_text bytes = rf_tokenizer_bytes(t, out.id[i]);

        assert_true(special || !rf_tokenizer_is_control(t, out.id[i]));
        assert_true(at + bytes.length <= text.length && memcmp(text.data + at, bytes.data, bytes.length) == 0);
        at += bytes.length;
    }
    assert_int_equal(at, text.length);
    return out;
}

static void same_ids(const rf_tokens *out, const json_t *ids, size_t number, const char *which)
{
    bool same = out->count == json_array_size(ids);

    for (size_t i = 0; same && i < out->count; i++)
        same = out->id[i] == json_integer_value(json_array_get(ids, i));
    if (same)
        return;
    for (size_t i = 0; i < out->count; i++)
        print_error("%d ", (int)out->id[i]);
    fail_msg("are not text %zu's %s", number, which);
}

static void as_expected(rf_tokenizer *t, const char *path)
{
    json_t *cases = load(path);
    size_t compared = 0;

    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        size_t length;
        char *bytes = bytes_of_hex(json_string_value(json_object_get(one, "text_hex")), &length);
        rf_text text = {bytes, length};

        for (int special = 0; special < 2; special++) {
            rf_tokens out = encode(t, text, special);

            /* Where the text is no UTF-8 the other engine has put U+FFFD; here the bytes themselves go on. */
            if (well_formed(text))
                same_ids(&out, json_object_get(one, special ? "ids_special" : "ids"), i,
                         special ? "ids_special" : "ids");
            compared += well_formed(text);
            rf_tokens_free(&out);
        }
        free(bytes);
    }
    assert_int_equal(compared, 46);
    json_decref(cases);
}

static void qwen3_ids(void **state)
{
    (void)state;
    as_expected(qwen3, RF_TEST_DATA "/tokenizer/qwen3-expected.json");
}

static void tiny_ids(void **state)
{
    (void)state;
    as_expected(tiny, RF_TEST_DATA "/tokenizer/tiny-expected.json");
}

static rf_text text_of(const json_t *string)
{
    return (rf_text){json_string_value(string), json_string_length(string)};
}

/* The prompts of the golden values, and their greedy answers: control tokens parsed, there and back. */
static void golden_prompts(void **state)
{
    json_t *prompts = load(RF_TEST_DATA "/golden.json");

    (void)state;
    assert_int_equal(json_array_size(prompts), 10);
    for (size_t i = 0; i < json_array_size(prompts); i++) {
        const json_t *one = json_array_get(prompts, i), *greedy = json_object_get(one, "greedy");
        rf_text text = text_of(json_object_get(one, "text"));
        rf_tokens out = encode(tiny, text_of(json_object_get(one, "prompt")), true);
        size_t at = 0;

        same_ids(&out, json_object_get(one, "ids"), i, "ids");
        rf_tokens_free(&out);
        for (size_t k = 0; k < json_array_size(greedy); k++) {
            rf_text bytes = rf_tokenizer_bytes(tiny, (int32_t)json_integer_value(json_array_get(greedy, k)));

            assert_true(at + bytes.length <= text.length && memcmp(text.data + at, bytes.data, bytes.length) == 0);
            at += bytes.length;
        }
        assert_int_equal(at, text.length);
    }
    json_decref(prompts);
}

/* The demo model's template makes golden.json's first prompt of its question. */
static void chat_turn(void **state)
{
    json_t *prompts = load(RF_TEST_DATA "/golden.json");
    const char *question = "What is the capital of France?";
    rf_chat_options options = {.reasoning = RF_REASONING_AUTO};
    rf_error err = {0};
    rf_tokens out = {0};
    rf_chat *chat;

    (void)state;
    assert_int_equal(rf_tokenizer_chat_template(tiny_file, &options.chat_template, &err), 0);
    chat = rf_chat_create(tiny, &options, &err);
    assert_non_null(chat);
    assert_int_equal(rf_chat_first(chat, (rf_text){0}, (rf_text){question, strlen(question)}, &out, &err), 0);
    same_ids(&out, json_object_get(json_array_get(prompts, 0), "ids"), 0, "ids");
    rf_tokens_free(&out);
    rf_chat_destroy(chat);
    json_decref(prompts);
}

static void ends_of_generation(void **state)
{
    size_t n = 0;

    (void)state;
    for (int32_t id = 0; id < (int32_t)rf_tokenizer_n_tokens(qwen3); id++)
        n += rf_tokenizer_is_eog(qwen3, id);
    assert_int_equal(rf_tokenizer_n_tokens(qwen3), 151936);
    assert_int_equal(n, 2);
    assert_true(rf_tokenizer_is_eog(qwen3, 151643) && rf_tokenizer_is_eog(qwen3, 151645));
    assert_true(rf_tokenizer_is_eog(tiny, 4090) && rf_tokenizer_is_eog(tiny, 4092));
    assert_int_equal(rf_tokenizer_bos(qwen3), -1);
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Every token of the vocabulary a million times as long texts would have it: a merge step that is quadratic, or a
 * splitting rule that looks back again and again, would take hours. */
static void a_million_of_the_same(void **state)
{
    static const char *const units[] = {
        "a",        " ",       "\n",           "!",    "7",  "'",  "\xC3\xA9",    "\xFF", "<", "\xCC\x81", " \n", "a ",
        "<|im_end", "<think>", "\xE6\xB1\x89", "\r\n", "'s", "\t", "\xE2\x80\xA8"};
    const size_t repeats = 1000000;

    (void)state;
    for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
        size_t length = strlen(units[k]);
        char *bytes = malloc(length * repeats);
        double start;

        assert_non_null(bytes);
        for (size_t i = 0; i < repeats; i++)
            memcpy(bytes + i * length, units[k], length);
        for (int which = 0; which < 2; which++) {
            rf_tokens out;

            start = seconds();
            out = encode(which ? qwen3 : tiny, (rf_text){bytes, length * repeats}, true);
            assert_true(out.count > 0);
            rf_tokens_free(&out);
            if (seconds() - start > 20) /* it takes well under one; the machine may be busy or the build checked */
                fail_msg("\"%s\" a million times took %.1f s", units[k], seconds() - start);
        }
        free(bytes);
    }
}

static void random_bytes_come_back(void **state)
{
    const size_t length = 200000;
    char *bytes = malloc(length);
    unsigned seed = 11;

    (void)state;
    assert_non_null(bytes);
    for (int round = 0; round < 6; round++) {
        rf_tokens out;

        for (size_t i = 0; i < length; i++) {
            seed = seed * 1664525u + 1013904223u;
            bytes[i] = (char)(round % 3 == 0   ? seed >> 16
                              : round % 3 == 1 ? (seed >> 16) % 128
                                               : (seed >> 16) % 64 + 160);
        }
        out = encode(round % 2 ? qwen3 : tiny, (rf_text){bytes, length}, round % 2);
        rf_tokens_free(&out);
    }
    free(bytes);
}

/* A user's text that spells every control token of the vocabulary gives none of them. */
static void spelled_control_tokens_stay_text(void **state)
{
    rf_tokenizer *both[] = {qwen3, tiny};

    (void)state;
    for (size_t k = 0; k < 2; k++)
        for (int32_t id = 0; id < (int32_t)rf_tokenizer_n_tokens(both[k]); id++)
            if (rf_tokenizer_is_control(both[k], id)) {
                rf_tokens out =
                    encode(both[k], rf_tokenizer_bytes(both[k], id), false); /* checks that there is no control token */

                assert_true(out.count > 1);
                rf_tokens_free(&out);
                out = encode(both[k], rf_tokenizer_bytes(both[k], id), true);
                assert_int_equal(out.count, 1);
                assert_int_equal(out.id[0], id);
                rf_tokens_free(&out);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen3_ids),
        cmocka_unit_test(tiny_ids),
        cmocka_unit_test(golden_prompts),
        cmocka_unit_test(chat_turn),
        cmocka_unit_test(ends_of_generation),
        cmocka_unit_test(a_million_of_the_same),
        cmocka_unit_test(random_bytes_come_back),
        cmocka_unit_test(spelled_control_tokens_stay_text),
    };

    return cmocka_run_group_tests(tests, open_all, close_all);
}
