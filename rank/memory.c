#include "config.h"

#include "memory.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESERVE_PERCENT 5 /* of the available memory that ranks leave free */

/* Where a version of control groups keeps its numbers, in bytes. Version 1 sums a group with those below in total_*. */
typedef struct {
    const char *controller; /* how /proc/self/cgroup names the hierarchy */
    const char *mount, *limit, *used, *inactive, *active;
} hierarchy;

static const hierarchy hierarchies[] = {
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file ", "active_file "},
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ",
     "total_active_file "},
};

/* The number after `key` at the start of a line; 0 if it is not there. */
static size_t field(const char *path, const char *key)
{
    FILE *file = fopen(path, "r");
    char line[256];
    size_t value = 0;

    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0) {
            value = (size_t)strtoull(line + strlen(key), NULL, 10);
            break;
        }
    if (file)
        fclose(file);
    return value;
}

/* The number a file holds; `otherwise` where there is none ("max"). */
static size_t number_in(const char *path, size_t otherwise)
{
    FILE *file = fopen(path, "r");
    char line[64], *end;
    size_t value = otherwise;

    if (file && fgets(line, sizeof line, file)) {
        unsigned long long n = strtoull(line, &end, 10);

        if (end != line)
            value = (size_t)n;
    }
    if (file)
        fclose(file);
    return value;
}

/* What one group leaves; SIZE_MAX: no limit. */
static size_t left_in(const char *folder, const hierarchy *h)
{
    char path[PATH_MAX + 64];
    size_t limit, used, cached;

    snprintf(path, sizeof path, "%s/%s", folder, h->limit);
    limit = number_in(path, SIZE_MAX);
    if (limit == SIZE_MAX)
        return SIZE_MAX;
    snprintf(path, sizeof path, "%s/%s", folder, h->used);
    used = number_in(path, 0);
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    cached = field(path, h->inactive) + field(path, h->active);
    used = used > cached ? used - cached : 0;
    return limit > used ? limit - used : 1;
}

/* The least that the group at `path` and those above it leave. A container may see its own group as the mount itself:
 * folders that are not there limit nothing. */
static size_t left_above(const char *root, const hierarchy *h, char *path)
{
    size_t least = SIZE_MAX;

    for (;;) {
        char folder[PATH_MAX], *slash = strrchr(path, '/');
        size_t left;

        snprintf(folder, sizeof folder, "%s%s%s", root, h->mount, strcmp(path, "/") == 0 ? "" : path);
        left = left_in(folder, h);
        least = left < least ? left : least;
        if (!*path || !slash)
            return least;
        *slash = 0;
    }
}

/* Whether the comma-separated list of controllers names h's. */
static bool names(const char *controllers, const hierarchy *h)
{
    size_t n = strlen(h->controller);

    for (const char *at = controllers;; at += strcspn(at, ",") + 1) {
        size_t length = strcspn(at, ",");

        if (length == n && memcmp(at, h->controller, n) == 0)
            return true;
        if (!at[length])
            return false;
    }
}

/* Lines of /proc/self/cgroup are number:controllers:path, without controllers in version 2. */
static size_t left_in_groups(const char *root)
{
    char path[PATH_MAX], line[PATH_MAX + 256];
    size_t least = SIZE_MAX;
    FILE *file;

    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;

        if (!group)
            continue;
        controllers++;
        *group++ = 0;
        group[strcspn(group, "\n")] = 0;
        for (size_t i = 0; i < sizeof hierarchies / sizeof *hierarchies; i++)
            if (names(controllers, &hierarchies[i])) {
                char own[PATH_MAX];
                size_t left;

                snprintf(own, sizeof own, "%s", group);
                left = left_above(root, &hierarchies[i], own);
                least = left < least ? left : least;
            }
    }
    if (file)
        fclose(file);
    return least;
}

size_t rf_memory_available_at(const char *root)
{
    char path[PATH_MAX];
    size_t available, left = left_in_groups(root);

    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    available = field(path, "MemAvailable:") * 1024;
    if (!available)
        return left == SIZE_MAX ? 0 : left;
    return left < available ? left : available;
}

size_t rf_memory_available(void)
{
    return rf_memory_available_at("");
}

size_t rf_memory_share(size_t available, size_t n_ranks)
{
    size_t share = available / 100 * (100 - RESERVE_PERCENT) / n_ranks;

    return share || !available ? share : 1;
}

size_t rf_memory_used(void)
{
    return (field("/proc/self/status", "RssAnon:") + field("/proc/self/status", "RssShmem:")) * 1024;
}
