/* What a tokenizer makes of a vocabulary, good or hostile, and what it never does with a text. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "vocabulary.h"

static made_up_vocabulary vocabulary;

static rf_tokenizer *create(void)
{
    rf_error err = {0};
    rf_tokenizer *t = rf_tokenizer_create(&vocabulary.source, &err);

    if (!t)
        fail_msg("refused: %s", err.text);
    return t;
}

static rf_tokenizer *plain(void)
{
    made_up_vocabulary_init(&vocabulary, "qwen35");
    return create();
}

static void refused(const char *part)
{
    rf_error err = {0};

    if (rf_tokenizer_create(&vocabulary.source, &err))
        fail_msg("accepted, although: %s", part);
    assert_int_equal(err.code, RF_ERR_FILE);
    assert_null(strchr(err.text, '\n'));
    if (!strstr(err.text, part))
        fail_msg("\"%s\" does not contain \"%s\"", err.text, part);
    made_up_vocabulary_init(&vocabulary, "qwen2");
}

static void encodes(rf_tokenizer *t, const char *bytes, size_t n, bool special, const int32_t *ids, size_t n_ids)
{
    rf_tokens out = {0};
    rf_error err = {0};

    assert_int_equal(rf_tokenizer_encode(t, (rf_text){bytes, n}, special, &out, &err), 0);
    if (out.count != n_ids || (n_ids && memcmp(out.id, ids, n_ids * sizeof *ids) != 0)) {
        for (size_t i = 0; i < out.count; i++)
            print_error("%d ", (int)out.id[i]);
        fail_msg("are the ids of \"%s\"", bytes);
    }
    rf_tokens_free(&out);
}

#define ENCODES(t, literal, special, ...)                                                                              \
    encodes(t, literal, sizeof literal - 1, special, (const int32_t[]){__VA_ARGS__},                                   \
            sizeof(int32_t[]){__VA_ARGS__} / sizeof(int32_t))
#define B(c) made_up_byte((unsigned char)(c))

static void merges_by_rank(void **state)
{
    rf_tokenizer *t = plain();

    (void)state;
    ENCODES(t, "hello", false, ID_HELLO);
    ENCODES(t, "hellhe", false, ID_HELL, ID_HE);
    ENCODES(t, "helo", false, ID_HE, B('l'), B('o'));
    ENCODES(t, "lll", false, ID_LL, B('l'));
    ENCODES(t, "a a", false, B('a'), ID_SPACE_A);
    ENCODES(t, "\n\n", false, ID_NEWLINES);
    ENCODES(t, "\xC3\xA9", false, ID_EACUTE);
    ENCODES(t, "A", false, B('A'));
    encodes(t, "", 0, false, (const int32_t[]){0}, 0);
    rf_tokenizer_destroy(t);
}

static void invalid_utf8_becomes_byte_tokens(void **state)
{
    rf_tokenizer *t = plain();

    (void)state;
    ENCODES(t, "\xFF", false, B(0xFF));
    ENCODES(t, "he\xC3", false, ID_HE, B(0xC3));
    ENCODES(t, "\xC3\xC3\xA9\xA9", false, B(0xC3), ID_EACUTE, B(0xA9));
    ENCODES(t, "\xED\xA0\x80", false, B(0xED), B(0xA0), B(0x80));                       /* a surrogate */
    ENCODES(t, "\xC0\x80", false, B(0xC0), B(0x80));                                    /* overlong */
    ENCODES(t, "\xF4\x90\x80\x80he", false, B(0xF4), B(0x90), B(0x80), B(0x80), ID_HE); /* above U+10FFFF */
    ENCODES(t, "\0he\0", false, B(0), ID_HE, B(0));
    rf_tokenizer_destroy(t);
}

static void control_tokens_only_when_asked(void **state)
{
    static const char injected[] = "<|im_end|>";
    int32_t as_text[sizeof injected - 1];
    rf_tokenizer *t = plain();

    (void)state;
    for (size_t i = 0; i < sizeof as_text / sizeof *as_text; i++)
        as_text[i] = B(injected[i]);
    encodes(t, injected, sizeof injected - 1, false, as_text, sizeof as_text / sizeof *as_text);
    ENCODES(t, "<|im_end|>", true, ID_IM_END);
    ENCODES(t, "he<|im_start|><|im_end|>he", true, ID_HE, ID_IM_START, ID_IM_END, ID_HE);
    ENCODES(t, "<|im_end", true, B('<'), B('|'), B('i'), B('m'), B('_'), B('e'), B('n'), B('d'));
    ENCODES(t, "<|<|im_end|>", true, B('<'), B('|'), ID_IM_END);
    ENCODES(t, "<think>he</think>", false, ID_THINK, ID_HE, ID_END_THINK);
    ENCODES(t, "\xFF<think>\xFF", false, B(0xFF), ID_THINK, B(0xFF));
    ENCODES(t, "[PAD]", true, B('['), B('P'), B('A'), B('D'), B(']'));
    ENCODES(t, "[UNK]", true, B('['), B('U'), B('N'), B('K'), B(']'));
    rf_tokenizer_destroy(t);
}

/* Control tokens whose names are short, overlap, or are words that merges could build. */
static void awkward_special_tokens(void **state)
{
    rf_tokenizer *t;

    (void)state;
    made_up_vocabulary_init(&vocabulary, "qwen35");
    vocabulary.tokens[ID_UNUSED] = text_of("<think>!");
    vocabulary.types[ID_UNUSED] = RF_TOKEN_USER_DEFINED;
    vocabulary.tokens[ID_UNKNOWN] = text_of("hello");
    vocabulary.types[ID_UNKNOWN] = RF_TOKEN_CONTROL;
    t = create();
    ENCODES(t, "<think>!", false, ID_UNUSED);
    ENCODES(t, "<think>?", false, ID_THINK, B('?'));
    ENCODES(t, "hello", false, ID_HELLO);
    ENCODES(t, "hello", true, ID_UNKNOWN);
    ENCODES(t, "hell", true, ID_HELL);
    rf_tokenizer_destroy(t);
    vocabulary.types[ID_UNUSED] = RF_TOKEN_CONTROL; /* longer than a user-defined one, then as long as it */
    t = create();
    ENCODES(t, "<think>!", true, ID_UNUSED);
    ENCODES(t, "<think>!", false, ID_THINK, B('!'));
    rf_tokenizer_destroy(t);
    vocabulary.tokens[ID_UNUSED] = text_of("<think>");
    t = create();
    ENCODES(t, "<think>", true, ID_UNUSED);
    ENCODES(t, "<think>", false, ID_THINK);
    rf_tokenizer_destroy(t);
    vocabulary.tokens[ID_UNUSED] = text_of("");
    t = create();
    ENCODES(t, "he", false, ID_HE);
    rf_tokenizer_destroy(t);
}

static void random_bytes(char *out, size_t n, unsigned *seed)
{
    static const char *const parts[] = {"<|im_end|>", "<think>",      "hello", " ",  "\n",
                                        "\xC3\xA9",   "\xE2\x80\x8D", "<|",    "|>", "'s"};

    for (size_t i = 0; i < n;) {
        unsigned r = *seed = *seed * 1664525u + 1013904223u;

        if ((r >> 28) < 6) {
            const char *part = parts[(r >> 8) % (sizeof parts / sizeof *parts)];
            size_t length = strlen(part) < n - i ? strlen(part) : n - i;

            memcpy(out + i, part, length);
            i += length;
        } else {
            out[i++] = (char)(r >> 16);
        }
    }
}

static void round_trip_of_random_bytes(void **state)
{
    static char text[300], back[300];
    const char *rules[] = {"qwen2", "qwen35"};
    unsigned seed = 1;

    (void)state;
    for (size_t r = 0; r < 2; r++) {
        rf_tokenizer *t;

        made_up_vocabulary_init(&vocabulary, rules[r]);
        t = create();
        for (size_t k = 0; k < 20000; k++) {
            size_t n = k % sizeof text, length = 0;
            rf_tokens out = {0};
            rf_error err = {0};

            random_bytes(text, n, &seed);
            assert_int_equal(rf_tokenizer_encode(t, (rf_text){text, n}, k % 3 == 0, &out, &err), 0);
            for (size_t i = 0; i < out.count; i++) {
                rf_text bytes = rf_tokenizer_bytes(t, out.id[i]);

                assert_true(k % 3 == 0 || !rf_tokenizer_is_control(t, out.id[i]));
                assert_true(length + bytes.length <= n);
                memcpy(back + length, bytes.data, bytes.length);
                length += bytes.length;
            }
            assert_int_equal(length, n);
            assert_int_equal(memcmp(text, back, n), 0);
            rf_tokens_free(&out);
        }
        rf_tokenizer_destroy(t);
    }
}

static void what_tokens_are(void **state)
{
    rf_tokenizer *t = plain();
    rf_text a = rf_tokenizer_bytes(t, ID_SPACE_A);

    (void)state;
    assert_int_equal(rf_tokenizer_n_tokens(t), ID_LAST);
    assert_int_equal(a.length, 2);
    assert_memory_equal(a.data, " a", 2);
    assert_memory_equal(rf_tokenizer_bytes(t, ID_BYTE).data, "A", 1);
    assert_int_equal(rf_tokenizer_bytes(t, ID_BYTE).length, 1);
    assert_int_equal(rf_tokenizer_bytes(t, ID_IM_END).length, 10);
    assert_true(rf_tokenizer_is_control(t, ID_IM_END));
    assert_false(rf_tokenizer_is_control(t, ID_THINK));
    assert_int_equal(rf_tokenizer_type(t, ID_UNUSED), RF_TOKEN_UNUSED);
    assert_true(rf_tokenizer_is_eog(t, ID_IM_END));
    assert_true(rf_tokenizer_is_eog(t, ID_ENDOFTEXT));
    assert_false(rf_tokenizer_is_eog(t, ID_IM_START));
    assert_int_equal(rf_tokenizer_bos(t), -1);
    assert_int_equal(rf_tokenizer_special(t, "<|im_start|>"), ID_IM_START);
    assert_int_equal(rf_tokenizer_special(t, "<think>"), ID_THINK);
    assert_int_equal(rf_tokenizer_special(t, "<think"), -1);
    assert_int_equal(rf_tokenizer_special(t, "<think>!"), -1);
    assert_int_equal(rf_tokenizer_special(t, "hello"), -1);
    rf_tokenizer_destroy(t);
}

static void ends_and_beginnings(void **state)
{
    rf_tokenizer *t;

    (void)state;
    made_up_vocabulary_init(&vocabulary, "qwen35");
    vocabulary.source.eos = ID_HELLO;
    vocabulary.source.bos = ID_ENDOFTEXT;
    vocabulary.source.add_bos = true;
    t = create();
    assert_true(rf_tokenizer_is_eog(t, ID_HELLO) && rf_tokenizer_is_eog(t, ID_IM_END) &&
                rf_tokenizer_is_eog(t, ID_ENDOFTEXT));
    assert_int_equal(rf_tokenizer_bos(t), ID_ENDOFTEXT);
    rf_tokenizer_destroy(t);
    vocabulary.source.eos = -1;
    vocabulary.source.add_bos = false;
    t = create();
    assert_true(rf_tokenizer_is_eog(t, ID_IM_END) && !rf_tokenizer_is_eog(t, ID_HELLO));
    assert_int_equal(rf_tokenizer_bos(t), -1);
    rf_tokenizer_destroy(t);
}

/* qwen2 and qwen35 differ in marks: "e" + U+0301 is one piece with qwen35 only, where the merge across it applies. */
static void splitting_rules(void **state)
{
    const char *word = "e\xCC\x81";
    rf_tokenizer *t;

    (void)state;
    for (size_t r = 0; r < 2; r++) {
        made_up_vocabulary_init(&vocabulary, r ? "qwen35" : "qwen2");
        vocabulary.tokens[ID_UNUSED] = text_of("\xC3\x8C\xC4\xA3"); /* CC 81 */
        vocabulary.tokens[ID_UNKNOWN] = text_of("e\xC3\x8C\xC4\xA3");
        vocabulary.types[ID_UNUSED] = vocabulary.types[ID_UNKNOWN] = RF_TOKEN_NORMAL;
        vocabulary.merges[vocabulary.source.n_merges++] = text_of("\xC3\x8C \xC4\xA3");
        vocabulary.merges[vocabulary.source.n_merges++] = text_of("e \xC3\x8C\xC4\xA3");
        t = create();
        if (r)
            encodes(t, word, 3, false, (const int32_t[]){ID_UNKNOWN}, 1);
        else
            encodes(t, word, 3, false, (const int32_t[]){B('e'), ID_UNUSED}, 2);
        rf_tokenizer_destroy(t);
    }
}

static void hostile_arrays(void **state)
{
    rf_vocab_source *s = &vocabulary.source;

    (void)state;
    made_up_vocabulary_init(&vocabulary, "qwen2");
    s->model = text_of("llama");
    refused("tokenizer.ggml.model is \"llama\"");
    s->model = (rf_text){0};
    refused("tokenizer.ggml.model is missing");
    s->pre = text_of("llama-bpe");
    refused("tokenizer.ggml.pre is \"llama-bpe\": expected qwen2 or qwen35");
    s->pre = (rf_text){"qwen2\0", 6};
    refused("tokenizer.ggml.pre is \"qwen2?\"");
    s->pre = text_of("");
    refused("tokenizer.ggml.pre is \"\"");
    s->pre = (rf_text){0};
    refused("tokenizer.ggml.pre is missing");
    s->tokens = NULL;
    refused("tokenizer.ggml.tokens is missing");
    s->n_tokens = 0;
    refused("tokenizer.ggml.tokens is missing or empty");
    s->types = NULL;
    refused("tokenizer.ggml.token_type is missing");
    s->n_types--;
    refused("tokenizer.ggml.token_type has 271 entries, tokenizer.ggml.tokens has 272");
    s->merges = NULL;
    refused("tokenizer.ggml.merges is missing");
    vocabulary.types[7] = 0;
    refused("tokenizer.ggml.token_type[7] is 0");
    vocabulary.types[8] = 7;
    refused("tokenizer.ggml.token_type[8] is 7");
    vocabulary.types[8] = -2000000000;
    refused("tokenizer.ggml.token_type[8] is -2000000000");
    vocabulary.tokens[B('q')] = text_of("Q");
    refused("no token for byte 0x71");
    vocabulary.types[B(' ')] = RF_TOKEN_CONTROL;
    refused("no token for byte 0x20");
    s->n_tokens = s->n_types = 100;
    s->eos = -1;
    refused("no token for byte");
}

static void hostile_merges(void **state)
{
    static const char *const lines[] = {"",
                                        " ",
                                        "h",
                                        "h ",
                                        " h",
                                        "h  e",
                                        "he he",
                                        "x y",
                                        "h e l",
                                        "<|im_end|> x",
                                        "\xFF h",
                                        "h \xC4",
                                        "\xE6\xB1\x89 h",
                                        "<|im_end| >"};

    (void)state;
    made_up_vocabulary_init(&vocabulary, "qwen2");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        vocabulary.merges[2] = text_of(lines[i]);
        refused("tokenizer.ggml.merges[2] is \"");
    }
    /* A merge that would build a control token out of text. */
    vocabulary.tokens[ID_UNUSED] = text_of("<|");
    vocabulary.tokens[ID_UNKNOWN] = text_of("im_end|>");
    vocabulary.types[ID_UNUSED] = vocabulary.types[ID_UNKNOWN] = RF_TOKEN_NORMAL;
    vocabulary.merges[2] = text_of("<| im_end|>");
    refused("tokenizer.ggml.merges[2] is \"<| im_end|>\"");
}

static void hostile_ids(void **state)
{
    static const int64_t ids[] = {ID_LAST, -2, INT32_MAX, INT64_MAX, INT64_MIN};

    (void)state;
    made_up_vocabulary_init(&vocabulary, "qwen2");
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        vocabulary.source.eos = ids[i];
        refused("tokenizer.ggml.eos_token_id is ");
        vocabulary.source.bos = ids[i];
        refused("tokenizer.ggml.bos_token_id is ");
    }
    vocabulary.source.add_bos = true;
    refused("tokenizer.ggml.bos_token_id is missing");
}

/* Two tokens with the same text, two merges of the same pair: the first one counts. */
static void duplicates(void **state)
{
    rf_tokenizer *t;

    (void)state;
    made_up_vocabulary_init(&vocabulary, "qwen2");
    vocabulary.tokens[ID_UNUSED] = text_of("he");
    vocabulary.types[ID_UNUSED] = RF_TOKEN_NORMAL;
    vocabulary.merges[vocabulary.source.n_merges++] = text_of("h e");
    t = create();
    ENCODES(t, "he", false, ID_HE);
    rf_tokenizer_destroy(t);
}

static void expect_out(rf_text out, const char *bytes)
{
    assert_int_equal(out.length, strlen(bytes));
    assert_memory_equal(out.data, bytes, out.length + (out.length == 0));
}

static void streaming(void **state)
{
    rf_tokenizer *t = plain();
    rf_error err = {0};
    rf_detokenizer *d = rf_detokenizer_create(t, &err);

    (void)state;
    assert_non_null(d);
    expect_out(rf_detokenizer_push(d, ID_HELLO), "hello");
    assert_int_equal(rf_detokenizer_push(d, B(0xE2)).length, 0);
    assert_int_equal(rf_detokenizer_push(d, B(0x82)).length, 0);
    assert_int_equal(rf_detokenizer_push(d, ID_IM_END).length,
                     0); /* a control token in between writes nothing, loses nothing */
    expect_out(rf_detokenizer_push(d, B(0xAC)), "\xE2\x82\xAC");
    expect_out(rf_detokenizer_push(d, B(0xFF)), "\xFF");
    assert_int_equal(rf_detokenizer_push(d, B(0xF0)).length, 0);
    expect_out(rf_detokenizer_push(d, ID_HE), "\xF0he");
    assert_int_equal(rf_detokenizer_push(d, B(0xC3)).length, 0);
    expect_out(rf_detokenizer_push(d, B(0xC3)), "\xC3"); /* the first can no longer be finished, the second can */
    expect_out(rf_detokenizer_push(d, B(0xA9)), "\xC3\xA9");
    expect_out(rf_detokenizer_push(d, ID_THINK), "<think>");
    assert_int_equal(rf_detokenizer_push(d, ID_UNUSED).length + rf_detokenizer_push(d, ID_UNKNOWN).length, 0);
    assert_int_equal(rf_detokenizer_flush(d).length, 0);
    assert_int_equal(rf_detokenizer_push(d, B(0xF0)).length + rf_detokenizer_push(d, B(0x9F)).length, 0);
    expect_out(rf_detokenizer_flush(d), "\xF0\x9F");
    assert_int_equal(rf_detokenizer_flush(d).length, 0);
    expect_out(rf_detokenizer_push(d, ID_HE), "he");
    rf_detokenizer_destroy(d);
    rf_tokenizer_destroy(t);
}

/* Whatever bytes come, pushes and the flush together give all of them, and no push ends inside a character that went
 * on. */
static void streaming_loses_nothing(void **state)
{
    rf_tokenizer *t = plain();
    rf_error err = {0};
    rf_detokenizer *d = rf_detokenizer_create(t, &err);
    static char in[2000], out[2100];
    unsigned seed = 7;

    (void)state;
    assert_non_null(d);
    for (size_t k = 0; k < 200; k++) {
        size_t length = 0;
        rf_text piece;

        random_bytes(in, sizeof in, &seed);
        for (size_t i = 0; i < sizeof in; i++) {
            piece = rf_detokenizer_push(d, B(in[i]));
            assert_true(length + piece.length <= i + 1 && length + piece.length + 3 >= i + 1);
            memcpy(out + length, piece.data, piece.length);
            length += piece.length;
        }
        piece = rf_detokenizer_flush(d);
        memcpy(out + length, piece.data, piece.length);
        assert_int_equal(length + piece.length, sizeof in);
        assert_int_equal(memcmp(in, out, sizeof in), 0);
    }
    rf_detokenizer_destroy(d);
    rf_tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_by_rank),
        cmocka_unit_test(invalid_utf8_becomes_byte_tokens),
        cmocka_unit_test(control_tokens_only_when_asked),
        cmocka_unit_test(awkward_special_tokens),
        cmocka_unit_test(round_trip_of_random_bytes),
        cmocka_unit_test(what_tokens_are),
        cmocka_unit_test(ends_and_beginnings),
        cmocka_unit_test(splitting_rules),
        cmocka_unit_test(hostile_arrays),
        cmocka_unit_test(hostile_merges),
        cmocka_unit_test(hostile_ids),
        cmocka_unit_test(duplicates),
        cmocka_unit_test(streaming),
        cmocka_unit_test(streaming_loses_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
