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

#define MAX_PARTS 999
#define SPLIT_SUFFIX_BYTES 20 /* "-00001-of-00002.gguf" */

static int map_file(gguf_part *p, rf_error *err)
{
    struct stat info;
    int fd = open(p->path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return rf_fail(err, RF_ERR_FILE, "%s: cannot be opened: %s", p->path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return rf_fail(err, RF_ERR_FILE, "%s: not a file", p->path);
    }
    if (info.st_size == 0) {
        close(fd);
        return rf_fail(err, RF_ERR_FILE, "%s: the file is empty", p->path);
    }
    p->size = (size_t)info.st_size;
    p->map = mmap(NULL, p->size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (p->map == MAP_FAILED) {
        p->map = NULL;
        return rf_fail(err, RF_ERR_FILE, "%s: cannot be mapped: %s", p->path, strerror(errno));
    }
    return 0;
}

static int open_part(gguf_part *p, const char *path, rf_error *err)
{
    p->path = strdup(path);
    if (!p->path)
        return rf_fail(err, RF_ERR_MEMORY, "no memory for a path");
    return map_file(p, err) == 0 ? gguf_parse(p, err) : -1;
}

static int split_number(const rf_gguf *f, const char *key, uint64_t max, size_t *out, rf_error *err)
{
    uint64_t value;

    if (rf_gguf_get_uint(f, key, max, &value, err) != 0)
        return -1;
    *out = (size_t)value;
    return 0;
}

/* NAME-00001-of-0000N.gguf and its sisters */
static int open_parts(rf_gguf *f, size_t count, rf_error *err)
{
    const char *first = f->parts[0].path;
    size_t length = strlen(first), stem = length - SPLIT_SUFFIX_BYTES, number;
    char *path = malloc(length + 1), suffix[64];
    gguf_part *parts = realloc(f->parts, count * sizeof *parts);
    int failed = 0;

    if (parts)
        f->parts = parts;
    if (!path || !parts) {
        free(path);
        return rf_fail(err, RF_ERR_MEMORY, "no memory for %zu files", count);
    }
    first = f->parts[0].path;
    for (size_t i = 1; i < count && !failed; i++) {
        memset(&f->parts[i], 0, sizeof f->parts[i]);
        f->n_parts = i + 1;
        snprintf(suffix, sizeof suffix, "-%05zu-of-%05zu.gguf", i + 1, count);
        memcpy(path, first, stem);
        memcpy(path + stem, suffix, SPLIT_SUFFIX_BYTES + 1);
        failed = open_part(&f->parts[i], path, err);
        if (!failed) {
            rf_gguf one = {&f->parts[i], 1, NULL, NULL, 0};

            failed = split_number(&one, "split.no", MAX_PARTS, &number, err);
            if (!failed && number != i)
                failed = rf_fail(err, RF_ERR_FILE, "%s: split.no is %zu, %zu is expected", path, number, i);
        }
    }
    free(path);
    return failed;
}

static int open_set(rf_gguf *f, rf_error *err)
{
    const char *path = f->parts[0].path;
    size_t count, number, length = strlen(path);
    char suffix[64];

    if (!rf_gguf_has(f, "split.count"))
        return 0;
    if (split_number(f, "split.count", MAX_PARTS, &count, err) != 0 || split_number(f, "split.no", MAX_PARTS, &number, err) != 0)
        return -1;
    if (count <= 1)
        return 0;
    snprintf(suffix, sizeof suffix, "-00001-of-%05zu.gguf", count);
    if (number != 0 || length < SPLIT_SUFFIX_BYTES || strcmp(path + length - SPLIT_SUFFIX_BYTES, suffix) != 0)
        return rf_fail(err, RF_ERR_FILE, "%s: one of %zu parts; give the first, NAME%s", path, count, suffix);
    return open_parts(f, count, err);
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
        return rf_fail(err, RF_ERR_MEMORY, "%s: no memory for %zu tensors", f->parts[0].path, f->n_tensors);
    for (size_t i = 0; i < f->n_parts; i++)
        for (size_t k = 0; k < f->parts[i].n_tensors; k++, n++)
            f->order[n] = f->by_name[n] = &f->parts[i].tensors[k];
    qsort(f->by_name, n, sizeof *f->by_name, by_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(f->by_name[i - 1]->name, f->by_name[i]->name) == 0)
            return rf_fail(err, RF_ERR_FILE, "%s: tensor %s occurs twice", f->parts[0].path, f->by_name[i]->name);
    if (!rf_gguf_has(f, "split.tensors.count"))
        return 0;
    if (split_number(f, "split.tensors.count", SIZE_MAX, &claimed, err) != 0)
        return -1;
    if (claimed != n)
        return rf_fail(err, RF_ERR_FILE, "%s: the set should have %zu tensors, its parts have %zu", f->parts[0].path, claimed, n);
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
    if (open_part(&f->parts[0], path, err) == 0 && open_set(f, err) == 0 && index_tensors(f, err) == 0)
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
    return f->parts[0].path;
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
    uint64_t hash = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < f->n_parts; i++)
        for (size_t k = 0; k < f->parts[i].header; k++)
            hash = (hash ^ f->parts[i].map[k]) * UINT64_C(1099511628211);
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
