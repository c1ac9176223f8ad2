/* Host memory: what a rank may use, and what it uses. */
#ifndef RF_MEMORY_H
#define RF_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Bytes available on this host now: MemAvailable, or less where the control group limits it. 0: unknown. */
size_t rf_memory_available(void);
/* RssAnon + RssShmem of this process (pages of mapped files do not count). */
size_t rf_memory_used(void);

#endif
