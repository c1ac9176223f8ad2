/* One turn of text: tokens in, text out, the reason it ended. Leader only. */
#ifndef RF_GENERATE_H
#define RF_GENERATE_H

#include <stdio.h>

#include "../src/chat.h"
#include "round.h"

typedef struct rf_generator rf_generator;

typedef struct {
    rf_tokenizer *tokenizer;
    const rf_text *stop; /* stop strings; the text is cut before the first that occurs */
    size_t n_stop;
    bool ignore_eog;     /* --ignore-eos */
    bool check;          /* --check: "check POSITION TOKEN HASH" lines on stderr */
    size_t chunk;        /* rows of a prefill chunk */
    FILE *out;
    /* Called for every token before its text is written; may be NULL. */
    rf_stop (*on_token)(void *context, int32_t token, int64_t position, uint64_t hash);
    void *context;
} rf_generator_spec;

rf_generator *rf_generator_create(rf_leader *l, const rf_generator_spec *spec, rf_error *err);
void rf_generator_destroy(rf_generator *g);

/* Runs one turn of s: processes the prompt at s->n, generates until the sequence stops, settles it, and ends the output
 * with what was held back. The text is flushed after every round. Times are added to s->stats. */
int rf_generate(rf_generator *g, rf_sequence *s, const int32_t *prompt, size_t n_prompt, rf_error *err);

/* Its parts, for a caller that runs several sequences together: s's tokens go through g from here on (s->on_token and
 * s->context are set); then the caller's prefill and rounds; then the text that was held back. */
void rf_generator_begin(rf_generator *g, rf_sequence *s);
void rf_generator_finish(rf_generator *g, rf_stop stop);

/* Bytes written by the last turn end with a newline (or nothing was written). */
bool rf_generator_at_line_start(const rf_generator *g);
const char *rf_stop_name(rf_stop stop); /* "end of generation", "stop string", ... */

#endif
