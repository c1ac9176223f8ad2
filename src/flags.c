#include "config.h"

#include "flags.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_NAME 1000 /* getopt's values for long names: out of the way of '?' and ':' */
#define WIDTH 100
#define INDENT 8

/* ---- The walk over argv */

/* Every name of every row for getopt; value FIRST_NAME + row. NULL when memory runs out; the caller frees. */
static struct option *long_names(const rf_flag_set *set)
{
    size_t n = 0;
    struct option *names = calloc(set->n_rows * RF_FLAG_NAMES + 1, sizeof *names);

    for (size_t r = 0; names && r < set->n_rows; r++)
        for (size_t k = 0; k < RF_FLAG_NAMES && set->rows[r].names[k]; k++)
            names[n++] = (struct option){.name = set->rows[r].names[k] + strspn(set->rows[r].names[k], "-"),
                                         .has_arg = set->rows[r].value ? required_argument : no_argument,
                                         .val = FIRST_NAME + (int)r};
    return names;
}

/* The row of exactly this name (of any number of dashes, without "=value"), or NULL. */
static const rf_flag *exact_row(const rf_flag_set *set, const char *argument)
{
    const char *name = argument + strspn(argument, "-");
    size_t length = strcspn(name, "=");

    if (name - argument > 2)
        return NULL;
    for (size_t r = 0; r < set->n_rows; r++)
        for (size_t k = 0; k < RF_FLAG_NAMES && set->rows[r].names[k]; k++) {
            const char *known = set->rows[r].names[k] + strspn(set->rows[r].names[k], "-");

            if (strlen(known) == length && memcmp(known, name, length) == 0)
                return &set->rows[r];
        }
    return NULL;
}

/* argument is a flag that getopt does not take, or takes for the abbreviation of `guess` (NULL: none). */
static int refuse(const rf_flag_set *set, const char *argument, const rf_flag *guess, rf_error *err)
{
    const rf_flag *row = exact_row(set, argument);
    char shown[64];

    rf_text_printable((rf_text){argument, strcspn(argument, "=")}, shown, sizeof shown);
    if (row && !row->value)
        return rf_fail(err, RF_ERR_USAGE, "%s takes no value", shown);
    if (guess)
        return rf_fail(err, RF_ERR_USAGE, "unknown flag %s (did you mean %s?)", shown, guess->names[0]);
    return rf_fail(err, RF_ERR_USAGE, "unknown flag %s (--help lists them all)", shown);
}

/* Reads the flag that getopt found in `argument`, and says which row it is; code is what getopt returned. */
static int take_flag(const rf_flag_set *set, void *options, int code, const char *argument, const rf_flag **row,
                     rf_error *err)
{
    char shown[64];

    rf_text_printable((rf_text){argument, strlen(argument)}, shown, sizeof shown);
    if (code == 1)
        return rf_fail(err, RF_ERR_USAGE, "unexpected argument \"%s\": %s", shown, set->plain);
    *row = exact_row(set, argument);
    if (code == '?' || (code == ':' && !*row))
        return refuse(set, argument, NULL, err);
    if (code == ':')
        return rf_fail(err, RF_ERR_USAGE, "%s needs a value: %s", shown, (*row)->value);
    /* getopt accepts abbreviations; a flag added later would change what they mean. */
    if (*row != &set->rows[code - FIRST_NAME])
        return refuse(set, argument, &set->rows[code - FIRST_NAME], err);
    return rf_flag_read(set, options, *row, optarg, err);
}

static int walk(const rf_flag_set *set, void *options, int argc, char **argv, const struct option *names,
                rf_error *err)
{
    const rf_flag *row = NULL;

    optind = 0; /* start afresh (GNU) */
    opterr = 0;
    for (int at = 1; at < argc; at = optind) {
        /* "-": arguments come in order, plain ones as code 1; ":": a missing value is told from an unknown flag. */
        int code = getopt_long_only(argc, argv, "-:", names, NULL);

        if (code == -1) {
            if (optind < argc)
                return take_flag(set, options, 1, argv[optind], &row, err);
            break;
        }
        if (take_flag(set, options, code, argv[at], &row, err) < 0)
            return -1;
        if (row->kind == RF_KIND_STOP)
            break;
    }
    return 0;
}

int rf_flags_parse(const rf_flag_set *set, void *options, int argc, char **argv, rf_error *err)
{
    struct option *names = long_names(set);
    int result;

    if (!names)
        return rf_fail(err, RF_ERR_MEMORY, "out of memory for the command line");
    result = walk(set, options, argc, argv, names, err);
    free(names);
    return result;
}

/* ---- Help */

/* "  -m, --model FILE" */
static void print_names(FILE *out, const rf_flag *row)
{
    for (size_t k = 0; k < RF_FLAG_NAMES && row->names[k]; k++)
        fprintf(out, "%s%s", k ? ", " : "  ", row->names[k]);
    fprintf(out, "%s%s\n", row->value ? " " : "", row->value ? row->value : "");
}

/* Words of text, INDENT columns in, lines of at most WIDTH columns. */
static void print_wrapped(FILE *out, const char *text)
{
    size_t column = 0;

    while (*text) {
        size_t length = strcspn(text, " ");

        if (column && column + 1 + length > WIDTH) {
            fputc('\n', out);
            column = 0;
        }
        fprintf(out, "%*s%.*s", column ? 1 : INDENT, "", (int)length, text);
        column += (column ? 1 : INDENT) + length;
        text += length;
        text += *text == ' ';
    }
    fputc('\n', out);
}

void rf_flags_print(const rf_flag_set *set, FILE *out)
{
    for (int group = 0; group < set->n_groups; group++) {
        if (!set->groups[group])
            continue;
        fprintf(out, "\n%s:\n", set->groups[group]);
        for (size_t i = 0; i < set->n_rows; i++)
            if (set->rows[i].group == group) {
                print_names(out, &set->rows[i]);
                print_wrapped(out, set->rows[i].help);
            }
    }
}
