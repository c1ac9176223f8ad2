/* The vocabulary of a GGUF file. */
#include <stdlib.h>

#include "gguf.h"
#include "tokenizer.h"

#define KEY(name) "tokenizer.ggml." name

static int out_of_memory(rf_error *err)
{
    return rf_fail(err, RF_ERR_MEMORY, "out of memory for the vocabulary");
}

/* An absent key leaves *out as it is: rf_tokenizer_create says what it cannot do without. */
static int read_string(const rf_gguf *file, const char *key, rf_text *out, rf_error *err)
{
    return rf_gguf_has(file, key) ? rf_gguf_get_string(file, key, out, err) : 0;
}

static int read_id(const rf_gguf *file, const char *key, int64_t *out, rf_error *err)
{
    uint64_t id;

    if (!rf_gguf_has(file, key))
        return 0;
    if (rf_gguf_get_uint(file, key, INT32_MAX, &id, err) < 0)
        return -1;
    *out = (int64_t)id;
    return 0;
}

/* *out: malloc'd, the caller frees it whatever is returned. */
static int read_strings(const rf_gguf *file, const char *key, rf_text **out, size_t *n, rf_error *err)
{
    if (!rf_gguf_has(file, key))
        return 0;
    if (rf_gguf_array_length(file, key, n, err) < 0)
        return -1;
    *out = calloc(*n + 1, sizeof **out);
    if (!*out)
        return out_of_memory(err);
    for (size_t i = 0; i < *n; i++)
        if (rf_gguf_array_string(file, key, i, &(*out)[i], err) < 0)
            return -1;
    return 0;
}

static int read_types(const rf_gguf *file, const char *key, int32_t **out, size_t *n, rf_error *err)
{
    if (!rf_gguf_has(file, key))
        return 0;
    if (rf_gguf_array_length(file, key, n, err) < 0)
        return -1;
    *out = calloc(*n + 1, sizeof **out);
    if (!*out)
        return out_of_memory(err);
    for (size_t i = 0; i < *n; i++) {
        int64_t type;

        if (rf_gguf_array_int(file, key, i, INT32_MIN, INT32_MAX, &type, err) < 0)
            return -1;
        (*out)[i] = (int32_t)type;
    }
    return 0;
}

static int read_scalars(const rf_gguf *file, rf_vocab_source *s, rf_error *err)
{
    if (read_string(file, KEY("model"), &s->model, err) < 0 || read_string(file, KEY("pre"), &s->pre, err) < 0 ||
        read_id(file, KEY("eos_token_id"), &s->eos, err) < 0 || read_id(file, KEY("bos_token_id"), &s->bos, err) < 0)
        return -1;
    return rf_gguf_has(file, KEY("add_bos_token")) ? rf_gguf_get_bool(file, KEY("add_bos_token"), &s->add_bos, err) : 0;
}

static rf_tokenizer *create(const rf_gguf *file, const rf_vocab_source *source, rf_error *err)
{
    rf_error reason;
    rf_tokenizer *t = rf_tokenizer_create(source, &reason);

    if (!t)
        rf_fail(err, reason.code, "%s: %s", rf_gguf_path(file), reason.text);
    return t;
}

rf_tokenizer *rf_tokenizer_from_gguf(const rf_gguf *file, rf_error *err)
{
    rf_vocab_source source = {.eos = -1, .bos = -1};
    rf_text *tokens = NULL, *merges = NULL;
    int32_t *types = NULL;
    rf_tokenizer *t = NULL;

    if (read_scalars(file, &source, err) == 0 &&
        read_strings(file, KEY("tokens"), &tokens, &source.n_tokens, err) == 0 &&
        read_types(file, KEY("token_type"), &types, &source.n_types, err) == 0 &&
        read_strings(file, KEY("merges"), &merges, &source.n_merges, err) == 0) {
        source.tokens = tokens;
        source.types = types;
        source.merges = merges;
        t = create(file, &source, err);
    }
    free(tokens);
    free(types);
    free(merges);
    return t;
}

int rf_tokenizer_chat_template(const rf_gguf *file, rf_text *out, rf_error *err)
{
    *out = (rf_text){0};
    return read_string(file, "tokenizer.chat_template", out, err);
}
