#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_private.h"

#define MAX_KEY_NAME 255
#define MAX_TENSOR_NAME 64 /* the format's own limit; two of them and a path fit into a message */
#define DEFAULT_ALIGNMENT 32
#define MAX_ALIGNMENT ((size_t)1 << 20)
/* smallest encodings: a key is a length, a type and a byte; a tensor info a length, a count, a dimension, a type, an
 * offset */
#define LEAST_KEY_BYTES 13
#define LEAST_TENSOR_BYTES 32

typedef struct {
    gguf_part *part;
    size_t at, limit; /* limit: no header byte lies there or beyond */
    rf_error *err;
} cursor;

static int bad(cursor *c, const char *what)
{
    return rf_fail(c->err, RF_ERR_FILE, "%s: %s (at byte %zu)", c->part->shown, what, c->at);
}

/* Something does not fit into the bytes that are left. */
static int too_long(cursor *c, const char *what)
{
    if (c->limit < c->part->size)
        return rf_fail(c->err, RF_ERR_FILE,
                       "%s: the header is longer than %zu bytes, which no model needs (at byte %zu)", c->part->shown,
                       c->limit, c->at);
    return bad(c, what);
}

static size_t left(const cursor *c)
{
    return c->limit - c->at;
}

static int skip(cursor *c, size_t bytes)
{
    if (left(c) < bytes)
        return too_long(c, "the file ends inside its header");
    c->at += bytes;
    return 0;
}

static int take(cursor *c, void *out, size_t bytes)
{
    const unsigned char *from = c->part->map + c->at;

    if (skip(c, bytes) != 0)
        return -1;
    memcpy(out, from, bytes);
    return 0;
}

static int take_string(cursor *c, rf_text *out)
{
    uint64_t length;

    if (take(c, &length, sizeof length) != 0)
        return -1;
    if (length > left(c))
        return too_long(c, "a string is longer than the file");
    *out = (rf_text){(const char *)c->part->map + c->at, (size_t)length};
    c->at += (size_t)length;
    return 0;
}

size_t gguf_scalar_bytes(uint32_t type)
{
    static const unsigned char bytes[N_KEY_TYPES] = {
        [KEY_U8] = 1,  [KEY_I8] = 1,   [KEY_U16] = 2, [KEY_I16] = 2, [KEY_U32] = 4, [KEY_I32] = 4,
        [KEY_F32] = 4, [KEY_BOOL] = 1, [KEY_U64] = 8, [KEY_I64] = 8, [KEY_F64] = 8,
    };

    return type < N_KEY_TYPES ? bytes[type] : 0;
}

static int unknown_type(cursor *c, const gguf_key *key, const char *of, uint32_t type)
{
    char name[64];

    return rf_fail(c->err, RF_ERR_FILE, "%s: %s: unknown type %u%s", c->part->shown,
                   rf_text_printable(key->name, name, sizeof name), type, of);
}

static int parse_strings(cursor *c, gguf_key *key)
{
    key->string = malloc((key->count + 1) * sizeof *key->string);
    if (!key->string)
        return rf_fail(c->err, RF_ERR_MEMORY, "%s: no memory for an array of %zu strings", c->part->shown, key->count);
    for (size_t i = 0; i < key->count; i++) {
        rf_text text;

        key->string[i] = c->part->map + c->at;
        if (take_string(c, &text) != 0)
            return -1;
    }
    return 0;
}

static int parse_array(cursor *c, gguf_key *key)
{
    uint64_t count;
    size_t bytes;

    if (take(c, &key->element, sizeof key->element) != 0 || take(c, &count, sizeof count) != 0)
        return -1;
    key->value = c->part->map + c->at;
    /* a string has at least its length */
    bytes = key->element == KEY_STRING ? sizeof(uint64_t) : gguf_scalar_bytes(key->element);
    if (!bytes)
        return unknown_type(c, key, " of array elements", key->element);
    if (count > left(c) / bytes)
        return too_long(c, "an array is longer than the file");
    key->count = (size_t)count;
    return key->element == KEY_STRING ? parse_strings(c, key) : skip(c, key->count * bytes);
}

static int parse_key(cursor *c, gguf_key *key)
{
    size_t bytes;
    rf_text text;

    if (take_string(c, &key->name) != 0)
        return -1;
    if (!key->name.length || key->name.length > MAX_KEY_NAME)
        return bad(c, "a key's name is empty or longer than 255 bytes");
    if (take(c, &key->type, sizeof key->type) != 0)
        return -1;
    key->value = c->part->map + c->at;
    if (key->type == KEY_ARRAY)
        return parse_array(c, key);
    if (key->type == KEY_STRING) {
        if (take_string(c, &text) != 0)
            return -1;
        key->value = (const unsigned char *)text.data;
        key->count = text.length;
        return 0;
    }
    bytes = gguf_scalar_bytes(key->type);
    return bytes ? skip(c, bytes) : unknown_type(c, key, "", key->type);
}

/* *elements: 1 before, their number after. */
static int parse_dims(cursor *c, rf_tensor *t, size_t *elements)
{
    uint32_t n_dims;

    if (take(c, &n_dims, sizeof n_dims) != 0)
        return -1;
    if (n_dims < 1 || n_dims > 4)
        return rf_fail(c->err, RF_ERR_FILE, "%s: tensor %s has %u dimensions, 1 to 4 are expected", c->part->shown,
                       t->name, n_dims);
    t->n_dims = n_dims;
    for (size_t i = 0; i < 4; i++) {
        uint64_t dim = 1;

        if (i < n_dims && take(c, &dim, sizeof dim) != 0)
            return -1;
        if (dim == 0 || dim > (uint64_t)INT64_MAX || *elements > (size_t)INT64_MAX / (size_t)dim)
            return rf_fail(c->err, RF_ERR_FILE, "%s: tensor %s has an impossible dimension (%llu)", c->part->shown,
                           t->name, (unsigned long long)dim);
        t->dims[i] = (size_t)dim;
        *elements *= (size_t)dim;
    }
    return 0;
}

static int parse_shape(cursor *c, rf_tensor *t)
{
    uint32_t type;
    size_t elements = 1, blocks;

    if (parse_dims(c, t, &elements) != 0 || take(c, &type, sizeof type) != 0)
        return -1;
    t->format = rf_format_find(type);
    if (!t->format)
        return rf_fail(c->err, RF_ERR_FILE, "%s: tensor %s has unknown block type %u", c->part->shown, t->name, type);
    if (t->dims[0] % t->format->block != 0)
        return rf_fail(c->err, RF_ERR_FILE, "%s: tensor %s has rows of %zu, but %s comes in blocks of %zu",
                       c->part->shown, t->name, t->dims[0], t->format->name, t->format->block);
    blocks = elements / t->format->block;
    if (blocks > (size_t)INT64_MAX / t->format->bytes)
        return rf_fail(c->err, RF_ERR_FILE, "%s: tensor %s is impossibly large", c->part->shown, t->name);
    t->bytes = blocks * t->format->bytes;
    return 0;
}

/* Names go into messages and are compared as C strings. */
static bool is_name(rf_text name)
{
    for (size_t i = 0; i < name.length; i++)
        if (name.data[i] < '!' || name.data[i] > '~')
            return false;
    return name.length > 0 && name.length <= MAX_TENSOR_NAME;
}

/* data holds the offset until the data section's place is known */
static int parse_tensor(cursor *c, rf_tensor *t, char **names)
{
    rf_text name;
    uint64_t offset;

    if (take_string(c, &name) != 0)
        return -1;
    if (!is_name(name))
        return bad(c, "a tensor's name is not 1 to 64 printable ASCII characters");
    memcpy(*names, name.data, name.length);
    (*names)[name.length] = 0;
    t->name = *names;
    *names += name.length + 1;
    if (parse_shape(c, t) != 0 || take(c, &offset, sizeof offset) != 0)
        return -1;
    t->data = (const void *)(uintptr_t)offset;
    return 0;
}

static int by_key_name(const void *a, const void *b)
{
    const gguf_key *x = a, *y = b;
    size_t n = x->name.length < y->name.length ? x->name.length : y->name.length;
    int order = memcmp(x->name.data, y->name.data, n);

    return order ? order : (x->name.length > y->name.length) - (x->name.length < y->name.length);
}

static int check_keys(cursor *c)
{
    gguf_part *p = c->part;

    if (p->n_keys) /* no keys, no array of them */
        qsort(p->keys, p->n_keys, sizeof *p->keys, by_key_name);
    for (size_t i = 1; i < p->n_keys; i++)
        if (by_key_name(&p->keys[i - 1], &p->keys[i]) == 0) {
            char name[64];

            return rf_fail(c->err, RF_ERR_FILE, "%s: key %s occurs twice", p->shown,
                           rf_text_printable(p->keys[i].name, name, sizeof name));
        }
    return 0;
}

static int read_alignment(cursor *c, size_t *alignment)
{
    rf_gguf one = {.parts = c->part, .n_parts = 1};
    uint64_t value = DEFAULT_ALIGNMENT;

    if (rf_gguf_has(&one, "general.alignment") &&
        rf_gguf_get_uint(&one, "general.alignment", MAX_ALIGNMENT, &value, c->err) != 0)
        return -1;
    if (value == 0 || (value & (value - 1)) != 0)
        return rf_fail(c->err, RF_ERR_FILE, "%s: general.alignment: expected a power of two, the file has %llu",
                       c->part->shown, (unsigned long long)value);
    *alignment = (size_t)value;
    return 0;
}

static int by_data(const void *a, const void *b)
{
    const rf_tensor *x = *(const rf_tensor *const *)a, *y = *(const rf_tensor *const *)b;

    return (x->data > y->data) - (x->data < y->data);
}

static int check_overlaps(cursor *c)
{
    gguf_part *p = c->part;
    const rf_tensor **sorted = calloc(p->n_tensors + 1, sizeof *sorted);
    int failed = 0;

    if (!sorted)
        return rf_fail(c->err, RF_ERR_MEMORY, "%s: no memory for %zu tensors", p->shown, p->n_tensors);
    for (size_t i = 0; i < p->n_tensors; i++)
        sorted[i] = &p->tensors[i];
    qsort(sorted, p->n_tensors, sizeof *sorted, by_data);
    for (size_t i = 1; i < p->n_tensors && !failed; i++)
        if ((const unsigned char *)sorted[i - 1]->data + sorted[i - 1]->bytes > (const unsigned char *)sorted[i]->data)
            failed = rf_fail(c->err, RF_ERR_FILE, "%s: tensors %s and %s overlap", p->shown, sorted[i - 1]->name,
                             sorted[i]->name);
    free(sorted);
    return failed;
}

/* Its offset becomes an address. data: where the data section begins. */
static int place_tensor(const gguf_part *p, rf_tensor *t, size_t data, size_t alignment, rf_error *err)
{
    size_t offset = (size_t)(uintptr_t)t->data;

    if (offset % alignment != 0)
        return rf_fail(err, RF_ERR_FILE, "%s: tensor %s starts at %zu, which is no multiple of the alignment %zu",
                       p->shown, t->name, offset, alignment);
    if (offset > p->size - data || t->bytes > p->size - data - offset)
        return rf_fail(err, RF_ERR_FILE, "%s: tensor %s ends beyond the file (is the download complete?)", p->shown,
                       t->name);
    t->data = p->map + data + offset;
    return 0;
}

static int place_tensors(cursor *c)
{
    gguf_part *p = c->part;
    size_t alignment = DEFAULT_ALIGNMENT, data;

    if (read_alignment(c, &alignment) != 0)
        return -1;
    data = (c->at + alignment - 1) / alignment * alignment;
    if (p->n_tensors && data > p->size)
        return bad(c, "the file ends before its data");
    p->header = data < p->size ? data : p->size;
    for (size_t i = 0; i < p->n_tensors; i++)
        if (place_tensor(p, &p->tensors[i], data, alignment, c->err) != 0)
            return -1;
    return check_overlaps(c);
}

static int parse_version(cursor *c)
{
    unsigned char magic[4];
    uint32_t version;

    if (take(c, magic, sizeof magic) != 0)
        return rf_fail(c->err, RF_ERR_FILE, "%s: too short for a GGUF file", c->part->shown);
    if (memcmp(magic, "FUGG", 4) == 0)
        return rf_fail(c->err, RF_ERR_FILE, "%s: a byte-swapped (big-endian) GGUF file; little-endian is expected",
                       c->part->shown);
    if (memcmp(magic, "GGUF", 4) != 0)
        return rf_fail(c->err, RF_ERR_FILE, "%s: not a GGUF file (it does not start with GGUF)", c->part->shown);
    if (take(c, &version, sizeof version) != 0)
        return -1;
    if (version == 0x02000000u || version == 0x03000000u)
        return rf_fail(c->err, RF_ERR_FILE, "%s: a byte-swapped (big-endian) GGUF file; little-endian is expected",
                       c->part->shown);
    if (version != 2 && version != 3)
        return rf_fail(c->err, RF_ERR_FILE, "%s: GGUF version %u; 2 or 3 is expected", c->part->shown, version);
    return 0;
}

/* n things of at least `least` bytes each. */
static int check_claim(cursor *c, uint64_t n, size_t least, size_t most, const char *what)
{
    if (n > left(c) / least)
        return rf_fail(c->err, RF_ERR_FILE, "%s: %llu %s are claimed, more than the file can hold", c->part->shown,
                       (unsigned long long)n, what);
    if (n > most)
        return rf_fail(c->err, RF_ERR_FILE, "%s: %llu %s are claimed, at most %zu are expected", c->part->shown,
                       (unsigned long long)n, what, most);
    return 0;
}

static int parse_head(cursor *c, size_t *n_tensors, size_t *n_keys)
{
    uint64_t tensors, keys;

    if (parse_version(c) != 0 || take(c, &tensors, sizeof tensors) != 0 || take(c, &keys, sizeof keys) != 0 ||
        check_claim(c, keys, LEAST_KEY_BYTES, MAX_KEYS, "keys") != 0 ||
        check_claim(c, tensors, LEAST_TENSOR_BYTES, MAX_TENSORS, "tensors") != 0)
        return -1;
    *n_tensors = (size_t)tensors;
    *n_keys = (size_t)keys;
    return 0;
}

static int parse_keys(cursor *c, size_t n)
{
    size_t capacity = 0;

    while (c->part->n_keys < n) { /* grows with what is really there, not with what is claimed */
        if (c->part->n_keys == capacity) {
            size_t more = capacity ? 2 * capacity : 64;
            gguf_key *keys = realloc(c->part->keys, more * sizeof *keys);

            if (!keys)
                return rf_fail(c->err, RF_ERR_MEMORY, "%s: no memory for %zu keys", c->part->shown, more);
            c->part->keys = keys;
            capacity = more;
        }
        memset(&c->part->keys[c->part->n_keys], 0, sizeof(gguf_key));
        c->part->n_keys++;
        if (parse_key(c, &c->part->keys[c->part->n_keys - 1]) != 0)
            return -1;
    }
    return check_keys(c);
}

/* Where tensor infos end is only known by walking them: a first walk checks and adds up the names, a second fills. */
static int measure_names(cursor c, size_t n, size_t *bytes)
{
    *bytes = 0;
    for (size_t i = 0; i < n; i++) {
        rf_text name;
        uint32_t n_dims;

        if (take_string(&c, &name) != 0 || take(&c, &n_dims, sizeof n_dims) != 0)
            return -1;
        if (name.length > MAX_TENSOR_NAME || n_dims > 4)
            return bad(&c, "a tensor's name is longer than 64 bytes, or it has more than 4 dimensions");
        if (skip(&c, n_dims * sizeof(uint64_t) + sizeof(uint32_t) + sizeof(uint64_t)) != 0) /* dims, type, offset */
            return -1;
        *bytes += name.length + 1;
    }
    return 0;
}

static int parse_tensors(cursor *c, size_t n)
{
    size_t bytes;
    char *names;

    if (measure_names(*c, n, &bytes) != 0)
        return -1;
    c->part->names = malloc(bytes + 1);
    c->part->tensors = calloc(n + 1, sizeof *c->part->tensors);
    if (!c->part->names || !c->part->tensors)
        return rf_fail(c->err, RF_ERR_MEMORY, "%s: no memory for %zu tensors", c->part->shown, n);
    names = c->part->names;
    for (; c->part->n_tensors < n; c->part->n_tensors++)
        if (parse_tensor(c, &c->part->tensors[c->part->n_tensors], &names) != 0)
            return -1;
    return place_tensors(c);
}

int gguf_parse(gguf_part *p, rf_error *err)
{
    cursor c = {p, 0, p->size < MAX_HEADER_BYTES ? p->size : MAX_HEADER_BYTES, err};
    size_t n_tensors, n_keys;

    if (parse_head(&c, &n_tensors, &n_keys) != 0 || parse_keys(&c, n_keys) != 0)
        return -1;
    return parse_tensors(&c, n_tensors);
}

void gguf_part_free(gguf_part *p)
{
    for (size_t i = 0; i < p->n_keys; i++)
        free(p->keys[i].string);
    free(p->keys);
    free(p->tensors);
    free(p->names);
}

const gguf_key *gguf_find_key(const gguf_part *p, const char *name)
{
    gguf_key wanted = {.name = {name, strlen(name)}};

    return p->n_keys ? bsearch(&wanted, p->keys, p->n_keys, sizeof *p->keys, by_key_name) : NULL;
}
