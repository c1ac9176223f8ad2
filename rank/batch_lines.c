#include "config.h"

#include "batch_lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_CAPACITY ((size_t)64 << 10)

void rf_lines_begin(rf_lines *l, int fd, const char *name)
{
    off_t here = lseek(fd, 0, SEEK_CUR);

    *l = (rf_lines){.name = name, .fd = fd, .offset = here > 0 ? here : 0};
}

void rf_lines_end(rf_lines *l)
{
    free(l->buffer);
    l->buffer = NULL;
}

static int grow(rf_lines *l, rf_error *err)
{
    size_t capacity = l->capacity ? l->capacity * 2 : FIRST_CAPACITY;
    char *grown;

    if (capacity > RF_LONGEST_LINE + FIRST_CAPACITY)
        capacity = RF_LONGEST_LINE + FIRST_CAPACITY;
    grown = realloc(l->buffer, capacity);
    if (!grown)
        return rf_fail(err, RF_ERR_MEMORY, "no memory for line %zu of %s", l->number + 1, l->name);
    l->buffer = grown;
    l->capacity = capacity;
    return 0;
}

/* More bytes behind buffer[end); there is room for some. */
static int fill(rf_lines *l, rf_error *err)
{
    ssize_t n;

    do
        n = read(l->fd, l->buffer + l->end, l->capacity - l->end);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return rf_fail(err, RF_ERR_FILE, "cannot read %s: %s", l->name, strerror(errno));
    l->ended = n == 0;
    l->end += (size_t)n;
    return 0;
}

static void drop(rf_lines *l, size_t n)
{
    l->at += n;
    l->offset += (int64_t)n;
}

static int make_room(rf_lines *l, rf_error *err)
{
    if (l->at) {
        memmove(l->buffer, l->buffer + l->at, l->end - l->at);
        l->end -= l->at;
        l->at = 0;
    }
    return l->end == l->capacity ? grow(l, err) : 0;
}

/* Passes over the rest of a line that is too long; its kept bytes stand at the buffer's start. */
static int skip_rest(rf_lines *l, rf_line *line, rf_error *err)
{
    for (;;) {
        char *tail = l->buffer + RF_LONGEST_LINE, *newline = memchr(tail, '\n', l->end - RF_LONGEST_LINE);
        size_t n = newline ? (size_t)(newline - tail) + 1 : l->end - RF_LONGEST_LINE;

        l->offset += (int64_t)n;
        memmove(tail, tail + n, l->end - RF_LONGEST_LINE - n);
        l->end -= n;
        if (newline || l->ended) {
            line->whole = newline != NULL;
            return 0;
        }
        if (fill(l, err) != 0)
            return -1;
    }
}

static int finish(rf_lines *l, rf_line *line, size_t length, bool whole)
{
    line->text = (rf_text){l->buffer + l->at, length};
    line->offset = l->offset;
    line->number = ++l->number;
    line->whole = whole;
    drop(l, length + (whole ? 1 : 0));
    return 1;
}

int rf_lines_next(rf_lines *l, rf_line *line, rf_error *err)
{
    size_t searched = 0;

    memset(line, 0, sizeof *line);
    for (;;) {
        size_t have = l->end - l->at;
        char *start = l->buffer ? l->buffer + l->at : NULL;
        char *newline = have > searched ? memchr(start + searched, '\n', have - searched) : NULL;

        if (newline && (size_t)(newline - start) <= RF_LONGEST_LINE)
            return finish(l, line, (size_t)(newline - start), true);
        if (have > RF_LONGEST_LINE) {
            if (make_room(l, err) != 0)
                return -1;
            line->too_long = true;
            finish(l, line, RF_LONGEST_LINE, false);
            return skip_rest(l, line, err) == 0 ? 1 : -1;
        }
        if (l->ended)
            return have ? finish(l, line, have, false) : 0;
        searched = have;
        if (make_room(l, err) != 0 || fill(l, err) != 0)
            return -1;
    }
}
