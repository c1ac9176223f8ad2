#include "config.h"

#include "options.h"

#include <string.h>

#include "options_table.h"

#define WIDTH 100
#define INDENT 8

/* "  -m, --model FILE" */
static void print_names(FILE *out, const rf_option *row)
{
    for (size_t k = 0; k < RF_OPTION_NAMES && row->names[k]; k++)
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

void rf_options_print_help(FILE *out)
{
    size_t n;
    const rf_option *rows = rf_option_table(&n);

    fputs("rankflash: large language models on several MPI ranks, with DFlash2 drafts\n\n"
          "  mpirun -np 2 rankflash -m target.gguf -md drafter.gguf -p \"Where is Kenya?\"\n"
          "  rankflash --plan --ranks 4 -m target.gguf\n\n"
          "Defaults are in [brackets]. Given twice, the later value counts. Without -m a small demo pair runs.\n",
          out);
    for (rf_option_group group = 0; group < RF_N_GROUPS; group++) {
        fprintf(out, "\n%s:\n", rf_option_group_title(group));
        for (size_t i = 0; i < n; i++)
            if (rows[i].group == group) {
                print_names(out, &rows[i]);
                print_wrapped(out, rows[i].help);
            }
    }
    fputs("\nExit codes: 0 done, 2 usage, 3 model or input file, 4 out of memory, 5 MPI or device,\n"
          "128 + signal when interrupted.\n",
          out);
}

void rf_options_print_version(FILE *out)
{
    fprintf(out, "rankflash %s\n", PACKAGE_VERSION);
#ifdef RF_HAVE_MPI
    fputs("MPI: yes\n", out);
#else
    fputs("MPI: no (one rank)\n", out);
#endif
#ifdef RF_HAVE_HWLOC
    fputs("hwloc: yes\n", out);
#else
    fputs("hwloc: no\n", out);
#endif
}
