/* What was measured, as text, comma-separated values and JSON. */
#include "config.h"

#include <string.h>
#include <time.h>

#include "bench.h"

#define MIB (1024.0 * 1024.0)

static const char *drafter_of(const bench_figure *f)
{
    return f->drafter == RF_DRAFTER_MTP ? "MTP" : f->drafter == RF_DRAFTER_DFLASH ? "DFlash" : "";
}

static const char *bound_of(const bench_figure *f)
{
    return f->percent <= 0 ? "" : f->kind == BENCH_LOAD ? "file" : f->memory_bound ? "memory" : "products";
}

static bool is_step(const bench_figure *f)
{
    return f->kind != BENCH_ALLREDUCE && f->kind != BENCH_LOAD;
}

/* ---- text */

static void print_limits(const bench_limits *l, FILE *out)
{
    fprintf(out, "\nlimits of this machine, all threads of all ranks at once\n");
    for (int huge = 0; huge < 2; huge++) {
        size_t best = l->n_loops;

        for (size_t i = 0; i < l->n_loops; i++)
            if (l->loop[i].huge_pages == (huge != 0) && (best == l->n_loops || l->rate[i] > l->rate[best]))
                best = i;
        if (best < l->n_loops)
            fprintf(out, "  reading, %s pages: %.1f GB/s (%d stream%s a thread, %zu bytes ahead)\n",
                    huge ? "huge" : "small", l->rate[best] * 1e-9, l->loop[best].streams,
                    l->loop[best].streams > 1 ? "s" : "", l->loop[best].ahead);
    }
    fprintf(out, "  reading, the best of all bursts: %.1f GB/s\n", l->read * 1e-9);
    fprintf(out, "  int8 products: %.0f G/s in registers (%s), %.0f G/s by the matmul kernel from the caches\n",
            l->int8_registers * 1e-9, l->int8_name, l->int8_matmul * 1e-9);
}

static void print_what(const bench_figure *f, char *text, size_t size)
{
    if (f->kind == BENCH_ALLREDUCE)
        snprintf(text, size, "allreduce, %s", f->transport);
    else if (f->kind == BENCH_ROUND)
        snprintf(text, size, "round, %s, %zu accepted (simulated)", drafter_of(f), f->accepted);
    else if (f->kind == BENCH_GENERATE && f->drafter != RF_DRAFTER_NONE)
        snprintf(text, size, "generate, %s, %.2f accepted", drafter_of(f), f->accepted_a_round);
    else
        snprintf(text, size, "%s%s%s", bench_kind_name(f->kind), *drafter_of(f) ? ", " : "", drafter_of(f));
}

static void print_figure(const bench_figure *f, FILE *out)
{
    char what[64], rate[24] = "", speed[24] = "", percent[24] = "", ratio[40] = "";

    print_what(f, what, sizeof what);
    if (is_step(f) && f->best > 0)
        snprintf(rate, sizeof rate, "%.1f tok/s", f->tokens / f->best);
    if (f->percent > 0)
        snprintf(percent, sizeof percent, "%.1f", f->percent);
    if (f->ratio_to)
        snprintf(ratio, sizeof ratio, "%.2f x %s", f->ratio, f->ratio_to);
    if (f->best > 0 && f->bytes > 0)
        snprintf(speed, sizeof speed, "%.2f", f->bytes / f->best * 1e-9);
    fprintf(out, "%-36s %7zu %8zu %10.4f %10.4f %5.1f  %14s %7s %6s %-8s %s\n", what, f->depth, f->rows, f->best * 1e3,
            f->median * 1e3, f->spread * 100, rate, speed, percent, bound_of(f), ratio);
}

static void print_breakdown(const bench_breakdown *d, FILE *out)
{
    double rest = d->seconds;

    fprintf(out, "%s, depth %zu, %zu row%s: %.3f ms;", d->step, d->depth, d->rows, d->rows > 1 ? "s" : "",
            d->seconds * 1e3);
    for (int op = 0; op < RF_N_TIMED; op++) {
        rest -= d->op[op];
        if (d->seconds > 0 && d->op[op] / d->seconds >= 0.0005)
            fprintf(out, " %s %.1f %%,", rf_timed_op_name((rf_timed_op)op), 100 * d->op[op] / d->seconds);
    }
    fprintf(out, " rest %.1f %%\n", d->seconds > 0 ? 100 * rest / d->seconds : 0);
}

void bench_print_text(const bench *b, FILE *out)
{
    print_limits(&b->limits, out);
    fprintf(out, "\n%-36s %7s %8s %10s %10s %5s  %14s %7s %6s %-8s %s\n", "figure", "depth", "rows", "best ms",
            "median ms", "+- %", "rate", "GB/s", "% of", "limit", "cost");
    for (size_t i = 0; i < b->n_figures; i++)
        print_figure(&b->figures[i], out);
    fprintf(out, "\nwhere the time goes (rank 0; rest: collectives, commands, candidates)\n");
    for (size_t i = 0; i < b->n_breakdowns; i++)
        print_breakdown(&b->breakdown[i], out);
    fprintf(out, "\nmemory\n");
    for (size_t r = 0; r < b->n_memory; r++)
        fprintf(out, "  rank %zu: %.1f MiB, planned %.1f MiB (%.1f %%)\n", r, b->memory[r].measured / MIB,
                b->memory[r].plan / MIB, 100 * b->memory[r].measured / b->memory[r].plan);
}

/* ---- comma-separated values */

void bench_print_csv(const bench *b, FILE *out)
{
    fputs("figure,drafter,transport,depth,rows,accepted,simulated,best_s,median_s,spread,tokens_per_s,bytes,products,"
          "read_bytes_per_s,percent,limit,ratio,ratio_to\n",
          out);
    for (size_t i = 0; i < b->n_figures; i++) {
        const bench_figure *f = &b->figures[i];

        fprintf(out, "%s,%s,%s,%zu,%zu,%zu,%d,%.9g,%.9g,%.4g,%.6g,%.9g,%.9g,%.6g,%.4g,%s,%.4g,%s\n",
                bench_kind_name(f->kind), drafter_of(f), f->transport ? f->transport : "", f->depth, f->rows,
                f->accepted, f->kind == BENCH_ROUND, f->best, f->median, f->spread,
                is_step(f) && f->best > 0 ? f->tokens / f->best : 0, f->bytes, f->products, f->read, f->percent,
                bound_of(f), f->ratio, f->ratio_to ? f->ratio_to : "");
    }
}

/* ---- JSON */

static json_t *json_limits(const bench_limits *l)
{
    json_t *loops = json_array();

    for (size_t i = 0; i < l->n_loops; i++)
        json_array_append_new(loops, json_pack("{s:i, s:I, s:b, s:f}", "streams", l->loop[i].streams, "ahead_bytes",
                                               (json_int_t)l->loop[i].ahead, "huge_pages", (int)l->loop[i].huge_pages,
                                               "bytes_per_s", l->rate[i]));
    return json_pack("{s:f, s:o, s:f, s:s, s:f, s:f}", "read_bytes_per_s", l->read, "read_loops", loops,
                     "int8_registers_per_s", l->int8_registers, "int8_registers_by", l->int8_name, "int8_matmul_per_s",
                     l->int8_matmul, "int8_per_s", l->int8);
}

/* Adds a member unless it says nothing. */
static void put(json_t *object, const char *key, double value)
{
    if (value > 0 || value < 0)
        json_object_set_new(object, key, json_real(value));
}

static json_t *json_figure(const bench_figure *f)
{
    json_t *o = json_pack("{s:s, s:f, s:f, s:f, s:I}", "figure", bench_kind_name(f->kind), "best_s", f->best,
                          "median_s", f->median, "spread", f->spread, "samples", (json_int_t)f->n_times);

    if (*drafter_of(f))
        json_object_set_new(o, "drafter", json_string(drafter_of(f)));
    if (f->transport)
        json_object_set_new(o, "transport", json_string(f->transport));
    if (f->kind == BENCH_ALLREDUCE)
        json_object_set_new(o, "payload_bytes", json_integer((json_int_t)f->rows));
    if (is_step(f)) {
        json_object_set_new(o, "depth", json_integer((json_int_t)f->depth));
        json_object_set_new(o, "rows", json_integer((json_int_t)f->rows));
        put(o, "tokens_per_s", f->best > 0 ? f->tokens / f->best : 0);
    }
    if (f->kind == BENCH_ROUND) {
        json_object_set_new(o, "accepted", json_integer((json_int_t)f->accepted));
        json_object_set_new(o, "simulated", json_true());
    }
    put(o, "accepted_per_round", f->accepted_a_round);
    put(o, "bytes", f->bytes);
    put(o, "products", f->products);
    put(o, "read_bytes_per_s", f->read);
    put(o, "percent", f->percent);
    if (*bound_of(f))
        json_object_set_new(o, "limit", json_string(bound_of(f)));
    if (f->ratio_to) {
        put(o, "ratio", f->ratio);
        json_object_set_new(o, "ratio_to", json_string(f->ratio_to));
    }
    return o;
}

static json_t *json_breakdown(const bench_breakdown *d)
{
    json_t *ops = json_object();
    double rest = d->seconds;

    for (int op = 0; op < RF_N_TIMED; op++) {
        rest -= d->op[op];
        if (d->calls[op] > 0)
            json_object_set_new(ops, rf_timed_op_name((rf_timed_op)op),
                                json_pack("{s:f, s:f}", "s", d->op[op], "calls", d->calls[op]));
    }
    return json_pack("{s:s, s:I, s:I, s:f, s:o, s:f}", "figure", d->step, "depth", (json_int_t)d->depth, "rows",
                     (json_int_t)d->rows, "s", d->seconds, "ops", ops, "rest_s", rest);
}

static const char *base_name(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;

    return slash ? slash + 1 : path ? path : "";
}

static void describe_run(const bench *b, json_t *o)
{
    static const char *const splits[] = {"none", "layer", "tensor"};
    const rf_job *job = &b->job;
    char date[32] = "";
    time_t now = time(NULL);
    struct tm parts;

    if (gmtime_r(&now, &parts))
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &parts);
    json_object_set_new(o, "date", json_string(date));
    json_object_set_new(o, "device", json_string(job->backend->ops->device_name(job->backend)));
    json_object_set_new(o, "mpi", json_string(rf_world_mpi_version()));
    json_object_set_new(o, "ranks", json_integer(rf_world_size()));
    json_object_set_new(o, "threads", json_integer(job->topology.n_threads));
    json_object_set_new(o, "split", json_string(splits[job->options->split]));
    json_object_set_new(o, "transport", json_string(rf_comm_transport(job->world)));
    json_object_set_new(o, "target", json_string(base_name(job->files.target_path)));
    json_object_set_new(o, "target_bytes", json_integer((json_int_t)rf_gguf_file_size(job->files.target_file)));
    json_object_set_new(o, "drafter", json_string(job->files.has_drafter ? base_name(job->files.drafter_path) : ""));
    json_object_set_new(o, "cache_k", json_string(job->sizes.type_k == RF_TYPE_F32 ? "f32" : "f16"));
    json_object_set_new(o, "cache_v", json_string(job->sizes.type_v == RF_TYPE_F32 ? "f32" : "f16"));
    json_object_set_new(o, "batch", json_integer(job->options->batch));
    json_object_set_new(o, "repetitions", json_integer((json_int_t)b->options->repetitions));
}

json_t *bench_json(const bench *b)
{
    json_t *o = json_pack("{s:s, s:i, s:s}", "program", "rankflash-bench", "schema", 1, "version", PACKAGE_VERSION),
           *figures = json_array(), *breakdowns = json_array(), *memory = json_array();

    if (!o || !figures || !breakdowns || !memory)
        return NULL;
    describe_run(b, o);
    for (size_t i = 0; i < b->n_figures; i++)
        json_array_append_new(figures, json_figure(&b->figures[i]));
    for (size_t i = 0; i < b->n_breakdowns; i++)
        json_array_append_new(breakdowns, json_breakdown(&b->breakdown[i]));
    for (size_t r = 0; r < b->n_memory; r++)
        json_array_append_new(memory, json_pack("{s:I, s:f, s:f}", "rank", (json_int_t)r, "plan_bytes",
                                                b->memory[r].plan, "measured_bytes", b->memory[r].measured));
    json_object_set_new(o, "limits", json_limits(&b->limits));
    json_object_set_new(o, "figures", figures);
    json_object_set_new(o, "breakdown", breakdowns);
    json_object_set_new(o, "memory", memory);
    return o;
}
