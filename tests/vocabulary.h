/* A small made-up vocabulary: the 256 bytes, some merges, and special tokens. Tests change it before they create a
 * tokenizer. */
#ifndef RF_TESTS_VOCABULARY_H
#define RF_TESTS_VOCABULARY_H

#include "tokenizer.h"

enum { MADE_UP_MAX = 320 };

/* Ids that the tests name. */
enum {
    ID_HE = 256,
    ID_LL,
    ID_HELL,
    ID_HELLO,
    ID_SPACE_A,
    ID_USER,
    ID_NEWLINES,
    ID_EACUTE,
    ID_ENDOFTEXT,
    ID_IM_START,
    ID_IM_END,
    ID_THINK,
    ID_END_THINK,
    ID_UNUSED,
    ID_UNKNOWN,
    ID_BYTE,
    ID_LAST
};

typedef struct {
    char byte_text[256][4];
    rf_text tokens[MADE_UP_MAX];
    int32_t types[MADE_UP_MAX];
    rf_text merges[MADE_UP_MAX];
    rf_vocab_source source;
} made_up_vocabulary;

/* splitting rule: "qwen2" or "qwen35" */
void made_up_vocabulary_init(made_up_vocabulary *v, const char *rule);
int32_t made_up_byte(unsigned char byte); /* the id of a byte */
rf_text text_of(const char *word);

#endif
