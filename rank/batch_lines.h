/* Lines of a file, one at a time, in bounded memory: a line may be of any length and hold any bytes. */
#ifndef RF_BATCH_LINES_H
#define RF_BATCH_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "text.h"

#define RF_LONGEST_LINE ((size_t)64 << 20) /* bytes kept of a line */

typedef struct {
    const char *name; /* of the file, for messages */
    int fd;
    char *buffer;     /* [capacity], bytes [at, end) not given out yet */
    size_t at, end, capacity;
    int64_t offset;   /* in the file, of buffer[at] */
    size_t number;    /* of the last line, from 1 */
    bool ended;       /* the file is */
} rf_lines;

typedef struct {
    rf_text text;     /* without its newline; valid until the next call; at most RF_LONGEST_LINE bytes of it */
    int64_t offset;   /* of its first byte */
    size_t number;    /* from 1 */
    bool whole;       /* a newline ended it, not the end of the file */
    bool too_long;    /* more than RF_LONGEST_LINE bytes: the rest was passed over */
} rf_line;

/* From where the descriptor stands. */
void rf_lines_begin(rf_lines *l, int fd, const char *name);
void rf_lines_end(rf_lines *l); /* fd stays open */
/* 1: *line; 0: the end; -1: *err (RF_ERR_FILE, RF_ERR_MEMORY). */
int rf_lines_next(rf_lines *l, rf_line *line, rf_error *err);

#endif
