/* Vocabularies in GGUF files with keys missing or of another type. */
#include "config.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "gguf.h"
#include "vocabulary.h"

enum { TYPE_I32 = 5, TYPE_F32 = 6, TYPE_BOOL = 7, TYPE_STRING = 8, TYPE_ARRAY = 9, TYPE_U32 = 4, TYPE_I64 = 11 };

/* How one key is written; the others are as they should be. */
typedef struct {
    const char *key; /* NULL: all keys are good */
    enum { LEFT_OUT, AS_INTEGER, AS_STRING, AS_EMPTY_ARRAY, AS_INTEGERS, AS_STRINGS, SHORTER } how;
    int64_t integer;
} change;

static made_up_vocabulary vocabulary;
static char path[] = "/tmp/rankflash-vocabulary-XXXXXX";

static void put(FILE *f, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        fputc((int)(value >> (8 * i) & 0xFF), f);
}

static void put_text(FILE *f, rf_text text)
{
    put(f, text.length, 8);
    fwrite(text.data, 1, text.length, f);
}

static void put_array(FILE *f, uint32_t type, size_t n)
{
    put(f, TYPE_ARRAY, 4);
    put(f, type, 4);
    put(f, n, 8);
}

/* Writes the key if c is about it, and says so. */
static bool put_changed(FILE *f, const char *key, const change *c)
{
    if (!c->key || strcmp(c->key, key) != 0)
        return false;
    if (c->how == SHORTER)
        return false;
    if (c->how == LEFT_OUT) /* the number of keys stays the same */
        put_text(f, text_of("some.other.key"));
    else
        put_text(f, text_of(key));
    switch (c->how) {
    case LEFT_OUT:
    case AS_INTEGER:
        put(f, TYPE_I64, 4);
        put(f, (uint64_t)c->integer, 8);
        break;
    case AS_STRING:
        put(f, TYPE_STRING, 4);
        put_text(f, text_of("text"));
        break;
    case AS_EMPTY_ARRAY:
        put_array(f, TYPE_STRING, 0);
        break;
    case AS_INTEGERS:
        put_array(f, TYPE_I64, 1);
        put(f, (uint64_t)c->integer, 8);
        break;
    case AS_STRINGS:
        put_array(f, TYPE_STRING, 1);
        put_text(f, text_of("a b"));
        break;
    case SHORTER:
        break;
    }
    return true;
}

static void put_string(FILE *f, const char *key, rf_text text, const change *c)
{
    if (put_changed(f, key, c))
        return;
    put_text(f, text_of(key));
    put(f, TYPE_STRING, 4);
    put_text(f, text);
}

static size_t shortened(const char *key, size_t n, const change *c)
{
    return c->key && c->how == SHORTER && strcmp(c->key, key) == 0 ? n - 1 : n;
}

static void put_strings(FILE *f, const char *key, const rf_text *texts, size_t n, const change *c)
{
    if (put_changed(f, key, c))
        return;
    n = shortened(key, n, c);
    put_text(f, text_of(key));
    put_array(f, TYPE_STRING, n);
    for (size_t i = 0; i < n; i++)
        put_text(f, texts[i]);
}

static void put_types(FILE *f, const char *key, const change *c)
{
    size_t n = shortened(key, vocabulary.source.n_types, c);

    if (put_changed(f, key, c))
        return;
    put_text(f, text_of(key));
    put_array(f, TYPE_I32, n);
    for (size_t i = 0; i < n; i++)
        put(f, (uint64_t)(int64_t)vocabulary.types[i], 4);
}

static void put_scalar(FILE *f, const char *key, uint32_t type, uint64_t value, size_t bytes, const change *c)
{
    if (put_changed(f, key, c))
        return;
    put_text(f, text_of(key));
    put(f, type, 4);
    put(f, value, bytes);
}

static void write_file(const change *c)
{
    const rf_vocab_source *s = &vocabulary.source;
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    fputs("GGUF", f);
    put(f, 3, 4);
    put(f, 0, 8); /* tensors */
    put(f, 9, 8); /* keys */
    put_string(f, "tokenizer.ggml.model", s->model, c);
    put_string(f, "tokenizer.ggml.pre", s->pre, c);
    put_strings(f, "tokenizer.ggml.tokens", s->tokens, s->n_tokens, c);
    put_types(f, "tokenizer.ggml.token_type", c);
    put_strings(f, "tokenizer.ggml.merges", s->merges, s->n_merges, c);
    put_scalar(f, "tokenizer.ggml.eos_token_id", TYPE_U32, ID_IM_END, 4, c);
    put_scalar(f, "tokenizer.ggml.bos_token_id", TYPE_U32, ID_ENDOFTEXT, 4, c);
    put_scalar(f, "tokenizer.ggml.add_bos_token", TYPE_BOOL, 1, 1, c);
    put_string(f, "tokenizer.chat_template", text_of("<|im_start|>"), c);
    fclose(f);
}

static rf_gguf *open_changed(const change *c)
{
    rf_error err = {0};
    rf_gguf *file;

    made_up_vocabulary_init(&vocabulary, "qwen35");
    write_file(c);
    file = rf_gguf_open(path, &err);
    if (!file)
        fail_msg("%s", err.text);
    return file;
}

static void good_file(void **state)
{
    rf_gguf *file = open_changed(&(change){0});
    rf_error err = {0};
    rf_tokenizer *t = rf_tokenizer_from_gguf(file, &err);
    rf_text chat_template;

    (void)state;
    if (!t)
        fail_msg("%s", err.text);
    assert_int_equal(rf_tokenizer_n_tokens(t), ID_LAST);
    assert_true(rf_tokenizer_is_eog(t, ID_IM_END));
    assert_int_equal(rf_tokenizer_bos(t), ID_ENDOFTEXT);
    assert_int_equal(rf_tokenizer_chat_template(file, &chat_template, &err), 0);
    assert_int_equal(chat_template.length, 12);
    rf_tokenizer_destroy(t);
    rf_gguf_close(file);
}

static void what_may_be_missing(void **state)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.add_bos_token",
                                       "tokenizer.chat_template"};

    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        rf_gguf *file = open_changed(&(change){keys[i], LEFT_OUT, 1});
        rf_error err = {0};
        rf_tokenizer *t = rf_tokenizer_from_gguf(file, &err);
        rf_text chat_template;

        if (!t)
            fail_msg("%s", err.text);
        assert_int_equal(rf_tokenizer_bos(t), i == 1 ? -1 : ID_ENDOFTEXT);
        assert_int_equal(rf_tokenizer_chat_template(file, &chat_template, &err), 0);
        assert_int_equal(chat_template.data == NULL, i == 2);
        rf_tokenizer_destroy(t);
        rf_gguf_close(file);
    }
}

static void hostile_files(void **state)
{
    static const struct {
        change change;
        const char *part;
    } cases[] = {
        {{"tokenizer.ggml.model", LEFT_OUT, 0}, "tokenizer.ggml.model is missing"},
        {{"tokenizer.ggml.model", AS_STRING, 0}, "tokenizer.ggml.model is \"text\""},
        {{"tokenizer.ggml.model", AS_INTEGER, 1}, "tokenizer.ggml.model: expected a string"},
        {{"tokenizer.ggml.pre", LEFT_OUT, 0}, "tokenizer.ggml.pre is missing"},
        {{"tokenizer.ggml.pre", AS_STRINGS, 0}, "tokenizer.ggml.pre: expected a string"},
        {{"tokenizer.ggml.tokens", LEFT_OUT, 0}, "tokenizer.ggml.tokens is missing"},
        {{"tokenizer.ggml.tokens", AS_EMPTY_ARRAY, 0}, "tokenizer.ggml.tokens is missing or empty"},
        {{"tokenizer.ggml.tokens", AS_STRING, 0}, "tokenizer.ggml.tokens: expected an array"},
        {{"tokenizer.ggml.tokens", AS_INTEGERS, 7}, "tokenizer.ggml.tokens: expected strings"},
        {{"tokenizer.ggml.tokens", AS_STRINGS, 0}, "tokenizer.ggml.token_type has 272 entries"},
        {{"tokenizer.ggml.tokens", SHORTER, 0}, "tokenizer.ggml.tokens has 271"},
        {{"tokenizer.ggml.token_type", LEFT_OUT, 0}, "tokenizer.ggml.token_type is missing"},
        {{"tokenizer.ggml.token_type", AS_STRINGS, 0}, "tokenizer.ggml.token_type: expected an integer"},
        {{"tokenizer.ggml.token_type", AS_INTEGERS, INT64_MAX}, "tokenizer.ggml.token_type: element 0 is out of range"},
        {{"tokenizer.ggml.token_type", AS_EMPTY_ARRAY, 0}, "tokenizer.ggml.token_type has 0 entries"},
        {{"tokenizer.ggml.token_type", AS_INTEGER, 1}, "tokenizer.ggml.token_type: expected an array"},
        {{"tokenizer.ggml.merges", LEFT_OUT, 0}, "tokenizer.ggml.merges is missing"},
        {{"tokenizer.ggml.merges", AS_INTEGERS, 3}, "tokenizer.ggml.merges: expected strings"},
        {{"tokenizer.ggml.merges", AS_STRINGS, 0}, "tokenizer.ggml.merges[0] is \"a b\""},
        {{"tokenizer.ggml.eos_token_id", AS_INTEGER, ID_LAST}, "tokenizer.ggml.eos_token_id is 272"},
        {{"tokenizer.ggml.eos_token_id", AS_INTEGER, -1}, "tokenizer.ggml.eos_token_id: -1 is out of range"},
        {{"tokenizer.ggml.eos_token_id", AS_INTEGER, INT64_MAX},
         "tokenizer.ggml.eos_token_id: 9223372036854775807 is out"},
        {{"tokenizer.ggml.eos_token_id", AS_STRING, 0}, "tokenizer.ggml.eos_token_id: expected an integer"},
        {{"tokenizer.ggml.bos_token_id", AS_INTEGERS, 1}, "tokenizer.ggml.bos_token_id: expected an integer"},
        {{"tokenizer.ggml.bos_token_id", LEFT_OUT, 0}, "tokenizer.ggml.bos_token_id is missing"},
        {{"tokenizer.ggml.add_bos_token", AS_STRING, 0}, "tokenizer.ggml.add_bos_token: expected a boolean"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rf_gguf *file = open_changed(&cases[i].change);
        rf_error err = {0};

        if (rf_tokenizer_from_gguf(file, &err))
            fail_msg("accepted, although: %s", cases[i].part);
        assert_int_equal(err.code, RF_ERR_FILE);
        if (!strstr(err.text, cases[i].part) || strncmp(err.text, path, strlen(path)) != 0)
            fail_msg("\"%s\" does not start with the path and contain \"%s\"", err.text, cases[i].part);
        rf_gguf_close(file);
    }
}

static void template_of_another_type(void **state)
{
    rf_gguf *file = open_changed(&(change){"tokenizer.chat_template", AS_INTEGER, 1});
    rf_error err = {0};
    rf_text chat_template;

    (void)state;
    assert_int_equal(rf_tokenizer_chat_template(file, &chat_template, &err), -1);
    assert_int_equal(err.code, RF_ERR_FILE);
    rf_gguf_close(file);
}

static int make_path(void **state)
{
    int fd = mkstemp(path);

    (void)state;
    return fd < 0 ? -1 : close(fd);
}

static int drop_path(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_file),
        cmocka_unit_test(what_may_be_missing),
        cmocka_unit_test(hostile_files),
        cmocka_unit_test(template_of_another_type),
    };

    return cmocka_run_group_tests(tests, make_path, drop_path);
}
