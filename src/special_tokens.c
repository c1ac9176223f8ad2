#include "special_tokens.h"

#include <stdlib.h>
#include <string.h>

int rf_special_tokens_add(rf_special_tokens *set, rf_text text, int32_t id)
{
    if (text.length == 0)
        return 0;
    if (set->count == set->capacity) {
        size_t capacity = set->capacity ? set->capacity * 2 : 32;
        rf_special_token *grown = realloc(set->token, capacity * sizeof *grown);

        if (!grown)
            return -1;
        set->token = grown;
        set->capacity = capacity;
    }
    set->token[set->count++] = (rf_special_token){text, id};
    set->starts[(unsigned char)text.data[0]] = true;
    return 0;
}

static int compare_text(const rf_special_token *a, const rf_special_token *b)
{
    size_t shorter = a->text.length < b->text.length ? a->text.length : b->text.length;
    int order = memcmp(a->text.data, b->text.data, shorter);

    return order ? order : (a->text.length > b->text.length) - (a->text.length < b->text.length);
}

static int compare(const void *left, const void *right)
{
    const rf_special_token *a = left, *b = right;
    int order = compare_text(a, b);

    return order ? order : (a->id > b->id) - (a->id < b->id);
}

void rf_special_tokens_sort(rf_special_tokens *set)
{
    size_t kept = 0;

    if (set->count == 0)
        return;
    qsort(set->token, set->count, sizeof *set->token, compare);
    for (size_t i = 0; i < set->count; i++)
        if (kept == 0 || compare_text(&set->token[kept - 1], &set->token[i]) != 0)
            set->token[kept++] = set->token[i];
    set->count = kept;
}

void rf_special_tokens_free(rf_special_tokens *set)
{
    free(set->token);
    *set = (rf_special_tokens){0};
}

/* First of the tokens [low, high), which agree before `depth` and are longer, whose byte there is at least `byte`. */
static size_t lower_bound(const rf_special_tokens *set, size_t low, size_t high, size_t depth, int byte)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if ((unsigned char)set->token[middle].text.data[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int32_t rf_special_tokens_match(const rf_special_tokens *set, rf_text text, size_t *length)
{
    size_t low = 0, high = set->count;
    int32_t best = -1;

    /* [low, high) always are the tokens that share text's first `depth` bytes; one that ends there comes first. */
    for (size_t depth = 0; low < high; depth++) {
        if (set->token[low].text.length == depth) {
            best = set->token[low++].id;
            *length = depth;
        }
        if (depth == text.length)
            break;
        low = lower_bound(set, low, high, depth, (unsigned char)text.data[depth]);
        high = lower_bound(set, low, high, depth, (unsigned char)text.data[depth] + 1);
    }
    return best;
}
