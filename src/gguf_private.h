/* Inside of the GGUF reader, shared by gguf.c (opening), gguf_parse.c (header) and gguf_keys.c (getters). */
#ifndef RF_GGUF_PRIVATE_H
#define RF_GGUF_PRIVATE_H

#include "gguf.h"

/* Far more than any real model has; they bound the memory and time that a hostile header takes, over all parts of a
 * set. */
#define MAX_HEADER_BYTES ((size_t)64 << 20)
#define MAX_KEYS ((size_t)1 << 16)
#define MAX_TENSORS ((size_t)1 << 17)

#define SHOWN_PATH 240

typedef enum {
    KEY_U8 = 0,
    KEY_I8 = 1,
    KEY_U16 = 2,
    KEY_I16 = 3,
    KEY_U32 = 4,
    KEY_I32 = 5,
    KEY_F32 = 6,
    KEY_BOOL = 7,
    KEY_STRING = 8,
    KEY_ARRAY = 9,
    KEY_U64 = 10,
    KEY_I64 = 11,
    KEY_F64 = 12,
    N_KEY_TYPES
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
    char shown[SHOWN_PATH]; /* the path, for messages */
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
