#include "text.h"

#include <stdlib.h>
#include <string.h>

int rf_tokens_push(rf_tokens *list, int32_t id)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 64;
        int32_t *grown = realloc(list->id, capacity * sizeof *grown);

        if (!grown)
            return -1;
        list->id = grown;
        list->capacity = capacity;
    }
    list->id[list->count++] = id;
    return 0;
}

void rf_tokens_clear(rf_tokens *list)
{
    list->count = 0;
}

void rf_tokens_free(rf_tokens *list)
{
    free(list->id);
    *list = (rf_tokens){0};
}

const char *rf_text_printable(rf_text text, char *out, size_t capacity)
{
    size_t kept = text.length < capacity ? text.length : capacity - 4;

    for (size_t i = 0; i < kept; i++)
        out[i] = text.data[i] >= ' ' && text.data[i] <= '~' ? text.data[i] : '?';
    out[kept] = '\0';
    if (kept < text.length)
        memcpy(out + kept, "...", 4);
    return out;
}
