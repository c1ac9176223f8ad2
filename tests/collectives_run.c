/* Every transport on real ranks: sums, allgathers, sends, control traffic, agreement, faults of one rank alone. Started
 * by collectives.sh with 1 to 4 ranks. Exit code 0, or 1 after saying what differed. With --endless TRANSPORT FOLDER
 * [die]: sums without end; the last rank kills itself (die), or the launcher is killed from outside. */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../collectives/comm.h"
#include "../collectives/transport.h"
#include "backend_fake.h"

#define MOST 700000 /* floats of the largest sum */
#define ROOM 1200000 /* floats of a result */
#define IDLE_SECONDS 1.5

static int failures;

static void expect(bool ok, const char *what, const char *transport, size_t n)
{
    if (ok)
        return;
    fprintf(stderr, "rank %d: %s over %s is wrong (%zu)\n", rf_world_rank(), what, transport, n);
    failures++;
}

static float value(size_t seed, size_t i)
{
    return (float)((seed * 7919 + i * 104729) % 65521) * 1.7e-3f - 50.0f;
}

static void make_cut(size_t n_units, int ranks, size_t seed, size_t *begin)
{
    begin[0] = 0;
    begin[ranks] = n_units;
    for (int r = 1; r < ranks; r++) {
        size_t least = begin[r - 1] + 1, most = n_units - (size_t)(ranks - r);

        begin[r] = least + seed * 31 % (most - least + 1);
    }
}

/* Node sums are known numbers of (rank, node, i), so that every rank can finish the whole tree itself. */
static void check_sum(rf_comm *c, size_t n_units, size_t rows, size_t cols, size_t seed, rf_buf *nodes,
                      rf_buf *out, float *all)
{
    int size = rf_comm_size(c);
    size_t begin[65], n = rows * cols, most = 0;
    const float *sums[64];
    rf_error err;
    rf_sum_plan *p;
    float *want;

    make_cut(n_units, size, seed, begin);
    p = rf_sum_plan_create(n_units, size, begin, &err);
    for (int r = 0; r < size; r++)
        most = rf_sum_plan_n_nodes(p, r) > most ? rf_sum_plan_n_nodes(p, r) : most;
    for (int r = 0; r < size; r++) {
        sums[r] = all + (size_t)r * most * n;
        for (size_t k = 0; k < rf_sum_plan_n_nodes(p, r) * n; k++)
            all[(size_t)r * most * n + k] = value(seed + (size_t)r, k);
    }
    want = all + (size_t)size * most * n;
    rf_sum_plan_finish(p, sums, n, n, want);
    memcpy(rf_fake_data(nodes), sums[rf_comm_rank(c)], rf_sum_plan_n_nodes(p, rf_comm_rank(c)) * n * sizeof(float));
    rf_comm_sum_tree(c, p, rows, cols, nodes, out);
    expect(memcmp(rf_fake_data(out), want, n * sizeof(float)) == 0, "sum", rf_comm_transport(c), n);
    rf_sum_plan_destroy(p);
}

static void check_allgather(rf_comm *c, size_t rows, size_t cols, size_t seed, rf_buf *src, rf_buf *dst)
{
    size_t begin[65], own;
    float *s = rf_fake_data(src), *d = rf_fake_data(dst);
    bool ok = true;

    make_cut(cols, rf_comm_size(c), seed, begin);
    own = begin[rf_comm_rank(c) + 1] - begin[rf_comm_rank(c)];
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < own; i++)
            s[r * own + i] = value(seed, r * cols + begin[rf_comm_rank(c)] + i);
    rf_comm_allgather(c, rows, begin, (rf_mat){src, 0, own}, (rf_mat){dst, 3, cols + 5});
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < cols; i++)
            ok = ok && d[3 + r * (cols + 5) + i] == value(seed, r * cols + i);
    expect(ok, "allgather", rf_comm_transport(c), rows * cols);
}

static void check_chain(rf_comm *c, size_t n, rf_buf *buf)
{
    int rank = rf_comm_rank(c), size = rf_comm_size(c);
    float *p = rf_fake_data(buf);
    bool ok = true;

    if (size == 1)
        return;
    for (size_t i = 0; i < n; i++)
        p[i] = rank == 0 ? value(5, i) : -1;
    if (rank > 0)
        rf_comm_recv(c, rank - 1, buf, n * sizeof *p);
    if (rank < size - 1)
        rf_comm_send(c, rank + 1, buf, n * sizeof *p);
    for (size_t i = 0; i < n; i++)
        ok = ok && p[i] == value(5, i);
    expect(ok, "send along the ranks", rf_comm_transport(c), n);
}

static void check_control(rf_comm *c)
{
    uint64_t mine = 1000 + (uint64_t)rf_comm_rank(c), all[64] = {0};
    unsigned char block[3000];
    bool ok = true;

    rf_comm_gather(c, 0, &mine, sizeof mine, all);
    for (int r = 0; rf_comm_rank(c) == 0 && r < rf_comm_size(c); r++)
        ok = ok && all[r] == 1000 + (uint64_t)r;
    memset(block, rf_comm_rank(c) == 0 ? 7 : 0, sizeof block);
    rf_comm_bcast(c, 0, block, sizeof block);
    for (size_t i = 0; i < sizeof block; i++)
        ok = ok && block[i] == 7;
    memset(block, rf_comm_rank(c) == 0 ? 9 : 0, sizeof block);
    if (rf_comm_rank(c) == 0)
        usleep(30000); /* the others are asleep by then */
    rf_comm_bcast_idle(c, block, sizeof block);
    for (size_t i = 0; i < sizeof block; i++)
        ok = ok && block[i] == 9;
    rf_comm_barrier(c);
    expect(ok, "control traffic", rf_comm_transport(c), 0);
}

static void check_agreement(void)
{
    rf_error fine = {RF_OK, ""}, bad = {RF_ERR_MEMORY, "no room"}, all = {RF_OK, ""};
    int rank = rf_world_rank(), last = rf_world_size() - 1, place, count;
    char name[32], longest[600];
    const char *same[] = {"version 1", "file A"}, *odd[] = {"version 1", rank == last ? "file B" : "file A"};
    const char *first[] = {"version 1", rank == 0 ? "file B" : "file A"}, *distant[] = {longest};
    size_t least = 100 - (size_t)rank;

    snprintf(name, sizeof name, "rank %d on ", last);
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    expect(rf_world_agree(&fine, &all) == 0, "agreement on success", "world", 0);
    expect(rf_world_agree(rank == last ? &bad : &fine, &all) != 0 && all.code == RF_ERR_MEMORY &&
               strstr(all.text, "no room") && (last == 0 || strncmp(all.text, name, strlen(name)) == 0),
           "agreement on a failure", "world", 0);
    expect(rf_world_same(same, 2, &all) == 0 && rf_world_same(distant, 1, &all) == 0, "the same file", "world", 0);
    longest[500] = rank == last ? 'y' : 'x';
    if (last > 0) {
        expect(rf_world_same(odd, 2, &all) != 0 && strstr(all.text, "file B") &&
                   strncmp(all.text, name, strlen(name)) == 0,
               "the odd file out", "world", 0);
        expect(rf_world_same(distant, 1, &all) != 0, "texts that differ far behind", "world", 0);
    }
    if (last > 1)
        expect(rf_world_same(first, 2, &all) != 0 && strncmp(all.text, "rank 0 on ", 10) == 0 &&
                   strstr(all.text, "than rank 1 on"),
               "the leader is the odd one", "world", 0);
    rf_world_alike_on_host(rank % 2 ? "odd" : "even", &place, &count);
    expect(place == rank / 2 && count == (last + 2 - rank % 2) / 2, "ranks alike", "world", (size_t)count);
    rf_world_least(&least);
    expect(least == 100 - (size_t)last, "the least of all", "world", least);
}

/* ---- faults of one rank alone: all ranks must learn of them, none may wait for ever */

/* mpi, but what the last rank receives in exchange number `wrong_at` has a bit turned: the lowest where floats are
 * compared as they are, one of the exponent where they are summed. In the last float of rank 0's: with two shots a rank
 * reads its own columns only. */
typedef struct {
    rf_transport base;
    rf_transport *mpi;
} faulty;

static int wrong_at, wrong_bit, n_posts;

static void *faulty_stage(rf_transport *base)
{
    rf_transport *mpi = ((faulty *)base)->mpi;

    return mpi->ops->stage(mpi);
}

static void faulty_post(rf_transport *base, const size_t *bytes, const void **theirs)
{
    rf_transport *mpi = ((faulty *)base)->mpi;

    mpi->ops->post(mpi, bytes, theirs);
    if (++n_posts == wrong_at && rf_world_rank() == rf_world_size() - 1)
        ((unsigned char *)(uintptr_t)theirs[0])[bytes[0] - sizeof(float) + (size_t)wrong_bit / 8] ^=
            (unsigned char)(1 << wrong_bit % 8);
}

static void faulty_destroy(rf_transport *base)
{
    rf_transport *mpi = ((faulty *)base)->mpi;

    mpi->ops->destroy(mpi);
    free(base);
}

static const rf_transport_ops faulty_ops = {
    .name = "faulty", .stage = faulty_stage, .post = faulty_post, .destroy = faulty_destroy};

static rf_transport *faulty_create(bool busy, rf_error *err)
{
    faulty *f = malloc(sizeof *f);

    n_posts = 0;
    f->base.ops = &faulty_ops;
    f->mpi = rf_transport_mpi(busy, err);
    return &f->base;
}

static const char *not_today(void)
{
    return "not today";
}

static void check_choice(rf_backend *b)
{
    static const rf_transport_offer offers[] = {{"faulty", "first", NULL, faulty_create},
                                                {"mpi", "second", NULL, rf_transport_mpi}};
    static const rf_transport_offer refused[] = {{"faulty", "first", not_today, faulty_create},
                                                 {"mpi", "second", NULL, rf_transport_mpi}};
    rf_error err = {RF_OK, ""};
    char name[32];
    rf_comm *c;

    if (rf_world_size() == 1)
        return;
    /* exchange 1, 3, 5: as they are; 2, 4: sums in one shot; 6, 7: in two */
    for (wrong_at = 1; wrong_at <= 7; wrong_at++) {
        wrong_bit = wrong_at < 6 && wrong_at % 2 ? 0 : 30;
        /* 6: the last rank finishes a wrong part and hands it to all, so that the lowest of all is named */
        snprintf(name, sizeof name, "rank %d on ", wrong_at == 6 ? 0 : rf_world_size() - 1);
        c = rf_comm_create_from(b, RF_ALLREDUCE_ORDERED, offers, 2, false, &err);
        expect(c && strcmp(rf_comm_transport(c), "mpi") == 0 && strncmp(rf_comm_reason(c), name, strlen(name)) == 0 &&
                   strstr(rf_comm_reason(c), wrong_bit ? "wrong sum" : "changed some"),
               "the choice after a wrong sum", "faulty", (size_t)wrong_at);
        rf_comm_destroy(c);
    }
    wrong_at = 2;
    wrong_bit = 30;
    c = rf_comm_create_from(b, RF_ALLREDUCE_ORDERED, offers, 1, false, &err);
    expect(!c && err.code == RF_ERR_DEVICE && strstr(err.text, "wrong sum"), "no transport left", "faulty", 0);
    wrong_at = 0;
    c = rf_comm_create_from(b, RF_ALLREDUCE_ORDERED, offers, 2, false, &err);
    expect(c && strcmp(rf_comm_transport(c), "faulty") == 0 && strcmp(rf_comm_reason(c), "first") == 0,
           "the first choice", "faulty", 0);
    rf_comm_destroy(c);
    c = rf_comm_create_from(b, RF_ALLREDUCE_ORDERED, refused, 2, false, &err);
    expect(c && strcmp(rf_comm_transport(c), "mpi") == 0 && strcmp(rf_comm_reason(c), "not today") == 0, "a refusal",
           "faulty", 0);
    rf_comm_destroy(c);
    c = rf_comm_create(rf_fake_device(), RF_ALLREDUCE_ORDERED, false, &err);
    expect(c && (rf_world_size() == 1 || strstr(rf_comm_reason(c), "staged")), "device memory", "any", 0);
    rf_comm_destroy(c);
    expect(!rf_comm_create_over(b, RF_ALLREDUCE_ORDERED, "pigeon", false, &err) && strstr(err.text, "pigeon"),
           "no such transport", "pigeon", 0);
}

/* The linker sends our own allocating calls here: number fail_at fails. */
static long fail_at, n_allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_malloc(size_t size)
{
    return ++n_allocations == fail_at ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return ++n_allocations == fail_at ? NULL : __real_calloc(n, size);
}

/* One allocation after the other fails on the last rank only: all fail with its name, until none is left to fail. */
static void check_no_memory(rf_backend *b, const char *transport)
{
    char name[32];
    int served = 0;

    snprintf(name, sizeof name, "rank %d on ", rf_world_size() - 1);
    for (long k = 1; rf_world_size() > 1 && !served && k < 200; k++) {
        rf_error err = {RF_OK, ""}, all;
        rf_comm *c;

        n_allocations = 0;
        fail_at = rf_world_rank() == rf_world_size() - 1 ? k : 0;
        c = rf_comm_create_over(b, RF_ALLREDUCE_ORDERED, transport, false, &err);
        served = n_allocations < k && c;
        fail_at = 0;
        if (!c)
            expect(err.code == RF_ERR_MEMORY && strncmp(err.text, name, strlen(name)) == 0, err.text, transport,
                   (size_t)k);
        else if (rf_world_rank() == rf_world_size() - 1)
            expect(served, "a failed allocation was not seen", transport, (size_t)k);
        err.code = c ? RF_OK : RF_ERR_MEMORY;
        served = rf_world_agree(&err, &all) == 0;
        expect(served == !!c, "not all ranks came to the same end", transport, (size_t)k);
        expect(k > 12 || !served, "hardly anything was made to fail", transport, (size_t)k);
        rf_comm_destroy(c);
    }
}

/* ---- steady traffic */

/* Whole numbers, so that every order of adding gives the same sum. */
static void check_allreduce(rf_backend *b, rf_buf *nodes, rf_buf *out)
{
    static const size_t sizes[] = {1, 5120, 1100000};
    rf_error err = {RF_OK, ""};
    rf_comm *c = rf_comm_create_over(b, RF_ALLREDUCE_MPI, "mpi", false, &err);
    size_t begin[65], ranks = (size_t)rf_world_size(), n_nodes;
    float *x = rf_fake_data(nodes), *y = rf_fake_data(out);
    rf_sum_plan *p;

    for (size_t r = 0; r <= ranks; r++)
        begin[r] = r * 3;
    p = rf_sum_plan_create(3 * ranks, rf_world_size(), begin, &err);
    n_nodes = rf_sum_plan_n_nodes(p, rf_world_rank());
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        bool ok = true;

        for (size_t k = 0; k < n_nodes; k++)
            for (size_t i = 0; i < sizes[s]; i++)
                x[k * sizes[s] + i] = (float)(i % 1000 * rf_sum_plan_nodes(p, rf_world_rank())[k].count);
        rf_comm_sum_tree(c, p, 1, sizes[s], nodes, out);
        for (size_t i = 0; i < sizes[s]; i++)
            ok = ok && y[i] == (float)(i % 1000 * 3 * ranks);
        expect(ok, "MPI_Allreduce", "mpi", sizes[s]);
    }
    rf_sum_plan_destroy(p);
    rf_comm_destroy(c);
}

static void check_roots(rf_comm *c, size_t seed)
{
    int size = rf_comm_size(c), root = (int)(seed % (size_t)size);
    uint64_t mine = seed + (uint64_t)rf_comm_rank(c), all[64] = {0};
    bool ok = true;

    rf_comm_gather(c, root, &mine, sizeof mine, all);
    for (int r = 0; rf_comm_rank(c) == root && r < size; r++)
        ok = ok && all[r] == seed + (uint64_t)r;
    rf_comm_bcast(c, root, &mine, sizeof mine);
    expect(ok && mine == seed + (uint64_t)root, "gather and broadcast", rf_comm_transport(c), seed);
}

static uint32_t random_next(uint32_t *state)
{
    return *state = *state * 1664525u + 1013904223u;
}

/* What is exchanged is the same on all ranks, how long each rank takes before it is not. */
static void check_mixed(rf_comm *c, rf_buf *x, rf_buf *y, float *all)
{
    uint32_t common = 12345, own = 777u * (uint32_t)(rf_comm_rank(c) + 1);

    for (size_t i = 0; i < 1000; i++) {
        uint32_t kind = random_next(&common) >> 16, shape = random_next(&common) >> 16, pause = random_next(&own) >> 16;

        if (pause % 8 == 0)
            usleep(pause % 300);
        switch (kind % 6) {
        case 0:
        case 1:
            check_sum(c, 4 + shape % 13, 1 + shape % 3, 1 + shape % 1500, i, x, y, all);
            break;
        case 2:
            check_sum(c, 4 + shape % 13, 4, 3000 + shape % 1500, i, x, y, all); /* two shots */
            break;
        case 3:
            check_allgather(c, 1 + shape % 5, 4 + shape % 900, i, x, y);
            break;
        case 4:
            check_roots(c, shape);
            break;
        default:
            check_chain(c, 1 + shape % 3000, x);
            rf_comm_barrier(c);
        }
    }
}

static void check_transport(rf_backend *b, const char *name, bool busy, rf_buf *x, rf_buf *y, float *all)
{
    static const size_t shapes[][2] = {{1, 1}, {1, 96}, {1, 5120}, {8, 5120}, {17, 999}, {64, 5120}, {512, 1024}};
    rf_error err = {RF_OK, ""};
    rf_comm *c = rf_comm_create_over(b, RF_ALLREDUCE_ORDERED, name, busy, &err);

    expect(c, err.text, name, 0);
    if (!c)
        exit(1);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t units = 4; units <= 24; units += 5) {
            check_sum(c, units, shapes[i][0], shapes[i][1], i + units, x, y, all);
            if (shapes[i][1] >= 4)
                check_allgather(c, shapes[i][0], shapes[i][1], i + units, x, y);
        }
    check_allgather(c, 2, 590000, 1, x, y); /* a row that needs several exchanges */
    check_mixed(c, x, y, all);
    check_chain(c, 10, x);
    check_chain(c, MOST, x);
    check_control(c);
    rf_comm_destroy(c);
}

static double now(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Followers at an idle prompt use less than 2 % of a core. */
static void check_idle(rf_backend *b)
{
    rf_error err = {RF_OK, ""};
    rf_comm *c = rf_comm_create(b, RF_ALLREDUCE_ORDERED, true, &err);
    unsigned char block[1024] = {0};
    double cpu, wall;

    rf_comm_barrier(c);
    cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    wall = now(CLOCK_MONOTONIC);
    if (rf_comm_rank(c) == 0)
        usleep((useconds_t)(IDLE_SECONDS * 1e6));
    rf_comm_bcast_idle(c, block, sizeof block);
    cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    wall = now(CLOCK_MONOTONIC) - wall;
    if (rf_comm_rank(c) > 0)
        expect(wall > 0.8 * IDLE_SECONDS && cpu < 0.02 * wall, "CPU time of an idle follower in us", "any",
               (size_t)(cpu * 1e6));
    rf_comm_destroy(c);
}

static void check_self(rf_backend *b, rf_buf *x, rf_buf *y, float *all)
{
    rf_comm *c = rf_comm_create_self(b);
    uint64_t mine = 7 + (uint64_t)rf_world_rank(), got = 0;

    n_allocations = 0;
    check_allgather(c, 3, 50, 1, x, y);
    rf_comm_gather(c, 0, &mine, sizeof mine, &got); /* alone: not an operation of the world */
    rf_comm_bcast(c, 0, &mine, sizeof mine);
    rf_comm_bcast_idle(c, &mine, sizeof mine);
    expect(n_allocations == 0 && got == 7 + (uint64_t)rf_world_rank() && mine == got, "a rank by itself", "self", 0);
    if (rf_world_rank() == 0)
        rf_comm_barrier(c);
    check_sum(c, 9, 3, 50, 1, x, y, all);
    rf_comm_destroy(c);
}

static void note(const char *folder, const char *name, int rank)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s.%d", folder, name, rank);
    file = fopen(path, "w");
    if (!file || fprintf(file, "%ld\n", (long)getpid()) < 0 || fclose(file) != 0)
        exit(1);
}

static void endless(rf_backend *b, const char *transport, const char *folder, bool die)
{
    rf_error err;
    rf_comm *c = rf_comm_create_over(b, RF_ALLREDUCE_ORDERED, transport, true, &err);
    rf_buf *x = b->ops->buf_create(b, (size_t)1 << 20, &err), *y = b->ops->buf_create(b, (size_t)1 << 20, &err);
    float *all = malloc((size_t)1 << 22);

    note(folder, "pid", rf_world_rank());
    rf_comm_barrier(c);
    for (size_t i = 0;; i++) {
        if (i == 300 && rf_world_rank() == rf_world_size() - 1) {
            note(folder, "going", rf_world_rank());
            if (die)
                raise(SIGKILL);
        }
        check_sum(c, 8, 1, 1 + i * 37 % 6000, i, x, y, all);
    }
}

int main(int argc, char **argv)
{
    rf_backend *b = rf_fake_host();
    rf_error err;
    rf_buf *x, *y;
    float *all;

    if (rf_world_init(&argc, &argv, &err) != 0)
        return 1;
    if (argc > 3 && strcmp(argv[1], "--endless") == 0)
        endless(b, argv[2], argv[3], argc > 4);
    x = b->ops->buf_create(b, MOST * 12 * sizeof(float), &err);
    y = b->ops->buf_create(b, ROOM * sizeof(float), &err);
    all = malloc((size_t)(rf_world_size() * 12 + 2) * MOST * sizeof *all);
    if (!x || !y || !all)
        return 1;
    check_agreement();
    check_self(b, x, y, all);
    check_choice(b);
    check_no_memory(b, "shm");
    check_no_memory(b, "mpi");
    check_allreduce(b, x, y);
    check_transport(b, "mpi", false, x, y, all);
    check_transport(b, "shm", false, x, y, all);
    check_transport(b, "shm", true, x, y, all);
    check_idle(b);
    check_self(rf_fake_device(), x, y, all); /* the same buffers without a host address: everything is staged */
    check_allreduce(rf_fake_device(), x, y);
    check_transport(rf_fake_device(), "mpi", false, x, y, all);
    check_transport(rf_fake_device(), "shm", false, x, y, all);
    free(all);
    b->ops->buf_destroy(x);
    b->ops->buf_destroy(y);
    if (rf_world_rank() == 0 && !failures)
        printf("%d ranks: all transports right\n", rf_world_size());
    rf_world_finalize();
    return failures ? 1 : 0;
}
