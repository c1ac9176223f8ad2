#include "meta.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    char text[96];
} key_text;

static key_text key_of(const rf_meta *m, const char *name)
{
    key_text key;

    snprintf(key.text, sizeof key.text, "%s%s", m->prefix, name);
    return key;
}

static void fail(rf_meta *m, const rf_error *why)
{
    if (!m->failed)
        rf_fail(m->err, why->code, "%s", why->text);
    m->failed = true;
}

void rf_meta_reject(rf_meta *m, const char *name, const char *format, ...)
{
    char text[320];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!m->failed)
        rf_fail(m->err, RF_ERR_FILE, "%s: %s%s: %s", rf_gguf_path(m->file), m->prefix, name, text);
    m->failed = true;
}

bool rf_meta_has(const rf_meta *m, const char *name)
{
    return rf_gguf_has(m->file, key_of(m, name).text);
}

bool rf_meta_is_array(const rf_meta *m, const char *name)
{
    return rf_gguf_is_array(m->file, key_of(m, name).text);
}

/* The one non-zero value that all elements share (0 if all are zero). */
static int array_value(const rf_meta *m, const char *key, uint64_t *value, rf_error *why)
{
    size_t n;

    *value = 0;
    if (rf_gguf_array_length(m->file, key, &n, why) != 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        uint64_t v;

        if (rf_gguf_array_uint(m->file, key, i, UINT64_MAX, &v, why) != 0)
            return -1;
        if (v && *value && v != *value)
            return rf_fail(why, RF_ERR_FILE,
                           "%s: %s: layers differ (%" PRIu64 " and %" PRIu64 "), expected one number for all",
                           rf_gguf_path(m->file), key, *value, v);
        *value = v ? v : *value;
    }
    return 0;
}

size_t rf_meta_count(rf_meta *m, const char *name, size_t min, size_t max)
{
    key_text key = key_of(m, name);
    rf_error why = {0};
    uint64_t v = 0;
    int status;

    if (rf_gguf_is_array(m->file, key.text))
        status = array_value(m, key.text, &v, &why);
    else
        status = rf_gguf_get_uint(m->file, key.text, UINT64_MAX, &v, &why);
    if (status != 0)
        fail(m, &why);
    else if (v < min || v > max)
        rf_meta_reject(m, name, "%" PRIu64 ", expected %zu to %zu", v, min, max);
    return m->failed ? min : (size_t)v;
}

size_t rf_meta_count_or(rf_meta *m, const char *name, size_t absent, size_t min, size_t max)
{
    return rf_meta_has(m, name) ? rf_meta_count(m, name, min, max) : absent;
}

double rf_meta_number(rf_meta *m, const char *name, double min, double max)
{
    rf_error why = {0};
    double v = 0;

    if (rf_gguf_get_float(m->file, key_of(m, name).text, &v, &why) != 0)
        fail(m, &why);
    else if (!(v >= min && v <= max))
        rf_meta_reject(m, name, "%g, expected %g to %g", v, min, max);
    return m->failed ? min : v;
}

double rf_meta_number_or(rf_meta *m, const char *name, double absent, double min, double max)
{
    return rf_meta_has(m, name) ? rf_meta_number(m, name, min, max) : absent;
}

bool rf_meta_flag_or(rf_meta *m, const char *name, bool absent)
{
    rf_error why = {0};
    bool v = absent;

    if (rf_meta_has(m, name) && rf_gguf_get_bool(m->file, key_of(m, name).text, &v, &why) != 0)
        fail(m, &why);
    return v;
}

void rf_meta_flags(rf_meta *m, const char *name, unsigned char *out, size_t n, size_t most)
{
    key_text key = key_of(m, name);
    rf_error why = {0};
    size_t length;

    if (rf_gguf_array_length(m->file, key.text, &length, &why) != 0) {
        fail(m, &why);
        return;
    }
    if (length < n || length > most) {
        rf_meta_reject(m, name, "%zu elements, expected one for each of %zu layers", length, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t v = 0;

        if (rf_gguf_array_uint(m->file, key.text, i, UINT64_MAX, &v, &why) != 0)
            fail(m, &why);
        out[i] = v != 0;
    }
}

size_t rf_meta_list(rf_meta *m, const char *name, size_t *out, size_t most, size_t max)
{
    key_text key = key_of(m, name);
    rf_error why = {0};
    size_t n = 0;

    if (rf_gguf_array_length(m->file, key.text, &n, &why) != 0) {
        fail(m, &why);
        return 0;
    }
    if (n < 1 || n > most) {
        rf_meta_reject(m, name, "%zu elements, expected 1 to %zu", n, most);
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t v = 0;

        if (rf_gguf_array_uint(m->file, key.text, i, max, &v, &why) != 0)
            fail(m, &why);
        out[i] = (size_t)v;
    }
    return n;
}

static bool is(rf_text text, const char *word)
{
    return text.length == strlen(word) && memcmp(text.data, word, text.length) == 0;
}

bool rf_meta_architecture_is(const rf_meta *m, const char *name)
{
    rf_text architecture;

    return rf_gguf_get_string(m->file, "general.architecture", &architecture, NULL) == 0 && is(architecture, name);
}

void rf_meta_architecture(rf_meta *m, const char *name)
{
    rf_text found;
    rf_error why = {0};
    char shown[64];

    if (rf_meta_architecture_is(m, name))
        return;
    if (rf_gguf_get_string(m->file, "general.architecture", &found, &why) == 0)
        rf_fail(&why, RF_ERR_FILE, "%s: general.architecture: expected %s, the file has '%s'", rf_gguf_path(m->file),
                name, rf_text_printable(found, shown, sizeof shown));
    fail(m, &why);
}

void rf_meta_rope(rf_meta *m, size_t head_dim, size_t *n_rot, double *base)
{
    size_t sections[4];
    rf_text scaling;
    char shown[64];

    *n_rot = rf_meta_count_or(m, "rope.dimension_count", head_dim, 2, head_dim);
    *base = rf_meta_number(m, "rope.freq_base", 1, 1e12);
    if (*n_rot % 2)
        rf_meta_reject(m, "rope.dimension_count", "%zu, expected an even number", *n_rot);
    if (rf_meta_has(m, "rope.dimension_sections") &&
        rf_meta_list(m, "rope.dimension_sections", sections, 4, 1 << 16) < 3)
        rf_meta_reject(m, "rope.dimension_sections", "expected three or four numbers");
    if (rf_gguf_get_string(m->file, key_of(m, "rope.scaling.type").text, &scaling, NULL) == 0 && !is(scaling, "none"))
        rf_meta_reject(m, "rope.scaling.type", "'%s': scaled positions are not supported",
                       rf_text_printable(scaling, shown, sizeof shown));
}
