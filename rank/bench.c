/* rankflash-bench: the program. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "device.h"
#include "bench_file.h"
#include "launcher.h"
#include "log.h"

#define JSON_STYLE (JSON_INDENT(1) | JSON_REAL_PRECISION(6))

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
    if (b->options->format == BENCH_JSON || b->options->compare || b->options->output) {
        json = bench_json(b);
        if (!json)
            return rf_fail(err, RF_ERR_MEMORY, "no memory for the report");
    }
    if (b->options->output && json_dump_file(json, b->options->output, JSON_STYLE) != 0)
        result = rf_fail(err, RF_ERR_FILE, "%s could not be written", b->options->output);
    if (b->options->format == BENCH_JSON) {
        json_dumpf(json, stdout, JSON_STYLE);
        fputc('\n', stdout);
    }
    if (b->options->compare && result == 0)
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
    if (bench_limits_measure(&b->limits, &b->job, b->options->quick, err) != 0 || bench_steps(b, err) != 0 ||
        bench_generate(b, err) != 0)
        return -1;
    bench_limits_free(&b->limits);
    if (bench_measure_memory(b, err) != 0)
        return -1;
    return bench_allreduce(b, err);
}

/* Files that cannot be read are better known before than after. */
static int read_inputs(bench *b, rf_error *err)
{
    const bench_options *o = b->options;
    rf_error mine = {RF_OK, ""};
    bool leads = rf_job_leads();

    if (o->compare && leads)
        json_decref(rf_bench_file_load_runs(o->compare, &mine));
    if (o->prompts && leads && mine.code == RF_OK)
        b->prompts = bench_prompts_load(o->prompts, &mine);
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
    b.figures = calloc(BENCH_FIGURES, sizeof *b.figures);
    if (!b.figures)
        rf_fail(&err, RF_ERR_MEMORY, "no memory for the figures");
    if (rf_world_agree(&err, &all) != 0 || read_inputs(&b, &all) != 0) {
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
    json_decref(b.prompts);
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
    rf_log_set_program("rankflash-bench");
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
        else if (options.engine.action == RF_ACTION_DEVICES && rf_job_leads())
            rf_device_list(stdout);
        else if (options.engine.action == RF_ACTION_RUN)
            code = run(&options);
    }
    bench_options_free(&options);
    rf_world_finalize();
    return code;
}
