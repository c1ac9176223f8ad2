/* rankflash-bench: the program. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "bench_file.h"
#include "launcher.h"
#include "log.h"

#define MOST_FIGURES 1024 /* more than all lists at their longest ask for */

static int report(const rf_error *err)
{
    if (rf_job_leads())
        rf_log_error("%s", err->text);
    return (int)err->code;
}

static int print(const bench *b, rf_error *err)
{
    json_t *json = NULL;
    int result = 0;

    if (b->options->format == BENCH_TEXT)
        bench_print_text(b, stdout);
    if (b->options->format == BENCH_CSV)
        bench_print_csv(b, stdout);
    if (b->options->format == BENCH_JSON || b->options->compare) {
        json = bench_json(b);
        if (!json)
            return rf_fail(err, RF_ERR_MEMORY, "no memory for the report");
    }
    if (b->options->format == BENCH_JSON) {
        json_dumpf(json, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
        fputc('\n', stdout);
    }
    if (b->options->compare)
        result = bench_compare(json, b->options->compare, b->options->tolerance,
                               b->options->format == BENCH_TEXT ? stdout : stderr, err);
    json_decref(json);
    if (result >= 0 && (fflush(stdout) != 0 || ferror(stdout)))
        return rf_fail(err, RF_ERR_FILE, "standard output could not be written");
    return result;
}

static int measure(bench *b, rf_error *err)
{
    if (bench_load(b, err) != 0)
        return -1;
    if (b->options->format == BENCH_TEXT)
        rf_job_print_start(&b->job);
    if (bench_limits_measure(&b->limits, &b->job, b->options->quick, err) != 0 || bench_steps(b, err) != 0)
        return -1;
    bench_limits_free(&b->limits);
    if (bench_measure_memory(b, err) != 0)
        return -1;
    return bench_allreduce(b, err);
}

/* An old report that cannot be read is better known before than after. */
static int check_old(const bench_options *o, rf_error *err)
{
    rf_error mine = {RF_OK, ""};
    json_t *old = o->compare && rf_job_leads() ? rf_bench_file_load(o->compare, &mine) : NULL;

    json_decref(old);
    return rf_world_agree(&mine, err);
}

static int run(bench_options *o)
{
    rf_error err = {RF_OK, ""}, all;
    bench b = {.options = o};
    int32_t code = 0;
    int result;

    if (rf_launcher_check(getenv, rf_world_size(), &err) != 0)
        return report(&err);
    b.figures = calloc(MOST_FIGURES, sizeof *b.figures);
    if (!b.figures)
        rf_fail(&err, RF_ERR_MEMORY, "no memory for the figures");
    if (rf_world_agree(&err, &all) != 0 || check_old(o, &all) != 0) {
        free(b.figures);
        return report(&all);
    }
    if (measure(&b, &err) != 0) {
        code = (int32_t)report(&err);
    } else {
        result = rf_job_leads() ? print(&b, &err) : 0;
        code = result < 0 ? (int32_t)report(&err) : result;
        rf_comm_bcast(b.job.world, 0, &code, sizeof code);
    }
    bench_limits_free(&b.limits);
    rf_job_stop(&b.job);
    free(b.memory);
    free(b.figures);
    return code;
}

int main(int argc, char **argv)
{
    bench_options options;
    rf_error err;
    int code = 0;

    if (rf_world_init(&argc, &argv, &err) != 0) {
        rf_log_error("%s", err.text);
        return (int)err.code;
    }
    rf_log_set_speaker(rf_job_leads());
    if (bench_options_parse(&options, argc, argv, &err) != 0) {
        code = report(&err);
    } else {
        rf_log_set_verbose(options.engine.verbose);
        for (size_t i = 0; i < options.engine.n_notices; i++)
            rf_log_info("%s", options.engine.notices[i]);
        if (options.engine.action == RF_ACTION_HELP && rf_job_leads())
            bench_options_help(stdout);
        else if (options.engine.action == RF_ACTION_VERSION && rf_job_leads())
            rf_options_print_version(stdout);
        else if (options.engine.action == RF_ACTION_RUN)
            code = run(&options);
    }
    bench_options_free(&options);
    rf_world_finalize();
    return code;
}
