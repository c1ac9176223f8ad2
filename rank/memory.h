/* Host memory: what a rank may use, and what it uses. */
#ifndef RF_MEMORY_H
#define RF_MEMORY_H

#include <stddef.h>

/* Bytes that may still be used on this host: MemAvailable, or less where a control group (version 1 or 2) of this
 * process, or one above it, limits it. Pages of files in a group's cache do not count as used: the kernel drops them
 * first. At least 1 where a limit is reached; 0: unknown. */
size_t rf_memory_available(void);
/* The same from the files under another root ("" is this host). */
size_t rf_memory_available_at(const char *root);
/* Pure: the part of one rank where n_ranks (>= 1) share a host with so much available, after a reserve of 5 %. At least
 * 1; 0 stays 0: unknown. */
size_t rf_memory_share(size_t available, size_t n_ranks);
/* RssAnon + RssShmem of this process (pages of mapped files do not count). */
size_t rf_memory_used(void);

#endif
