#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "demo_pair.h"
#include "job.h"
#include "log.h"

static char *joined(const char *folder, const char *name)
{
    size_t n = strlen(folder) + strlen(name) + 2;
    char *path = malloc(n);

    if (path)
        snprintf(path, n, "%s/%s", folder, name);
    return path;
}

static int resolve_paths(rf_job_files *f, const rf_options *o, rf_error *err)
{
    char folder[PATH_MAX];

    if (o->model) {
        f->target_path = strdup(o->model);
        f->drafter_path = o->draft_model ? strdup(o->draft_model) : NULL;
    } else {
        if (!rf_demo_folder(folder, sizeof folder))
            return rf_fail(err, RF_ERR_FILE, "the demo pair (" RF_DEMO_TARGET ") is not in %s; give a model with -m",
                           rf_demo_installed());
        f->demo = true;
        f->target_path = joined(folder, RF_DEMO_TARGET);
        f->drafter_path = o->draft_model ? strdup(o->draft_model) : joined(folder, RF_DEMO_DRAFTER);
    }
    if (!f->target_path || ((o->draft_model || f->demo) && !f->drafter_path))
        return rf_fail(err, RF_ERR_MEMORY, "no memory for a path");
    return 0;
}

static bool file_has_mtp(const rf_gguf *file)
{
    uint64_t n = 0;

    return rf_gguf_has(file, "qwen35.nextn_predict_layers") && rf_gguf_get_uint(file, "qwen35.nextn_predict_layers", UINT64_MAX, &n, NULL) == 0 &&
           n > 0;
}

static int choose_drafter(rf_job_files *f, const rf_options *o, bool all, rf_error *err)
{
    bool mtp = file_has_mtp(f->target_file), dflash = f->drafter_path != NULL;

    f->spec = RF_DRAFTER_NONE;
    if (o->spec_type == RF_SPEC_DFLASH || (o->spec_type == RF_SPEC_AUTO && dflash))
        f->spec = RF_DRAFTER_DFLASH;
    else if (o->spec_type == RF_SPEC_MTP || (o->spec_type == RF_SPEC_AUTO && mtp))
        f->spec = RF_DRAFTER_MTP;
    if (f->spec == RF_DRAFTER_DFLASH && !dflash)
        return rf_fail(err, RF_ERR_USAGE, "--spec-type draft-dflash needs a drafter file: give one with -md");
    if (f->spec == RF_DRAFTER_MTP && !mtp)
        return rf_fail(err, RF_ERR_USAGE, "--spec-type draft-mtp: %s has no MTP head (qwen35.nextn_predict_layers)", f->target_path);
    f->with_mtp = mtp && (all || f->spec == RF_DRAFTER_MTP);
    f->has_drafter = dflash && (all || f->spec == RF_DRAFTER_DFLASH);
    if (o->draft_model && !f->has_drafter)
        rf_log_info("the drafter %s is not used: --spec-type says otherwise", o->draft_model);
    return 0;
}

static void resolve_n_max(rf_job_files *f, const rf_options *o)
{
    size_t cap = f->spec == RF_DRAFTER_DFLASH ? f->drafter.block_size - 1 : RF_MAX_BLOCK - 1;

    if (cap > RF_MAX_BLOCK - 1)
        cap = RF_MAX_BLOCK - 1;
    f->n_max = o->spec_n_max >= 0 ? (size_t)o->spec_n_max : f->spec == RF_DRAFTER_MTP ? 3 : cap;
    if (f->n_max <= cap || f->spec == RF_DRAFTER_NONE)
        return;
    rf_log_warn("--spec-draft-n-max %zu is more than this drafter can: using %zu", f->n_max, cap);
    f->n_max = cap;
}

const char *rf_drafter_name(rf_drafter drafter)
{
    static const char *const names[] = {
        [RF_DRAFTER_NONE] = "none", [RF_DRAFTER_MTP] = "draft-mtp", [RF_DRAFTER_DFLASH] = "draft-dflash"};

    return names[drafter];
}

int rf_job_open(rf_job_files *f, const rf_options *o, bool all_drafters, rf_error *err)
{
    memset(f, 0, sizeof *f);
    if (resolve_paths(f, o, err) != 0)
        return -1;
    f->target_file = rf_gguf_open(f->target_path, err);
    if (!f->target_file || choose_drafter(f, o, all_drafters, err) != 0)
        return -1;
    if (rf_qwen35_params_read(f->target_file, f->with_mtp, &f->target, err) != 0)
        return -1;
    if (f->has_drafter) {
        f->drafter_file = rf_gguf_open(f->drafter_path, err);
        if (!f->drafter_file || rf_dflash_params_read(f->drafter_file, &f->target, &f->drafter, err) != 0)
            return -1;
    }
    resolve_n_max(f, o);
    return 0;
}

void rf_job_close(rf_job_files *f)
{
    rf_dflash_params_free(&f->drafter);
    rf_qwen35_params_free(&f->target);
    rf_gguf_close(f->drafter_file);
    rf_gguf_close(f->target_file);
    free(f->drafter_path);
    free(f->target_path);
    memset(f, 0, sizeof *f);
}
