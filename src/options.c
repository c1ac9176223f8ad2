#include "config.h"

#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "options_table.h"

#define FIRST_NAME 1000 /* getopt's values for long names: out of the way of '?' and ':' */

static void set_defaults(rf_options *o)
{
    *o = (rf_options){
        .spec_n_max = -1,
        .split = RF_SPLIT_TENSOR,
        .n_gpu_layers = RF_LAYERS_UNSET,
        .n_gpu_layers_draft = RF_LAYERS_UNSET,
        .n_ctx = -1,
        .type_k = 1,
        .type_v = 1,
        .type_k_draft = 1,
        .type_v_draft = 1,
        .fit = true,
        .batch = 512,
        .escape = true,
        .n_predict = -1,
        .temperature = 0.8,
        .top_k = 40,
        .top_p = 0.95,
        .min_p = 0.05,
    };
}

/* ---- The walk over argv */

/* Every name of every row for getopt; value FIRST_NAME + row. NULL when memory runs out; the caller frees. */
static struct option *long_names(void)
{
    size_t n_rows, n = 0;
    const rf_option *rows = rf_option_table(&n_rows);
    struct option *names = calloc(n_rows * RF_OPTION_NAMES + 1, sizeof *names);

    for (size_t r = 0; names && r < n_rows; r++)
        for (size_t k = 0; k < RF_OPTION_NAMES && rows[r].names[k]; k++)
            names[n++] = (struct option){.name = rows[r].names[k] + strspn(rows[r].names[k], "-"),
                                         .has_arg = rows[r].value ? required_argument : no_argument,
                                         .val = FIRST_NAME + (int)r};
    return names;
}

/* The row of exactly this name (of any number of dashes, without "=value"), or NULL. */
static const rf_option *exact_row(const char *argument)
{
    size_t n_rows;
    const rf_option *rows = rf_option_table(&n_rows);
    const char *name = argument + strspn(argument, "-");
    size_t length = strcspn(name, "=");

    if (name - argument > 2)
        return NULL;
    for (size_t r = 0; r < n_rows; r++)
        for (size_t k = 0; k < RF_OPTION_NAMES && rows[r].names[k]; k++) {
            const char *known = rows[r].names[k] + strspn(rows[r].names[k], "-");

            if (strlen(known) == length && memcmp(known, name, length) == 0)
                return &rows[r];
        }
    return NULL;
}

/* argument is a flag that getopt does not take, or takes for the abbreviation of `guess` (NULL: none). */
static int refuse(const char *argument, const rf_option *guess, rf_error *err)
{
    const rf_option *row = exact_row(argument);
    char shown[64];

    rf_text_printable((rf_text){argument, strcspn(argument, "=")}, shown, sizeof shown);
    if (row && !row->value)
        return rf_fail(err, RF_ERR_USAGE, "%s takes no value", shown);
    if (guess)
        return rf_fail(err, RF_ERR_USAGE, "unknown flag %s (did you mean %s?)", shown, guess->names[0]);
    return rf_fail(err, RF_ERR_USAGE, "unknown flag %s (--help lists them all)", shown);
}

/* Reads the flag that getopt found in `argument`; code is what getopt returned. */
static int take_flag(rf_options *o, int code, const char *argument, rf_error *err)
{
    size_t n_rows;
    const rf_option *rows = rf_option_table(&n_rows), *row;
    char shown[64];

    rf_text_printable((rf_text){argument, strlen(argument)}, shown, sizeof shown);
    if (code == 1)
        return rf_fail(err, RF_ERR_USAGE, "unexpected argument \"%s\": a prompt goes after -p, a model after -m",
                       shown);
    row = exact_row(argument);
    if (code == '?' || (code == ':' && !row))
        return refuse(argument, NULL, err);
    if (code == ':')
        return rf_fail(err, RF_ERR_USAGE, "%s needs a value: %s", shown, row->value);
    /* getopt accepts abbreviations; a flag added later would change what they mean. */
    if (row != &rows[code - FIRST_NAME])
        return refuse(argument, &rows[code - FIRST_NAME], err);
    return rf_option_read(o, row, optarg, err);
}

static int walk(rf_options *o, int argc, char **argv, const struct option *names, rf_error *err)
{
    optind = 0; /* start afresh (GNU) */
    opterr = 0;
    for (int at = 1; at < argc; at = optind) {
        /* "-": arguments come in order, plain ones as code 1; ":": a missing value is told from an unknown flag. */
        int code = getopt_long_only(argc, argv, "-:", names, NULL);

        if (code == -1) {
            if (optind < argc)
                return take_flag(o, 1, argv[optind], err);
            break;
        }
        if (take_flag(o, code, argv[at], err) < 0)
            return -1;
        if (o->action == RF_ACTION_HELP || o->action == RF_ACTION_VERSION)
            break;
    }
    return 0;
}

/* ---- What must fit together */

static int check_model(const rf_options *o, rf_error *err)
{
    if (o->draft_model && !o->model)
        return rf_fail(err, RF_ERR_USAGE, "-md gives a drafter, but -m no model for it");
    if (o->spec_type == RF_SPEC_DFLASH && o->model && !o->draft_model)
        return rf_fail(err, RF_ERR_USAGE, "--spec-type draft-dflash needs a drafter: add -md FILE");
    if (o->spec_n_max >= 0 && o->spec_n_min > o->spec_n_max)
        return rf_fail(err, RF_ERR_USAGE, "--spec-draft-n-min %d is more than --spec-draft-n-max %d",
                       (int)o->spec_n_min, (int)o->spec_n_max);
    return 0;
}

static bool partial(int32_t layers)
{
    return layers > 0 && layers != RF_LAYERS_ALL;
}

static int check_split(const rf_options *o, rf_error *err)
{
    if (o->split == RF_SPLIT_NONE && o->n_tensor_split > 1)
        return rf_fail(err, RF_ERR_USAGE, "--tensor-split has %zu shares, but --split-mode none is one rank alone",
                       o->n_tensor_split);
    if (o->split == RF_SPLIT_TENSOR && (partial(o->n_gpu_layers) || partial(o->n_gpu_layers_draft)))
        return rf_fail(err, RF_ERR_USAGE,
                       "%s %d: with --split-mode tensor all layers are on the device or none: use all or 0",
                       partial(o->n_gpu_layers) ? "--n-gpu-layers" : "--n-gpu-layers-draft",
                       (int)(partial(o->n_gpu_layers) ? o->n_gpu_layers : o->n_gpu_layers_draft));
    if (o->plan_ranks && o->action != RF_ACTION_PLAN)
        return rf_fail(err, RF_ERR_USAGE,
                       "--ranks goes with --plan; the launcher (mpirun -np) says how many ranks run");
    return 0;
}

static int check_text(const rf_options *o, rf_error *err)
{
    if (o->prompt.data && o->prompt_file)
        return rf_fail(err, RF_ERR_USAGE, "-p and -f both give the prompt: use one of them");
    if (o->raw && o->system.data)
        return rf_fail(err, RF_ERR_USAGE, "--system goes into the chat template, which --raw leaves out");
    if (o->raw && o->reasoning != RF_REASONING_AUTO)
        return rf_fail(err, RF_ERR_USAGE, "--reasoning goes into the chat template, which --raw leaves out");
    return 0;
}

static int do_escapes(rf_options *o, rf_error *err)
{
    if (!o->escape)
        return 0;
    if (rf_option_unescape(o, &o->prompt, err) < 0 || rf_option_unescape(o, &o->system, err) < 0)
        return -1;
    for (size_t i = 0; i < o->n_stop; i++)
        if (rf_option_unescape(o, &o->stop[i], err) < 0)
            return -1;
    return 0;
}

int rf_options_parse(rf_options *o, int argc, char **argv, rf_error *err)
{
    struct option *names = long_names();
    int result;

    set_defaults(o);
    if (!names)
        return rf_fail(err, RF_ERR_MEMORY, "out of memory for the command line");
    result = walk(o, argc, argv, names, err);
    free(names);
    if (result < 0 || o->action == RF_ACTION_HELP || o->action == RF_ACTION_VERSION)
        return result;
    if (check_model(o, err) < 0 || check_split(o, err) < 0 || check_text(o, err) < 0)
        return -1;
    return do_escapes(o, err);
}

void rf_options_free(rf_options *o)
{
    for (size_t i = 0; i < o->n_owned; i++)
        free(o->owned[i]);
    free(o->owned);
    free(o->notices);
    free(o->tensor_split);
    free(o->stop);
    *o = (rf_options){0};
}
