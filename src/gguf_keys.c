#include <math.h>
#include <string.h>

#include "gguf_private.h"

static const char *const type_names[N_KEY_TYPES] = {
    [KEY_U8] = "an integer",   [KEY_I8] = "an integer",  [KEY_U16] = "an integer", [KEY_I16] = "an integer",
    [KEY_U32] = "an integer",  [KEY_I32] = "an integer", [KEY_F32] = "a number",   [KEY_BOOL] = "a boolean",
    [KEY_STRING] = "a string", [KEY_ARRAY] = "an array", [KEY_U64] = "an integer", [KEY_I64] = "an integer",
    [KEY_F64] = "a number",
};

/* Keys of a split set are those of its first part. */
static const gguf_key *find(const rf_gguf *f, const char *name)
{
    return gguf_find_key(&f->parts[0], name);
}

static const gguf_key *need(const rf_gguf *f, const char *name, rf_error *err)
{
    const gguf_key *key = find(f, name);

    if (!key)
        rf_fail(err, RF_ERR_FILE, "%s: %s: missing", f->parts[0].shown, name);
    return key;
}

static int wrong_type(const rf_gguf *f, const char *name, const char *wanted, uint32_t type, rf_error *err)
{
    return rf_fail(err, RF_ERR_FILE, "%s: %s: expected %s, the file has %s", f->parts[0].shown, name, wanted,
                   type_names[type]);
}

bool rf_gguf_has(const rf_gguf *f, const char *key)
{
    return find(f, key) != NULL;
}

bool rf_gguf_is_array(const rf_gguf *f, const char *key)
{
    const gguf_key *k = find(f, key);

    return k && k->type == KEY_ARRAY;
}

/* An integer by value. false: not an integer type. negative: *magnitude is of the negative number. */
static bool integer_at(uint32_t type, const unsigned char *at, bool *negative, uint64_t *magnitude)
{
    int64_t value;

    *negative = false;
    *magnitude = 0;
    switch (type) {
    case KEY_U8:
    case KEY_BOOL:
    case KEY_U16:
    case KEY_U32:
    case KEY_U64:
        memcpy(magnitude, at, gguf_scalar_bytes(type)); /* little-endian */
        return true;
    case KEY_I8:
        value = (int8_t)at[0];
        break;
    case KEY_I16: {
        int16_t v;

        memcpy(&v, at, sizeof v);
        value = v;
        break;
    }
    case KEY_I32: {
        int32_t v;

        memcpy(&v, at, sizeof v);
        value = v;
        break;
    }
    case KEY_I64:
        memcpy(&value, at, sizeof value);
        break;
    default:
        return false;
    }
    *negative = value < 0;
    *magnitude = *negative ? 0 - (uint64_t)value : (uint64_t)value;
    return true;
}

static int uint_of(const rf_gguf *f, const char *name, uint32_t type, const unsigned char *at, uint64_t max,
                   uint64_t *out, rf_error *err)
{
    bool negative;
    uint64_t magnitude;

    if (!integer_at(type, at, &negative, &magnitude))
        return wrong_type(f, name, "an integer", type, err);
    if (negative || magnitude > max)
        return rf_fail(err, RF_ERR_FILE, "%s: %s: %s%llu is out of range (0 to %llu is expected)", f->parts[0].shown,
                       name, negative ? "-" : "", (unsigned long long)magnitude, (unsigned long long)max);
    *out = magnitude;
    return 0;
}

static int float_of(const rf_gguf *f, const char *name, uint32_t type, const unsigned char *at, double *out,
                    rf_error *err)
{
    bool negative;
    uint64_t magnitude;
    float single;

    if (type == KEY_F32) {
        memcpy(&single, at, sizeof single);
        *out = (double)single;
    } else if (type == KEY_F64) {
        memcpy(out, at, sizeof *out);
    } else if (type != KEY_BOOL && integer_at(type, at, &negative, &magnitude)) {
        *out = negative ? -(double)magnitude : (double)magnitude;
    } else {
        return wrong_type(f, name, "a number", type, err);
    }
    if (!isfinite(*out))
        return rf_fail(err, RF_ERR_FILE, "%s: %s: not a finite number", f->parts[0].shown, name);
    return 0;
}

int rf_gguf_get_uint(const rf_gguf *f, const char *key, uint64_t max, uint64_t *out, rf_error *err)
{
    const gguf_key *k = need(f, key, err);

    if (!k)
        return -1;
    if (k->type == KEY_BOOL)
        return wrong_type(f, key, "an integer", k->type, err);
    return uint_of(f, key, k->type, k->value, max, out, err);
}

int rf_gguf_get_float(const rf_gguf *f, const char *key, double *out, rf_error *err)
{
    const gguf_key *k = need(f, key, err);

    return k ? float_of(f, key, k->type, k->value, out, err) : -1;
}

int rf_gguf_get_bool(const rf_gguf *f, const char *key, bool *out, rf_error *err)
{
    const gguf_key *k = need(f, key, err);

    if (!k)
        return -1;
    if (k->type != KEY_BOOL)
        return wrong_type(f, key, "a boolean", k->type, err);
    *out = k->value[0] != 0;
    return 0;
}

int rf_gguf_get_string(const rf_gguf *f, const char *key, rf_text *out, rf_error *err)
{
    const gguf_key *k = need(f, key, err);

    if (!k)
        return -1;
    if (k->type != KEY_STRING)
        return wrong_type(f, key, "a string", k->type, err);
    *out = (rf_text){(const char *)k->value, k->count};
    return 0;
}

static const gguf_key *need_array(const rf_gguf *f, const char *key, rf_error *err)
{
    const gguf_key *k = need(f, key, err);

    if (k && k->type != KEY_ARRAY) {
        wrong_type(f, key, "an array", k->type, err);
        return NULL;
    }
    return k;
}

/* Element i's first byte; NULL beyond the end. */
static const unsigned char *element(const rf_gguf *f, const char *key, size_t i, uint32_t *type, rf_error *err)
{
    const gguf_key *k = need_array(f, key, err);

    if (!k)
        return NULL;
    if (i >= k->count) {
        rf_fail(err, RF_ERR_FILE, "%s: %s: element %zu is wanted, the array has %zu", f->parts[0].shown, key, i,
                k->count);
        return NULL;
    }
    *type = k->element;
    return k->element == KEY_STRING ? k->string[i] : k->value + i * gguf_scalar_bytes(k->element);
}

int rf_gguf_array_length(const rf_gguf *f, const char *key, size_t *out, rf_error *err)
{
    const gguf_key *k = need_array(f, key, err);

    if (!k)
        return -1;
    *out = k->count;
    return 0;
}

int rf_gguf_array_uint(const rf_gguf *f, const char *key, size_t i, uint64_t max, uint64_t *out, rf_error *err)
{
    uint32_t type;
    const unsigned char *at = element(f, key, i, &type, err);

    return at ? uint_of(f, key, type, at, max, out, err) : -1;
}

int rf_gguf_array_int(const rf_gguf *f, const char *key, size_t i, int64_t min, int64_t max, int64_t *out,
                      rf_error *err)
{
    uint32_t type;
    bool negative;
    uint64_t magnitude;
    const unsigned char *at = element(f, key, i, &type, err);

    if (!at)
        return -1;
    if (!integer_at(type, at, &negative, &magnitude))
        return wrong_type(f, key, "an integer", type, err);
    if (magnitude <= (uint64_t)INT64_MAX) {
        int64_t value = negative ? -(int64_t)magnitude : (int64_t)magnitude;

        if (value >= min && value <= max) {
            *out = value;
            return 0;
        }
    }
    return rf_fail(err, RF_ERR_FILE, "%s: %s: element %zu is out of range (%lld to %lld is expected)",
                   f->parts[0].shown, key, i, (long long)min, (long long)max);
}

int rf_gguf_array_float(const rf_gguf *f, const char *key, size_t i, double *out, rf_error *err)
{
    uint32_t type;
    const unsigned char *at = element(f, key, i, &type, err);

    return at ? float_of(f, key, type, at, out, err) : -1;
}

int rf_gguf_array_string(const rf_gguf *f, const char *key, size_t i, rf_text *out, rf_error *err)
{
    uint32_t type;
    uint64_t length;
    const unsigned char *at = element(f, key, i, &type, err);

    if (!at)
        return -1;
    if (type != KEY_STRING)
        return wrong_type(f, key, "strings", type, err);
    memcpy(&length, at, sizeof length);
    *out = (rf_text){(const char *)at + sizeof length, (size_t)length};
    return 0;
}
