/* Kernels that are right, and kernels that break one rule each, for the test of the emulator. */
#ifndef RF_TESTS_EMU_KERNELS_H
#define RF_TESTS_EMU_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    EMU_FINE,             /* sums of a block through shared memory and shuffles */
    EMU_RACE_READ,        /* no barrier between a write and another thread's read */
    EMU_RACE_WRITE,       /* two threads write one element */
    EMU_RACE_HISTOGRAM,   /* += where rt_atomic_add is needed */
    EMU_HISTOGRAM,        /* with it */
    EMU_OUT_OF_BOUNDS,    /* one element too far */
    EMU_DYNAMIC_TOO_FAR,  /* the same in memory whose size the launch decides */
    EMU_UNINITIALISED,    /* an element that nobody has written */
    EMU_LEFTOVER,         /* an element that only the block before has written */
    EMU_MISSED_BARRIER,   /* half of the block does not come */
    EMU_DIVERGED_SHUFFLE, /* half of a warp does not come */
    EMU_NOT_TOGETHER,     /* for a launch of independent threads: none of the above */
    EMU_TOO_MUCH,         /* more shared memory than there is */
    EMU_ORDER             /* a sum of floats in the order in which threads happen to run */
} emu_case;

/* Two blocks of 64 threads. out: [2]. */
void emu_run_case(emu_case which, unsigned width, uint64_t order, float *out);

#ifdef __cplusplus
}
#endif

#endif
