/* The two files of a batch: requests in, results out (docs/batch.md). Leader only.
 *
 * A result is one line, appended with one write and made durable before the next step begins. What a crash left of a
 * last line is taken away at the next start, so that every line is whole. Nothing else in the output is ever changed. */
#ifndef RF_BATCH_FILES_H
#define RF_BATCH_FILES_H

#include <jansson.h>
#include <stdbool.h>

#include "error.h"
#include "text.h"

typedef struct rf_batch_files rf_batch_files;

typedef struct {
    size_t requests;      /* lines of the input that hold something */
    size_t done, failed;  /* of these, those whose results an earlier run has written; failed is a part of done */
} rf_batch_counts;

/* Reads the input once (a pipe is copied into a temporary file), the output once, and takes a lock on the output.
 * NULL: *err (RF_ERR_FILE; RF_ERR_USAGE for files that cannot be meant; RF_ERR_MEMORY). Nothing has been written then. */
rf_batch_files *rf_batch_files_open(const char *in, const char *out, rf_error *err);
void rf_batch_files_close(rf_batch_files *f);
rf_batch_counts rf_batch_files_counts(const rf_batch_files *f);

typedef struct {
    rf_text text;      /* valid until the next call */
    size_t number;     /* line of the input, from 1 */
    bool too_long;     /* the text is a part of the line */
    bool again;        /* an earlier line has the same id */
} rf_batch_line;

/* The next line that has no result yet: 1; 0: no more; -1: *err. */
int rf_batch_files_next(rf_batch_files *f, rf_batch_line *line, rf_error *err);

/* Appends a result (its reference is taken over). -1: *err (RF_ERR_FILE), and the output is as before. */
int rf_batch_files_put(rf_batch_files *f, json_t *result, rf_error *err);
/* Makes all results put so far durable. */
int rf_batch_files_sync(rf_batch_files *f, rf_error *err);

#endif
