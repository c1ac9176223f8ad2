/* Cuts text into the pieces inside which BPE may merge: one regular expression per value of tokenizer.ggml.pre, run by
 * PCRE2 with Unicode properties. One thread at a time. */
#ifndef RF_PRETOKENIZER_H
#define RF_PRETOKENIZER_H

#include "error.h"
#include "text.h"

typedef struct rf_pretokenizer rf_pretokenizer;

/* rule: "qwen2" or "qwen35"; another one is RF_ERR_FILE with its name. match_limit: PCRE2's limit on the steps of one
 * match, 0 for the largest there is. A match that hits it, or finds nothing, gives a piece of one character: nothing is
 * lost, nothing aborts. */
rf_pretokenizer *rf_pretokenizer_create(rf_text rule, uint32_t match_limit, rf_error *err);
void rf_pretokenizer_destroy(rf_pretokenizer *p);

/* End of the piece that starts at byte `start` (< text.length); text is well-formed UTF-8 and start is at a character.
 */
size_t rf_pretokenizer_next(rf_pretokenizer *p, rf_text text, size_t start);

#endif
