/* -f: the prompt in a file. */
#include "options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define READ_SIZE ((size_t)64 << 10)

/* Reads to the end, whatever kind of file it is (a pipe has no size). NULL: errno says why. */
static char *read_all(FILE *file, size_t *length)
{
    size_t capacity = READ_SIZE;
    char *bytes = malloc(capacity);

    *length = 0;
    while (bytes) {
        size_t n = fread(bytes + *length, 1, capacity - *length, file);
        char *grown;

        *length += n;
        if (*length < capacity && (feof(file) || ferror(file)))
            break;
        if (*length < capacity)
            continue;
        capacity *= 2;
        grown = realloc(bytes, capacity);
        if (!grown)
            free(bytes);
        bytes = grown;
    }
    if (bytes && ferror(file)) {
        free(bytes);
        bytes = NULL;
    }
    return bytes;
}

int rf_options_load_prompt(rf_options *o, rf_error *err)
{
    FILE *file;
    char *bytes, **grown;
    size_t length;

    if (!o->prompt_file)
        return 0;
    file = fopen(o->prompt_file, "rb");
    if (!file)
        return rf_fail(err, RF_ERR_FILE, "cannot open the prompt file %s: %s", o->prompt_file, strerror(errno));
    errno = 0;
    bytes = read_all(file, &length);
    if (!bytes) {
        rf_fail(err, errno == ENOMEM ? RF_ERR_MEMORY : RF_ERR_FILE, "cannot read the prompt file %s: %s",
                o->prompt_file, strerror(errno));
        fclose(file);
        return -1;
    }
    fclose(file);
    grown = realloc(o->owned, (o->n_owned + 1) * sizeof *grown);
    if (!grown) {
        free(bytes);
        return rf_fail(err, RF_ERR_MEMORY, "out of memory for the prompt file %s", o->prompt_file);
    }
    o->owned = grown;
    o->owned[o->n_owned++] = bytes;
    o->prompt = (rf_text){bytes, length};
    return 0;
}
