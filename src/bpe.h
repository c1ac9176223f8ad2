/* Byte-pair merges inside one piece of text: the pair of lowest rank first, the leftmost of equals (Sennrich et al.
 * 2016). A heap of candidate pairs over a linked list of symbols: n log n for a piece of n bytes. One thread at a time.
 */
#ifndef RF_BPE_H
#define RF_BPE_H

#include "text.h"

typedef struct {
    int32_t left, right, result; /* token ids */
} rf_merge;

typedef struct rf_bpe rf_bpe;

/* merges[rank], best first, a malloc'd array that becomes the rf_bpe's own on success; of equal pairs the first counts.
 * NULL when memory runs out. */
rf_bpe *rf_bpe_create(rf_merge *merges, size_t n_merges);
void rf_bpe_destroy(rf_bpe *b);

/* Appends the tokens of a piece (1 to 2^31 - 1 bytes); byte_token[c] is the token of byte c. 0, or -1 when memory runs
 * out. */
int rf_bpe_encode(rf_bpe *b, const int32_t byte_token[256], rf_text piece, rf_tokens *out);
/* Gives back working memory that a very long piece has left behind. */
void rf_bpe_trim(rf_bpe *b);

#endif
