/* Tokens that are found in text as they are written (control or user-defined ones): the longest that a text starts
 * with. */
#ifndef RF_SPECIAL_TOKENS_H
#define RF_SPECIAL_TOKENS_H

#include <stdbool.h>

#include "text.h"

typedef struct {
    rf_text text; /* not owned */
    int32_t id;
} rf_special_token;

typedef struct {
    rf_special_token *token; /* owned; sorted by text, no two alike, none empty */
    size_t count, capacity;
    bool starts[256]; /* a token starts with this byte */
} rf_special_tokens;  /* {0} is an empty set */

/* 0, or -1 when memory runs out. An empty text is left out. */
int rf_special_tokens_add(rf_special_tokens *set, rf_text text, int32_t id);
/* After the last add, before the first look-up. Of equal texts the lowest id stays. */
void rf_special_tokens_sort(rf_special_tokens *set);
void rf_special_tokens_free(rf_special_tokens *set);

/* The longest token that text starts with, and its length in bytes; -1 if there is none. Time: token length x
 * log(count). */
int32_t rf_special_tokens_match(const rf_special_tokens *set, rf_text text, size_t *length);

#endif
