#include "config.h"

#include "options.h"

#include <stdlib.h>

#include "options_table.h"

void rf_options_defaults(rf_options *o)
{
    *o = (rf_options){
        .spec_n_max = -1,
        .split = RF_SPLIT_TENSOR,
        .isa = "auto",
        .device = -1,
        .n_gpu_layers = RF_LAYERS_UNSET,
        .n_gpu_layers_draft = RF_LAYERS_UNSET,
        .n_ctx = -1,
        .type_k = 1,
        .type_v = 1,
        .type_k_draft = 1,
        .type_v_draft = 1,
        .fit = true,
        .batch = 512,
        .escape = true,
        .n_predict = -1,
        .temperature = 0.8,
        .top_k = 40,
        .top_p = 0.95,
        .min_p = 0.05,
    };
}

/* ---- What must fit together */

static int check_model(const rf_options *o, rf_error *err)
{
    if (o->draft_model && !o->model)
        return rf_fail(err, RF_ERR_USAGE, "-md gives a drafter, but -m no model for it");
    if (o->spec_type == RF_SPEC_DFLASH && o->model && !o->draft_model)
        return rf_fail(err, RF_ERR_USAGE, "--spec-type draft-dflash needs a drafter: add -md FILE");
    if (o->spec_n_max >= 0 && o->spec_n_min > o->spec_n_max)
        return rf_fail(err, RF_ERR_USAGE, "--spec-draft-n-min %d is more than --spec-draft-n-max %d",
                       (int)o->spec_n_min, (int)o->spec_n_max);
    return 0;
}

static bool partial(int32_t layers)
{
    return layers > 0 && layers != RF_LAYERS_ALL;
}

static int check_split(const rf_options *o, rf_error *err)
{
    if (o->split == RF_SPLIT_NONE && o->n_tensor_split > 1)
        return rf_fail(err, RF_ERR_USAGE, "--tensor-split has %zu shares, but --split-mode none is one rank alone",
                       o->n_tensor_split);
    if (o->split == RF_SPLIT_TENSOR && (partial(o->n_gpu_layers) || partial(o->n_gpu_layers_draft)))
        return rf_fail(err, RF_ERR_USAGE,
                       "%s %d: with --split-mode tensor all layers are on the device or none: use all or 0",
                       partial(o->n_gpu_layers) ? "--n-gpu-layers" : "--n-gpu-layers-draft",
                       (int)(partial(o->n_gpu_layers) ? o->n_gpu_layers : o->n_gpu_layers_draft));
    if (o->plan_ranks && o->action != RF_ACTION_PLAN)
        return rf_fail(err, RF_ERR_USAGE,
                       "--ranks goes with --plan; the launcher (mpirun -np) says how many ranks run");
    if (o->action != RF_ACTION_PLAN && (o->cost_bench || o->cost_read > 0 || o->cost_products > 0 ||
                                        o->cost_reached > 0 || o->cost_latency > 0 || o->cost_link > 0))
        return rf_fail(err, RF_ERR_USAGE, "--cost-bench, --cost-read and the like go with --plan");
    return 0;
}

static int check_text(const rf_options *o, rf_error *err)
{
    if (o->prompt.data && o->prompt_file)
        return rf_fail(err, RF_ERR_USAGE, "-p and -f both give the prompt: use one of them");
    if (o->raw && o->system.data)
        return rf_fail(err, RF_ERR_USAGE, "--system goes into the chat template, which --raw leaves out");
    if (o->raw && o->reasoning != RF_REASONING_AUTO)
        return rf_fail(err, RF_ERR_USAGE, "--reasoning goes into the chat template, which --raw leaves out");
    return 0;
}

static int check_batch(const rf_options *o, rf_error *err)
{
    if (o->batch_in && !o->batch_out)
        return rf_fail(err, RF_ERR_USAGE, "--batch needs a file for the results: add --output FILE");
    if (o->batch_out && !o->batch_in)
        return rf_fail(err, RF_ERR_USAGE, "--output is for the results of a batch: add --batch FILE");
    if (o->batch_in && (o->prompt.data || o->prompt_file))
        return rf_fail(err, RF_ERR_USAGE, "--batch brings its own prompts: leave out %s", o->prompt.data ? "-p" : "-f");
    if (o->parallel > 1 && !o->batch_in)
        return rf_fail(err, RF_ERR_USAGE, "--parallel %d is for the requests of a batch: add --batch FILE", (int)o->parallel);
    return 0;
}

static int do_escapes(rf_options *o, rf_error *err)
{
    if (!o->escape)
        return 0;
    if (rf_option_unescape(o, &o->prompt, err) < 0 || rf_option_unescape(o, &o->system, err) < 0)
        return -1;
    for (size_t i = 0; i < o->n_stop; i++)
        if (rf_option_unescape(o, &o->stop[i], err) < 0)
            return -1;
    return 0;
}

int rf_options_check(rf_options *o, rf_error *err)
{
    if (check_model(o, err) < 0 || check_split(o, err) < 0 || check_text(o, err) < 0 ||
        check_batch(o, err) < 0)
        return -1;
    return do_escapes(o, err);
}

int rf_options_parse(rf_options *o, int argc, char **argv, rf_error *err)
{
    int result;

    rf_options_defaults(o);
    result = rf_flags_parse(rf_option_set(), o, argc, argv, err);
    if (result < 0 || o->action == RF_ACTION_HELP || o->action == RF_ACTION_VERSION)
        return result;
    return rf_options_check(o, err);
}

void rf_options_free(rf_options *o)
{
    for (size_t i = 0; i < o->n_owned; i++)
        free(o->owned[i]);
    free(o->owned);
    free(o->notices);
    free(o->tensor_split);
    free(o->stop);
    *o = (rf_options){0};
}
