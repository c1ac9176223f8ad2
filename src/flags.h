/* Command lines: every flag of a program is a row of one table, from which parsing and --help follow. */
#ifndef RF_FLAGS_H
#define RF_FLAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "error.h"
#include "text.h"

#define RF_FLAG_NAMES 4

/* What a flag's value is and where it goes. */
typedef enum {
    RF_KIND_TRUE,    /* no value; bool field = true */
    RF_KIND_ACTION,  /* no value; int-sized field = low */
    RF_KIND_STOP,    /* the same, and the rest of the command line is not read (--help) */
    RF_KIND_INT32,   /* low <= value <= high */
    RF_KIND_INT64,
    RF_KIND_REAL,    /* real_low <= value <= real_high */
    RF_KIND_STRING,  /* const char * */
    RF_KIND_TEXT,    /* rf_text */
    RF_KIND_CHOICE,  /* a word of `choices`; int-sized field */
    RF_KIND_ON_OFF,  /* the same, bool field */
    RF_KIND_CUSTOM,  /* `set` reads it */
    RF_KIND_IGNORED, /* accepted, changes nothing: the notice says why (with or without a value) */
    RF_KIND_LATER    /* refused: not in this version */
} rf_flag_kind;

typedef struct {
    const char *word;
    int value;
    bool later; /* known, but not in this version */
} rf_flag_choice;

typedef struct rf_flag rf_flag;
struct rf_flag {
    const char *names[RF_FLAG_NAMES]; /* as shown, with dashes; the last one names it in messages */
    int group;
    rf_flag_kind kind;
    const char *value; /* how the value is shown ("N", "FILE", "on|off"); NULL: takes none */
    const char *help;  /* one sentence without a full stop; the default in brackets */
    size_t field;      /* offset in the program's options */
    int64_t low, high;
    double real_low, real_high;
    const rf_flag_choice *choices; /* ends with a NULL word */
    const char *notice;            /* said once when the flag is given */
    int (*set)(void *options, const rf_flag *row, const char *value, rf_error *err);
};

typedef struct {
    const rf_flag *rows;
    size_t n_rows;
    const char *const *groups; /* [n_groups] titles, in the order of --help; NULL: has no rows */
    int n_groups;
    const char *plain;         /* where an argument that is no flag belongs: "a model goes after -m" */
    /* Keeps a row's notice; may be NULL in a set without notices. */
    int (*notice)(void *options, const rf_flag *row, const char *text, rf_error *err);
} rf_flag_set;

/* Reads argv[1..] into options, whose defaults stand; strings point into argv. Names are written out in full, with one
 * dash or two; given twice, the later value counts. 0, or -1 with one sentence (RF_ERR_USAGE, RF_ERR_MEMORY). */
int rf_flags_parse(const rf_flag_set *set, void *options, int argc, char **argv, rf_error *err);
/* The rows of every group under its title, as --help shows them. */
void rf_flags_print(const rf_flag_set *set, FILE *out);

/* ---- Readers of values, for RF_KIND_CUSTOM. */

int rf_flag_read(const rf_flag_set *set, void *options, const rf_flag *row, const char *value, rf_error *err);
const char *rf_flag_name(const rf_flag *row);
/* Fails with "NAME VALUE: expected ..." (RF_ERR_USAGE). */
int rf_flag_bad_value(const rf_flag *row, const char *value, const char *expected, rf_error *err);
/* A whole decimal number, nothing before or after it: 0, or -1 without a sentence. */
int rf_flag_integer(const char *text, int64_t *out);
/* A whole number in the row's range. */
int rf_flag_ranged(const rf_flag *row, const char *value, int64_t *out, rf_error *err);
/* A finite number that ends at *end: 0, or -1 without a sentence. */
int rf_flag_real(const char *text, char **end, double *out);
/* A whole number from 0 to 2^64 - 1: 0, or -1 without a sentence. */
int rf_flag_uint64(const char *text, uint64_t *out);

#endif
