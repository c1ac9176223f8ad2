/* Loading beside plain reading of the same files, and memory beside the plan. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"
#include "device.h"
#include "clock.h"
#include "memory.h"

#define LOADS           3
#define LOAD_SECONDS    4.0                /* no further load after so long */
#define PIECE           ((size_t)16 << 20) /* of fresh memory that a thread reads into */
#define REQUEST         ((size_t)1 << 20)
#define SPARE_POSITIONS 1024 /* that rounds may move on by */

/* This thread's part of a file into fresh memory, which is given back piece by piece. The seconds spent reading; *bytes
 * grows by what was read. */
static double read_part(int file, size_t first, size_t end, size_t *bytes)
{
    double seconds = 0;

    while (first < end) {
        size_t piece = end - first < PIECE ? end - first : PIECE, got = 0;
        unsigned char *into = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        double start;
        ssize_t n = 1;

        if (into == MAP_FAILED)
            break;
        madvise(into, PIECE, MADV_HUGEPAGE);
        start = rf_seconds();
        for (; got < piece && n > 0; got += n > 0 ? (size_t)n : 0)
            n = pread(file, into + got, piece - got < REQUEST ? piece - got : REQUEST, (off_t)(first + got));
        seconds += rf_seconds() - start;
        munmap(into, PIECE);
        *bytes += got;
        if (n <= 0)
            break;
        first += piece;
    }
    return seconds;
}

/* All threads of all ranks of this host read a file once, each its part: adds bytes of this rank, and the time of its
 * slowest thread. A file that cannot be read adds nothing. */
static void read_file(const char *path, int n_threads, size_t *bytes, double *seconds)
{
    size_t ranks = (size_t)rf_world_node_size(), rank = (size_t)rf_world_node_rank(), all = 0;
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    struct stat about;
    double longest = 0;

    if (file < 0)
        return;
    if (fstat(file, &about) == 0) {
        size_t size = (size_t)about.st_size;

#pragma omp parallel num_threads(n_threads) reduction(+ : all) reduction(max : longest)
        {
            size_t parts = ranks * (size_t)omp_get_num_threads(),
                   me = rank * (size_t)omp_get_num_threads() + (size_t)omp_get_thread_num();

            longest = read_part(file, size / parts * me, me + 1 == parts ? size : size / parts * (me + 1), &all);
        }
        *bytes += all;
        *seconds += longest;
    }
    close(file);
}

/* Collective: bytes a second of plain reading, all ranks together; the leader's. */
static double read_files(bench *b)
{
    rf_job *job = &b->job;
    size_t bytes = 0;
    double seconds = 0, sum, longest, ignored;

    rf_comm_barrier(job->world);
    read_file(job->files.target_path, job->topology.n_threads, &bytes, &seconds);
    read_file(job->files.drafter_path, job->topology.n_threads, &bytes, &seconds);
    bench_gather(job, (double)bytes, &sum, &ignored);
    bench_gather(job, seconds, &ignored, &longest);
    return longest > 0 ? sum / longest : 0;
}

/* Bytes of the files that all ranks together load. */
static double loaded_bytes(const bench *b)
{
    rf_plan_account account;
    rf_error err;
    double sum = 0;

    if (rf_plan_account_make(b->job.plan, &account, &err) != 0)
        return 0;
    for (int r = 0; r < rf_world_size(); r++)
        sum += (double)account.sharded[r] + (double)account.replicated[r];
    rf_plan_account_free(&account);
    return sum;
}

/* Depths that the model was not trained for are left out of the default list; the context holds what is asked for. */
static int choose_context(bench_options *o, rf_error *err)
{
    rf_job_files files;
    rf_error mine = {RF_OK, ""};
    bench_list *d = &o->depths;
    size_t longest = o->prefill.value[o->prefill.n - 1], depth;

    if (rf_job_open(&files, &o->engine, true, &mine) == 0)
        while (!o->depths_given && d->n > 1 && d->value[d->n - 1] > files.target.n_ctx_train)
            d->n--;
    rf_job_close(&files);
    if (rf_world_agree(&mine, err) != 0)
        return -1;
    depth = d->value[d->n - 1] + SPARE_POSITIONS;
    o->engine.n_ctx = (int64_t)(depth > longest ? depth : longest);
    return 0;
}

static int load_again(bench *b, bench_figure *f, rf_error *err)
{
    double longest, ignored;

    if (rf_job_reload(&b->job, err) != 0)
        return -1;
    bench_gather(&b->job, b->job.load_seconds, &ignored, &longest);
    if (rf_job_leads())
        bench_time(f, longest);
    return 0;
}

int bench_load(bench *b, rf_error *err)
{
    bench_figure *f = bench_add(b, BENCH_LOAD);
    double start = rf_seconds(), rate;
    int32_t again = 1;

    /* this first load may wait for the disk: not counted */
    if (choose_context(b->options, err) != 0 || rf_job_start(&b->job, &b->options->engine, 1, true, err) != 0)
        return -1;
    for (int k = 0; k < (b->options->quick ? 1 : LOADS) && again; k++) {
        rate = read_files(b);
        if (load_again(b, f, err) != 0)
            return -1;
        f->read = rate > f->read ? rate : f->read;
        rate = read_files(b);
        f->read = rate > f->read ? rate : f->read;
        again = rf_seconds() - start < LOAD_SECONDS;
        rf_comm_bcast(b->job.world, 0, &again, sizeof again);
    }
    bench_finish(f);
    b->read_file = f->read;
    f->bytes = loaded_bytes(b);
    f->memory_bound = true;
    if (f->best > 0 && f->read > 0)
        f->percent = 100 * f->bytes / f->read / f->best;
    return 0;
}

int bench_measure_memory(bench *b, rf_error *err)
{
    rf_job *job = &b->job;
    rf_plan_bytes plan;
    rf_error mine = {RF_OK, ""};
    bench_memory own = {0};

    if (rf_plan_memory(job->plan, rf_world_rank(), rf_device_traits(job->options), &job->sizes, &job->drafter_sizes,
                       job->engine_spec.max_collect, &plan, &mine) == 0)
        own = (bench_memory){(double)plan.total, (double)rf_memory_used()};
    if (rf_world_agree(&mine, err) != 0)
        return -1;
    b->n_memory = (size_t)rf_world_size();
    b->memory = calloc(b->n_memory, sizeof *b->memory);
    if (!b->memory)
        rf_world_abort(RF_ERR_MEMORY, "no memory for a number of each rank");
    rf_comm_gather(job->world, 0, &own, sizeof own, b->memory);
    return 0;
}
