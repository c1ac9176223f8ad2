/* Every transport on real ranks: sums, allgathers, sends, control traffic, agreement. Started by collectives.sh with 1 to 4 ranks.
 * Exit code 0, or 1 after saying what differed. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../collectives/comm.h"
#include "../collectives/transport.h"

#define MOST 700000 /* floats of the largest sum */

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
static void check_sum(rf_backend *b, rf_comm *c, size_t n_units, size_t rows, size_t cols, size_t seed, rf_buf *nodes, rf_buf *out, float *all)
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
    memcpy(b->ops->buf_host(nodes), sums[rf_comm_rank(c)], rf_sum_plan_n_nodes(p, rf_comm_rank(c)) * n * sizeof(float));
    rf_comm_sum_tree(c, p, rows, cols, nodes, out);
    expect(memcmp(b->ops->buf_host(out), want, n * sizeof(float)) == 0, "sum", rf_comm_transport(c), n);
    rf_sum_plan_destroy(p);
}

static void check_allgather(rf_backend *b, rf_comm *c, size_t rows, size_t cols, size_t seed, rf_buf *src, rf_buf *dst)
{
    size_t begin[65], own;
    float *s = b->ops->buf_host(src), *d = b->ops->buf_host(dst);
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

static void check_chain(rf_backend *b, rf_comm *c, size_t n, rf_buf *buf)
{
    int rank = rf_comm_rank(c), size = rf_comm_size(c);
    float *p = b->ops->buf_host(buf);
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
    int last = rf_world_size() - 1;
    const char *same[] = {"version 1", "file A"};
    const char *odd[] = {"version 1", rf_world_rank() == last ? "file B" : "file A"};
    size_t least = 100 - (size_t)rf_world_rank();

    expect(rf_world_agree(&fine, &all) == 0, "agreement on success", "world", 0);
    expect(rf_world_agree(rf_world_rank() == last ? &bad : &fine, &all) != 0 && all.code == RF_ERR_MEMORY && strstr(all.text, "no room"),
           "agreement on a failure", "world", 0);
    expect(rf_world_same(same, 2, &all) == 0, "the same file", "world", 0);
    if (last > 0)
        expect(rf_world_same(odd, 2, &all) != 0 && strstr(all.text, "file B") && (last == 1 || strstr(all.text, last == 2 ? "rank 2" : "rank 3")),
               "the odd file out", "world", 0);
    rf_world_least(&least);
    expect(least == 100 - (size_t)last, "the least of all", "world", least);
}

static void check_transport(rf_backend *b, const char *name, bool busy)
{
    static const size_t shapes[][2] = {{1, 1}, {1, 96}, {1, 5120}, {8, 5120}, {17, 999}, {64, 5120}, {512, 1024}};
    rf_error err = {RF_OK, ""};
    rf_comm *c = rf_comm_create_over(b, RF_ALLREDUCE_ORDERED, name, busy, &err);
    rf_buf *x = b->ops->buf_create(b, MOST * 12 * sizeof(float), &err), *y = b->ops->buf_create(b, (MOST + 3000) * sizeof(float), &err);
    float *all = malloc((size_t)(rf_world_size() * 12 + 2) * MOST * sizeof *all);

    expect(c && x && y && all, err.text, name, 0);
    if (!c || !x || !y || !all)
        exit(1);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t units = 4; units <= 24; units += 5) {
            check_sum(b, c, units, shapes[i][0], shapes[i][1], i + units, x, y, all);
            if (shapes[i][1] >= 4)
                check_allgather(b, c, shapes[i][0], shapes[i][1], i + units, x, y);
        }
    for (size_t i = 0; i < 300; i++) { /* one after another, at different paces */
        if (i % 50 == (size_t)rf_world_rank() * 7)
            usleep(500);
        check_sum(b, c, 4 + i % 13, 1 + i % 3, 64 + i % 100, i, x, y, all);
        check_allgather(b, c, 1 + i % 2, 40 + i % 9, i, x, y);
    }
    check_chain(b, c, 10, x);
    check_chain(b, c, MOST, x);
    check_control(c);
    free(all);
    b->ops->buf_destroy(x);
    b->ops->buf_destroy(y);
    rf_comm_destroy(c);
}

int main(int argc, char **argv)
{
    rf_error err;
    rf_backend *b;

    if (rf_world_init(&argc, &argv, &err) != 0)
        return 1;
    b = rf_cpu_create(1, "auto", &err);
    check_agreement();
    check_transport(b, "mpi", false);
    check_transport(b, "shm", false);
    check_transport(b, "shm", true);
    b->ops->destroy(b);
    if (rf_world_rank() == 0 && !failures)
        printf("%d ranks: all transports right\n", rf_world_size());
    rf_world_finalize();
    return failures ? 1 : 0;
}
