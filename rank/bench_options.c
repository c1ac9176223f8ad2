/* The command line: flags of its own, and those of rankflash that choose model, devices and memory. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "options_table.h"

#define MAX_ROWS 64 /* of the table */

/* "1,2,4": whole numbers from row->low to row->high, ascending. */
static int set_list(void *options, const rf_flag *row, const char *value, rf_error *err)
{
    bench_list *list = (bench_list *)(void *)((char *)options + row->field);
    char expected[120];
    const char *at = value;

    snprintf(expected, sizeof expected, "at most %d ascending whole numbers from %lld to %lld, separated by commas",
             BENCH_LIST, (long long)row->low, (long long)row->high);
    list->n = 0;
    for (;;) {
        unsigned long long number;
        char *end;

        errno = 0;
        number = strtoull(at, &end, 10);
        if (*at < '0' || *at > '9' || errno || number < (unsigned long long)row->low ||
            number > (unsigned long long)row->high || list->n == BENCH_LIST ||
            (list->n && number <= list->value[list->n - 1]) || (*end && *end != ','))
            return rf_flag_bad_value(row, value, expected, err);
        list->value[list->n++] = (size_t)number;
        if (!*end)
            return 0;
        at = end + 1;
    }
}

#define FIELD(name)     .field = offsetof(bench_options, name)
#define RANGE(from, to) .low = (from), .high = (to)

static const rf_flag own[] = {
    {.names = {"-p", "--n-prompt"},
     .kind = RF_KIND_CUSTOM,
     .value = "N,...",
     FIELD(prefill),
     RANGE(1, 1 << 20),
     .set = set_list,
     .help = "lengths of prompts to process [128,512]"},
    {.names = {"-d", "--n-depth"},
     .kind = RF_KIND_CUSTOM,
     .value = "N,...",
     FIELD(depths),
     RANGE(0, 1 << 24),
     .set = set_list,
     .help = "positions already in the caches when decoding, verifying and drafting; they are filled with numbers, not "
             "computed [0,4096, as far as the model was trained]"},
    {.names = {"--rows"},
     .kind = RF_KIND_CUSTOM,
     .value = "N,...",
     FIELD(rows),
     RANGE(1, RF_MAX_BLOCK),
     .set = set_list,
     .help = "rows of a verify step [1,2,4,8,16]"},
    {.names = {"--accept"},
     .kind = RF_KIND_CUSTOM,
     .value = "K,...",
     FIELD(accept),
     RANGE(0, RF_MAX_BLOCK - 1),
     .set = set_list,
     .help = "replay draft-verify rounds as if K drafts were accepted in each [none, and all of them]"},
    {.names = {"--prompts"},
     .kind = RF_KIND_STRING,
     .value = "FILE",
     FIELD(prompts),
     .help = "also continue these prompts greedily with every drafter: a JSON array of lists of token ids, or of "
             "objects with such a list as \"ids\" [none]"},
    {.names = {"-r", "--repetitions"},
     .kind = RF_KIND_INT32,
     .value = "N",
     FIELD(repetitions),
     RANGE(1, 1000),
     .help = "turns over all figures [5; with --quick 3]"},
    {.names = {"--quick"}, .kind = RF_KIND_TRUE, FIELD(quick), .help = "fewer figures and turns, in a few seconds"},
    {.names = {"--json"},
     .kind = RF_KIND_ACTION,
     FIELD(format),
     RANGE(BENCH_JSON, 0),
     .help = "print one JSON object instead of text"},
    {.names = {"--csv"},
     .kind = RF_KIND_ACTION,
     FIELD(format),
     RANGE(BENCH_CSV, 0),
     .help = "print comma-separated values instead of text"},
    {.names = {"-o", "--output"},
     .kind = RF_KIND_STRING,
     .value = "FILE",
     FIELD(output),
     .help = "also write the JSON object to FILE"},
    {.names = {"--compare"},
     .kind = RF_KIND_STRING,
     .value = "FILE",
     FIELD(compare),
     .help = "print, too, how percentages of limits and costs of figures in others changed since FILE, an earlier "
             "--json"},
    {.names = {"--tolerance"},
     .kind = RF_KIND_REAL,
     .value = "PERCENT",
     FIELD(tolerance),
     .real_low = 0,
     .real_high = 1000,
     .help = "with --compare: end with exit code 1 if one of them is worse by more than this"},
};

#define N_OWN (sizeof own / sizeof *own)

/* Which flags of rankflash mean something here: -c follows from the depths, text and sampling play no part. */
static bool serves(const rf_flag *row)
{
    static const char *const others[] = {"--spec-draft-n-max", "--verbose", "--version", "-h"};

    if (row->group == RF_GROUP_MODEL || row->group == RF_GROUP_DEVICES)
        return true;
    if (row->group == RF_GROUP_MEMORY)
        return strcmp(row->names[0], "-c") != 0 && strcmp(row->names[0], "--fit") != 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(row->names[0], others[i]) == 0)
            return true;
    return false;
}

const rf_flag_set *bench_flag_set(void)
{
    static rf_flag rows[MAX_ROWS];
    static const char *titles[RF_N_GROUPS + 1] = {"Measurements"};
    static rf_flag_set set = {.rows = rows,
                              .groups = titles,
                              .n_groups = RF_GROUP_REPORTS + 2,
                              .plain = "a model goes after -m",
                              .notice = rf_option_notice};
    const rf_flag_set *engine = rf_option_set();

    set.n_rows = N_OWN;
    memcpy(rows, own, sizeof own);
    for (size_t i = 0; i < engine->n_rows && set.n_rows < MAX_ROWS; i++)
        if (serves(&engine->rows[i])) {
            rows[set.n_rows] = engine->rows[i];
            rows[set.n_rows].group++;
            titles[rows[set.n_rows].group] = engine->groups[engine->rows[i].group];
            set.n_rows++;
        }
    return &set;
}

static void set_defaults(bench_options *o)
{
    static const bench_list prefill = {{128, 512}, 2}, depths = {{0, 4096}, 2}, rows = {{1, 2, 4, 8, 16}, 5},
                            quick_prefill = {{128}, 1}, quick_depths = {{0}, 1}, quick_rows = {{1, 8, 16}, 3};

    o->depths_given = o->depths.n > 0;
    o->accept_given = o->accept.n > 0;
    if (!o->prefill.n)
        o->prefill = o->quick ? quick_prefill : prefill;
    if (!o->depths.n)
        o->depths = o->quick ? quick_depths : depths;
    if (!o->rows.n)
        o->rows = o->quick ? quick_rows : rows;
    if (!o->repetitions)
        o->repetitions = o->quick ? 3 : 5;
}

int bench_options_parse(bench_options *o, int argc, char **argv, rf_error *err)
{
    *o = (bench_options){.tolerance = -1};
    rf_options_defaults(&o->engine);
    if (rf_flags_parse(bench_flag_set(), o, argc, argv, err) != 0)
        return -1;
    if (o->engine.action != RF_ACTION_RUN)
        return 0;
    if (rf_options_check(&o->engine, err) != 0)
        return -1;
    if (o->tolerance >= 0 && !o->compare)
        return rf_fail(err, RF_ERR_USAGE, "--tolerance goes with --compare");
    set_defaults(o);
    o->engine.time_ops = true;
    o->engine.temperature = 0;
    return 0;
}

void bench_options_free(bench_options *o)
{
    rf_options_free(&o->engine);
}

void bench_options_help(FILE *out)
{
    fputs("rankflash-bench: speed of rankflash on this machine, beside what the machine can do\n\n"
          "  rankflash-bench -m target.gguf -md drafter.gguf -d 0,4096,32768\n"
          "  mpirun -np 2 rankflash-bench --json > now.json\n\n"
          "Defaults are in [brackets]. Given twice, the later value counts. Without -m the demo pair is measured.\n",
          out);
    rf_flags_print(bench_flag_set(), out);
    fputs("\nExit codes: those of rankflash; 1: --tolerance was exceeded.\n", out);
}
