#include "vocabulary.h"

#include <stdio.h>
#include <string.h>

rf_text text_of(const char *word)
{
    return (rf_text){word, strlen(word)};
}

/* GPT-2's order: bytes that stand for themselves first, then the others. */
static int itself(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

int32_t made_up_byte(unsigned char byte)
{
    int32_t before = 0, all = 0;

    for (int b = 0; b < 256; b++) {
        before += b < byte && itself(b) == itself(byte);
        all += itself(b);
    }
    return itself(byte) ? before : all + before;
}

static void write_byte(int byte, char out[4])
{
    int code = itself(byte) ? byte : 256 + made_up_byte((unsigned char)byte) - 188;

    if (code < 0x80)
        snprintf(out, 4, "%c", code);
    else
        snprintf(out, 4, "%c%c", 0xC0 | code >> 6, 0x80 | (code & 0x3F));
}

void made_up_vocabulary_init(made_up_vocabulary *v, const char *rule)
{
    static const struct {
        int32_t id, type;
        const char *text;
    } more[] = {
        {ID_HE, RF_TOKEN_NORMAL, "he"},
        {ID_LL, RF_TOKEN_NORMAL, "ll"},
        {ID_HELL, RF_TOKEN_NORMAL, "hell"},
        {ID_HELLO, RF_TOKEN_NORMAL, "hello"},
        {ID_SPACE_A, RF_TOKEN_NORMAL,
         "\xC4\xA0"
         "a"},
        {ID_USER, RF_TOKEN_NORMAL, "us"},
        {ID_NEWLINES, RF_TOKEN_NORMAL, "\xC4\x8A\xC4\x8A"},
        {ID_EACUTE, RF_TOKEN_NORMAL, "\xC3\x83\xC2\xA9"},
        {ID_ENDOFTEXT, RF_TOKEN_CONTROL, "<|endoftext|>"},
        {ID_IM_START, RF_TOKEN_CONTROL, "<|im_start|>"},
        {ID_IM_END, RF_TOKEN_CONTROL, "<|im_end|>"},
        {ID_THINK, RF_TOKEN_USER_DEFINED, "<think>"},
        {ID_END_THINK, RF_TOKEN_USER_DEFINED, "</think>"},
        {ID_UNUSED, RF_TOKEN_UNUSED, "[PAD]"},
        {ID_UNKNOWN, RF_TOKEN_UNKNOWN, "[UNK]"},
        {ID_BYTE, RF_TOKEN_BYTE, "<0x41>"},
    };
    static const char *const merges[] = {
        "h e", "l l", "he ll", "hell o", "\xC4\xA0 a", "u s", "\xC4\x8A \xC4\x8A", "\xC3\x83 \xC2\xA9"};

    *v = (made_up_vocabulary){0};
    for (int byte = 0; byte < 256; byte++) {
        int32_t id = made_up_byte((unsigned char)byte);

        write_byte(byte, v->byte_text[id]);
        v->tokens[id] = text_of(v->byte_text[id]);
        v->types[id] = RF_TOKEN_NORMAL;
    }
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        v->tokens[more[i].id] = text_of(more[i].text);
        v->types[more[i].id] = more[i].type;
    }
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++)
        v->merges[i] = text_of(merges[i]);
    v->source = (rf_vocab_source){
        .model = text_of("gpt2"),
        .pre = text_of(rule),
        .tokens = v->tokens,
        .types = v->types,
        .merges = v->merges,
        .n_tokens = ID_LAST,
        .n_types = ID_LAST,
        .n_merges = sizeof merges / sizeof *merges,
        .eos = ID_IM_END,
        .bos = -1,
    };
}
