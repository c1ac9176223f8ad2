#include "bpe.h"

#include <stdlib.h>

#include "hash_index.h"

#define NONE UINT32_MAX
#define KEPT_SYMBOLS ((size_t)4096)

typedef struct {
    int32_t id; /* -1: merged into the symbol before it */
    uint32_t previous, next;
} symbol;

struct rf_bpe {
    rf_merge *merge; /* [rank] */
    rf_hash_index index;
    symbol *symbol;
    uint64_t *heap;  /* rank << 32 | left symbol: the smallest is the pair to merge next */
    size_t capacity; /* symbols; the heap holds twice as many entries */
    size_t heap_size;
};

static uint64_t pair_hash(const rf_bpe *b, int32_t left, int32_t right)
{
    int32_t pair[2] = {left, right};

    return rf_hash_index_hash(&b->index, pair, sizeof pair);
}

/* Rank of the merge of two tokens, or -1. */
static int32_t find_merge(const rf_bpe *b, int32_t left, int32_t right)
{
    uint64_t hash = pair_hash(b, left, right);
    size_t cursor = rf_hash_index_start(&b->index, hash);

    for (int32_t rank; (rank = rf_hash_index_next(&b->index, hash, &cursor)) >= 0;)
        if (b->merge[rank].left == left && b->merge[rank].right == right)
            return rank;
    return -1;
}

rf_bpe *rf_bpe_create(rf_merge *merges, size_t n_merges)
{
    rf_bpe *b = calloc(1, sizeof *b);

    if (!b || rf_hash_index_init(&b->index, n_merges) < 0) {
        free(b);
        return NULL;
    }
    b->merge = merges;
    /* A pair that comes again stays out: a file full of the same one would make one long chain. */
    for (size_t rank = 0; rank < n_merges; rank++)
        if (find_merge(b, merges[rank].left, merges[rank].right) < 0)
            rf_hash_index_add(&b->index, pair_hash(b, merges[rank].left, merges[rank].right), (int32_t)rank);
    return b;
}

static void free_scratch(rf_bpe *b)
{
    free(b->symbol);
    free(b->heap);
    b->symbol = NULL;
    b->heap = NULL;
    b->capacity = 0;
}

void rf_bpe_destroy(rf_bpe *b)
{
    if (!b)
        return;
    free_scratch(b);
    rf_hash_index_free(&b->index);
    free(b->merge);
    free(b);
}

void rf_bpe_trim(rf_bpe *b)
{
    if (b->capacity > KEPT_SYMBOLS)
        free_scratch(b);
}

static int reserve(rf_bpe *b, size_t n_symbols)
{
    size_t capacity = n_symbols > KEPT_SYMBOLS ? n_symbols : KEPT_SYMBOLS;

    if (n_symbols <= b->capacity)
        return 0;
    free_scratch(b);
    b->symbol = malloc(capacity * sizeof *b->symbol);
    /* n - 1 pairs at first; every merge takes one entry out and puts at most two in, and there are at most n - 1
     * merges. */
    b->heap = malloc(2 * capacity * sizeof *b->heap);
    if (!b->symbol || !b->heap) {
        free_scratch(b);
        return -1;
    }
    b->capacity = capacity;
    return 0;
}

static void heap_push(rf_bpe *b, uint64_t key)
{
    size_t at = b->heap_size++;

    while (at > 0 && key < b->heap[(at - 1) / 2]) {
        b->heap[at] = b->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    b->heap[at] = key;
}

static uint64_t heap_pop(rf_bpe *b)
{
    uint64_t top = b->heap[0], key = b->heap[--b->heap_size];
    size_t at = 0;

    for (size_t child; (child = 2 * at + 1) < b->heap_size; at = child) {
        if (child + 1 < b->heap_size && b->heap[child + 1] < b->heap[child])
            child++;
        if (key <= b->heap[child])
            break;
        b->heap[at] = b->heap[child];
    }
    b->heap[at] = key;
    return top;
}

/* Puts the pair that starts at `left` on the heap if it has a merge. */
static void offer(rf_bpe *b, uint32_t left)
{
    uint32_t right = b->symbol[left].next;
    int32_t rank = right == NONE ? -1 : find_merge(b, b->symbol[left].id, b->symbol[right].id);

    if (rank >= 0)
        heap_push(b, (uint64_t)(uint32_t)rank << 32 | left);
}

/* Takes `right` out of the list, its text now belonging to `left`. */
static void join(rf_bpe *b, uint32_t left, uint32_t right, int32_t result)
{
    symbol *l = &b->symbol[left], *r = &b->symbol[right];

    l->id = result;
    l->next = r->next;
    r->id = -1;
    if (l->next != NONE)
        b->symbol[l->next].previous = left;
}

static void merge_all(rf_bpe *b)
{
    while (b->heap_size > 0) {
        uint64_t top = heap_pop(b);
        uint32_t left = (uint32_t)top, right = b->symbol[left].next;
        int32_t rank = (int32_t)(top >> 32);

        /* An entry is stale when one of its symbols has been merged meanwhile: then the pair here is no longer its
         * pair. */
        if (b->symbol[left].id < 0 || right == NONE || b->symbol[left].id != b->merge[rank].left ||
            b->symbol[right].id != b->merge[rank].right)
            continue;
        join(b, left, right, b->merge[rank].result);
        if (b->symbol[left].previous != NONE)
            offer(b, b->symbol[left].previous);
        offer(b, left);
    }
}

int rf_bpe_encode(rf_bpe *b, const int32_t byte_token[256], rf_text piece, rf_tokens *out)
{
    uint32_t n = (uint32_t)piece.length;

    if (n == 1)
        return rf_tokens_push(out, byte_token[(unsigned char)piece.data[0]]);
    if (reserve(b, n) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        b->symbol[i] = (symbol){byte_token[(unsigned char)piece.data[i]], i ? i - 1 : NONE, i + 1 < n ? i + 1 : NONE};
    b->heap_size = 0;
    for (uint32_t i = 0; i + 1 < n; i++)
        offer(b, i);
    merge_all(b);
    for (uint32_t i = 0; i != NONE; i = b->symbol[i].next)
        if (rf_tokens_push(out, b->symbol[i].id) < 0)
            return -1;
    return 0;
}
