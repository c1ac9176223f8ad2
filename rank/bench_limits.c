#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "clock.h"
#include "memory.h"

#define MEMORY       ((size_t)1 << 30) /* of all ranks of a host together: far above any cache */
#define QUICK_MEMORY ((size_t)256 << 20)
#define SURVEY_BYTES ((size_t)64 << 20) /* of all ranks of a host, a try */
#define BURST_BYTES  ((size_t)32 << 20)
#define BURST_TRIES  4
#define TRIES        5
#define QUICK_TRIES  2
#define MATMUL_IN    2048
#define MATMUL_OUT   256 /* a thread: half a megabyte of weights */
#define MATMUL_ROWS  256

void bench_gather(const rf_job *job, double mine, double *sum, double *largest)
{
    size_t size = (size_t)rf_comm_size(job->world);
    double *all = calloc(size, sizeof *all);

    if (!all)
        rf_world_abort(RF_ERR_MEMORY, "no memory for a number of each rank");
    rf_comm_gather(job->world, 0, &mine, sizeof mine, all);
    *sum = *largest = 0;
    for (size_t r = 0; r < size; r++) {
        *sum += all[r];
        *largest = all[r] > *largest ? all[r] : *largest;
    }
    free(all);
}

/* One run of a loop on all ranks at once: all bytes over the longest time. */
static double read_once(const rf_job *job, rf_read_memory *memory, const rf_read_loop *loop, size_t bytes)
{
    size_t done;
    double seconds, sum, longest, ignored;

    rf_comm_barrier(job->world);
    seconds = rf_read_memory_run(memory, loop, bytes / (size_t)rf_world_node_size(), &done);
    bench_gather(job, (double)done, &sum, &ignored);
    bench_gather(job, seconds, &ignored, &longest);
    return longest > 0 ? sum / longest : 0;
}

double bench_limits_burst(bench_limits *l, const rf_job *job, size_t bytes)
{
    double rate = 0;
    uint64_t agreed = bytes > BURST_BYTES ? bytes : BURST_BYTES;
    int tries;

    rf_comm_bcast(job->world, 0, &agreed, sizeof agreed);
    tries = agreed > BURST_BYTES ? 1 : BURST_TRIES;
    for (int k = 0; k < tries; k++) {
        double once = read_once(job, l->memory, &l->loop[l->best], (size_t)agreed);

        rate = once > rate ? once : rate;
    }
    l->read = rate > l->read ? rate : l->read;
    return rate;
}

static void survey_loops(bench_limits *l, const rf_job *job, rf_read_memory *memory, bool huge_pages, bool quick)
{
    static const size_t ahead[] = {0, 512, 1024, 2048, 4096, 8192};
    size_t first = l->n_loops;

    for (int streams = 1; streams <= RF_MAX_STREAMS; streams *= 2)
        for (size_t a = 0; a < sizeof ahead / sizeof *ahead; a++)
            l->loop[l->n_loops++] = (rf_read_loop){streams, ahead[a], huge_pages};
    for (int k = 0; k < (quick ? QUICK_TRIES : TRIES); k++)
        for (size_t i = first; i < l->n_loops; i++) {
            double rate = read_once(job, memory, &l->loop[i], SURVEY_BYTES);

            l->rate[i] = rate > l->rate[i] ? rate : l->rate[i];
        }
}

/* All loops over memory of small pages, then of huge pages; the memory of the best one stays. */
static int survey(bench_limits *l, const rf_job *job, bool quick, rf_error *err)
{
    size_t ranks = (size_t)rf_world_node_size(), bytes = quick ? QUICK_MEMORY : MEMORY,
           available = rf_memory_available();
    rf_read_memory *memory[2] = {NULL, NULL};
    rf_error mine = {RF_OK, ""};
    int32_t best = 0;

    if (available && bytes > available / 4)
        bytes = available / 4;
    for (int huge = 0; huge < 2; huge++) {
        memory[huge] = rf_read_memory_create(job->topology.n_threads, bytes / ranks, huge != 0, &mine);
        if (rf_world_agree(&mine, err) != 0) {
            rf_read_memory_destroy(memory[0]);
            rf_read_memory_destroy(memory[1]);
            return -1;
        }
        survey_loops(l, job, memory[huge], huge != 0, quick);
    }
    for (size_t i = 0; i < l->n_loops; i++)
        best = l->rate[i] > l->rate[best] ? (int32_t)i : best;
    rf_comm_bcast(job->world, 0, &best, sizeof best);
    l->best = (size_t)best;
    l->read = l->rate[best];
    l->memory = memory[l->loop[best].huge_pages];
    rf_read_memory_destroy(memory[!l->loop[best].huge_pages]);
    return 0;
}

/* ---- int8: what registers can do, and what the backend's matmul does on data in the caches */

typedef struct {
    rf_weight *w;
    rf_act *act;
    rf_buf *x, *y;
    size_t n_out;
} product;

static int make_product(product *p, const rf_job *job, rf_error *err)
{
    const rf_ops *ops = job->backend->ops;
    size_t block_bytes = 34, n_out = MATMUL_OUT * (size_t)job->topology.n_threads,
           bytes = n_out * MATMUL_IN / 32 * block_bytes;
    unsigned char *data = malloc(bytes);
    rf_weight_spec spec = {.name = "limit", .data = data, .type = RF_TYPE_Q8_0, .n_cols = MATMUL_IN, .n_rows = n_out};

    if (!data)
        return rf_fail(err, RF_ERR_MEMORY, "no memory to measure products with");
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i % block_bytes == 1 ? 0x20 : i * 2654435761u >> 13);
    p->n_out = n_out;
    p->w = ops->weight_create(job->backend, &spec, err);
    free(data);
    p->act = ops->act_create(job->backend, MATMUL_ROWS, MATMUL_IN, err);
    p->x = ops->buf_create(job->backend, MATMUL_ROWS * MATMUL_IN * sizeof(float), err);
    p->y = ops->buf_create(job->backend, MATMUL_ROWS * n_out * sizeof(float), err);
    if (!p->w || !p->act || !p->x || !p->y)
        return -1;
    for (size_t r = 0; r < MATMUL_ROWS; r++) {
        float row[MATMUL_IN];

        for (size_t i = 0; i < MATMUL_IN; i++)
            row[i] = (float)((double)((r * MATMUL_IN + i) * 2654435761u % 1000) / 500 - 1);
        ops->upload(job->backend, p->x, r * sizeof row, row, sizeof row);
    }
    ops->quantize(job->backend, MATMUL_ROWS, MATMUL_IN, (rf_mat){p->x, 0, MATMUL_IN}, ops->weight_wants(p->w), p->act);
    return 0;
}

static void free_product(product *p, const rf_ops *ops)
{
    ops->weight_destroy(p->w);
    ops->act_destroy(p->act);
    ops->buf_destroy(p->x);
    ops->buf_destroy(p->y);
}

/* The best of several, for `seconds`. */
static double run_product(const product *p, const rf_job *job, double seconds)
{
    const rf_ops *ops = job->backend->ops;
    double best = 1e9, start = rf_seconds();

    while (rf_seconds() - start < seconds || best > 1e8) {
        double t = rf_seconds();

        ops->matmul(job->backend, MATMUL_ROWS, p->w, p->act, (rf_mat){p->y, 0, p->n_out});
        t = rf_seconds() - t;
        best = t < best ? t : best;
    }
    return (double)(MATMUL_ROWS * MATMUL_IN) * (double)p->n_out / best;
}

static int measure_int8(bench_limits *l, const rf_job *job, bool quick, rf_error *err)
{
    const rf_ops *ops = job->backend->ops;
    rf_error mine = {RF_OK, ""};
    product p = {0};
    double ignored, rate, seconds = quick ? 0.05 : 0.2;
    int failed = make_product(&p, job, &mine);

    if (rf_world_agree(&mine, err) != 0) {
        free_product(&p, ops);
        return -1;
    }
    for (int k = 0; !failed && k < 3; k++) {
        rf_comm_barrier(job->world);
        bench_gather(job, rf_int8_peak(job->topology.n_threads, seconds / 3, &l->int8_name), &rate, &ignored);
        l->int8_registers = rate > l->int8_registers ? rate : l->int8_registers;
        rf_comm_barrier(job->world);
        bench_gather(job, run_product(&p, job, seconds / 3), &rate, &ignored);
        l->int8_matmul = rate > l->int8_matmul ? rate : l->int8_matmul;
    }
    l->int8 = l->int8_registers > l->int8_matmul ? l->int8_registers : l->int8_matmul;
    free_product(&p, ops);
    return 0;
}

int bench_limits_measure(bench_limits *l, const rf_job *job, bool quick, rf_error *err)
{
    memset(l, 0, sizeof *l);
    return survey(l, job, quick, err) != 0 || measure_int8(l, job, quick, err) != 0 ? -1 : 0;
}

void bench_limits_free(bench_limits *l)
{
    rf_read_memory_destroy(l->memory);
    l->memory = NULL;
}
