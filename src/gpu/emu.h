/* A GPU on the host, for tests: runs kernels that are compiled by the host's C++ compiler (gpu_rt.h), and watches them.
 *
 * Blocks run one after another. The threads of a block are fibers that give way to each other where the kernel
 * synchronises: at a barrier when all threads of the block have come, at a shuffle when all lanes of the warp have. What
 * hardware leaves undefined is an error here, and the first one is kept until it is asked for:
 *
 *  - lanes of a warp that wait for different things (a barrier, a shuffle, the end), threads that miss a barrier;
 *  - shared memory: access beyond an array, reading an element that no thread of the block has written, more bytes than
 *    a block may have;
 *  - a race: two threads touch an element between the same two barriers, one of them writes, and not both atomically;
 *  - a barrier, shuffle or shared array in a kernel that was launched as one whose threads are independent.
 *
 * Memory is followed by guard bytes that are looked at when it is freed. With a seed, threads and warps run in another
 * order after every barrier: a result that depends on their order changes.
 *
 * A process has one emulated block at a time: launches do not nest and come from one thread. */
#ifndef RF_GPU_EMU_H
#define RF_GPU_EMU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RF_EMU_MAX_THREADS 1024          /* a block */
#define RF_EMU_SHARED_BYTES ((size_t)49152) /* a block, as every CUDA and HIP device has */

/* What a kernel may ask: its place in the launch. */
typedef struct {
    unsigned thread, n_threads;
    unsigned block[3], n_blocks[3];
} rf_emu_place;

extern rf_emu_place rf_emu_here;

typedef struct {
    const char *name;      /* of the kernel, for messages */
    unsigned n_blocks[3], n_threads;
    size_t dynamic_bytes;  /* shared memory whose size the launch decides */
    int together;          /* threads synchronise or share memory; else they run as a plain loop */
} rf_emu_launch;

/* For the next launches. width: 32 or 64 lanes a warp. order: 0: threads run in ascending order; else a seed of other
 * orders. */
void rf_emu_set(unsigned width, uint64_t order);
/* The order of streams that are opened from now on (tests); 0 at first. */
void rf_emu_set_order(uint64_t order);
uint64_t rf_emu_order(void);
/* Runs body(context) for every thread. After an error nothing runs until the error was taken. */
void rf_emu_run(const rf_emu_launch *launch, void (*body)(const void *context), const void *context);
/* The first error since the last call, one sentence; NULL: none. Valid until the next launch. */
const char *rf_emu_take_error(void);

/* ---- For kernels */

void rf_emu_barrier(void);
/* The 8 bytes that the lane with this lane's number xor `mask` brought to the same shuffle. */
uint64_t rf_emu_shuffle_xor(uint64_t value, unsigned mask);

typedef struct rf_emu_array rf_emu_array;
/* The next shared array of this block: every thread asks for the same ones in the same order. `count` SIZE_MAX: what the
 * launch gave. */
rf_emu_array *rf_emu_shared(size_t element, size_t count);
/* Address of an element that is about to be read, written, or changed atomically. */
const void *rf_emu_read(rf_emu_array *a, size_t i);
void *rf_emu_write(rf_emu_array *a, size_t i);
void *rf_emu_atomic(rf_emu_array *a, size_t i);

/* ---- Memory: zeroed; NULL where there is none. */

void *rf_emu_alloc(size_t bytes);
void rf_emu_free(void *p, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
