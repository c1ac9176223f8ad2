/* What a user sees before the first token: a table of ranks, then split, transport, drafter and cache types. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "job.h"
#include "log.h"

#define MIB (1024.0 * 1024.0)
#define TABLE_ROWS 64

typedef struct {
    char host[48], device[64], cores[48], units[96];
    int rank, numa, n_threads;
    bool bound;
    double mib;
} table_row;

static void describe_units(const rf_job *job, char *text, size_t size)
{
    const rf_shard *s = &job->shard;
    size_t used = 0;

    if (s->split == RF_SPLIT_LAYER) {
        snprintf(text, size, "%zu layers%s", s->n_layers, s->tail ? " + output" : "");
        return;
    }
    if (s->split == RF_SPLIT_NONE) {
        snprintf(text, size, "all");
        return;
    }
    for (int a = 0; a < RF_N_AXES && used < size; a++) {
        static const char *const names[RF_N_AXES] = {"heads", "key heads", "ffn", "vocab", "embd", "draft heads", "draft ffn", "draft vocab"};

        if (s->axis[a].n_units && a != RF_AXIS_EMBD)
            used += (size_t)snprintf(text + used, size - used, "%s%s %zu", used ? ", " : "", names[a], rf_shard_units(s, (rf_axis_id)a).count);
    }
}

static void own_row(const rf_job *job, table_row *row)
{
    memset(row, 0, sizeof *row);
    row->rank = rf_world_rank();
    row->numa = job->topology.numa;
    row->n_threads = job->topology.n_threads;
    row->bound = job->topology.bound;
    row->mib = (double)job->backend->ops->stats(job->backend).allocated_bytes / MIB;
    snprintf(row->host, sizeof row->host, "%.47s", rf_world_host());
    snprintf(row->device, sizeof row->device, "%.63s", job->backend->ops->device_name(job->backend));
    snprintf(row->cores, sizeof row->cores, "%.47s", job->topology.cores);
    describe_units(job, row->units, sizeof row->units);
}

static void print_row(const table_row *r)
{
    char numa[16] = "-";

    if (r->numa >= 0)
        snprintf(numa, sizeof numa, "%d", r->numa);
    rf_log_info("%4d  %-16s %-24s %4s %8s%s %7d %9.1f  %s", r->rank, r->host, r->device, numa, r->cores, r->bound ? " " : "*", r->n_threads,
                r->mib, r->units);
}

static void print_drafter(const rf_job *job)
{
    const rf_dflash_params *d = &job->files.drafter;
    char taps[256];
    size_t used = 0;

    if (job->files.spec == RF_DRAFTER_MTP)
        rf_log_info("drafter: MTP head, up to %zu drafts a round", job->files.n_max);
    if (job->files.spec != RF_DRAFTER_DFLASH)
        return;
    for (size_t i = 0; i < d->n_taps && used < sizeof taps; i++)
        used += (size_t)snprintf(taps + used, sizeof taps - used, "%s%zu", i ? "," : "", d->taps[i]);
    rf_log_info("drafter: %s, block %zu, up to %zu drafts a round, mask token %d, taps before layers %s", d->v2 ? "DFlash2" : "DFlash",
                d->block_size, job->files.n_max, d->mask_token, taps);
}

static const char *type_name(uint32_t type)
{
    return type == RF_TYPE_F32 ? "f32" : "f16";
}

static void print_lines(const rf_job *job)
{
    static const char *const splits[] = {[RF_SPLIT_NONE] = "none", [RF_SPLIT_LAYER] = "layer", [RF_SPLIT_TENSOR] = "tensor"};
    const rf_options *o = job->options;

    rf_log_info("split %s over %d rank%s; transport %s (%s); sums %s", splits[o->split], rf_world_size(), rf_world_size() == 1 ? "" : "s",
                rf_comm_transport(job->world), rf_comm_reason(job->world), o->allreduce == RF_ALLREDUCE_MPI ? "by MPI_Allreduce" : "in tree order");
    if (o->allreduce == RF_ALLREDUCE_MPI)
        rf_log_info("--allreduce mpi: output bits may depend on the number of ranks (nothing else changes)");
    if (job->files.spec == RF_DRAFTER_NONE)
        rf_log_info("drafter: none");
    print_drafter(job);
    rf_log_info("context %zu positions, caches k %s v %s (drafter k %s v %s)", job->sizes.n_ctx, type_name(job->sizes.type_k),
                type_name(job->sizes.type_v), type_name(job->drafter_sizes.type_k), type_name(job->drafter_sizes.type_v));
}

static void print_verbose(const char *text)
{
    rf_log_verbose("%s", text);
}

void rf_job_print_start(rf_job *job)
{
    table_row own, rows[TABLE_ROWS];
    int size = rf_world_size();

    own_row(job, &own);
    for (int first = 0; first < size; first++) { /* one row at a time: any number of ranks */
        table_row one = own;

        rf_comm_bcast(job->world, first, &one, sizeof one);
        if (first < TABLE_ROWS)
            rows[first] = one;
    }
    rf_log_info("%s, %s", job->files.demo ? "no -m: the demo pair" : "model", job->files.target_path);
    rf_log_info("%4s  %-16s %-24s %4s %9s %7s %9s  %s", "rank", "host", "device", "numa", "cores", "threads", "MiB", "holds");
    for (int r = 0; r < size && r < TABLE_ROWS; r++)
        print_row(&rows[r]);
    if (size > TABLE_ROWS)
        rf_log_info("... and %d more ranks", size - TABLE_ROWS);
    print_lines(job);
    job->backend->ops->report(job->backend, print_verbose);
}
