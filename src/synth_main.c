/* rankflash-synth: writes a target, and if asked its DFlash2 drafter, with random weights. */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "demo_pair.h"
#include "log.h"
#include "synth_files.h"

#define MAX_PATH 4096

/* Unfinished files, which an interruption must not leave behind. */
static char unfinished[2][MAX_PATH];
static volatile sig_atomic_t n_unfinished;

static void interrupted(int number)
{
    for (int i = 0; i < n_unfinished; i++)
        if (unfinished[i][0])
            unlink(unfinished[i]);
    signal(number, SIG_DFL);
    raise(number);
}

static void guard(const rf_synth_file *f)
{
    int i = n_unfinished;

    snprintf(unfinished[i], MAX_PATH, "%s", rf_gguf_writer_temporary(f->writer));
    n_unfinished = i + 1;
}

static rf_gguf *open_vocabulary(const char *path, rf_error *err)
{
    char folder[MAX_PATH], demo[MAX_PATH + 64];

    if (path)
        return rf_gguf_open(path, err);
    if (!rf_demo_folder(folder, sizeof folder)) {
        rf_fail(err, RF_ERR_FILE, "the demo pair's vocabulary is not in %s: give one with --vocabulary",
                rf_demo_installed());
        return NULL;
    }
    snprintf(demo, sizeof demo, "%s/" RF_DEMO_TARGET, folder);
    return rf_gguf_open(demo, err);
}

static int fill(rf_synth_file *f, const rf_synth_options *o, rf_error *err)
{
    size_t size = rf_gguf_writer_size(f->writer);

    if (rf_synth_fill(f, o, err) < 0)
        return -1;
    rf_log_info("%s: %zu bytes, %zu tensors", f->path, size, f->n);
    return 0;
}

/* Interruptions wait while unfinished files are made and noted. */
static void hold_interruptions(int hold)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (signal(numbers[i], interrupted) == SIG_IGN) /* nohup */
            signal(numbers[i], SIG_IGN);
        sigaddset(&set, numbers[i]);
    }
    sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

/* Both headers first, so that a shape or a disk that does not serve is told before minutes of weights. */
static int write_pair(const rf_synth_options *o, const rf_gguf *vocabulary, rf_error *err)
{
    rf_synth_file target = {0}, drafter = {0};
    rf_qwen35_params params = {0};
    int status;

    hold_interruptions(1);
    status = rf_synth_target(&target, o, vocabulary, &params, err);
    if (status == 0 && o->drafter)
        status = rf_synth_drafter(&drafter, o, vocabulary, &params, err);
    if (status == 0) {
        guard(&target);
        if (o->drafter)
            guard(&drafter);
        hold_interruptions(0);
        status = fill(&target, o, err);
    }
    if (status == 0 && o->drafter)
        status = fill(&drafter, o, err);
    rf_synth_file_free(&target);
    rf_synth_file_free(&drafter);
    hold_interruptions(0);
    rf_qwen35_params_free(&params);
    return status;
}

static int run(const rf_synth_options *o, rf_error *err)
{
    rf_gguf *vocabulary = open_vocabulary(o->vocabulary, err);
    int status;

    if (!vocabulary)
        return -1;
    signal(SIGXFSZ, SIG_IGN); /* a file size limit then fails a write, and is told as such */
    status = write_pair(o, vocabulary, err);
    rf_gguf_close(vocabulary);
    return status;
}

int main(int argc, char **argv)
{
    rf_synth_options options;
    rf_error err = {RF_OK, ""};

    rf_log_set_program("rankflash-synth");
    if (rf_synth_options_parse(&options, argc, argv, &err) == 0) {
        if (options.action == RF_SYNTH_HELP)
            rf_synth_print_help(stdout);
        else if (options.action == RF_SYNTH_VERSION)
            printf("rankflash-synth %s\n", PACKAGE_VERSION);
        else
            run(&options, &err);
    }
    if (err.code != RF_OK)
        rf_log_error("%s", err.text);
    return (int)err.code;
}
