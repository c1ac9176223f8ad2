/* The program: one process a rank. Flags, then a job, then the prompt; exit codes of docs/cli.md. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "../collectives/comm.h"
#include "../rank/device.h"
#include "../rank/job.h"
#include "../rank/prompt.h"
#include "../rank/signals.h"
#include "launcher.h"
#include "log.h"
#include "options.h"

static int report(const rf_error *err)
{
    if (rf_job_leads())
        rf_log_error("%s", err->text);
    return (int)err->code;
}

/* The leader's work between start and stop. A failure here (a row of NaN, no memory) ends all ranks after one line. */
static int lead(rf_job *job, void *context)
{
    rf_error err;
    int signal_seen = 0, failed, code;

    (void)context;
    if (job->options->prompt.data)
        failed = rf_prompt_once(job, &signal_seen, &err);
    else
        failed = rf_prompt_converse(job, &signal_seen, &err);
    if (failed)
        rf_log_error("%s", err.text);
    code = failed ? (int)err.code : signal_seen ? 128 + signal_seen : 0;
    if (!failed && (fflush(stdout) != 0 || ferror(stdout))) {
        rf_log_error("standard output could not be written");
        code = RF_ERR_FILE;
    }
    rf_leader_quit(job->leader, code);
    return code;
}

static int run(rf_options *options)
{
    rf_error err = {RF_OK, ""}, all;
    rf_job job;
    int code = 0;

    if (rf_launcher_check(getenv, rf_world_size(), &err) != 0)
        return report(&err);
    err.code = RF_OK;
    if (rf_job_leads())
        rf_options_load_prompt(options, &err);
    if (rf_world_agree(&err, &all) != 0)
        return report(&all);
    rf_signals_install();
    if (rf_job_start(&job, options, 1, false, &err) != 0) {
        code = report(&err);
    } else {
        rf_job_print_start(&job);
        code = rf_job_run(&job, lead, NULL);
    }
    rf_job_stop(&job);
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
