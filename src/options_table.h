/* The rows behind the command line: one per flag. Parsing, --help, docs/cli.md and the manual page follow from them. */
#ifndef RF_OPTIONS_TABLE_H
#define RF_OPTIONS_TABLE_H

#include "flags.h"
#include "options.h"

typedef enum {
    RF_GROUP_MODEL,
    RF_GROUP_SPECULATION,
    RF_GROUP_DEVICES,
    RF_GROUP_MEMORY,
    RF_GROUP_TEXT,
    RF_GROUP_BATCH,
    RF_GROUP_SAMPLING,
    RF_GROUP_REPORTS,
    RF_GROUP_NOTHING, /* known from llama.cpp, change nothing here */
    RF_GROUP_LATER,   /* known, but not in this version */
    RF_N_GROUPS
} rf_option_group;

const rf_flag_set *rf_option_set(void);

/* ---- Readers of values (options_values.c). All: 0, or -1 with a sentence that names the flag, the value and what is
 * expected. */

int rf_option_notice(void *options, const rf_flag *row, const char *text, rf_error *err); /* once a row */
int rf_option_unescape(rf_options *o, rf_text *text, rf_error *err);

/* For RF_KIND_CUSTOM. */
int rf_option_set_layers(void *options, const rf_flag *row, const char *value, rf_error *err);
int rf_option_set_ratios(void *options, const rf_flag *row, const char *value, rf_error *err);
int rf_option_set_seed(void *options, const rf_flag *row, const char *value, rf_error *err);
int rf_option_set_threads(void *options, const rf_flag *row, const char *value, rf_error *err);
int rf_option_add_stop(void *options, const rf_flag *row, const char *value, rf_error *err);
int rf_option_set_neutral(void *options, const rf_flag *row, const char *value, rf_error *err);
int rf_option_set_no_escape(void *options, const rf_flag *row, const char *value, rf_error *err);

#endif
