#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf_private.h"
#include "hash.h"

#define MAX_PARTS 999
#define SPLIT_SUFFIX_BYTES 20 /* "-00001-of-00002.gguf" */

static void show_path(gguf_part *p, const char *path)
{
    size_t length = strlen(path);

    if (length < sizeof p->shown) {
        rf_text_printable((rf_text){path, length}, p->shown, sizeof p->shown);
        return;
    }
    length = sizeof p->shown - 4; /* the end of a path says more than its beginning */
    memcpy(p->shown, "...", 3);
    rf_text_printable((rf_text){path + strlen(path) - length, length}, p->shown + 3, sizeof p->shown - 3);
}

static int map_open_file(gguf_part *p, int fd, rf_error *err)
{
    struct stat info;
    void *map;

    if (fstat(fd, &info) != 0)
        return rf_fail(err, RF_ERR_FILE, "%s: cannot be read: %s", p->shown, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return rf_fail(err, RF_ERR_FILE, "%s: a directory; a GGUF file is expected", p->shown);
    if (!S_ISREG(info.st_mode))
        return rf_fail(err, RF_ERR_FILE, "%s: not a regular file; a GGUF file is expected", p->shown);
    if (info.st_size == 0)
        return rf_fail(err, RF_ERR_FILE, "%s: the file is empty", p->shown);
    map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return rf_fail(err, RF_ERR_FILE, "%s: cannot be mapped: %s", p->shown, strerror(errno));
    p->map = map;
    p->size = (size_t)info.st_size;
    return 0;
}

static int open_part(gguf_part *p, const char *path, rf_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), failed; /* O_NONBLOCK: a named pipe must not hang us */

    show_path(p, path);
    if (fd < 0)
        return rf_fail(err, RF_ERR_FILE, "%s: cannot be opened: %s", p->shown, strerror(errno));
    failed = map_open_file(p, fd, err);
    close(fd);
    return failed ? -1 : gguf_parse(p, err);
}

static int split_number(const rf_gguf *f, const char *key, uint64_t max, size_t *out, rf_error *err)
{
    uint64_t value;

    if (rf_gguf_get_uint(f, key, max, &value, err) != 0)
        return -1;
    *out = (size_t)value;
    return 0;
}

/* Part i, from 0, of count. */
static int check_sister(gguf_part *p, size_t i, size_t count, rf_error *err)
{
    rf_gguf one = {.parts = p, .n_parts = 1};
    size_t number, parts;

    if (split_number(&one, "split.no", MAX_PARTS, &number, err) != 0 ||
        split_number(&one, "split.count", MAX_PARTS, &parts, err) != 0)
        return -1;
    if (number != i || parts != count)
        return rf_fail(err, RF_ERR_FILE,
                       "%s: says it is part %zu of %zu (split.no, split.count); part %zu of %zu is expected", p->shown,
                       number + 1, parts, i + 1, count);
    return 0;
}

/* The limits on one header hold for those of a set together. */
static int check_sums(const rf_gguf *f, rf_error *err)
{
    size_t n_keys = 0, n_tensors = 0;

    for (size_t i = 0; i < f->n_parts; i++) {
        n_keys += f->parts[i].n_keys;
        n_tensors += f->parts[i].n_tensors;
    }
    if (n_keys <= MAX_KEYS && n_tensors <= MAX_TENSORS && rf_gguf_header_bytes(f) <= MAX_HEADER_BYTES)
        return 0;
    return rf_fail(err, RF_ERR_FILE,
                   "%s: %zu keys, %zu tensors and %zu header bytes in %zu parts are more than a model has",
                   f->parts[0].shown, n_keys, n_tensors, rf_gguf_header_bytes(f), f->n_parts);
}

/* NAME-00001-of-0000N.gguf and its sisters */
static int open_sisters(rf_gguf *f, const char *first, size_t count, rf_error *err)
{
    size_t stem = strlen(first) - SPLIT_SUFFIX_BYTES;
    char *path = malloc(stem + SPLIT_SUFFIX_BYTES + 1);
    gguf_part *parts = realloc(f->parts, count * sizeof *parts);
    int failed = 0;

    if (parts)
        f->parts = parts;
    if (!path || !parts) {
        free(path);
        return rf_fail(err, RF_ERR_MEMORY, "no memory for %zu files", count);
    }
    memcpy(path, first, stem);
    for (size_t i = 1; i < count && !failed; i++) {
        memset(&f->parts[i], 0, sizeof f->parts[i]);
        f->n_parts = i + 1;
        snprintf(path + stem, SPLIT_SUFFIX_BYTES + 1, "-%05u-of-%05u.gguf", (unsigned)(i + 1), (unsigned)count);
        failed = open_part(&f->parts[i], path, err) != 0 || check_sister(&f->parts[i], i, count, err) != 0 ||
                 check_sums(f, err) != 0;
    }
    free(path);
    return failed ? -1 : 0;
}

static int open_set(rf_gguf *f, const char *path, rf_error *err)
{
    size_t count, number, length = strlen(path);
    char suffix[SPLIT_SUFFIX_BYTES + 1];

    if (!rf_gguf_has(f, "split.count"))
        return 0;
    if (split_number(f, "split.count", MAX_PARTS, &count, err) != 0 ||
        split_number(f, "split.no", MAX_PARTS, &number, err) != 0)
        return -1;
    if (count <= 1)
        return 0;
    snprintf(suffix, sizeof suffix, "-00001-of-%05u.gguf", (unsigned)count);
    if (number != 0 || length < SPLIT_SUFFIX_BYTES || strcmp(path + length - SPLIT_SUFFIX_BYTES, suffix) != 0)
        return rf_fail(err, RF_ERR_FILE, "%s: one of %zu parts; give the first, NAME%s", f->parts[0].shown, count,
                       suffix);
    return open_sisters(f, path, count, err);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const rf_tensor *const *)a)->name, (*(const rf_tensor *const *)b)->name);
}

static int index_tensors(rf_gguf *f, rf_error *err)
{
    size_t claimed, n = 0;

    for (size_t i = 0; i < f->n_parts; i++)
        f->n_tensors += f->parts[i].n_tensors;
    f->order = calloc(f->n_tensors + 1, sizeof *f->order);
    f->by_name = calloc(f->n_tensors + 1, sizeof *f->by_name);
    if (!f->order || !f->by_name)
        return rf_fail(err, RF_ERR_MEMORY, "%s: no memory for %zu tensors", f->parts[0].shown, f->n_tensors);
    for (size_t i = 0; i < f->n_parts; i++)
        for (size_t k = 0; k < f->parts[i].n_tensors; k++, n++)
            f->order[n] = f->by_name[n] = &f->parts[i].tensors[k];
    qsort(f->by_name, n, sizeof *f->by_name, by_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(f->by_name[i - 1]->name, f->by_name[i]->name) == 0)
            return rf_fail(err, RF_ERR_FILE, "%s: tensor %s occurs twice", f->parts[0].shown, f->by_name[i]->name);
    if (!rf_gguf_has(f, "split.tensors.count"))
        return 0;
    if (split_number(f, "split.tensors.count", SIZE_MAX, &claimed, err) != 0)
        return -1;
    if (claimed != n)
        return rf_fail(err, RF_ERR_FILE, "%s: the set should have %zu tensors, its parts have %zu", f->parts[0].shown,
                       claimed, n);
    return 0;
}

rf_gguf *rf_gguf_open(const char *path, rf_error *err)
{
    rf_gguf *f = calloc(1, sizeof *f);

    if (f)
        f->parts = calloc(1, sizeof *f->parts);
    if (!f || !f->parts) {
        free(f);
        rf_fail(err, RF_ERR_MEMORY, "no memory to open %s", path);
        return NULL;
    }
    f->n_parts = 1;
    if (open_part(&f->parts[0], path, err) == 0 && open_set(f, path, err) == 0 && index_tensors(f, err) == 0)
        return f;
    rf_gguf_close(f);
    return NULL;
}

void rf_gguf_close(rf_gguf *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->n_parts; i++) {
        if (f->parts[i].map)
            munmap((void *)(uintptr_t)f->parts[i].map, f->parts[i].size);
        gguf_part_free(&f->parts[i]);
    }
    free(f->parts);
    free(f->order);
    free(f->by_name);
    free(f);
}

const char *rf_gguf_path(const rf_gguf *f)
{
    return f->parts[0].shown;
}

size_t rf_gguf_n_tensors(const rf_gguf *f)
{
    return f->n_tensors;
}

const rf_tensor *rf_gguf_tensor(const rf_gguf *f, size_t i)
{
    return f->order[i];
}

const rf_tensor *rf_gguf_find(const rf_gguf *f, const char *name)
{
    rf_tensor wanted = {.name = name};
    const rf_tensor *key = &wanted, **found;

    found = f->n_tensors ? bsearch(&key, f->by_name, f->n_tensors, sizeof *f->by_name, by_name) : NULL;
    return found ? *found : NULL;
}

size_t rf_gguf_file_size(const rf_gguf *f)
{
    size_t sum = 0;

    for (size_t i = 0; i < f->n_parts; i++)
        sum += f->parts[i].size;
    return sum;
}

size_t rf_gguf_header_bytes(const rf_gguf *f)
{
    size_t sum = 0;

    for (size_t i = 0; i < f->n_parts; i++)
        sum += f->parts[i].header;
    return sum;
}

uint64_t rf_gguf_header_hash(const rf_gguf *f)
{
    uint64_t hash = RF_HASH_START;

    for (size_t i = 0; i < f->n_parts; i++)
        hash = rf_hash_bytes(hash, f->parts[i].map, f->parts[i].header);
    return hash;
}

static void on_sigbus(int number)
{
    static const char text[] = "rankflash: a mapped model file became shorter while it was in use\n";
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);

    (void)number;
    (void)written;
    _exit(RF_ERR_FILE);
}

void rf_gguf_guard_sigbus(void)
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = on_sigbus;
    sigaction(SIGBUS, &action, NULL);
}
