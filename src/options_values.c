/* Values of flags with a rule of their own, notices, escapes. */
#include "options_table.h"

#include <stdlib.h>
#include <string.h>

#define ALL_LAYERS 99 /* llama.cpp users write 99 or 999 for "all"; no network served here has that many */

static int out_of_memory(rf_error *err)
{
    return rf_fail(err, RF_ERR_MEMORY, "out of memory for the command line");
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

int rf_option_notice(void *options, const rf_flag *row, const char *text, rf_error *err)
{
    rf_options *o = options;
    const char *name = rf_flag_name(row);
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

/* ---- Flags with a rule of their own */

int rf_option_set_layers(void *options, const rf_flag *row, const char *value, rf_error *err)
{
    rf_options *o = options;
    int32_t *layers = (int32_t *)((char *)o + row->field);
    int64_t number = 0;

    if (strcmp(value, "all") == 0)
        number = INT32_MAX;
    else if (rf_flag_integer(value, &number) < 0 || number < 0)
        return rf_flag_bad_value(row, value, "all or a number of layers", err);
    *layers = number >= ALL_LAYERS ? RF_LAYERS_ALL : (int32_t)number;
    return *layers ? rf_option_notice(o, row, "layers are on the rank's GPU; where there is none, everything is on the CPU", err) : 0;
}

int rf_option_set_ratios(void *options, const rf_flag *row, const char *value, rf_error *err)
{
    rf_options *o = options;
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
        bool good = rf_flag_real(at, &end, &ratios[i]) == 0 && ratios[i] > 0;

        if (!good || (i + 1 < n ? *end != ',' && *end != '/' : *end != '\0')) {
            free(ratios);
            return rf_flag_bad_value(row, value, "positive numbers separated by , or /", err);
        }
        at = end + 1;
    }
    free(o->tensor_split);
    o->tensor_split = ratios;
    o->n_tensor_split = n;
    return 0;
}

int rf_option_set_seed(void *options, const rf_flag *row, const char *value, rf_error *err)
{
    rf_options *o = options;
    if (strcmp(value, "-1") == 0) {
        o->seed_given = false;
        return 0;
    }
    if (rf_flag_uint64(value, &o->seed) < 0)
        return rf_flag_bad_value(row, value, "-1 or a whole number from 0 to 18446744073709551615", err);
    o->seed_given = true;
    return 0;
}

int rf_option_set_threads(void *options, const rf_flag *row, const char *value, rf_error *err)
{
    rf_options *o = options;
    int64_t threads = 0;

    if (rf_flag_ranged(row, value, &threads, err) < 0)
        return -1;
    o->threads = (int32_t)threads;
    return 0;
}

int rf_option_add_stop(void *options, const rf_flag *row, const char *value, rf_error *err)
{
    rf_options *o = options;
    rf_text *grown;

    if (!*value)
        return rf_flag_bad_value(row, value, "a text that is not empty", err);
    grown = realloc(o->stop, (o->n_stop + 1) * sizeof *grown);
    if (!grown)
        return out_of_memory(err);
    o->stop = grown;
    o->stop[o->n_stop++] = (rf_text){value, strlen(value)};
    return 0;
}

int rf_option_set_neutral(void *options, const rf_flag *row, const char *value, rf_error *err)
{
    rf_options *o = options;
    double number;
    char *end;

    (void)o;
    if (rf_flag_real(value, &end, &number) < 0 || *end)
        return rf_flag_bad_value(row, value, "a number", err);
    if (number < row->real_low || number > row->real_low)
        return rf_fail(err, RF_ERR_USAGE, "%s %s: penalties are not in this version, only %g (none) is accepted",
                       rf_flag_name(row), value, row->real_low);
    return 0;
}

int rf_option_set_no_escape(void *options, const rf_flag *row, const char *value, rf_error *err)
{
    rf_options *o = options;
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
