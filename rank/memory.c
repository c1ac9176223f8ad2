#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number after `key` in a file of "key: N kB" lines, in bytes; 0 if it is not there. */
static size_t kib_field(const char *path, const char *key)
{
    FILE *file = fopen(path, "r");
    char line[256];
    size_t bytes = 0;

    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0) {
            bytes = (size_t)strtoull(line + strlen(key), NULL, 10) * 1024;
            break;
        }
    if (file)
        fclose(file);
    return bytes;
}

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

size_t rf_memory_available(void)
{
    size_t available = kib_field("/proc/meminfo", "MemAvailable:");
    size_t limit = number_in("/sys/fs/cgroup/memory.max", SIZE_MAX), used = number_in("/sys/fs/cgroup/memory.current", 0);

    if (limit != SIZE_MAX) {
        size_t left = limit > used ? limit - used : 0;

        available = left < available ? left : available;
    }
    return available;
}

size_t rf_memory_used(void)
{
    return kib_field("/proc/self/status", "RssAnon:") + kib_field("/proc/self/status", "RssShmem:");
}
