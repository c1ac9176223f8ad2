/* Files changed on purpose: a GGUF file read into parts, edited, and written anew, for tests of readers. The input is
 * trusted. */
#ifndef RF_TESTS_GGUF_EDIT_H
#define RF_TESTS_GGUF_EDIT_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    char *name;
    unsigned char *value; /* type and value as in the file */
    size_t n;
} edit_key;

typedef struct {
    char *name;
    uint32_t n_dims, type;
    uint64_t dims[4];
    unsigned char *data;
    size_t n; /* bytes of data; written whatever dims and type say */
} edit_tensor;

typedef struct {
    edit_key *keys;
    edit_tensor *tensors;
    size_t n_keys, n_tensors;
} edit_file;

/* Aborts the test when the file cannot be read or written. */
void edit_load(edit_file *f, const char *path);
void edit_save(const edit_file *f, const char *path);
void edit_free(edit_file *f);

edit_key *edit_find_key(edit_file *f, const char *name);          /* fails the test if absent */
edit_tensor *edit_find_tensor(edit_file *f, const char *name);    /* the same */
void edit_rename_key(edit_file *f, const char *name, const char *new_name);
void edit_drop_key(edit_file *f, const char *name);
void edit_rename_tensor(edit_file *f, const char *name, const char *new_name);
void edit_drop_tensor(edit_file *f, const char *name);
/* Appended; data is copied. */
edit_tensor *edit_add_tensor(edit_file *f, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims,
                             const void *data, size_t n);

/* The key's value (added if absent), in the GGUF type named. */
void edit_set_u8(edit_file *f, const char *name, uint8_t v);
void edit_set_u32(edit_file *f, const char *name, uint32_t v);
void edit_set_u64(edit_file *f, const char *name, uint64_t v);
void edit_set_f32(edit_file *f, const char *name, float v);
void edit_set_bool(edit_file *f, const char *name, int v);
void edit_set_string(edit_file *f, const char *name, const char *v);
void edit_set_u32s(edit_file *f, const char *name, const uint32_t *v, size_t n);
void edit_set_bools(edit_file *f, const char *name, const unsigned char *v, size_t n);

#endif
