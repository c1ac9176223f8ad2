/* Fibers: stacks that give way to each other. */
#ifndef RF_GPU_EMU_FIBER_H
#define RF_GPU_EMU_FIBER_H

#include <stddef.h>

#define RF_FIBER_STACK ((size_t)64 << 10)

#if defined(__SANITIZE_ADDRESS__)
#define RF_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RF_FIBER_ASAN 1
#endif
#endif

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

typedef struct {
#if defined(__x86_64__) || defined(__aarch64__)
    void *stack_pointer;
#else
    ucontext_t context;
#endif
    void *stack; /* NULL: the thread that switches to fibers */
    void *shadow_stack;
    const void *bottom; /* of the stack, for the address sanitizer */
    size_t size;
} rf_fiber;

/* The fiber will run entry() on `stack` (RF_FIBER_STACK bytes) when it is first switched to; entry never returns. */
void rf_fiber_prepare(rf_fiber *fiber, void *stack, void (*entry)(void));
/* Leaves `from`, which goes on when somebody switches back. from_ends: it never will. */
void rf_fiber_switch(rf_fiber *from, rf_fiber *to, int from_ends);
/* First thing in entry(). */
void rf_fiber_started(rf_fiber *fiber);

#endif
