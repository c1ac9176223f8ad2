/* Progress of something long: a bar when stderr is a terminal, else a line every few seconds. Leader only; silent if it is quick. */
#ifndef RF_PROGRESS_H
#define RF_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    const char *what, *unit; /* "loading", "MiB" */
    double start, shown;     /* seconds */
    bool terminal, drawn;
} rf_progress;

void rf_progress_begin(rf_progress *p, const char *what, const char *unit);
void rf_progress_step(rf_progress *p, size_t done, size_t all);
void rf_progress_end(rf_progress *p);

#endif
