/* Inside of the GGUF reader, shared by gguf.c (opening), gguf_parse.c (header) and gguf_keys.c (getters). */
#ifndef RF_GGUF_PRIVATE_H
#define RF_GGUF_PRIVATE_H

#include "gguf.h"

typedef enum {
    KEY_U8, KEY_I8, KEY_U16, KEY_I16, KEY_U32, KEY_I32, KEY_F32, KEY_BOOL, KEY_STRING, KEY_ARRAY, KEY_U64, KEY_I64, KEY_F64, N_KEY_TYPES
} key_type;

typedef struct {
    rf_text name;
    uint32_t type, element;       /* key_type; element: of an array */
    const unsigned char *value;   /* first byte of the value, of the first element, or of a string's characters */
    size_t count;                 /* elements of an array, bytes of a string */
    const unsigned char **string; /* array of strings: where each element's length stands; owned */
} gguf_key;

/* One file of a set. */
typedef struct {
    char *path;
    const unsigned char *map;
    size_t size, header; /* header: bytes up to the data section */
    gguf_key *keys;
    size_t n_keys;
    rf_tensor *tensors;
    size_t n_tensors;
    char *names;         /* tensor names, NUL-terminated, one after another */
} gguf_part;

struct rf_gguf {
    gguf_part *parts;
    size_t n_parts;
    const rf_tensor **order;   /* all tensors, part after part */
    const rf_tensor **by_name; /* sorted */
    size_t n_tensors;
};

size_t gguf_scalar_bytes(uint32_t type); /* 0: not a scalar type */
int gguf_parse(gguf_part *p, rf_error *err);
void gguf_part_free(gguf_part *p); /* all but the map */
const gguf_key *gguf_find_key(const gguf_part *p, const char *name);

#endif
