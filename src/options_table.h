/* The rows behind the command line: one per flag. Parsing, --help, docs/cli.md and the manual page follow from them. */
#ifndef RF_OPTIONS_TABLE_H
#define RF_OPTIONS_TABLE_H

#include "options.h"

#define RF_OPTION_NAMES 4

typedef enum {
    RF_GROUP_MODEL,
    RF_GROUP_SPECULATION,
    RF_GROUP_DEVICES,
    RF_GROUP_MEMORY,
    RF_GROUP_TEXT,
    RF_GROUP_SAMPLING,
    RF_GROUP_REPORTS,
    RF_GROUP_NOTHING, /* known from llama.cpp, change nothing here */
    RF_GROUP_LATER,   /* known, but not in this version */
    RF_N_GROUPS
} rf_option_group;

/* What a flag's value is and where it goes. */
typedef enum {
    RF_KIND_TRUE,   /* no value; bool field = true */
    RF_KIND_ACTION, /* no value; field action = low */
    RF_KIND_INT32,  /* low <= value <= high */
    RF_KIND_INT64,
    RF_KIND_REAL,    /* real_low <= value <= real_high */
    RF_KIND_STRING,  /* const char * */
    RF_KIND_TEXT,    /* rf_text */
    RF_KIND_CHOICE,  /* a word of `choices`; int-sized field */
    RF_KIND_ON_OFF,  /* the same, bool field */
    RF_KIND_CUSTOM,  /* `set` reads it */
    RF_KIND_IGNORED, /* accepted, changes nothing: the notice says why (with or without a value) */
    RF_KIND_LATER    /* refused: not in this version */
} rf_option_kind;

typedef struct {
    const char *word;
    int value;
    bool later; /* known, but not in this version */
} rf_option_choice;

typedef struct rf_option rf_option;
struct rf_option {
    const char *names[RF_OPTION_NAMES]; /* as shown, with dashes; the last one names it in messages */
    rf_option_group group;
    rf_option_kind kind;
    const char *value; /* how the value is shown ("N", "FILE", "on|off"); NULL: takes none */
    const char *help;  /* one sentence without a full stop; the default in brackets */
    size_t field;      /* offset in rf_options */
    int64_t low, high;
    double real_low, real_high;
    const rf_option_choice *choices; /* ends with a NULL word */
    const char *notice;              /* said once when the flag is given */
    int (*set)(rf_options *o, const rf_option *row, const char *value, rf_error *err);
};

const rf_option *rf_option_table(size_t *n);
const char *rf_option_group_title(rf_option_group group);

/* ---- Readers of values (options_values.c). All: 0, or -1 with a sentence that names the flag, the value and what is
 * expected. */

int rf_option_read(rf_options *o, const rf_option *row, const char *value, rf_error *err);
int rf_option_notice(rf_options *o, const rf_option *row, const char *text, rf_error *err); /* once a row */
int rf_option_unescape(rf_options *o, rf_text *text, rf_error *err);

/* For RF_KIND_CUSTOM. */
int rf_option_set_layers(rf_options *o, const rf_option *row, const char *value, rf_error *err);
int rf_option_set_ratios(rf_options *o, const rf_option *row, const char *value, rf_error *err);
int rf_option_set_seed(rf_options *o, const rf_option *row, const char *value, rf_error *err);
int rf_option_set_threads(rf_options *o, const rf_option *row, const char *value, rf_error *err);
int rf_option_add_stop(rf_options *o, const rf_option *row, const char *value, rf_error *err);
int rf_option_set_parallel(rf_options *o, const rf_option *row, const char *value, rf_error *err);
int rf_option_set_neutral(rf_options *o, const rf_option *row, const char *value, rf_error *err);
int rf_option_set_no_escape(rf_options *o, const rf_option *row, const char *value, rf_error *err);

#endif
