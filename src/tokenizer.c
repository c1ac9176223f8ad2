#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "bpe.h"
#include "byte_table.h"
#include "hash_index.h"
#include "pretokenizer.h"
#include "special_tokens.h"
#include "utf8.h"

#define MAX_EOG 3

struct rf_tokenizer {
    size_t n_tokens;
    char *bytes;             /* of all tokens, one after the other */
    size_t *offset;          /* [n_tokens + 1] into bytes */
    unsigned char *type;     /* [n_tokens] */
    int32_t byte_token[256]; /* the token of every single byte */
    rf_special_tokens control, user_defined;
    rf_pretokenizer *pretokenizer;
    rf_bpe *bpe;
    int32_t eog[MAX_EOG];
    size_t n_eog;
    int32_t bos;
};

static int out_of_memory(rf_error *err)
{
    return rf_fail(err, RF_ERR_MEMORY, "out of memory for the tokenizer");
}

/* ---- Reading a vocabulary */

static bool equals(rf_text text, const char *word)
{
    return text.length == strlen(word) && memcmp(text.data, word, text.length) == 0;
}

static int check_source(const rf_vocab_source *s, rf_error *err)
{
    char name[64];

    if (!s->model.data)
        return rf_fail(err, RF_ERR_FILE, "tokenizer.ggml.model is missing: expected gpt2");
    if (!equals(s->model, "gpt2"))
        return rf_fail(err, RF_ERR_FILE, "tokenizer.ggml.model is \"%s\": expected gpt2",
                       rf_text_printable(s->model, name, sizeof name));
    if (!s->pre.data)
        return rf_fail(err, RF_ERR_FILE, "tokenizer.ggml.pre is missing: expected qwen2 or qwen35");
    if (!s->tokens || s->n_tokens == 0)
        return rf_fail(err, RF_ERR_FILE, "tokenizer.ggml.tokens is missing or empty");
    if (s->n_tokens > INT32_MAX)
        return rf_fail(err, RF_ERR_FILE, "tokenizer.ggml.tokens has %zu entries: at most %d are possible", s->n_tokens,
                       INT32_MAX);
    if (!s->types)
        return rf_fail(err, RF_ERR_FILE, "tokenizer.ggml.token_type is missing");
    if (s->n_types != s->n_tokens)
        return rf_fail(err, RF_ERR_FILE, "tokenizer.ggml.token_type has %zu entries, tokenizer.ggml.tokens has %zu",
                       s->n_types, s->n_tokens);
    if (!s->merges)
        return rf_fail(err, RF_ERR_FILE, "tokenizer.ggml.merges is missing");
    if (s->n_merges > INT32_MAX)
        return rf_fail(err, RF_ERR_FILE, "tokenizer.ggml.merges has %zu entries: at most %d are possible", s->n_merges,
                       INT32_MAX);
    for (size_t i = 0; i < s->n_tokens; i++)
        if (s->types[i] < RF_TOKEN_NORMAL || s->types[i] > RF_TOKEN_BYTE)
            return rf_fail(err, RF_ERR_FILE, "tokenizer.ggml.token_type[%zu] is %d: expected 1 to 6", i,
                           (int)s->types[i]);
    return 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "<0x0A>" is how a byte token is written. Returns the byte, or -1. */
static int byte_written(rf_text text)
{
    int high, low;

    if (text.length != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>')
        return -1;
    high = hex_digit(text.data[3]);
    low = hex_digit(text.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Writes what a token stands for; returns its length, never more than the text's. */
static size_t decode_token(const rf_byte_table *table, rf_text text, int type, char *out)
{
    int byte = type == RF_TOKEN_BYTE ? byte_written(text) : -1;

    if (byte >= 0) {
        out[0] = (char)byte;
        return 1;
    }
    if (type == RF_TOKEN_NORMAL || type == RF_TOKEN_BYTE) {
        ptrdiff_t length = rf_byte_table_decode(table, text, out);

        if (length >= 0)
            return (size_t)length;
    }
    /* Added tokens are stored as they look, not through the byte table. */
    if (text.length)
        memcpy(out, text.data, text.length);
    return text.length;
}

static int read_tokens(rf_tokenizer *t, const rf_vocab_source *s, const rf_byte_table *table, rf_error *err)
{
    size_t all = 0;

    for (size_t i = 0; i < s->n_tokens; i++) {
        if (s->tokens[i].length > PTRDIFF_MAX - all)
            return rf_fail(err, RF_ERR_FILE, "tokenizer.ggml.tokens is too long");
        all += s->tokens[i].length;
    }
    t->n_tokens = s->n_tokens;
    t->bytes = malloc(all + 1);
    t->offset = malloc((s->n_tokens + 1) * sizeof *t->offset);
    t->type = malloc(s->n_tokens);
    if (!t->bytes || !t->offset || !t->type)
        return out_of_memory(err);
    t->offset[0] = 0;
    for (size_t i = 0; i < s->n_tokens; i++) {
        t->type[i] = (unsigned char)s->types[i];
        t->offset[i + 1] = t->offset[i] + decode_token(table, s->tokens[i], s->types[i], t->bytes + t->offset[i]);
    }
    return 0;
}

/* The token that BPE makes of these bytes, or -1. Control tokens are not in the index: no merge can produce one. */
static int32_t find_token(const rf_tokenizer *t, const rf_hash_index *index, rf_text bytes)
{
    uint64_t hash = rf_hash_index_hash(index, bytes.data, bytes.length);
    size_t cursor = rf_hash_index_start(index, hash);

    for (int32_t id; (id = rf_hash_index_next(index, hash, &cursor)) >= 0;) {
        rf_text held = rf_tokenizer_bytes(t, id);

        if (held.length == bytes.length && memcmp(held.data, bytes.data, bytes.length) == 0)
            return id;
    }
    return -1;
}

static int index_tokens(rf_tokenizer *t, rf_hash_index *index, rf_error *err)
{
    static const int order[] = {RF_TOKEN_NORMAL, RF_TOKEN_BYTE,
                                RF_TOKEN_USER_DEFINED}; /* who wins when bytes are equal */

    if (rf_hash_index_init(index, t->n_tokens) < 0)
        return out_of_memory(err);
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (size_t i = 0; i < t->n_tokens; i++) {
            rf_text bytes = rf_tokenizer_bytes(t, (int32_t)i);

            if (t->type[i] == order[k] && bytes.length && find_token(t, index, bytes) < 0)
                rf_hash_index_add(index, rf_hash_index_hash(index, bytes.data, bytes.length), (int32_t)i);
        }
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;

        t->byte_token[byte] = find_token(t, index, (rf_text){&c, 1});
        if (t->byte_token[byte] < 0)
            return rf_fail(err, RF_ERR_FILE, "tokenizer.ggml.tokens has no token for byte 0x%02X", (unsigned)byte);
    }
    return 0;
}

/* One line of tokenizer.ggml.merges; scratch holds line.length bytes. The result is the token whose bytes are left's
 * and right's together, so decoding gives back what was encoded whatever the file says. */
static int read_merge(const rf_tokenizer *t, const rf_hash_index *index, const rf_byte_table *table, rf_text line,
                      char *scratch, rf_merge *merge)
{
    const char *space = line.length > 1 ? memchr(line.data + 1, ' ', line.length - 1) : NULL;
    size_t written = space ? (size_t)(space - line.data) : 0;
    ptrdiff_t left, right;

    if (!space || written + 1 == line.length)
        return -1;
    left = rf_byte_table_decode(table, (rf_text){line.data, written}, scratch);
    if (left < 0)
        return -1;
    right = rf_byte_table_decode(table, (rf_text){space + 1, line.length - written - 1}, scratch + left);
    if (right < 0)
        return -1;
    merge->left = find_token(t, index, (rf_text){scratch, (size_t)left});
    merge->right = find_token(t, index, (rf_text){scratch + left, (size_t)right});
    merge->result = find_token(t, index, (rf_text){scratch, (size_t)(left + right)});
    return merge->left < 0 || merge->right < 0 || merge->result < 0 ? -1 : 0;
}

static int read_merges(rf_tokenizer *t, const rf_vocab_source *s, const rf_hash_index *index,
                       const rf_byte_table *table, rf_error *err)
{
    size_t longest = 0;
    rf_merge *merges;
    char *scratch;
    int result = 0;

    for (size_t i = 0; i < s->n_merges; i++)
        if (s->merges[i].length > longest)
            longest = s->merges[i].length;
    merges = malloc((s->n_merges + 1) * sizeof *merges);
    scratch = malloc(longest + 1);
    if (!merges || !scratch)
        result = out_of_memory(err);
    for (size_t i = 0; result == 0 && i < s->n_merges; i++)
        if (read_merge(t, index, table, s->merges[i], scratch, &merges[i]) < 0) {
            char line[80];

            result = rf_fail(err, RF_ERR_FILE,
                             "tokenizer.ggml.merges[%zu] is \"%s\": expected two tokens of the vocabulary that "
                             "make a third",
                             i, rf_text_printable(s->merges[i], line, sizeof line));
        }
    free(scratch);
    if (result == 0) {
        t->bpe = rf_bpe_create(merges, s->n_merges);
        if (t->bpe)
            return 0;
        result = out_of_memory(err);
    }
    free(merges);
    return result;
}

static int read_special_tokens(rf_tokenizer *t, rf_error *err)
{
    for (size_t i = 0; i < t->n_tokens; i++) {
        rf_special_tokens *set = t->type[i] == RF_TOKEN_CONTROL        ? &t->control
                                 : t->type[i] == RF_TOKEN_USER_DEFINED ? &t->user_defined
                                                                       : NULL;

        if (set && rf_special_tokens_add(set, rf_tokenizer_bytes(t, (int32_t)i), (int32_t)i) < 0)
            return out_of_memory(err);
    }
    rf_special_tokens_sort(&t->control);
    rf_special_tokens_sort(&t->user_defined);
    return 0;
}

static int check_id(const rf_tokenizer *t, const char *key, int64_t id, rf_error *err)
{
    if (id < -1 || (id >= 0 && (uint64_t)id >= t->n_tokens))
        return rf_fail(err, RF_ERR_FILE, "%s is %lld: the vocabulary has %zu tokens", key, (long long)id, t->n_tokens);
    return 0;
}

static int read_ends(rf_tokenizer *t, const rf_vocab_source *s, rf_error *err)
{
    static const char *const names[] = {"<|im_end|>", "<|endoftext|>"};

    if (check_id(t, "tokenizer.ggml.eos_token_id", s->eos, err) < 0 ||
        check_id(t, "tokenizer.ggml.bos_token_id", s->bos, err) < 0)
        return -1;
    if (s->add_bos && s->bos < 0)
        return rf_fail(err, RF_ERR_FILE,
                       "tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id is missing");
    t->bos = s->add_bos ? (int32_t)s->bos : -1;
    if (s->eos >= 0)
        t->eog[t->n_eog++] = (int32_t)s->eos;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int32_t id = rf_tokenizer_special(t, names[i]);

        if (id >= 0)
            t->eog[t->n_eog++] = id;
    }
    return 0;
}

rf_tokenizer *rf_tokenizer_create(const rf_vocab_source *source, rf_error *err)
{
    rf_tokenizer *t;
    rf_hash_index index = {0};
    rf_byte_table table;
    bool good;

    if (check_source(source, err) < 0)
        return NULL;
    t = calloc(1, sizeof *t);
    if (!t) {
        out_of_memory(err);
        return NULL;
    }
    rf_byte_table_init(&table);
    t->pretokenizer = rf_pretokenizer_create(source->pre, 0, err);
    good = t->pretokenizer && read_tokens(t, source, &table, err) == 0 && index_tokens(t, &index, err) == 0 &&
           read_merges(t, source, &index, &table, err) == 0 && read_special_tokens(t, err) == 0 &&
           read_ends(t, source, err) == 0;
    rf_hash_index_free(&index);
    if (!good) {
        rf_tokenizer_destroy(t);
        return NULL;
    }
    return t;
}

void rf_tokenizer_destroy(rf_tokenizer *t)
{
    if (!t)
        return;
    rf_bpe_destroy(t->bpe);
    rf_pretokenizer_destroy(t->pretokenizer);
    rf_special_tokens_free(&t->control);
    rf_special_tokens_free(&t->user_defined);
    free(t->bytes);
    free(t->offset);
    free(t->type);
    free(t);
}

/* ---- Looking things up */

size_t rf_tokenizer_n_tokens(const rf_tokenizer *t)
{
    return t->n_tokens;
}

rf_text rf_tokenizer_bytes(const rf_tokenizer *t, int32_t id)
{
    return (rf_text){t->bytes + t->offset[id], t->offset[id + 1] - t->offset[id]};
}

int rf_tokenizer_type(const rf_tokenizer *t, int32_t id)
{
    return t->type[id];
}

bool rf_tokenizer_is_control(const rf_tokenizer *t, int32_t id)
{
    return t->type[id] == RF_TOKEN_CONTROL;
}

bool rf_tokenizer_is_eog(const rf_tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->n_eog; i++)
        if (t->eog[i] == id)
            return true;
    return false;
}

int32_t rf_tokenizer_bos(const rf_tokenizer *t)
{
    return t->bos;
}

int32_t rf_tokenizer_special(const rf_tokenizer *t, const char *name)
{
    const rf_special_tokens *sets[] = {&t->control, &t->user_defined};
    rf_text text = {name, strlen(name)};

    for (size_t i = 0; i < 2; i++) {
        size_t length = 0;
        int32_t id = rf_special_tokens_match(sets[i], text, &length);

        if (id >= 0 && length == text.length)
            return id;
    }
    return -1;
}

/* ---- Encoding */

/* Well-formed UTF-8 without special tokens. */
static int encode_words(rf_tokenizer *t, rf_text text, rf_tokens *out)
{
    for (size_t at = 0, end; at < text.length; at = end) {
        end = rf_pretokenizer_next(t->pretokenizer, text, at);
        if (rf_bpe_encode(t->bpe, t->byte_token, (rf_text){text.data + at, end - at}, out) < 0)
            return -1;
    }
    return 0;
}

/* Any bytes without special tokens: those that are no UTF-8 become byte tokens, what is between them is split and
 * merged. */
static int encode_bytes(rf_tokenizer *t, rf_text text, rf_tokens *out)
{
    size_t at = 0;

    while (at < text.length) {
        size_t end = at, length;

        while (end < text.length && (length = rf_utf8_length(text.data + end, text.length - end)) > 0)
            end += length;
        if (encode_words(t, (rf_text){text.data + at, end - at}, out) < 0)
            return -1;
        if (end < text.length && rf_tokens_push(out, t->byte_token[(unsigned char)text.data[end++]]) < 0)
            return -1;
        at = end;
    }
    return 0;
}

/* The special token that text starts with, the longest one; -1 if none. */
static int32_t match_special(const rf_tokenizer *t, rf_text text, bool parse_special, size_t *length)
{
    unsigned char first = (unsigned char)text.data[0];
    size_t length_control = 0, length_user = 0;
    int32_t control = -1, user = -1;

    if (parse_special && t->control.starts[first])
        control = rf_special_tokens_match(&t->control, text, &length_control);
    if (t->user_defined.starts[first])
        user = rf_special_tokens_match(&t->user_defined, text, &length_user);
    if (control >= 0 && (user < 0 || length_control >= length_user)) {
        *length = length_control;
        return control;
    }
    *length = length_user;
    return user;
}

static int encode(rf_tokenizer *t, rf_text text, bool parse_special, rf_tokens *out)
{
    size_t start = 0, at = 0;

    while (at < text.length) {
        size_t length;
        int32_t id = match_special(t, (rf_text){text.data + at, text.length - at}, parse_special, &length);

        if (id < 0) {
            at++;
            continue;
        }
        if (encode_bytes(t, (rf_text){text.data + start, at - start}, out) < 0 || rf_tokens_push(out, id) < 0)
            return -1;
        start = at += length;
    }
    return encode_bytes(t, (rf_text){text.data + start, text.length - start}, out);
}

int rf_tokenizer_encode(rf_tokenizer *t, rf_text text, bool parse_special, rf_tokens *out, rf_error *err)
{
    int result;

    if (text.length > INT32_MAX)
        return rf_fail(err, RF_ERR_USAGE, "a text of %zu bytes cannot be tokenised: at most %d are possible",
                       text.length, INT32_MAX);
    result = encode(t, text, parse_special, out);
    rf_bpe_trim(t->bpe);
    return result < 0 ? out_of_memory(err) : 0;
}
