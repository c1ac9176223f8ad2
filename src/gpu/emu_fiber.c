#include "config.h"

#include "emu_fiber.h"

#include <stdint.h>
#include <string.h>

#ifdef RF_FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)

/* rf_fiber_swap(&old stack pointer, new stack pointer): what a function must keep goes on the old stack (System V). */
void rf_fiber_swap(void **old, void *new);
__asm__(".text\n"
        ".globl rf_fiber_swap\n"
        ".hidden rf_fiber_swap\n"
        ".type rf_fiber_swap, @function\n"
        "rf_fiber_swap:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size rf_fiber_swap, .-rf_fiber_swap\n");

#define SAVED_WORDS 6 /* below the return address */

static void *first_frame(void *stack, void (*entry)(void))
{
    /* entry starts as if it had been called: 16-byte alignment, less a return address */
    uintptr_t *top = (uintptr_t *)((unsigned char *)stack + RF_FIBER_STACK) - 1;

    *top = 0;
    *--top = (uintptr_t)entry;
    for (int i = 0; i < SAVED_WORDS; i++)
        *--top = 0;
    return top;
}

#elif defined(__aarch64__)

/* The same for AAPCS64: x19-x30 and d8-d15. */
void rf_fiber_swap(void **old, void *new);
__asm__(".text\n"
        ".globl rf_fiber_swap\n"
        ".hidden rf_fiber_swap\n"
        ".type rf_fiber_swap, %function\n"
        "rf_fiber_swap:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size rf_fiber_swap, .-rf_fiber_swap\n");

static void *first_frame(void *stack, void (*entry)(void))
{
    uintptr_t *frame = (uintptr_t *)((unsigned char *)stack + RF_FIBER_STACK - 160);

    memset(frame, 0, 160);
    frame[11] = (uintptr_t)entry; /* x30: where ret goes */
    return frame;
}

#endif

void rf_fiber_prepare(rf_fiber *fiber, void *stack, void (*entry)(void))
{
    fiber->stack = stack;
    fiber->bottom = stack;
    fiber->size = RF_FIBER_STACK;
    fiber->shadow_stack = NULL;
#if defined(__x86_64__) || defined(__aarch64__)
    fiber->stack_pointer = first_frame(stack, entry);
#else
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = stack;
    fiber->context.uc_stack.ss_size = RF_FIBER_STACK;
    fiber->context.uc_link = NULL;
    makecontext(&fiber->context, entry, 0);
#endif
}

#ifdef RF_FIBER_ASAN
static rf_fiber *left; /* the fiber that was left last */

static void arrived(rf_fiber *fiber)
{
    const void *bottom;
    size_t size;

    __sanitizer_finish_switch_fiber(fiber->shadow_stack, &bottom, &size);
    if (left && !left->stack) { /* only now is it known where the thread's own stack lies */
        left->bottom = bottom;
        left->size = size;
    }
}
#endif

void rf_fiber_switch(rf_fiber *from, rf_fiber *to, int from_ends)
{
#ifdef RF_FIBER_ASAN
    left = from;
    __sanitizer_start_switch_fiber(from_ends ? NULL : &from->shadow_stack, to->bottom, to->size);
#else
    (void)from_ends;
#endif
#if defined(__x86_64__) || defined(__aarch64__)
    rf_fiber_swap(&from->stack_pointer, to->stack_pointer);
#else
    swapcontext(&from->context, &to->context);
#endif
#ifdef RF_FIBER_ASAN
    arrived(from);
#endif
}

void rf_fiber_started(rf_fiber *fiber)
{
#ifdef RF_FIBER_ASAN
    arrived(fiber);
#else
    (void)fiber;
#endif
}
