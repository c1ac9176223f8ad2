/* The vocabulary of a synthetic model: a real one, filled up with tokens that no text has. */
#ifndef RF_SYNTH_VOCABULARY_H
#define RF_SYNTH_VOCABULARY_H

#include "gguf.h"
#include "gguf_writer.h"

/* Copies the tokenizer's keys and the chat template of `from`; tokens beyond its own are "[PAD4096]" and on, of type
 * unused. 0, or -1 with *err: n_vocab is smaller than the vocabulary (RF_ERR_USAGE), or `from` has none
 * (RF_ERR_FILE). */
int rf_synth_copy_vocabulary(const rf_gguf *from, size_t n_vocab, rf_gguf_bytes *keys, rf_error *err);
/* Its mask token, or the last of n_vocab tokens where it names none. */
int rf_synth_mask_token(const rf_gguf *from, size_t n_vocab, uint32_t *token, rf_error *err);

#endif
