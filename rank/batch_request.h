/* One request of a batch: a line of JSON, checked key by key (docs/batch.md). */
#ifndef RF_BATCH_REQUEST_H
#define RF_BATCH_REQUEST_H

#include <jansson.h>

#include "../src/chat.h"
#include "../src/options.h"
#include "sampler.h"

typedef struct {
    json_t *object;            /* owned; texts below point into it */
    json_t *id;                /* a string or an integer; NULL: the line has none (then parsing failed) */
    rf_text prompt;            /* absent where there are messages */
    rf_chat_message *messages; /* owned */
    size_t n_messages;
    rf_text *stop;             /* owned: those of the command line, then the request's */
    size_t n_stop;
    rf_sampling sampling;
    int64_t n_predict;
} rf_request;

/* What the line leaves open comes from the command line. A seed that neither gives is made from the id (and -s): it is
 * the same in every run. -1: *err says what is wrong (RF_ERR_USAGE; RF_ERR_MEMORY); r->id is set where it could be read.
 * Pair with rf_request_free either way. */
int rf_request_parse(rf_request *r, rf_text line, const rf_options *o, rf_error *err);
void rf_request_free(rf_request *r);

/* The seed of a request that gives none: of the id's bytes (an integer in decimal) and the command line's seed. Below
 * 2^53, so that every JSON reader keeps it. */
uint64_t rf_request_seed(const json_t *id, uint64_t seed);

#endif
