#include "config.h"

#include "team.h"

#include <omp.h>
#include <sched.h>

#define SPINS 20000 /* a few hundred microseconds */
#define YIELDS 50

static void bed_init(team_bed *bed)
{
    pthread_mutex_init(&bed->mutex, NULL);
    pthread_cond_init(&bed->changed, NULL);
    atomic_init(&bed->sleepers, 0);
}

static void bed_destroy(team_bed *bed)
{
    pthread_cond_destroy(&bed->changed);
    pthread_mutex_destroy(&bed->mutex);
}

void cpu_team_init(cpu_team *t, int n_threads, bool busy)
{
    t->n_threads = n_threads;
    t->busy = busy;
    t->in_step = t->over = false;
    bed_init(&t->workers);
    bed_init(&t->leader);
    atomic_init(&t->next, 0);
    atomic_init(&t->number, 0);
    atomic_init(&t->n_unfinished, 0);
}

void cpu_team_destroy(cpu_team *t)
{
    bed_destroy(&t->workers);
    bed_destroy(&t->leader);
}

/* ---- waits */

static void pause_a_little(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void sleep_while(team_bed *bed, atomic_uint *counter, unsigned value)
{
    pthread_mutex_lock(&bed->mutex);
    atomic_fetch_add(&bed->sleepers, 1); /* before the counter is looked at: change() does it the other way round */
    while (atomic_load(counter) == value)
        pthread_cond_wait(&bed->changed, &bed->mutex);
    atomic_fetch_sub(&bed->sleepers, 1);
    pthread_mutex_unlock(&bed->mutex);
}

static void wait_while(const cpu_team *t, team_bed *bed, atomic_uint *counter, unsigned value)
{
    for (int i = 0; t->busy && i < SPINS; i++) {
        if (atomic_load_explicit(counter, memory_order_acquire) != value)
            return;
        pause_a_little();
    }
    for (int i = 0; i < YIELDS; i++) {
        if (atomic_load_explicit(counter, memory_order_acquire) != value)
            return;
        sched_yield();
    }
    sleep_while(bed, counter, value);
}

/* Adds to a counter that others wait for. */
static void change(team_bed *bed, atomic_uint *counter, unsigned by)
{
    atomic_fetch_add(counter, by);
    if (atomic_load(&bed->sleepers) == 0)
        return;
    pthread_mutex_lock(&bed->mutex);
    pthread_cond_broadcast(&bed->changed);
    pthread_mutex_unlock(&bed->mutex);
}

/* ---- work */

/* What thread `me` of `threads` does of the work at hand. */
static void take_part(cpu_team *t, size_t me, size_t threads)
{
    size_t n = t->n_items, first, end;

    if (!t->free_items) {
        first = cpu_share_first(n, me, threads);
        end = cpu_share_first(n, me + 1, threads);
        if (first < end)
            t->part(t->work, first, end);
        return;
    }
    while ((first = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed)) < n)
        t->part(t->work, first, first + 1);
}

static void serve(cpu_team *t, size_t me, unsigned seen)
{
    for (;; seen++) {
        wait_while(t, &t->workers, &t->number, seen);
        if (t->over)
            return;
        take_part(t, me, (size_t)t->present);
        change(&t->leader, &t->n_unfinished, (unsigned)-1);
    }
}

void cpu_team_step(cpu_team *t, void (*body)(void *context), void *context)
{
    unsigned number = atomic_load(&t->number);

    if (t->n_threads == 1 || t->in_step) {
        body(context);
        return;
    }
    t->over = false;
    t->in_step = true;
#pragma omp parallel num_threads(t->n_threads)
    {
        if (omp_get_thread_num() == 0) {
            t->present = omp_get_num_threads();
            body(context);
            t->over = true;
            change(&t->workers, &t->number, 1);
        } else {
            serve(t, (size_t)omp_get_thread_num(), number);
        }
    }
    t->in_step = false;
}

static void hand_out(cpu_team *t)
{
    unsigned left;

    atomic_store_explicit(&t->n_unfinished, (unsigned)t->present - 1, memory_order_relaxed);
    change(&t->workers, &t->number, 1);
    take_part(t, 0, (size_t)t->present);
    while ((left = atomic_load_explicit(&t->n_unfinished, memory_order_acquire)) > 0)
        wait_while(t, &t->leader, &t->n_unfinished, left);
}

static void run(cpu_team *t, size_t n_items, bool free_items, cpu_part part, const void *work)
{
    if (t->n_threads == 1 || n_items == 1) {
        part(work, 0, n_items);
        return;
    }
    t->part = part;
    t->work = work;
    t->n_items = n_items;
    t->free_items = free_items;
    atomic_store_explicit(&t->next, 0, memory_order_relaxed);
    if (t->in_step) {
        hand_out(t);
        return;
    }
#pragma omp parallel num_threads(t->n_threads)
    take_part(t, (size_t)omp_get_thread_num(), (size_t)omp_get_num_threads());
}

void cpu_team_each(cpu_team *t, size_t n_items, cpu_part part, const void *work)
{
    if (n_items)
        run(t, n_items, false, part, work);
}

void cpu_team_each_free(cpu_team *t, size_t n_items, cpu_part part, const void *work)
{
    if (n_items)
        run(t, n_items, true, part, work);
}
