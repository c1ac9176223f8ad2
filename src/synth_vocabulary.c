#include "config.h"

#include "synth_vocabulary.h"

#include <stdio.h>

#define KEY(name) "tokenizer.ggml." name
#define TYPE_UNUSED 5

static int copy_string(const rf_gguf *from, const char *key, rf_gguf_bytes *keys, rf_error *err)
{
    rf_text text;

    if (rf_gguf_get_string(from, key, &text, err) < 0)
        return -1;
    rf_gguf_put_key(keys, key);
    rf_gguf_put(keys, RF_GGUF_STRING, 4);
    rf_gguf_put_text(keys, text.data, text.length);
    return 0;
}

static int copy_id(const rf_gguf *from, const char *key, rf_gguf_bytes *keys, rf_error *err)
{
    uint64_t id;

    if (!rf_gguf_has(from, key))
        return 0;
    if (rf_gguf_get_uint(from, key, UINT32_MAX, &id, err) < 0)
        return -1;
    rf_gguf_key_u32(keys, key, (uint32_t)id);
    return 0;
}

/* Strings of `from`, then n - theirs made-up tokens. */
static int copy_strings(const rf_gguf *from, const char *key, size_t n, rf_gguf_bytes *keys, rf_error *err)
{
    size_t known;

    if (rf_gguf_array_length(from, key, &known, err) < 0)
        return -1;
    n = n > known ? n : known;
    rf_gguf_key_array(keys, key, RF_GGUF_STRING, n);
    for (size_t i = 0; i < known; i++) {
        rf_text text;

        if (rf_gguf_array_string(from, key, i, &text, err) < 0)
            return -1;
        rf_gguf_put_text(keys, text.data, text.length);
    }
    for (size_t i = known; i < n; i++) {
        char name[32];

        snprintf(name, sizeof name, "[PAD%zu]", i);
        rf_gguf_put_string(keys, name);
    }
    return 0;
}

static int copy_types(const rf_gguf *from, size_t n, rf_gguf_bytes *keys, rf_error *err)
{
    size_t known;

    if (rf_gguf_array_length(from, KEY("token_type"), &known, err) < 0)
        return -1;
    rf_gguf_key_array(keys, KEY("token_type"), RF_GGUF_I32, n);
    for (size_t i = 0; i < n; i++) {
        int64_t type = TYPE_UNUSED;

        if (i < known && rf_gguf_array_int(from, KEY("token_type"), i, INT32_MIN, INT32_MAX, &type, err) < 0)
            return -1;
        rf_gguf_put(keys, (uint64_t)type, 4);
    }
    return 0;
}

int rf_synth_copy_vocabulary(const rf_gguf *from, size_t n_vocab, rf_gguf_bytes *keys, rf_error *err)
{
    size_t known;
    bool add_bos;

    if (rf_gguf_array_length(from, KEY("tokens"), &known, err) < 0)
        return -1;
    if (n_vocab < known)
        return rf_fail(err, RF_ERR_USAGE, "--vocab %zu: the vocabulary alone has %zu tokens", n_vocab, known);
    if (copy_string(from, KEY("model"), keys, err) < 0 || copy_string(from, KEY("pre"), keys, err) < 0 ||
        copy_strings(from, KEY("tokens"), n_vocab, keys, err) < 0 || copy_types(from, n_vocab, keys, err) < 0 ||
        copy_strings(from, KEY("merges"), 0, keys, err) < 0 || copy_id(from, KEY("bos_token_id"), keys, err) < 0 ||
        copy_id(from, KEY("eos_token_id"), keys, err) < 0 || copy_id(from, KEY("padding_token_id"), keys, err) < 0)
        return -1;
    if (rf_gguf_has(from, KEY("add_bos_token"))) {
        if (rf_gguf_get_bool(from, KEY("add_bos_token"), &add_bos, err) < 0)
            return -1;
        rf_gguf_key_bool(keys, KEY("add_bos_token"), add_bos);
    }
    return rf_gguf_has(from, "tokenizer.chat_template") ? copy_string(from, "tokenizer.chat_template", keys, err) : 0;
}

int rf_synth_mask_token(const rf_gguf *from, size_t n_vocab, uint32_t *token, rf_error *err)
{
    uint64_t id = n_vocab - 1;

    if (rf_gguf_has(from, KEY("mask_token_id")) &&
        rf_gguf_get_uint(from, KEY("mask_token_id"), n_vocab - 1, &id, err) < 0)
        return -1;
    *token = (uint32_t)id;
    return 0;
}
