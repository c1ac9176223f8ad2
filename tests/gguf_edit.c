#include "gguf_edit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "gguf_writer.h"

static void *copy_of(const void *bytes, size_t n)
{
    void *copy = malloc(n + 1);

    assert_non_null(copy);
    memcpy(copy, bytes, n);
    return copy;
}

static char *text_of(const unsigned char *bytes, size_t n)
{
    char *text = copy_of(bytes, n);

    text[n] = '\0';
    return text;
}

/* ---- reading */

typedef struct {
    const unsigned char *at;
} cursor;

static uint32_t take_u32(cursor *c)
{
    uint32_t v;

    memcpy(&v, c->at, sizeof v);
    c->at += sizeof v;
    return v;
}

static uint64_t take_u64(cursor *c)
{
    uint64_t v;

    memcpy(&v, c->at, sizeof v);
    c->at += sizeof v;
    return v;
}

static char *take_string(cursor *c)
{
    size_t n = take_u64(c);
    char *text = text_of(c->at, n);

    c->at += n;
    return text;
}

static void skip_value(cursor *c, uint32_t type)
{
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

    if (type == RF_GGUF_STRING) {
        size_t n = take_u64(c);

        c->at += n;
    } else if (type == RF_GGUF_ARRAY) {
        uint32_t element = take_u32(c);
        uint64_t n = take_u64(c);

        for (uint64_t i = 0; i < n; i++)
            skip_value(c, element);
    } else {
        c->at += sizes[type];
    }
}

static void take_key(cursor *c, edit_key *key)
{
    const unsigned char *start;

    key->name = take_string(c);
    start = c->at;
    skip_value(c, take_u32(c));
    key->n = (size_t)(c->at - start);
    key->value = copy_of(start, key->n);
}

static unsigned char *read_file(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    unsigned char *bytes;

    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *n = (size_t)ftell(file);
    rewind(file);
    bytes = malloc(*n);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *n, file), *n);
    fclose(file);
    return bytes;
}

void edit_load(edit_file *f, const char *path)
{
    size_t size, *offsets;
    unsigned char *bytes = read_file(path, &size), *data;
    cursor c = {bytes + 8};

    f->n_tensors = take_u64(&c);
    f->n_keys = take_u64(&c);
    f->tensors = calloc(f->n_tensors + 8, sizeof *f->tensors);
    f->keys = calloc(f->n_keys + 8, sizeof *f->keys);
    offsets = calloc(f->n_tensors + 1, sizeof *offsets);
    assert_true(f->tensors && f->keys && offsets);
    for (size_t i = 0; i < f->n_keys; i++)
        take_key(&c, &f->keys[i]);
    for (size_t i = 0; i < f->n_tensors; i++) {
        edit_tensor *t = &f->tensors[i];

        t->name = take_string(&c);
        t->n_dims = take_u32(&c);
        for (uint32_t d = 0; d < 4; d++)
            t->dims[d] = d < t->n_dims ? take_u64(&c) : 1;
        t->type = take_u32(&c);
        offsets[i] = take_u64(&c);
    }
    data = bytes + ((size_t)(c.at - bytes) + RF_GGUF_ALIGNMENT - 1) / RF_GGUF_ALIGNMENT * RF_GGUF_ALIGNMENT;
    offsets[f->n_tensors] = size - (size_t)(data - bytes);
    for (size_t i = 0; i < f->n_tensors; i++) {
        f->tensors[i].n = offsets[i + 1] - offsets[i];
        f->tensors[i].data = copy_of(data + offsets[i], f->tensors[i].n);
    }
    free(offsets);
    free(bytes);
}

void edit_free(edit_file *f)
{
    for (size_t i = 0; i < f->n_keys; i++) {
        free(f->keys[i].name);
        free(f->keys[i].value);
    }
    for (size_t i = 0; i < f->n_tensors; i++) {
        free(f->tensors[i].name);
        free(f->tensors[i].data);
    }
    free(f->keys);
    free(f->tensors);
}

/* ---- writing */

void edit_save(const edit_file *f, const char *path)
{
    rf_error err;
    rf_gguf_writer *w = rf_gguf_writer_open(path, &err);
    rf_gguf_bytes *keys;

    assert_non_null(w);
    keys = rf_gguf_writer_keys(w);
    for (size_t i = 0; i < f->n_keys; i++) {
        rf_gguf_put_key(keys, f->keys[i].name);
        rf_gguf_put_bytes(keys, f->keys[i].value, f->keys[i].n);
    }
    for (size_t i = 0; i < f->n_tensors; i++) {
        const edit_tensor *t = &f->tensors[i];

        rf_gguf_writer_tensor(w, t->name, t->n_dims, t->dims, t->type, t->n);
    }
    assert_int_equal(rf_gguf_writer_start_data(w, 0, &err), 0);
    for (size_t i = 0; i < f->n_tensors; i++)
        rf_gguf_writer_data(w, i, 0, f->tensors[i].data, f->tensors[i].n);
    assert_int_equal(rf_gguf_writer_finish(w, &err), 0);
}

/* ---- editing */

static edit_key *key_or_null(edit_file *f, const char *name)
{
    for (size_t i = 0; i < f->n_keys; i++)
        if (strcmp(f->keys[i].name, name) == 0)
            return &f->keys[i];
    return NULL;
}

edit_key *edit_find_key(edit_file *f, const char *name)
{
    edit_key *key = key_or_null(f, name);

    if (!key)
        fail_msg("no key %s", name);
    return key;
}

edit_tensor *edit_find_tensor(edit_file *f, const char *name)
{
    for (size_t i = 0; i < f->n_tensors; i++)
        if (strcmp(f->tensors[i].name, name) == 0)
            return &f->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

void edit_rename_key(edit_file *f, const char *name, const char *new_name)
{
    edit_key *key = edit_find_key(f, name);

    free(key->name);
    key->name = copy_of(new_name, strlen(new_name) + 1);
}

void edit_drop_key(edit_file *f, const char *name)
{
    edit_key *key = edit_find_key(f, name);

    free(key->name);
    free(key->value);
    *key = f->keys[--f->n_keys];
}

void edit_rename_tensor(edit_file *f, const char *name, const char *new_name)
{
    edit_tensor *t = edit_find_tensor(f, name);

    free(t->name);
    t->name = copy_of(new_name, strlen(new_name) + 1);
}

void edit_drop_tensor(edit_file *f, const char *name)
{
    edit_tensor *t = edit_find_tensor(f, name);

    free(t->name);
    free(t->data);
    *t = f->tensors[--f->n_tensors];
}

edit_tensor *edit_add_tensor(edit_file *f, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims,
                             const void *data, size_t n)
{
    edit_tensor *grown = realloc(f->tensors, (f->n_tensors + 1) * sizeof *grown), *t;

    assert_non_null(grown);
    f->tensors = grown;
    t = &grown[f->n_tensors++];
    *t = (edit_tensor){.name = copy_of(name, strlen(name) + 1), .n_dims = n_dims, .type = type, .dims = {1, 1, 1, 1}};
    for (uint32_t d = 0; d < n_dims; d++)
        t->dims[d] = dims[d];
    t->data = copy_of(data, n);
    t->n = n;
    return t;
}

static void set(edit_file *f, const char *name, const void *head, size_t n_head, const void *body, size_t n_body)
{
    edit_key *key = key_or_null(f, name);

    if (!key) {
        edit_key *grown = realloc(f->keys, (f->n_keys + 1) * sizeof *grown);

        assert_non_null(grown);
        f->keys = grown;
        key = &grown[f->n_keys++];
        *key = (edit_key){.name = copy_of(name, strlen(name) + 1)};
    }
    free(key->value);
    key->n = n_head + n_body;
    key->value = malloc(key->n);
    assert_non_null(key->value);
    memcpy(key->value, head, n_head);
    memcpy(key->value + n_head, body, n_body);
}

static void set_value(edit_file *f, const char *name, uint32_t type, const void *value, size_t n)
{
    set(f, name, &type, sizeof type, value, n);
}

void edit_set_u8(edit_file *f, const char *name, uint8_t v)
{
    set_value(f, name, RF_GGUF_U8, &v, sizeof v);
}

void edit_set_u32(edit_file *f, const char *name, uint32_t v)
{
    set_value(f, name, RF_GGUF_U32, &v, sizeof v);
}

void edit_set_u64(edit_file *f, const char *name, uint64_t v)
{
    set_value(f, name, RF_GGUF_U64, &v, sizeof v);
}

void edit_set_f32(edit_file *f, const char *name, float v)
{
    set_value(f, name, RF_GGUF_F32, &v, sizeof v);
}

void edit_set_bool(edit_file *f, const char *name, int v)
{
    unsigned char byte = v != 0;

    set_value(f, name, RF_GGUF_BOOL, &byte, 1);
}

void edit_set_string(edit_file *f, const char *name, const char *v)
{
    unsigned char head[12];
    uint32_t type = RF_GGUF_STRING;
    uint64_t n = strlen(v);

    memcpy(head, &type, 4);
    memcpy(head + 4, &n, 8);
    set(f, name, head, sizeof head, v, n);
}

static void set_array(edit_file *f, const char *name, uint32_t element, const void *v, size_t n, size_t size)
{
    unsigned char head[16];
    uint32_t type = RF_GGUF_ARRAY;
    uint64_t count = n;

    memcpy(head, &type, 4);
    memcpy(head + 4, &element, 4);
    memcpy(head + 8, &count, 8);
    set(f, name, head, sizeof head, v, n * size);
}

void edit_set_u32s(edit_file *f, const char *name, const uint32_t *v, size_t n)
{
    set_array(f, name, RF_GGUF_U32, v, n, sizeof *v);
}

void edit_set_bools(edit_file *f, const char *name, const unsigned char *v, size_t n)
{
    set_array(f, name, RF_GGUF_BOOL, v, n, 1);
}
