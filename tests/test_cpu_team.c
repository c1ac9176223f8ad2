/* The threads of the CPU backend: every item is done once, by whoever it was given to, before the call returns; inside
 * of a step and outside, with spinning and with sleeping waits. */
#include "config.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../src/cpu/team.h"
#include "check.h"

#define MAX_THREADS 8
#define MAX_ITEMS 100

typedef struct {
    cpu_team *team;
    size_t n_items;
    atomic_int calls, done[MAX_ITEMS], by[MAX_ITEMS];
} tally;

static void count_part(const void *work, size_t first, size_t end)
{
    tally *t = (tally *)(uintptr_t)work;

    atomic_fetch_add(&t->calls, 1);
    for (size_t i = first; i < end; i++) {
        atomic_fetch_add(&t->done[i], 1);
        atomic_store(&t->by[i], omp_get_thread_num());
    }
}

static void clear(tally *t)
{
    atomic_store(&t->calls, 0);
    for (size_t i = 0; i < MAX_ITEMS; i++)
        atomic_store(&t->done[i], 0);
}

static void check_done(tally *t)
{
    for (size_t i = 0; i < MAX_ITEMS; i++)
        assert_int_equal(atomic_load(&t->done[i]), i < t->n_items);
}

/* Share i is thread i's, ascending; shares differ by an item at the most, and no thread is called without one. */
static void check_shares(tally *t)
{
    size_t threads = (size_t)t->team->n_threads, n = t->n_items, of[MAX_THREADS] = {0}, least = n / threads;

    clear(t);
    cpu_team_each(t->team, n, count_part, t);
    check_done(t);
    assert_int_equal(atomic_load(&t->calls), n < threads ? n : threads);
    for (size_t i = 0; i < n; i++) {
        of[atomic_load(&t->by[i])]++;
        if (i)
            assert_true(atomic_load(&t->by[i]) >= atomic_load(&t->by[i - 1]));
    }
    for (size_t thread = 0; thread < threads && n > 1; thread++)
        assert_true(of[thread] == least || of[thread] == least + (n % threads != 0));
}

static void check_free(tally *t)
{
    clear(t);
    cpu_team_each_free(t->team, t->n_items, count_part, t);
    check_done(t);
    assert_int_equal(atomic_load(&t->calls), t->team->n_threads == 1 && t->n_items ? 1 : t->n_items);
}

static void check_all_sizes(void *context)
{
    tally *t = context;

    for (t->n_items = 0; t->n_items <= MAX_ITEMS; t->n_items += t->n_items < 10 ? 1 : 45) {
        check_shares(t);
        check_free(t);
    }
}

static void everything_is_done_once(void **state)
{
    tally *t = calloc(1, sizeof *t);

    (void)state;
    assert_non_null(t);
    for (int threads = 1; threads <= MAX_THREADS; threads += threads < 4 ? 1 : 4)
        for (int busy = 0; busy < (threads < 4 ? 2 : 1); busy++) { /* spinning is for threads with cores */
            cpu_team team;

            cpu_team_init(&team, threads, busy);
            t->team = &team;
            check_all_sizes(t);
            cpu_team_step(&team, check_all_sizes, t);
            cpu_team_step(&team, check_all_sizes, t); /* a second step of the same team */
            check_all_sizes(t);
            cpu_team_destroy(&team);
        }
    free(t);
}

/* ---- a barrier: what one work wrote, the next one reads, whoever does it */

typedef struct {
    cpu_team *team;
    int *from, *to;
    size_t n;
} relay;

static void relay_part(const void *work, size_t first, size_t end)
{
    const relay *k = work;

    for (size_t i = first; i < end; i++)
        k->to[i] = k->from[k->n - 1 - i] + 1;
}

static void run_relay(void *context)
{
    relay *k = context;

    for (int round = 0; round < 100; round++) {
        int *swap = k->from;

        if (round % 2)
            cpu_team_each(k->team, k->n, relay_part, k);
        else
            cpu_team_each_free(k->team, k->n, relay_part, k);
        k->from = k->to;
        k->to = swap;
    }
}

static void a_work_begins_when_the_last_is_done(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        int a[67] = {0}, b[67] = {0};
        cpu_team team;
        relay k = {&team, a, b, 67};

        cpu_team_init(&team, threads, threads % 2 == 0);
        cpu_team_step(&team, run_relay, &k);
        for (size_t i = 0; i < k.n; i++)
            assert_int_equal(k.from[i], 100);
        cpu_team_destroy(&team);
    }
}

/* ---- a thread that is late: the caller waits for it, long enough to sleep; and workers sleep between two works */

static void late_part(const void *work, size_t first, size_t end)
{
    tally *t = (tally *)(uintptr_t)work;

    for (size_t i = first; i < end; i++) {
        if (i + 1 == t->n_items)
            usleep(20000);
        atomic_fetch_add(&t->done[i], 1);
    }
}

static void run_late(void *context)
{
    tally *t = context;

    for (int round = 1; round <= 3; round++) {
        cpu_team_each(t->team, t->n_items, late_part, t);
        for (size_t i = 0; i < t->n_items; i++)
            assert_int_equal(atomic_load(&t->done[i]), round);
        usleep(20000);
    }
}

static void the_last_one_is_waited_for(void **state)
{
    tally *t = calloc(1, sizeof *t);
    cpu_team team;

    (void)state;
    assert_non_null(t);
    cpu_team_init(&team, 3, false);
    t->team = &team;
    t->n_items = 3;
    cpu_team_step(&team, run_late, t);
    cpu_team_destroy(&team);
    free(t);
}

/* ---- a step within a step is the same one */

static void inner(void *context)
{
    tally *t = context;

    t->n_items = 50;
    check_shares(t);
}

static void outer(void *context)
{
    tally *t = context;

    cpu_team_step(t->team, inner, t);
    check_free(t);
}

static void steps_nest(void **state)
{
    tally *t = calloc(1, sizeof *t);
    cpu_team team;

    (void)state;
    assert_non_null(t);
    cpu_team_init(&team, 3, false);
    t->team = &team;
    cpu_team_step(&team, outer, t);
    cpu_team_destroy(&team);
    free(t);
}

static void shares_cover_everything(void **state)
{
    (void)state;
    for (size_t shares = 1; shares <= 9; shares++)
        for (size_t n = 0; n < 60; n++) {
            assert_int_equal(cpu_share_first(n, 0, shares), 0);
            assert_int_equal(cpu_share_first(n, shares, shares), n);
            for (size_t i = 0; i < shares; i++) {
                size_t items = cpu_share_first(n, i + 1, shares) - cpu_share_first(n, i, shares);

                assert_true(items == n / shares || items == n / shares + (n % shares != 0));
            }
        }
    assert_int_equal(cpu_share_first(SIZE_MAX, 7, 7), SIZE_MAX); /* no product wraps around */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_done_once),    cmocka_unit_test(a_work_begins_when_the_last_is_done),
        cmocka_unit_test(the_last_one_is_waited_for), cmocka_unit_test(steps_nest),
        cmocka_unit_test(shares_cover_everything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
