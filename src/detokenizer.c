/* The streaming half of tokenizer.h. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer.h"
#include "utf8.h"

#define MAX_TAIL 3

struct rf_detokenizer {
    const rf_tokenizer *tokenizer;
    size_t ready; /* bytes at the start of buffer that were handed out by the last call */
    size_t tail;  /* bytes after them, held back */
    char buffer[];
};

rf_detokenizer *rf_detokenizer_create(const rf_tokenizer *t, rf_error *err)
{
    size_t longest = 0;
    rf_detokenizer *d;

    for (size_t id = 0; id < rf_tokenizer_n_tokens(t); id++)
        if (rf_tokenizer_bytes(t, (int32_t)id).length > longest)
            longest = rf_tokenizer_bytes(t, (int32_t)id).length;
    d = malloc(sizeof *d + MAX_TAIL + longest);
    if (!d) {
        rf_fail(err, RF_ERR_MEMORY, "out of memory for the detokenizer");
        return NULL;
    }
    *d = (rf_detokenizer){.tokenizer = t};
    return d;
}

void rf_detokenizer_destroy(rf_detokenizer *d)
{
    free(d);
}

/* Forgets what was handed out: the tail comes to the front. */
static void drop_ready(rf_detokenizer *d)
{
    memmove(d->buffer, d->buffer + d->ready, d->tail);
    d->ready = 0;
}

rf_text rf_detokenizer_push(rf_detokenizer *d, int32_t id)
{
    int type = rf_tokenizer_type(d->tokenizer, id);
    rf_text bytes = rf_tokenizer_bytes(d->tokenizer, id);
    size_t all;

    drop_ready(d);
    if (type == RF_TOKEN_CONTROL || type == RF_TOKEN_UNKNOWN || type == RF_TOKEN_UNUSED)
        return (rf_text){d->buffer, 0};
    memcpy(d->buffer + d->tail, bytes.data, bytes.length);
    all = d->tail + bytes.length;
    d->tail = rf_utf8_unfinished(d->buffer, all);
    d->ready = all - d->tail;
    return (rf_text){d->buffer, d->ready};
}

rf_text rf_detokenizer_flush(rf_detokenizer *d)
{
    drop_ready(d);
    d->ready = d->tail;
    d->tail = 0;
    return (rf_text){d->buffer, d->ready};
}
