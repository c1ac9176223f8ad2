/* Byte-level BPE (GPT-2's scheme), as GGUF files carry it: tokenizer.ggml.model = "gpt2", splitting rules "qwen2" and
 * "qwen35".
 *
 * Promises: decode(encode(x)) == x for any bytes; text never becomes a control token unless the caller asks for it; the
 * time is n log n in the text's length and nothing recurses. A tokenizer serves one thread at a time (it holds scratch
 * memory). */
#ifndef RF_TOKENIZER_H
#define RF_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "gguf.h"
#include "text.h"

/* tokenizer.ggml.token_type */
enum {
    RF_TOKEN_NORMAL = 1,
    RF_TOKEN_UNKNOWN = 2,
    RF_TOKEN_CONTROL = 3,
    RF_TOKEN_USER_DEFINED = 4,
    RF_TOKEN_UNUSED = 5,
    RF_TOKEN_BYTE = 6
};

/* A vocabulary before it is checked; views are only used during rf_tokenizer_create. Absent keys: NULL, 0, -1. */
typedef struct {
    rf_text model, pre;    /* tokenizer.ggml.model, .pre */
    const rf_text *tokens; /* [n_tokens] tokenizer.ggml.tokens; index = id */
    const int32_t *types;  /* [n_types] tokenizer.ggml.token_type */
    const rf_text *merges; /* [n_merges] tokenizer.ggml.merges: "left right", best first */
    size_t n_tokens, n_types, n_merges;
    int64_t eos, bos; /* token ids */
    bool add_bos;     /* tokenizer.ggml.add_bos_token */
} rf_vocab_source;

typedef struct rf_tokenizer rf_tokenizer;

/* NULL and *err (RF_ERR_FILE for any flaw of the vocabulary, RF_ERR_MEMORY). Pair with rf_tokenizer_destroy. */
rf_tokenizer *rf_tokenizer_create(const rf_vocab_source *source, rf_error *err);
/* The same from a file's tokenizer.ggml.* keys; needs the file no longer afterwards. */
rf_tokenizer *rf_tokenizer_from_gguf(const rf_gguf *file, rf_error *err);
void rf_tokenizer_destroy(rf_tokenizer *t);

/* tokenizer.chat_template, in the file's map; absent: NULL. 0, or -1 with *err if it is not a string. */
int rf_tokenizer_chat_template(const rf_gguf *file, rf_text *out, rf_error *err);

size_t rf_tokenizer_n_tokens(const rf_tokenizer *t);
/* Appends the ids of text. parse_special: control tokens written in the text are matched too; without it they are plain
 * text. User-defined tokens (<think>) match always. 0, or -1 with *err (memory; text of 2 GiB and more). */
int rf_tokenizer_encode(rf_tokenizer *t, rf_text text, bool parse_special, rf_tokens *out, rf_error *err);
/* The bytes a token stands for (also of control tokens: their name). Valid as long as t; id must be in [0, n_tokens).
 */
rf_text rf_tokenizer_bytes(const rf_tokenizer *t, int32_t id);
int rf_tokenizer_type(const rf_tokenizer *t, int32_t id);
bool rf_tokenizer_is_control(const rf_tokenizer *t, int32_t id);
/* End of generation: the file's eos, <|im_end|>, <|endoftext|>. */
bool rf_tokenizer_is_eog(const rf_tokenizer *t, int32_t id);
int32_t rf_tokenizer_bos(const rf_tokenizer *t); /* to put before the first text, or -1 (the Qwen files want none) */
/* The control or user-defined token of this name, or -1. */
int32_t rf_tokenizer_special(const rf_tokenizer *t, const char *name);

/* Tokens to text, one at a time, for a stream: bytes that are the start of an unfinished UTF-8 sequence are held back
 * until the rest comes; invalid bytes pass. Control, unknown and unused tokens give nothing. No allocation after
 * create. */
typedef struct rf_detokenizer rf_detokenizer;
rf_detokenizer *rf_detokenizer_create(const rf_tokenizer *t, rf_error *err);
void rf_detokenizer_destroy(rf_detokenizer *d);
/* What may be written now; valid until the next call on d. */
rf_text rf_detokenizer_push(rf_detokenizer *d, int32_t id);
rf_text rf_detokenizer_flush(rf_detokenizer *d); /* the tail held back, as it is; d is ready for another stream */

#endif
