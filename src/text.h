/* Byte strings: a view, and a growing list of token ids. Text is bytes of a stated length: it may hold NUL and invalid
 * UTF-8. */
#ifndef RF_TEXT_H
#define RF_TEXT_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *data; /* not owned, not NUL-terminated; NULL: absent */
    size_t length;    /* bytes */
} rf_text;

typedef struct {
    int32_t *id; /* owned */
    size_t count, capacity;
} rf_tokens; /* {0} is an empty list */

/* 0, or -1 when memory runs out (the list is as before). */
int rf_tokens_push(rf_tokens *list, int32_t id);
void rf_tokens_clear(rf_tokens *list); /* keeps the memory */
void rf_tokens_free(rf_tokens *list);

/* A NUL-terminated copy that is safe to print in a message: at most capacity - 1 bytes, "..." when cut, anything but
 * printable ASCII as '?'. Returns out. capacity >= 8. */
const char *rf_text_printable(rf_text text, char *out, size_t capacity);

#endif
