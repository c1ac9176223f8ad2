/* Input of the leader's prompt. A thread drains the descriptor at once into memory, so that nothing waits (or is lost)
 * in the launcher's pipe; the leader takes lines when it wants them. Lines are bytes: NUL and invalid UTF-8 pass. */
#ifndef RF_CONSOLE_H
#define RF_CONSOLE_H

#include <stdio.h>

#include "error.h"
#include "text.h"

typedef struct rf_console rf_console;

typedef enum {
    RF_CONSOLE_LINE,    /* *line is a line without its newline; valid until the next call */
    RF_CONSOLE_EOF,     /* no more input: every further call says so */
    RF_CONSOLE_TIMEOUT, /* nothing yet; what has come of a line is kept */
    RF_CONSOLE_FAILED   /* reading failed or memory ran out: *err */
} rf_console_result;

/* Starts the thread (all signals blocked in it). fd stays the caller's and stays open. Pair with rf_console_destroy,
 * which stops the thread even when it waits for input. */
rf_console *rf_console_create(int fd, rf_error *err);
void rf_console_destroy(rf_console *c);

/* The next line; waits at most timeout_ms (-1: as long as it takes, 0: not at all). A `\` at the end of a line is taken
 * away and the line goes on with a newline and the next one. The end of input finishes a last line that has no newline.
 */
rf_console_result rf_console_read_line(rf_console *c, int timeout_ms, rf_text *line, rf_error *err);

/* Writes "> ", and a newline when `out` is no terminal (launchers forward whole lines only), and flushes. */
void rf_console_marker(FILE *out);

#endif
