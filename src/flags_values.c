/* Values of flags: read, checked, stored. */
#include "flags.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *rf_flag_name(const rf_flag *row)
{
    size_t last = 0;

    while (last + 1 < RF_FLAG_NAMES && row->names[last + 1])
        last++;
    return row->names[last];
}

int rf_flag_bad_value(const rf_flag *row, const char *value, const char *expected, rf_error *err)
{
    char shown[64];

    return rf_fail(err, RF_ERR_USAGE, "%s %s: expected %s", rf_flag_name(row),
                   *value ? rf_text_printable((rf_text){value, strlen(value)}, shown, sizeof shown) : "\"\"", expected);
}

/* A whole decimal number, nothing before or after it. */
int rf_flag_integer(const char *text, int64_t *out)
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
int rf_flag_real(const char *text, char **end, double *out)
{
    if (!*text || !strchr("-.0123456789", *text))
        return -1;
    errno = 0;
    *out = strtod(text, end);
    return *end == text || errno == ERANGE || !isfinite(*out) ? -1 : 0;
}

int rf_flag_uint64(const char *text, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text < '0' || *text > '9' || errno || *end ? -1 : 0;
}

int rf_flag_ranged(const rf_flag *row, const char *value, int64_t *out, rf_error *err)
{
    char expected[80];

    if (rf_flag_integer(value, out) == 0 && *out >= row->low && *out <= row->high)
        return 0;
    if (row->high >= INT32_MAX)
        snprintf(expected, sizeof expected, "a whole number of at least %lld", (long long)row->low);
    else
        snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)row->low,
                 (long long)row->high);
    return rf_flag_bad_value(row, value, expected, err);
}

static int read_ranged_real(const rf_flag *row, const char *value, double *out, rf_error *err)
{
    char *end, expected[80];

    if (rf_flag_real(value, &end, out) == 0 && !*end && *out >= row->real_low && *out <= row->real_high)
        return 0;
    if (row->real_high > 1e6)
        snprintf(expected, sizeof expected, "a number of at least %g", row->real_low);
    else
        snprintf(expected, sizeof expected, "a number from %g to %g", row->real_low, row->real_high);
    return rf_flag_bad_value(row, value, expected, err);
}

static int read_choice(const rf_flag *row, const char *value, int *out, rf_error *err)
{
    char expected[120] = "";

    for (const rf_flag_choice *c = row->choices; c->word; c++) {
        size_t used = strlen(expected);

        if (strcmp(c->word, value) == 0 && !c->later) {
            *out = c->value;
            return 0;
        }
        if (!c->later)
            snprintf(expected + used, sizeof expected - used, "%s%s", used ? ", " : "", c->word);
    }
    for (const rf_flag_choice *c = row->choices; c->word; c++)
        if (strcmp(c->word, value) == 0)
            return rf_fail(err, RF_ERR_USAGE, "%s %s is not in this version: it has %s", rf_flag_name(row), value, expected);
    return rf_flag_bad_value(row, value, expected, err);
}

static int read_ignored(const rf_flag *row, const char *value, rf_error *err)
{
    int64_t number;

    return row->value ? rf_flag_ranged(row, value, &number, err) : 0;
}

int rf_flag_read(const rf_flag_set *set, void *options, const rf_flag *row, const char *value, rf_error *err)
{
    void *field = (char *)options + row->field;
    int64_t number = 0;
    int choice = 0, result = 0;

    switch (row->kind) {
    case RF_KIND_TRUE:
        *(bool *)field = true;
        break;
    case RF_KIND_ACTION:
    case RF_KIND_STOP:
        *(int32_t *)field = (int32_t)row->low;
        break;
    case RF_KIND_INT32:
        result = rf_flag_ranged(row, value, &number, err);
        *(int32_t *)field = (int32_t)number;
        break;
    case RF_KIND_INT64:
        result = rf_flag_ranged(row, value, field, err);
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
        result = row->set(options, row, value, err);
        break;
    case RF_KIND_IGNORED:
        result = read_ignored(row, value, err);
        break;
    case RF_KIND_LATER:
        return rf_fail(err, RF_ERR_USAGE, "%s (%s) is not in this version", rf_flag_name(row), row->help);
    }
    return result == 0 && row->notice ? set->notice(options, row, row->notice, err) : result;
}
