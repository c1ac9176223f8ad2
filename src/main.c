/* The program: one process a rank. Flags, then a job, then the prompt; exit codes of docs/cli.md. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "../collectives/comm.h"
#include "../rank/batch.h"
#include "../rank/device.h"
#include "../rank/job.h"
#include "../rank/prompt.h"
#include "../rank/signals.h"
#include "launcher.h"
#include "log.h"
#include "options.h"

#define EXIT_REQUESTS 1 /* some requests of a batch failed */

static int report(const rf_error *err)
{
    if (rf_job_leads())
        rf_log_error("%s", err->text);
    return (int)err->code;
}

/* The leader's work between start and stop. A failure here (a row of NaN, no memory) ends all ranks after one line. */
static int lead(rf_job *job, void *context)
{
    rf_batch_files *files = context;
    rf_error err;
    size_t requests_failed = 0;
    int signal_seen = 0, failed, code;

    if (files)
        failed = rf_batch_run(job, files, &signal_seen, &requests_failed, &err);
    else if (job->options->prompt.data)
        failed = rf_prompt_once(job, &signal_seen, &err);
    else
        failed = rf_prompt_converse(job, &signal_seen, &err);
    if (failed)
        rf_log_error("%s", err.text);
    code = failed ? (int)err.code : signal_seen ? 128 + signal_seen : requests_failed ? EXIT_REQUESTS : 0;
    if (!failed && (fflush(stdout) != 0 || ferror(stdout))) {
        rf_log_error("standard output could not be written");
        code = RF_ERR_FILE;
    }
    rf_leader_quit(job->leader, code);
    return code;
}

/* What the leader alone reads besides the model: the prompt's file, or a batch's two. */
static void open_input(rf_options *options, rf_batch_files **files, rf_error *err)
{
    if (!rf_job_leads() || rf_options_load_prompt(options, err) != 0 || !options->batch_in)
        return;
    *files = rf_batch_files_open(options->batch_in, options->batch_out, err);
}

static int run(rf_options *options)
{
    rf_error err = {RF_OK, ""}, all;
    rf_batch_files *files = NULL;
    rf_job job;
    int code = 0;

    if (rf_launcher_check(getenv, rf_world_size(), &err) != 0)
        return report(&err);
    err.code = RF_OK;
    open_input(options, &files, &err);
    if (rf_world_agree(&err, &all) != 0)
        return report(&all);
    rf_signals_install();
    if (rf_job_start(&job, options, 0, false, &err) != 0) {
        code = report(&err);
    } else {
        rf_job_print_start(&job);
        code = rf_job_run(&job, lead, files);
    }
    rf_job_stop(&job);
    rf_batch_files_close(files);
    return code;
}

int main(int argc, char **argv)
{
    rf_options options;
    rf_error err;
    int code = 0;

    if (rf_world_init(&argc, &argv, &err) != 0) {
        rf_log_error("%s", err.text);
        return (int)err.code;
    }
    rf_log_set_speaker(rf_job_leads());
    if (rf_options_parse(&options, argc, argv, &err) != 0) {
        code = report(&err);
    } else {
        rf_log_set_verbose(options.verbose);
        for (size_t i = 0; i < options.n_notices; i++)
            rf_log_info("%s", options.notices[i]);
        if (options.action == RF_ACTION_HELP && rf_job_leads())
            rf_options_print_help(stdout);
        else if (options.action == RF_ACTION_VERSION && rf_job_leads())
            rf_options_print_version(stdout);
        else if (options.action == RF_ACTION_PLAN && rf_job_leads() && rf_job_print_plan(&options, stdout, &err) != 0)
            code = report(&err);
        else if (options.action == RF_ACTION_DEVICES && rf_job_leads())
            rf_device_list(stdout);
        else if (options.action == RF_ACTION_RUN)
            code = run(&options);
    }
    rf_options_free(&options);
    rf_world_finalize();
    return code;
}
