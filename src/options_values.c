/* Values of flags: read, checked, stored. */
#include "options_table.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALL_LAYERS 99 /* llama.cpp users write 99 or 999 for "all"; no network served here has that many */

static const char *name_of(const rf_option *row)
{
    size_t last = 0;

    while (last + 1 < RF_OPTION_NAMES && row->names[last + 1])
        last++;
    return row->names[last];
}

static int bad_value(const rf_option *row, const char *value, const char *expected, rf_error *err)
{
    char shown[64];

    return rf_fail(err, RF_ERR_USAGE, "%s %s: expected %s", name_of(row),
                   *value ? rf_text_printable((rf_text){value, strlen(value)}, shown, sizeof shown) : "\"\"", expected);
}

static int out_of_memory(rf_error *err)
{
    return rf_fail(err, RF_ERR_MEMORY, "out of memory for the command line");
}

/* A whole decimal number, nothing before or after it. */
static int read_integer(const char *text, int64_t *out)
{
    char *end;
    long long value;

    if (!strchr("-0123456789", *text) || !*text)
        return -1;
    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno || *end || end == text)
        return -1;
    *out = value;
    return 0;
}

/* A finite number that ends at *end. */
static int read_real(const char *text, char **end, double *out)
{
    if (!*text || !strchr("-.0123456789", *text))
        return -1;
    errno = 0;
    *out = strtod(text, end);
    return *end == text || errno == ERANGE || !isfinite(*out) ? -1 : 0;
}

static int read_ranged(const rf_option *row, const char *value, int64_t *out, rf_error *err)
{
    char expected[80];

    if (read_integer(value, out) == 0 && *out >= row->low && *out <= row->high)
        return 0;
    if (row->high >= INT32_MAX)
        snprintf(expected, sizeof expected, "a whole number of at least %lld", (long long)row->low);
    else
        snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)row->low,
                 (long long)row->high);
    return bad_value(row, value, expected, err);
}

static int read_ranged_real(const rf_option *row, const char *value, double *out, rf_error *err)
{
    char *end, expected[80];

    if (read_real(value, &end, out) == 0 && !*end && *out >= row->real_low && *out <= row->real_high)
        return 0;
    if (row->real_high > 1e6)
        snprintf(expected, sizeof expected, "a number of at least %g", row->real_low);
    else
        snprintf(expected, sizeof expected, "a number from %g to %g", row->real_low, row->real_high);
    return bad_value(row, value, expected, err);
}

static int read_choice(const rf_option *row, const char *value, int *out, rf_error *err)
{
    char expected[120] = "";

    for (const rf_option_choice *c = row->choices; c->word; c++) {
        size_t used = strlen(expected);

        if (strcmp(c->word, value) == 0 && !c->later) {
            *out = c->value;
            return 0;
        }
        if (!c->later)
            snprintf(expected + used, sizeof expected - used, "%s%s", used ? ", " : "", c->word);
    }
    for (const rf_option_choice *c = row->choices; c->word; c++)
        if (strcmp(c->word, value) == 0)
            return rf_fail(err, RF_ERR_USAGE, "%s %s is not in this version: it has %s", name_of(row), value, expected);
    return bad_value(row, value, expected, err);
}

/* Keeps memory until rf_options_free. Frees it and returns NULL when the list cannot grow. */
static char *own(rf_options *o, char *memory)
{
    char **grown = memory ? realloc(o->owned, (o->n_owned + 1) * sizeof *grown) : NULL;

    if (!grown) {
        free(memory);
        return NULL;
    }
    o->owned = grown;
    o->owned[o->n_owned++] = memory;
    return memory;
}

int rf_option_notice(rf_options *o, const rf_option *row, const char *text, rf_error *err)
{
    const char *name = name_of(row);
    size_t length = strlen(name) + 2 + strlen(text) + 1;
    char *line, **grown;

    for (size_t i = 0; i < o->n_notices; i++)
        if (strncmp(o->notices[i], name, strlen(name)) == 0 && o->notices[i][strlen(name)] == ':')
            return 0;
    grown = realloc(o->notices, (o->n_notices + 1) * sizeof *grown);
    if (!grown)
        return out_of_memory(err);
    o->notices = grown;
    line = own(o, malloc(length));
    if (!line)
        return out_of_memory(err);
    snprintf(line, length, "%s: %s", name, text);
    o->notices[o->n_notices++] = line;
    return 0;
}

static int read_ignored(const rf_option *row, const char *value, rf_error *err)
{
    int64_t number;

    return row->value ? read_ranged(row, value, &number, err) : 0;
}

int rf_option_read(rf_options *o, const rf_option *row, const char *value, rf_error *err)
{
    void *field = (char *)o + row->field;
    int64_t number = 0;
    int choice = 0, result = 0;

    switch (row->kind) {
    case RF_KIND_TRUE:
        *(bool *)field = true;
        break;
    case RF_KIND_ACTION:
        o->action = (rf_action)row->low;
        break;
    case RF_KIND_INT32:
        result = read_ranged(row, value, &number, err);
        *(int32_t *)field = (int32_t)number;
        break;
    case RF_KIND_INT64:
        result = read_ranged(row, value, field, err);
        break;
    case RF_KIND_REAL:
        result = read_ranged_real(row, value, field, err);
        break;
    case RF_KIND_STRING:
        *(const char **)field = value;
        break;
    case RF_KIND_TEXT:
        *(rf_text *)field = (rf_text){value, strlen(value)};
        break;
    case RF_KIND_CHOICE:
        result = read_choice(row, value, &choice, err);
        memcpy(field, &choice, sizeof choice);
        break;
    case RF_KIND_ON_OFF:
        result = read_choice(row, value, &choice, err);
        *(bool *)field = choice;
        break;
    case RF_KIND_CUSTOM:
        result = row->set(o, row, value, err);
        break;
    case RF_KIND_IGNORED:
        result = read_ignored(row, value, err);
        break;
    case RF_KIND_LATER:
        return rf_fail(err, RF_ERR_USAGE, "%s (%s) is not in this version", name_of(row), row->help);
    }
    return result == 0 && row->notice ? rf_option_notice(o, row, row->notice, err) : result;
}

/* ---- Flags with a rule of their own */

int rf_option_set_layers(rf_options *o, const rf_option *row, const char *value, rf_error *err)
{
    int32_t *layers = (int32_t *)((char *)o + row->field);
    int64_t number = 0;

    if (strcmp(value, "all") == 0)
        number = INT32_MAX;
    else if (read_integer(value, &number) < 0 || number < 0)
        return bad_value(row, value, "all or a number of layers", err);
    *layers = number >= ALL_LAYERS ? RF_LAYERS_ALL : (int32_t)number;
    return *layers ? rf_option_notice(o, row, "this build has no GPU code, everything is on the CPU", err) : 0;
}

int rf_option_set_ratios(rf_options *o, const rf_option *row, const char *value, rf_error *err)
{
    size_t n = 1;
    const char *at = value;
    double *ratios;

    for (const char *c = value; *c; c++)
        n += *c == ',' || *c == '/';
    ratios = malloc(n * sizeof *ratios);
    if (!ratios)
        return out_of_memory(err);
    for (size_t i = 0; i < n; i++) {
        char *end;
        bool good = read_real(at, &end, &ratios[i]) == 0 && ratios[i] > 0;

        if (!good || (i + 1 < n ? *end != ',' && *end != '/' : *end != '\0')) {
            free(ratios);
            return bad_value(row, value, "positive numbers separated by , or /", err);
        }
        at = end + 1;
    }
    free(o->tensor_split);
    o->tensor_split = ratios;
    o->n_tensor_split = n;
    return 0;
}

int rf_option_set_seed(rf_options *o, const rf_option *row, const char *value, rf_error *err)
{
    char *end;

    if (strcmp(value, "-1") == 0) {
        o->seed_given = false;
        return 0;
    }
    errno = 0;
    o->seed = strtoull(value, &end, 10);
    if (*value < '0' || *value > '9' || errno || *end)
        return bad_value(row, value, "-1 or a whole number from 0 to 18446744073709551615", err);
    o->seed_given = true;
    return 0;
}

int rf_option_set_threads(rf_options *o, const rf_option *row, const char *value, rf_error *err)
{
    int64_t threads = 0;

    if (read_ranged(row, value, &threads, err) < 0)
        return -1;
    o->threads = (int32_t)threads;
    return 0;
}

int rf_option_add_stop(rf_options *o, const rf_option *row, const char *value, rf_error *err)
{
    rf_text *grown;

    if (!*value)
        return bad_value(row, value, "a text that is not empty", err);
    grown = realloc(o->stop, (o->n_stop + 1) * sizeof *grown);
    if (!grown)
        return out_of_memory(err);
    o->stop = grown;
    o->stop[o->n_stop++] = (rf_text){value, strlen(value)};
    return 0;
}

int rf_option_set_parallel(rf_options *o, const rf_option *row, const char *value, rf_error *err)
{
    int64_t number;

    (void)o;
    if (read_integer(value, &number) < 0 || number < 1)
        return bad_value(row, value, "a whole number of at least 1", err);
    if (number > 1)
        return rf_fail(err, RF_ERR_USAGE, "%s %s is not in this version: it has 1", name_of(row), value);
    return 0;
}

int rf_option_set_neutral(rf_options *o, const rf_option *row, const char *value, rf_error *err)
{
    double number;
    char *end;

    (void)o;
    if (read_real(value, &end, &number) < 0 || *end)
        return bad_value(row, value, "a number", err);
    if (number < row->real_low || number > row->real_low)
        return rf_fail(err, RF_ERR_USAGE, "%s %s: penalties are not in this version, only %g (none) is accepted",
                       name_of(row), value, row->real_low);
    return 0;
}

int rf_option_set_no_escape(rf_options *o, const rf_option *row, const char *value, rf_error *err)
{
    (void)row;
    (void)value;
    (void)err;
    o->escape = false;
    return 0;
}

/* ---- Escapes */

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *at = c ? strchr(digits, c) : NULL;

    return !at ? -1 : at - digits < 16 ? (int)(at - digits) : (int)(at - digits) - 6;
}

/* Reads the escape after a backslash at s[0 .. n). Returns its length and the byte, or 0 if it is none. */
static size_t read_escape(const char *s, size_t n, char *byte)
{
    static const char names[] = "nrt\\\"'", bytes[] = "\n\r\t\\\"'";
    const char *at = n && *s ? strchr(names, *s) : NULL;

    if (at) {
        *byte = bytes[at - names];
        return 1;
    }
    if (n < 3 || *s != 'x' || hex_digit(s[1]) < 0 || hex_digit(s[2]) < 0)
        return 0;
    *byte = (char)(hex_digit(s[1]) * 16 + hex_digit(s[2]));
    return 3;
}

int rf_option_unescape(rf_options *o, rf_text *text, rf_error *err)
{
    char *out;
    size_t length = 0;

    if (!text->data || !memchr(text->data, '\\', text->length))
        return 0;
    out = own(o, malloc(text->length));
    if (!out)
        return out_of_memory(err);
    for (size_t at = 0; at < text->length;) {
        char byte = text->data[at++];

        if (byte == '\\')
            at += read_escape(text->data + at, text->length - at, &byte);
        out[length++] = byte;
    }
    *text = (rf_text){out, length};
    return 0;
}
