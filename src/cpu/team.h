/* The threads of the backend. A step is one parallel region: thread 0 runs the caller's code, and every op hands its
 * parts to all threads, which wait for them. The program opens one step for its whole life. Outside of a step an op
 * opens a region of its own.
 *
 * A wait spins where threads have cores of their own, then yields, then sleeps. OpenMP's own waits cannot be told that
 * other ranks want the core: they spin for milliseconds, which cost a factor of 100 with 3 ranks of 2 threads on 2
 * cores. */
#ifndef RF_CPU_TEAM_H
#define RF_CPU_TEAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define TEAM_LINE 64

/* Items [first, end) of the work. */
typedef void (*cpu_part)(const void *work, size_t first, size_t end);

/* Where waiters sleep. */
typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    atomic_int sleepers;
} team_bed;

typedef struct {
    int n_threads;
    bool busy;       /* the threads have cores of their own: waits may spin */
    bool in_step;    /* thread 0's */
    int present;     /* threads of the step's region: OpenMP may give fewer than wanted */
    bool over;       /* the step's last work: go home */
    cpu_part part;
    const void *work;
    size_t n_items;  /* shared out in contiguous parts; */
    bool free_items; /* or taken one at a time */
    team_bed workers, leader;
    _Alignas(TEAM_LINE) atomic_size_t next;       /* the first item not taken */
    _Alignas(TEAM_LINE) atomic_uint number;       /* of works handed out */
    _Alignas(TEAM_LINE) atomic_uint n_unfinished; /* threads that are still at it */
} cpu_team;

void cpu_team_init(cpu_team *t, int n_threads, bool busy);
void cpu_team_destroy(cpu_team *t);
/* Thread 0 (the caller) runs body, the others its ops' parts. A step inside of a step is part of it. */
void cpu_team_step(cpu_team *t, void (*body)(void *context), void *context);
/* All items, on all threads: thread i of t takes [n i / t, n (i + 1) / t), the same every time. Returns when all are
 * done. */
void cpu_team_each(cpu_team *t, size_t n_items, cpu_part part, const void *work);
/* All items, one at a time, by whoever is free. */
void cpu_team_each_free(cpu_team *t, size_t n_items, cpu_part part, const void *work);
/* One call of part for every thread, which divides what it does by itself: item i is share i of n_threads. So that a
 * thread finds in its cache what it wrote before, ops divide columns of all rows. Not shared: share 0 of 1. */
static inline size_t cpu_team_shares(const cpu_team *t, bool share)
{
    return share ? (size_t)t->n_threads : 1;
}
/* The first of n items of share i of `shares`; that of share i + 1 is its end. */
static inline size_t cpu_share_first(size_t n, size_t i, size_t shares)
{
    return n / shares * i + n % shares * i / shares;
}
/* As cpu_team_each, or on the caller alone where sharing costs more than it saves. */
static inline void cpu_team_each_if(cpu_team *t, bool share, size_t n_items, cpu_part part, const void *work)
{
    if (share)
        cpu_team_each(t, n_items, part, work);
    else
        part(work, 0, n_items);
}

#endif
