/* The pages of a program list the flags of its table, in its order and words.
 *
 * `test_options_docs PROGRAM markdown` and `test_options_docs PROGRAM man` print the list as it should be, to put into
 * the documents. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../rank/bench.h"
#include "check.h"
#include "options_table.h"
#include "synth_options.h"

typedef struct {
    const char *program, *markdown, *man;
    const rf_flag_set *(*set)(void);
} pages;

static const pages programs[] = {
    {"rankflash", RF_DOCS "/cli.md", RF_DOCS "/rankflash.1", rf_option_set},
    {"rankflash-synth", RF_DOCS "/synth.md", RF_DOCS "/rankflash-synth.1", rf_synth_flags},
    {"rankflash-bench", RF_DOCS "/bench.md", RF_DOCS "/rankflash-bench.1", bench_flag_set},
};

static void escaped(FILE *out, const char *text, const char *special, const char *with)
{
    for (; *text; text++)
        if (strchr(special, *text))
            fprintf(out, "%s%c", with, *text);
        else
            fputc(*text, out);
}

static void markdown_row(FILE *out, const rf_flag *row)
{
    fputs("- ", out);
    for (size_t k = 0; k < RF_FLAG_NAMES && row->names[k]; k++)
        fprintf(out, "%s`%s`", k ? ", " : "", row->names[k]);
    if (row->value)
        fprintf(out, " `%s`", row->value);
    fputs(": ", out);
    escaped(out, row->help, "\\<*_`", "\\");
    fputc('\n', out);
}

/* Hyphens as minus signs, backslashes as such: what is typed must be copied from the page as it is. */
static void roff(FILE *out, const char *text)
{
    for (; *text; text++)
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else if (*text == '\'')
            fputs("\\(aq", out);
        else
            fputc(*text, out);
}

static void man_row(FILE *out, const rf_flag *row)
{
    fputs(".TP\n", out);
    for (size_t k = 0; k < RF_FLAG_NAMES && row->names[k]; k++) {
        fputs(k ? ", \\fB" : "\\fB", out);
        roff(out, row->names[k]);
        fputs("\\fR", out);
    }
    if (row->value) {
        fputs(" \\fI", out);
        roff(out, row->value);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    roff(out, row->help);
    fputc('\n', out);
}

static void print_list(const rf_flag_set *set, FILE *out, const char *heading,
                       void (*print_row)(FILE *, const rf_flag *), const char *gap)
{
    for (int group = 0; group < set->n_groups; group++) {
        if (!set->groups[group])
            continue;
        fprintf(out, "%s %s\n%s", heading, set->groups[group], gap);
        for (size_t i = 0; i < set->n_rows; i++)
            if (set->rows[i].group == group)
                print_row(out, &set->rows[i]);
        fputs(gap, out);
    }
}

static void print_markdown(const rf_flag_set *set, FILE *out)
{
    print_list(set, out, "###", markdown_row, "\n");
}

static void print_man(const rf_flag_set *set, FILE *out)
{
    print_list(set, out, ".SS", man_row, "");
}

static char *read_file(const char *path)
{
    char *text = calloc(1, 1 << 18);
    FILE *file = fopen(path, "r");

    if (!file || !text)
        fail_msg("cannot read %s", path);
    fread(text, 1, (1 << 18) - 1, file);
    fclose(file);
    return text;
}

/* The document holds the list as one piece, and no line elsewhere that looks like a flag's. */
static void holds_the_list(const char *path, const rf_flag_set *set, void (*print)(const rf_flag_set *, FILE *),
                           const char *mark)
{
    char *document = read_file(path), *list, *found;
    size_t length, marks = 0;
    FILE *out = open_memstream(&list, &length);

    print(set, out);
    fclose(out);
    found = strstr(document, list);
    if (!found) { /* name the first line that differs */
        for (char *line = strtok(list, "\n"); line; line = strtok(NULL, "\n"))
            if (!strstr(document, line))
                fail_msg("%s lacks the line:\n%s", path, line);
        fail_msg("%s has the flags in another order", path);
    }
    memset(found, ' ', length);
    for (const char *at = document; (at = strstr(at, mark)); at++)
        marks++;
    assert_int_equal(marks, 0);
    free(list);
    free(document);
}

static void markdown_pages(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        holds_the_list(programs[i].markdown, programs[i].set(), print_markdown, "\n- `-");
}

static void manual_pages(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        holds_the_list(programs[i].man, programs[i].set(), print_man, "\n.TP\n\\fB\\-");
}

static int print_for(const char *program, const char *kind)
{
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (strcmp(programs[i].program, program) == 0) {
            (strcmp(kind, "man") == 0 ? print_man : print_markdown)(programs[i].set(), stdout);
            return 0;
        }
    return 2;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(markdown_pages),
        cmocka_unit_test(manual_pages),
    };

    if (argc == 3)
        return print_for(argv[1], argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
