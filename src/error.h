/* Errors: a code (which is the process's exit code) and one sentence for the user. */
#ifndef RF_ERROR_H
#define RF_ERROR_H

typedef enum {
    RF_OK = 0,
    RF_ERR_USAGE = 2,  /* a flag or its value */
    RF_ERR_FILE = 3,   /* a model or input file */
    RF_ERR_MEMORY = 4, /* memory of the host or the device */
    RF_ERR_DEVICE = 5  /* MPI or a device */
} rf_code;

typedef struct {
    rf_code code;
    char text[480]; /* one sentence: what was wrong, where, what was expected; no newline */
} rf_error;

/* Fills *err (which may be NULL) and returns -1, so that a caller can `return rf_fail(...)`.
 * Functions that can fail return 0 on success and -1 with *err filled, or a pointer and NULL. */
int rf_fail(rf_error *err, rf_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
