#include <stdlib.h>
#include <string.h>

#include "gguf_private.h"

#define MAX_NAME 256
#define DEFAULT_ALIGNMENT 32
#define MAX_ALIGNMENT ((size_t)1 << 20)
/* smallest encodings: a key is a length, a type and a byte; a tensor info a length, a count, a dimension, a type, an offset */
#define LEAST_KEY_BYTES 13
#define LEAST_TENSOR_BYTES 32

typedef struct {
    gguf_part *part;
    size_t at;
    rf_error *err;
} cursor;

static int bad(cursor *c, const char *what)
{
    return rf_fail(c->err, RF_ERR_FILE, "%s: %s (at byte %zu)", c->part->path, what, c->at);
}

static size_t left(const cursor *c)
{
    return c->part->size - c->at;
}

static int take(cursor *c, void *out, size_t bytes)
{
    if (left(c) < bytes)
        return bad(c, "the file ends inside its header");
    memcpy(out, c->part->map + c->at, bytes);
    c->at += bytes;
    return 0;
}

static int take_string(cursor *c, rf_text *out)
{
    uint64_t length;

    if (take(c, &length, sizeof length) != 0)
        return -1;
    if (length > left(c))
        return bad(c, "a string is longer than the file");
    *out = (rf_text){(const char *)c->part->map + c->at, (size_t)length};
    c->at += (size_t)length;
    return 0;
}

size_t gguf_scalar_bytes(uint32_t type)
{
    static const unsigned char bytes[N_KEY_TYPES] = {
        [KEY_U8] = 1, [KEY_I8] = 1, [KEY_U16] = 2, [KEY_I16] = 2, [KEY_U32] = 4, [KEY_I32] = 4,
        [KEY_F32] = 4, [KEY_BOOL] = 1, [KEY_U64] = 8, [KEY_I64] = 8, [KEY_F64] = 8,
    };

    return type < N_KEY_TYPES ? bytes[type] : 0;
}

static int parse_strings(cursor *c, gguf_key *key)
{
    if (key->count > left(c) / sizeof(uint64_t))
        return bad(c, "an array of strings is longer than the file");
    key->string = calloc(key->count + 1, sizeof *key->string);
    if (!key->string)
        return rf_fail(c->err, RF_ERR_MEMORY, "%s: no memory for an array of %zu strings", c->part->path, key->count);
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
    bytes = gguf_scalar_bytes(key->element);
    if (!bytes && key->element != KEY_STRING)
        return bad(c, "an array has an unknown element type");
    if (count > left(c) / (bytes ? bytes : sizeof(uint64_t)))
        return bad(c, "an array is longer than the file");
    key->count = (size_t)count;
    if (key->element == KEY_STRING)
        return parse_strings(c, key);
    c->at += key->count * bytes;
    return 0;
}

static int parse_key(cursor *c, gguf_key *key)
{
    size_t bytes;
    rf_text text;

    if (take_string(c, &key->name) != 0)
        return -1;
    if (!key->name.length || key->name.length >= MAX_NAME)
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
    if (!bytes)
        return bad(c, "a key has an unknown type");
    if (left(c) < bytes)
        return bad(c, "the file ends inside its header");
    c->at += bytes;
    return 0;
}

static int parse_shape(cursor *c, rf_tensor *t, const char *name)
{
    uint32_t n_dims, type;
    size_t elements = 1;

    if (take(c, &n_dims, sizeof n_dims) != 0)
        return -1;
    if (n_dims < 1 || n_dims > 4)
        return rf_fail(c->err, RF_ERR_FILE, "%s: tensor %s has %u dimensions (1 to 4 are expected)", c->part->path, name, n_dims);
    t->n_dims = n_dims;
    for (size_t i = 0; i < 4; i++) {
        uint64_t dim = 1;

        if (i < n_dims && take(c, &dim, sizeof dim) != 0)
            return -1;
        if (dim == 0 || dim > (uint64_t)INT64_MAX || elements > (size_t)INT64_MAX / (size_t)dim)
            return rf_fail(c->err, RF_ERR_FILE, "%s: tensor %s has an impossible dimension (%llu)", c->part->path, name, (unsigned long long)dim);
        t->dims[i] = (size_t)dim;
        elements *= (size_t)dim;
    }
    if (take(c, &type, sizeof type) != 0)
        return -1;
    t->format = rf_format_find(type);
    if (!t->format)
        return rf_fail(c->err, RF_ERR_FILE, "%s: tensor %s has unknown block type %u", c->part->path, name, type);
    if (t->dims[0] % t->format->block != 0)
        return rf_fail(c->err, RF_ERR_FILE, "%s: tensor %s has rows of %zu, but %s comes in blocks of %zu", c->part->path, name, t->dims[0],
                       t->format->name, t->format->block);
    elements /= t->format->block;
    if (elements > (size_t)INT64_MAX / t->format->bytes)
        return rf_fail(c->err, RF_ERR_FILE, "%s: tensor %s is impossibly large", c->part->path, name);
    t->bytes = elements * t->format->bytes;
    return 0;
}

/* data holds the offset until the data section's place is known */
static int parse_tensor(cursor *c, rf_tensor *t, char **names)
{
    rf_text name;
    uint64_t offset;

    if (take_string(c, &name) != 0)
        return -1;
    if (!name.length || name.length >= MAX_NAME || memchr(name.data, 0, name.length))
        return bad(c, "a tensor's name is empty, longer than 255 bytes, or holds a NUL");
    memcpy(*names, name.data, name.length);
    (*names)[name.length] = 0;
    t->name = *names;
    *names += name.length + 1;
    if (parse_shape(c, t, t->name) != 0 || take(c, &offset, sizeof offset) != 0)
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

    qsort(p->keys, p->n_keys, sizeof *p->keys, by_key_name);
    for (size_t i = 1; i < p->n_keys; i++)
        if (by_key_name(&p->keys[i - 1], &p->keys[i]) == 0) {
            char name[64];

            return rf_fail(c->err, RF_ERR_FILE, "%s: key %s occurs twice", p->path, rf_text_printable(p->keys[i].name, name, sizeof name));
        }
    return 0;
}

static int read_alignment(cursor *c, size_t *alignment)
{
    const gguf_key *key = gguf_find_key(c->part, "general.alignment");
    uint64_t value = DEFAULT_ALIGNMENT;

    if (key) {
        size_t bytes = gguf_scalar_bytes(key->type);

        value = 0;
        if (!bytes || key->type == KEY_BOOL || key->type == KEY_F32 || key->type == KEY_F64)
            return rf_fail(c->err, RF_ERR_FILE, "%s: general.alignment: expected an integer", c->part->path);
        memcpy(&value, key->value, bytes);
    }
    if (value == 0 || value > MAX_ALIGNMENT || (value & (value - 1)) != 0)
        return rf_fail(c->err, RF_ERR_FILE, "%s: general.alignment is %llu (a power of two up to 1 MiB is expected)", c->part->path,
                       (unsigned long long)value);
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
        return rf_fail(c->err, RF_ERR_MEMORY, "%s: no memory for %zu tensors", p->path, p->n_tensors);
    for (size_t i = 0; i < p->n_tensors; i++)
        sorted[i] = &p->tensors[i];
    qsort(sorted, p->n_tensors, sizeof *sorted, by_data);
    for (size_t i = 1; i < p->n_tensors && !failed; i++)
        if ((const unsigned char *)sorted[i - 1]->data + sorted[i - 1]->bytes > (const unsigned char *)sorted[i]->data)
            failed = rf_fail(c->err, RF_ERR_FILE, "%s: tensors %s and %s overlap", p->path, sorted[i - 1]->name, sorted[i]->name);
    free(sorted);
    return failed;
}

/* Offsets become addresses. */
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
    for (size_t i = 0; i < p->n_tensors; i++) {
        rf_tensor *t = &p->tensors[i];
        size_t offset = (size_t)(uintptr_t)t->data;

        if (offset % alignment != 0)
            return rf_fail(c->err, RF_ERR_FILE, "%s: tensor %s starts at %zu, which is no multiple of the alignment %zu", p->path, t->name,
                           offset, alignment);
        if (offset > p->size - data || t->bytes > p->size - data - offset)
            return rf_fail(c->err, RF_ERR_FILE, "%s: tensor %s ends beyond the file (is the download complete?)", p->path, t->name);
        t->data = p->map + data + offset;
    }
    return check_overlaps(c);
}

static int parse_head(cursor *c, uint64_t *n_tensors, uint64_t *n_keys)
{
    unsigned char magic[4];
    uint32_t version;

    if (take(c, magic, sizeof magic) != 0)
        return rf_fail(c->err, RF_ERR_FILE, "%s: too short for a GGUF file", c->part->path);
    if (memcmp(magic, "FUGG", 4) == 0)
        return rf_fail(c->err, RF_ERR_FILE, "%s: a big-endian GGUF file; little-endian is expected", c->part->path);
    if (memcmp(magic, "GGUF", 4) != 0)
        return rf_fail(c->err, RF_ERR_FILE, "%s: not a GGUF file (it does not start with GGUF)", c->part->path);
    if (take(c, &version, sizeof version) != 0)
        return -1;
    if (version == 0x02000000u || version == 0x03000000u)
        return rf_fail(c->err, RF_ERR_FILE, "%s: a big-endian GGUF file; little-endian is expected", c->part->path);
    if (version != 2 && version != 3)
        return rf_fail(c->err, RF_ERR_FILE, "%s: GGUF version %u (2 and 3 are supported)", c->part->path, version);
    if (take(c, n_tensors, sizeof *n_tensors) != 0 || take(c, n_keys, sizeof *n_keys) != 0)
        return -1;
    if (*n_keys > left(c) / LEAST_KEY_BYTES)
        return rf_fail(c->err, RF_ERR_FILE, "%s: %llu keys are claimed, more than the file can hold", c->part->path, (unsigned long long)*n_keys);
    if (*n_tensors > left(c) / LEAST_TENSOR_BYTES)
        return rf_fail(c->err, RF_ERR_FILE, "%s: %llu tensors are claimed, more than the file can hold", c->part->path,
                       (unsigned long long)*n_tensors);
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
                return rf_fail(c->err, RF_ERR_MEMORY, "%s: no memory for %zu keys", c->part->path, more);
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
        if (name.length >= MAX_NAME || n_dims > 4)
            return bad(&c, "a tensor's name is longer than 255 bytes, or it has more than 4 dimensions");
        if (left(&c) < n_dims * sizeof(uint64_t) + 12)
            return bad(&c, "the file ends inside its header");
        c.at += n_dims * sizeof(uint64_t) + 12;
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
        return rf_fail(c->err, RF_ERR_MEMORY, "%s: no memory for %zu tensors", c->part->path, n);
    names = c->part->names;
    for (; c->part->n_tensors < n; c->part->n_tensors++)
        if (parse_tensor(c, &c->part->tensors[c->part->n_tensors], &names) != 0)
            return -1;
    return place_tensors(c);
}

int gguf_parse(gguf_part *p, rf_error *err)
{
    cursor c = {p, 0, err};
    uint64_t n_tensors, n_keys;

    if (parse_head(&c, &n_tensors, &n_keys) != 0 || parse_keys(&c, (size_t)n_keys) != 0)
        return -1;
    return parse_tensors(&c, (size_t)n_tensors);
}

void gguf_part_free(gguf_part *p)
{
    for (size_t i = 0; i < p->n_keys; i++)
        free(p->keys[i].string);
    free(p->keys);
    free(p->tensors);
    free(p->names);
    free(p->path);
}

const gguf_key *gguf_find_key(const gguf_part *p, const char *name)
{
    gguf_key wanted = {.name = {name, strlen(name)}};

    return p->n_keys ? bsearch(&wanted, p->keys, p->n_keys, sizeof *p->keys, by_key_name) : NULL;
}
