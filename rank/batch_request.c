#include "config.h"

#include "batch_request.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"

#define SHOWN 60 /* bytes of the user's text in a message */

static rf_text text_of(const json_t *string)
{
    return (rf_text){json_string_value(string), json_string_length(string)};
}

/* ---- Readers of one key's value: 0, or -1 with a sentence. */

static int bad(const char *key, const char *expected, rf_error *err)
{
    return rf_fail(err, RF_ERR_USAGE, "\"%s\": expected %s", key, expected);
}

static int read_id(rf_request *r, const char *key, json_t *value, rf_error *err)
{
    if (!(json_is_string(value) && json_string_length(value)) && !json_is_integer(value))
        return bad(key, "a string that is not empty, or a whole number", err);
    r->id = value;
    return 0;
}

static int read_prompt(rf_request *r, const char *key, json_t *value, rf_error *err)
{
    if (!json_is_string(value))
        return bad(key, "a string", err);
    r->prompt = text_of(value);
    return 0;
}

static int read_message(rf_chat_message *m, const json_t *value, size_t number, rf_error *err)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    const json_t *role = json_object_get(value, "role"), *content = json_object_get(value, "content");

    if (!json_is_object(value) || !json_is_string(role) || !json_is_string(content) || json_object_size(value) != 2)
        return rf_fail(err, RF_ERR_USAGE, "message %zu: expected {\"role\": a string, \"content\": a string}", number);
    m->text = text_of(content);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(json_string_value(role), roles[i]) == 0) {
            m->role = (rf_chat_role)i;
            if (m->role == RF_CHAT_SYSTEM && number > 1)
                return rf_fail(err, RF_ERR_USAGE, "message %zu: the system's is the first, if there is one", number);
            return 0;
        }
    return rf_fail(err, RF_ERR_USAGE, "message %zu: expected the role system, user or assistant", number);
}

static int read_messages(rf_request *r, const char *key, json_t *value, rf_error *err)
{
    size_t n = json_array_size(value);

    if (!json_is_array(value) || !n)
        return bad(key, "a list of messages that is not empty", err);
    r->messages = calloc(n, sizeof *r->messages);
    if (!r->messages)
        return rf_fail(err, RF_ERR_MEMORY, "no memory for %zu messages", n);
    r->n_messages = n;
    for (size_t i = 0; i < n; i++)
        if (read_message(&r->messages[i], json_array_get(value, i), i + 1, err) != 0)
            return -1;
    if (r->messages[n - 1].role != RF_CHAT_USER)
        return rf_fail(err, RF_ERR_USAGE, "the last message is not the user's, so there is nothing to answer");
    return 0;
}

static int read_whole(json_t *value, const char *key, int64_t low, int64_t high, int64_t *out, rf_error *err)
{
    if (!json_is_integer(value) || json_integer_value(value) < low || json_integer_value(value) > high)
        return rf_fail(err, RF_ERR_USAGE, "\"%s\": expected a whole number from %" PRId64 " to %" PRId64, key, low, high);
    *out = json_integer_value(value);
    return 0;
}

static int read_real(json_t *value, const char *key, double high, double *out, rf_error *err)
{
    double v = json_number_value(value);

    if (!json_is_number(value) || !(v >= 0) || v > high)
        return high < FLT_MAX ? rf_fail(err, RF_ERR_USAGE, "\"%s\": expected a number from 0 to %g", key, high)
                              : bad(key, "a number of at least 0", err);
    *out = v;
    return 0;
}

static int read_n(rf_request *r, const char *key, json_t *value, rf_error *err)
{
    return read_whole(value, key, -1, INT32_MAX, &r->n_predict, err);
}

static int read_seed(rf_request *r, const char *key, json_t *value, rf_error *err)
{
    int64_t seed = 0;

    if (read_whole(value, key, 0, INT64_MAX, &seed, err) != 0)
        return -1;
    r->sampling.seed = (uint64_t)seed;
    return 0;
}

static int read_top_k(rf_request *r, const char *key, json_t *value, rf_error *err)
{
    int64_t k = 0;

    if (read_whole(value, key, 0, INT32_MAX, &k, err) != 0)
        return -1;
    r->sampling.top_k = (int32_t)k;
    return 0;
}

static int read_temperature(rf_request *r, const char *key, json_t *value, rf_error *err)
{
    return read_real(value, key, FLT_MAX, &r->sampling.temperature, err);
}

static int read_top_p(rf_request *r, const char *key, json_t *value, rf_error *err)
{
    return read_real(value, key, 1, &r->sampling.top_p, err);
}

static int read_min_p(rf_request *r, const char *key, json_t *value, rf_error *err)
{
    return read_real(value, key, 1, &r->sampling.min_p, err);
}

/* One string or a list of strings; r->stop holds the command line's already. */
static int read_stop(rf_request *r, const char *key, json_t *value, rf_error *err)
{
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    rf_text *grown = realloc(r->stop, (r->n_stop + n + 1) * sizeof *grown);

    if (!grown)
        return rf_fail(err, RF_ERR_MEMORY, "no memory for %zu stop strings", n);
    r->stop = grown;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;

        if (!json_is_string(one) || !json_string_length(one))
            return bad(key, "a string that is not empty, or a list of such", err);
        r->stop[r->n_stop++] = text_of(one);
    }
    return 0;
}

/* ---- The line */

static const struct {
    const char *key, *same_as; /* another name of that key */
    int (*read)(rf_request *r, const char *key, json_t *value, rf_error *err);
} keys[] = {
    {"id", NULL, read_id},
    {"prompt", NULL, read_prompt},
    {"messages", NULL, read_messages},
    {"n", NULL, read_n},
    {"n_predict", "n", read_n},
    {"max_tokens", "n", read_n},
    {"temp", NULL, read_temperature},
    {"temperature", "temp", read_temperature},
    {"top_k", NULL, read_top_k},
    {"top_p", NULL, read_top_p},
    {"min_p", NULL, read_min_p},
    {"seed", NULL, read_seed},
    {"stop", NULL, read_stop},
};

static int read_key(rf_request *r, const char *key, json_t *value, rf_error *err)
{
    char shown[SHOWN];

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(keys[i].key, key) != 0)
            continue;
        for (size_t j = 0; j < sizeof keys / sizeof *keys && keys[i].same_as; j++)
            if (j != i && json_object_get(r->object, keys[j].key) &&
                strcmp(keys[j].same_as ? keys[j].same_as : keys[j].key, keys[i].same_as) == 0)
                return rf_fail(err, RF_ERR_USAGE, "\"%s\" and \"%s\" mean the same: give one", keys[j].key, key);
        return keys[i].read(r, key, value, err);
    }
    return rf_fail(err, RF_ERR_USAGE, "\"%s\" is no key of a request",
                   rf_text_printable((rf_text){key, strlen(key)}, shown, sizeof shown));
}

static int start(rf_request *r, const rf_options *o, rf_error *err)
{
    memset(r, 0, sizeof *r);
    r->sampling = (rf_sampling){o->temperature, o->top_k, o->top_p, o->min_p, 0};
    r->n_predict = o->n_predict;
    r->stop = calloc(o->n_stop + 1, sizeof *r->stop);
    if (!r->stop)
        return rf_fail(err, RF_ERR_MEMORY, "no memory for a request");
    r->n_stop = o->n_stop;
    if (o->n_stop)
        memcpy(r->stop, o->stop, o->n_stop * sizeof *r->stop);
    return 0;
}

static int load(rf_request *r, rf_text line, rf_error *err)
{
    json_error_t where;
    char shown[SHOWN * 2];

    r->object = json_loadb(line.data, line.length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
    if (!r->object)
        return rf_fail(err, RF_ERR_USAGE, "not JSON: %s (column %d)",
                       rf_text_printable((rf_text){where.text, strlen(where.text)}, shown, sizeof shown), where.column);
    if (!json_is_object(r->object))
        return rf_fail(err, RF_ERR_USAGE, "expected an object: {\"id\": ..., \"prompt\": ...}");
    return 0;
}

int rf_request_parse(rf_request *r, rf_text line, const rf_options *o, rf_error *err)
{
    json_t *id, *value;
    const char *key;

    if (start(r, o, err) != 0 || load(r, line, err) != 0)
        return -1;
    id = json_object_get(r->object, "id");
    if (!id)
        return rf_fail(err, RF_ERR_USAGE, "no \"id\", by which the result is known");
    if (read_id(r, "id", id, err) != 0)
        return -1;
    r->sampling.seed = rf_request_seed(id, o->seed_given ? o->seed : 0);
    json_object_foreach(r->object, key, value)
        if (read_key(r, key, value, err) != 0)
            return -1;
    if (!r->prompt.data == !r->messages)
        return rf_fail(err, RF_ERR_USAGE, "%s", r->messages ? "\"prompt\" and \"messages\": give one of them"
                                                            : "no \"prompt\" and no \"messages\"");
    if (r->messages && o->raw)
        return rf_fail(err, RF_ERR_USAGE, "\"messages\" go into the chat template, which --raw leaves out");
    return 0;
}

void rf_request_free(rf_request *r)
{
    json_decref(r->object);
    free(r->messages);
    free(r->stop);
    memset(r, 0, sizeof *r);
}

uint64_t rf_request_seed(const json_t *id, uint64_t seed)
{
    char digits[24];
    rf_text text = {digits, 0};
    uint64_t h = rf_hash_bytes(RF_HASH_START, &seed, sizeof seed);

    if (json_is_string(id))
        text = text_of(id);
    else
        text.length = (size_t)snprintf(digits, sizeof digits, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
    h = rf_hash_bytes(h, text.data, text.length);
    return rf_hash_mix((int32_t)(uint32_t)(h >> 32), (uint32_t)h) >> 11;
}
