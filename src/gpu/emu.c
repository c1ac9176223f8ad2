#include "config.h"

#include "emu.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "emu_fiber.h"

#define MAX_WARPS (RF_EMU_MAX_THREADS / 32)
#define MAX_ARRAYS 32
#define MIN_ELEMENT 4 /* bytes: there is a trace for so many */
#define GUARD_BYTES ((size_t)64)
#define GUARD 0xa5
#define NOBODY UINT16_MAX

typedef enum { AT_BARRIER, AT_SHUFFLE, AT_END } point;

static const char *const point_names[] = {"a barrier", "a shuffle", "its end"};

/* Who touched an element of shared memory, and after how many barriers (since the process began). */
typedef struct {
    uint64_t written, read;  /* 0: never */
    uint16_t writer, reader; /* NOBODY: several */
    bool atomic;             /* how it was written */
} trace;

struct rf_emu_array {
    size_t element, count;
    unsigned char *data;
    trace *traces;
};

rf_emu_place rf_emu_here;

static struct {
    unsigned width;
    uint64_t order, random;
    char error[400], taken[400];

    const rf_emu_launch *launch;
    void (*body)(const void *context);
    const void *context;
    bool together, failed;

    rf_fiber owner, fibers[RF_EMU_MAX_THREADS];
    unsigned char *stacks;
    unsigned n_threads, n_warps;
    /* Threads of warp w run in the order of lane[w * width ..], warps in that of warp[], whose inverse is warp_place. */
    uint16_t lane[RF_EMU_MAX_THREADS], warp[MAX_WARPS], warp_place[MAX_WARPS];
    uint16_t next[RF_EMU_MAX_THREADS]; /* who runs when a thread waits: the next lane of its warp */
    unsigned shift, lanes[MAX_WARPS], arrived[MAX_WARPS], warps_arrived; /* shift: log2 width */
    point at[MAX_WARPS], all_at;

    uint64_t values[2][RF_EMU_MAX_THREADS]; /* of shuffles, even and odd ones */
    unsigned char n_shuffles[RF_EMU_MAX_THREADS];

    uint64_t epoch, first_epoch; /* barriers so far; where this block began */
    rf_emu_array arrays[MAX_ARRAYS];
    unsigned n_arrays, taken_arrays[RF_EMU_MAX_THREADS];
    unsigned char shared[RF_EMU_SHARED_BYTES] __attribute__((aligned(64)));
    size_t shared_used;
    trace traces[RF_EMU_SHARED_BYTES / MIN_ELEMENT];
    size_t traces_used;
} emu = {.width = 32, .epoch = 1};

static uint64_t order_of_streams;

void rf_emu_set_order(uint64_t order)
{
    order_of_streams = order;
}

uint64_t rf_emu_order(void)
{
    return order_of_streams;
}

void rf_emu_set(unsigned width, uint64_t order)
{
    emu.width = width;
    if (emu.order != order)
        emu.random = order;
    emu.order = order;
}

const char *rf_emu_take_error(void)
{
    if (!emu.error[0])
        return NULL;
    memcpy(emu.taken, emu.error, sizeof emu.taken);
    emu.error[0] = 0;
    return emu.taken;
}

static unsigned first_lane(unsigned warp)
{
    return warp * emu.width;
}

static unsigned lanes_of(unsigned warp)
{
    unsigned left = emu.n_threads - first_lane(warp);

    return left < emu.width ? left : emu.width;
}

static void leave_block(void) __attribute__((noreturn));

/* The block is given up: its fibers are never resumed. */
static void leave_block(void)
{
    rf_fiber_switch(&emu.fibers[rf_emu_here.thread], &emu.owner, 1);
    abort();
}

static void broken(const char *what) __attribute__((noreturn));

static void broken(const char *what)
{
    if (!emu.error[0])
        snprintf(emu.error, sizeof emu.error, "kernel %.80s, block %u, thread %u: %.240s", emu.launch->name,
                 rf_emu_here.block[0], rf_emu_here.thread, what);
    emu.failed = true;
    if (!emu.together) {
        fprintf(stderr, "emulator: %s\n", emu.error); /* a plain loop cannot be left in the middle */
        abort();
    }
    leave_block();
}

/* ---- who runs next */

static uint64_t next_random(void)
{
    uint64_t z = emu.random += UINT64_C(0x9E3779B97F4A7C15);

    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static void shuffle_order(uint16_t *order, unsigned n)
{
    for (unsigned i = n; i > 1; i--) {
        unsigned j = (unsigned)(next_random() % i);
        uint16_t swap = order[i - 1];

        order[i - 1] = order[j];
        order[j] = swap;
    }
}

static void order_threads(void)
{
    for (unsigned w = 0; w < emu.n_warps; w++) {
        emu.warp[w] = (uint16_t)w;
        for (unsigned i = 0; i < lanes_of(w); i++)
            emu.lane[first_lane(w) + i] = (uint16_t)(first_lane(w) + i);
        if (emu.order)
            shuffle_order(emu.lane + first_lane(w), lanes_of(w));
    }
    if (emu.order)
        shuffle_order(emu.warp, emu.n_warps);
    for (unsigned w = 0; w < emu.n_warps; w++)
        emu.warp_place[emu.warp[w]] = (uint16_t)w;
    for (unsigned t = 0; t + 1 < emu.n_threads; t++)
        emu.next[emu.lane[t]] = emu.lane[t + 1];
}

static unsigned first_thread(void)
{
    return emu.lane[first_lane(emu.warp[0])];
}

/* All threads of the block wait at emu.all_at. */
static rf_fiber *release_block(void)
{
    emu.warps_arrived = 0;
    if (emu.all_at == AT_END)
        return &emu.owner;
    emu.epoch++;
    if (emu.order)
        order_threads();
    return &emu.fibers[first_thread()];
}

/* All lanes of the warp wait at emu.at[warp]. */
static rf_fiber *release_warp(unsigned warp)
{
    emu.arrived[warp] = 0;
    if (emu.at[warp] == AT_SHUFFLE)
        return &emu.fibers[emu.lane[first_lane(warp)]];
    if (emu.warps_arrived == 0)
        emu.all_at = emu.at[warp];
    else if (emu.all_at != emu.at[warp])
        broken("some threads of the block wait at a barrier, others have ended");
    if (++emu.warps_arrived == emu.n_warps)
        return release_block();
    return &emu.fibers[emu.lane[first_lane(emu.warp[emu.warp_place[warp] + 1u])]];
}

static void diverged(point one, point other)
{
    char text[120];

    snprintf(text, sizeof text, "lanes of a warp diverge: one waits at %s, another at %s", point_names[one],
             point_names[other]);
    broken(text);
}

static void arrive(point p)
{
    unsigned me = rf_emu_here.thread, warp = me >> emu.shift;
    rf_fiber *next;

    if (emu.arrived[warp] == 0)
        emu.at[warp] = p;
    else if (emu.at[warp] != p)
        diverged(emu.at[warp], p);
    if (++emu.arrived[warp] == emu.lanes[warp])
        next = release_warp(warp);
    else
        next = &emu.fibers[emu.next[me]];
    if (next == &emu.fibers[me])
        return;
    if (next != &emu.owner)
        rf_emu_here.thread = (unsigned)(next - emu.fibers);
    rf_fiber_switch(&emu.fibers[me], next, p == AT_END);
}

static void not_together(const char *what)
{
    char text[120];

    snprintf(text, sizeof text, "%s in a kernel that was launched with independent threads", what);
    broken(text);
}

static inline void need_together(const char *what)
{
    if (!emu.together)
        not_together(what);
}

void rf_emu_barrier(void)
{
    need_together("a barrier");
    arrive(AT_BARRIER);
}

uint64_t rf_emu_shuffle_xor(uint64_t value, unsigned mask)
{
    unsigned me = rf_emu_here.thread, other = me ^ mask, turn;

    need_together("a shuffle");
    if (mask >= emu.width || other >= emu.n_threads)
        broken("a shuffle from a lane that is not there");
    turn = emu.n_shuffles[me]++ & 1; /* nobody is two shuffles ahead */
    emu.values[turn][me] = value;
    arrive(AT_SHUFFLE);
    return emu.values[turn][other];
}

/* ---- shared memory */

static rf_emu_array *new_array(size_t element, size_t count)
{
    rf_emu_array *a = &emu.arrays[emu.n_arrays];
    size_t bytes;

    if (count == SIZE_MAX)
        count = emu.launch->dynamic_bytes / element;
    bytes = (element * count + 15) / 16 * 16;
    if (element < MIN_ELEMENT)
        broken("a shared array of elements that are less than a bank wide");
    if (emu.n_arrays == MAX_ARRAYS || bytes > RF_EMU_SHARED_BYTES - emu.shared_used)
        broken("more shared memory than a block may have");
    *a = (rf_emu_array){element, count, emu.shared + emu.shared_used, emu.traces + emu.traces_used};
    emu.shared_used += bytes;
    emu.traces_used += count;
    emu.n_arrays++;
    return a;
}

rf_emu_array *rf_emu_shared(size_t element, size_t count)
{
    unsigned index = emu.taken_arrays[rf_emu_here.thread]++;
    rf_emu_array *a;

    need_together("shared memory");
    if (index == emu.n_arrays)
        return new_array(element, count);
    a = &emu.arrays[index];
    if (a->element != element || (count != SIZE_MAX && a->count != count))
        broken("threads of a block ask for different shared arrays");
    return a;
}

static trace *place_in(rf_emu_array *a, size_t i)
{
    char text[120];

    if (i < a->count)
        return &a->traces[i];
    snprintf(text, sizeof text, "element %zu of a shared array of %zu", i, a->count);
    broken(text);
}

static void race(const char *what, size_t i, unsigned other)
{
    char text[160];

    snprintf(text, sizeof text, "a race: %s element %zu of a shared array, which thread %u touches with no barrier between",
             what, i, other);
    broken(text);
}

const void *rf_emu_read(rf_emu_array *a, size_t i)
{
    trace *t = place_in(a, i);
    unsigned me = rf_emu_here.thread;
    char text[120];

    if (t->written < emu.first_epoch) {
        snprintf(text, sizeof text, "reads element %zu of a shared array, which nobody has written", i);
        broken(text);
    }
    if (t->written == emu.epoch && (t->writer != me || t->atomic))
        race("reads", i, t->writer);
    t->reader = t->read == emu.epoch && t->reader != me ? NOBODY : (uint16_t)me;
    t->read = emu.epoch;
    return a->data + i * a->element;
}

static void *change(rf_emu_array *a, size_t i, bool atomic)
{
    trace *t = place_in(a, i);
    unsigned me = rf_emu_here.thread;

    if (t->written == emu.epoch && (t->atomic != atomic || (!atomic && t->writer != me)))
        race(atomic ? "changes atomically" : "writes", i, t->writer);
    if (t->read == emu.epoch && t->reader != me)
        race("writes", i, t->reader);
    t->written = emu.epoch;
    t->writer = (uint16_t)me;
    t->atomic = atomic;
    return a->data + i * a->element;
}

void *rf_emu_write(rf_emu_array *a, size_t i)
{
    return change(a, i, false);
}

void *rf_emu_atomic(rf_emu_array *a, size_t i)
{
    if (place_in(a, i)->written < emu.first_epoch)
        broken("an atomic change of an element that nobody has written");
    return change(a, i, true);
}

/* ---- launches */

/* Every fiber begins here; whoever switches to a fiber sets rf_emu_here. */
static void enter(void)
{
    rf_fiber_started(&emu.fibers[rf_emu_here.thread]);
    emu.body(emu.context);
    arrive(AT_END);
    abort(); /* nobody switches to a thread that has ended */
}

static void begin_block(void)
{
    memset(emu.arrived, 0, sizeof emu.arrived);
    memset(emu.n_shuffles, 0, emu.n_threads);
    memset(emu.taken_arrays, 0, emu.n_threads * sizeof *emu.taken_arrays);
    emu.warps_arrived = emu.n_arrays = 0;
    emu.shared_used = emu.traces_used = 0;
    emu.first_epoch = ++emu.epoch;
}

static bool have_stacks(void)
{
    if (emu.stacks)
        return true;
    emu.stacks = mmap(NULL, RF_EMU_MAX_THREADS * RF_FIBER_STACK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (emu.stacks != MAP_FAILED)
        return true;
    emu.stacks = NULL;
    snprintf(emu.error, sizeof emu.error, "no memory for the stacks of emulated threads");
    return false;
}

static void run_together(void)
{
    begin_block();
    order_threads();
    for (unsigned t = 0; t < emu.n_threads; t++)
        rf_fiber_prepare(&emu.fibers[t], emu.stacks + t * RF_FIBER_STACK, enter);
    rf_emu_here.thread = first_thread();
    rf_fiber_switch(&emu.owner, &emu.fibers[rf_emu_here.thread], 0);
}

static void run_plain(void)
{
    for (unsigned t = 0; t < emu.n_threads; t++) {
        rf_emu_here.thread = emu.order ? emu.n_threads - 1 - t : t;
        emu.body(emu.context);
    }
}

void rf_emu_run(const rf_emu_launch *launch, void (*body)(const void *context), const void *context)
{
    unsigned *block = rf_emu_here.block;

    if (emu.error[0])
        return;
    emu.launch = launch;
    emu.body = body;
    emu.context = context;
    emu.together = launch->together;
    emu.failed = false;
    emu.n_threads = launch->n_threads;
    emu.n_warps = (emu.n_threads + emu.width - 1) / emu.width;
    emu.shift = emu.width == 64 ? 6 : 5;
    for (unsigned w = 0; w < emu.n_warps; w++)
        emu.lanes[w] = lanes_of(w);
    rf_emu_here.n_threads = launch->n_threads;
    memcpy(rf_emu_here.n_blocks, launch->n_blocks, sizeof launch->n_blocks);
    if (launch->n_threads > RF_EMU_MAX_THREADS || launch->dynamic_bytes > RF_EMU_SHARED_BYTES) {
        snprintf(emu.error, sizeof emu.error, "kernel %s: a launch of %u threads and %zu bytes a block", launch->name,
                 launch->n_threads, launch->dynamic_bytes);
        return;
    }
    if (emu.together && !have_stacks())
        return;
    for (block[2] = 0; block[2] < launch->n_blocks[2]; block[2]++)
        for (block[1] = 0; block[1] < launch->n_blocks[1]; block[1]++)
            for (block[0] = 0; block[0] < launch->n_blocks[0] && !emu.failed; block[0]++) {
                if (emu.together)
                    run_together();
                else
                    run_plain();
            }
}

/* ---- memory */

void *rf_emu_alloc(size_t bytes)
{
    unsigned char *p = bytes <= SIZE_MAX - GUARD_BYTES ? calloc(1, bytes + GUARD_BYTES) : NULL;

    if (p)
        memset(p + bytes, GUARD, GUARD_BYTES);
    return p;
}

void rf_emu_free(void *p, size_t bytes)
{
    const unsigned char *guard = (unsigned char *)p + bytes;

    for (size_t i = 0; p && i < GUARD_BYTES; i++)
        if (guard[i] != GUARD) {
            fprintf(stderr, "emulator: a kernel wrote %zu bytes behind device memory of %zu bytes\n", i + 1, bytes);
            abort();
        }
    free(p);
}
