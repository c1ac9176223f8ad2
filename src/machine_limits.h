/* What the processors of this host can do at most, measured: the yardsticks of rankflash-bench.
 *
 * Reading: loops that do nothing but read memory far above the caches, several ways (streams side by side, asking
 * ahead, small or huge pages); the best of them is the limit. Arithmetic: int8 products in registers. The threads are
 * OpenMP's (outside of a parallel region); where ranks share a host all must measure at the same time. */
#ifndef RF_MACHINE_LIMITS_H
#define RF_MACHINE_LIMITS_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"

typedef struct {
    int streams;  /* 1 .. RF_MAX_STREAMS places that a thread reads from in turn */
    size_t ahead; /* bytes that are asked for ahead; 0: the processor's own foresight */
    bool huge_pages;
} rf_read_loop;

#define RF_MAX_STREAMS 4

typedef struct rf_read_memory rf_read_memory;

/* Memory to read, touched by the threads that will read it; at least n_threads * RF_READ_LEAST bytes. */
#define RF_READ_LEAST ((size_t)1 << 20)
rf_read_memory *rf_read_memory_create(int n_threads, size_t bytes, bool huge_pages, rf_error *err);
void rf_read_memory_destroy(rf_read_memory *m);
/* Reads about `bytes` bytes with all threads, going on where the last call ended. Returns the seconds it took; *done:
 * bytes that were read. loop->huge_pages must be the memory's. */
double rf_read_memory_run(rf_read_memory *m, const rf_read_loop *loop, size_t bytes, size_t *done);

/* int8 multiplications with addition a second that n_threads do together from registers, the best within `seconds`; 0 where
 * this processor has no such instructions that are known here. name: of the instructions. */
double rf_int8_peak(int n_threads, double seconds, const char **name);

#endif
