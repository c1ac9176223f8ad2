#include "options_table.h"

#include <float.h>

#define FIELD(name) .field = offsetof(rf_options, name)
#define RANGE(from, to) .low = (from), .high = (to)
#define REAL_RANGE(from, to) .real_low = (from), .real_high = (to)
#define MAX_CONTEXT INT32_MAX

static const rf_option_choice spec_types[] = {
    {"none", RF_SPEC_NONE, false}, {"draft-mtp", RF_SPEC_MTP, false}, {"draft-dflash", RF_SPEC_DFLASH, false}, {NULL, 0, false}};
static const rf_option_choice splits[] = {
    {"none", RF_SPLIT_NONE, false}, {"layer", RF_SPLIT_LAYER, false}, {"tensor", RF_SPLIT_TENSOR, false}, {NULL, 0, false}};
static const rf_option_choice switches[] = {
    {"on", RF_SWITCH_ON, false}, {"off", RF_SWITCH_OFF, false}, {"auto", RF_SWITCH_AUTO, false}, {NULL, 0, false}};
static const rf_option_choice gpu_aware[] = {
    {"auto", RF_SWITCH_AUTO, false}, {"off", RF_SWITCH_OFF, false}, {"on", RF_SWITCH_ON, true}, {NULL, 0, false}};
static const rf_option_choice yes_no[] = {{"on", true, false}, {"off", false, false}, {NULL, 0, false}};
static const rf_option_choice backends[] = {
    {"auto", RF_WANT_AUTO, false}, {"cpu", RF_WANT_CPU, false}, {"cuda", 0, true}, {"hip", 0, true}, {"emu", 0, true},
    {NULL, 0, false}};
static const rf_option_choice allreduces[] = {
    {"auto", RF_ALLREDUCE_ORDERED, false}, {"ordered", RF_ALLREDUCE_ORDERED, false}, {"mpi", RF_ALLREDUCE_MPI, false},
    {NULL, 0, false}};
static const rf_option_choice cache_types[] = { /* type ids of GGUF */
    {"f32", 0, false}, {"f16", 1, false}, {"bf16", 30, true}, {"q8_0", 8, true}, {NULL, 0, false}};
static const rf_option_choice reasonings[] = {
    {"on", RF_REASONING_ON, false}, {"off", RF_REASONING_OFF, false}, {"auto", RF_REASONING_AUTO, false}, {NULL, 0, false}};

static const rf_option table[] = {
    /* ---- Model */
    {.names = {"-m", "--model"}, .group = RF_GROUP_MODEL, .kind = RF_KIND_STRING, .value = "FILE", FIELD(model),
     .help = "the model, a GGUF file; of a split set, part 1 [the demo pair]"},
    {.names = {"-md", "--model-draft", "--spec-draft-model"}, .group = RF_GROUP_MODEL, .kind = RF_KIND_STRING, .value = "FILE",
     FIELD(draft_model), .help = "its DFlash or DFlash2 drafter, a GGUF file"},

    /* ---- Speculation */
    {.names = {"--spec-type"}, .group = RF_GROUP_SPECULATION, .kind = RF_KIND_CHOICE, .value = "none|draft-mtp|draft-dflash",
     FIELD(spec_type), .choices = spec_types,
     .help = "who drafts [draft-dflash with -md, else draft-mtp if the model has an MTP head, else none]"},
    {.names = {"--spec-draft-n-max"}, .group = RF_GROUP_SPECULATION, .kind = RF_KIND_INT32, .value = "N", FIELD(spec_n_max),
     RANGE(0, INT32_MAX), .help = "drafts in a round at most; 0 is plain decoding [the drafter's block size - 1; MTP: 3]"},
    {.names = {"--spec-draft-n-min"}, .group = RF_GROUP_SPECULATION, .kind = RF_KIND_INT32, .value = "N", FIELD(spec_n_min),
     RANGE(0, INT32_MAX), .help = "draft nothing rather than fewer than N [0]"},
    {.names = {"--spec-draft-p-min"}, .group = RF_GROUP_SPECULATION, .kind = RF_KIND_REAL, .value = "P", FIELD(spec_p_min),
     REAL_RANGE(0, 1), .help = "stop drafting before the first token that the drafter gives less than this probability [0: off]"},

    /* ---- Split, devices, threads */
    {.names = {"-sm", "--split-mode"}, .group = RF_GROUP_DEVICES, .kind = RF_KIND_CHOICE, .value = "none|layer|tensor",
     FIELD(split), .choices = splits,
     .help = "how the ranks share the model: every layer cut into shards, whole layers, or one rank alone [tensor]"},
    {.names = {"-ts", "--tensor-split"}, .group = RF_GROUP_DEVICES, .kind = RF_KIND_CUSTOM, .value = "A,B,...",
     .set = rf_option_set_ratios,
     .help = "shares of the ranks, one positive number per rank, separated by , or / [equal shares]"},
    {.names = {"-ngl", "--gpu-layers", "--n-gpu-layers"}, .group = RF_GROUP_DEVICES, .kind = RF_KIND_CUSTOM, .value = "N|all",
     FIELD(n_gpu_layers), .set = rf_option_set_layers,
     .help = "layers on the device: all, or 99 and more, or 0 for the CPU; part of them only without tensor split [all]"},
    {.names = {"-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft"}, .group = RF_GROUP_DEVICES, .kind = RF_KIND_CUSTOM,
     .value = "N|all", FIELD(n_gpu_layers_draft), .set = rf_option_set_layers, .help = "the same for the drafter [all]"},
    {.names = {"--backend"}, .group = RF_GROUP_DEVICES, .kind = RF_KIND_CHOICE, .value = "auto|cpu|cuda|hip|emu", FIELD(backend),
     .choices = backends, .help = "what computes; this version has the CPU [auto]"},
    {.names = {"-t", "--threads"}, .group = RF_GROUP_DEVICES, .kind = RF_KIND_CUSTOM, .value = "N", .set = rf_option_set_threads,
     RANGE(1, 4096), .help = "threads of each rank [the cores of the rank's binding]"},
    {.names = {"--allreduce"}, .group = RF_GROUP_DEVICES, .kind = RF_KIND_CHOICE, .value = "auto|ordered|mpi", FIELD(allreduce),
     .choices = allreduces,
     .help = "how ranks add: in one written order, or as MPI likes, where the bits depend on the number of ranks [ordered]"},
    {.names = {"--gpu-aware"}, .group = RF_GROUP_DEVICES, .kind = RF_KIND_CHOICE, .value = "auto|on|off", FIELD(gpu_aware),
     .choices = gpu_aware, .help = "give device memory straight to MPI; on is for versions with a GPU backend [auto]"},

    /* ---- Context and memory */
    {.names = {"-c", "--ctx-size"}, .group = RF_GROUP_MEMORY, .kind = RF_KIND_INT64, .value = "N", FIELD(n_ctx),
     RANGE(0, MAX_CONTEXT), .help = "tokens a conversation can hold; 0 is the length the model was trained for [0, lowered by --fit]"},
    {.names = {"-ctk", "--cache-type-k"}, .group = RF_GROUP_MEMORY, .kind = RF_KIND_CHOICE, .value = "f32|f16|bf16|q8_0",
     FIELD(type_k), .choices = cache_types, .help = "type of the key cache; this version has f32 and f16 [f16]"},
    {.names = {"-ctv", "--cache-type-v"}, .group = RF_GROUP_MEMORY, .kind = RF_KIND_CHOICE, .value = "f32|f16|bf16|q8_0",
     FIELD(type_v), .choices = cache_types, .help = "type of the value cache; this version has f32 and f16 [f16]"},
    {.names = {"-ctkd", "--cache-type-k-draft"}, .group = RF_GROUP_MEMORY, .kind = RF_KIND_CHOICE, .value = "f32|f16|bf16|q8_0",
     FIELD(type_k_draft), .choices = cache_types, .help = "type of the drafter's key cache [f16]"},
    {.names = {"-ctvd", "--cache-type-v-draft"}, .group = RF_GROUP_MEMORY, .kind = RF_KIND_CHOICE, .value = "f32|f16|bf16|q8_0",
     FIELD(type_v_draft), .choices = cache_types, .help = "type of the drafter's value cache [f16]"},
    {.names = {"--fit"}, .group = RF_GROUP_MEMORY, .kind = RF_KIND_ON_OFF, .value = "on|off", FIELD(fit), .choices = yes_no,
     .help = "without -c, lower the context to what fits into memory; off refuses instead [on]"},
    {.names = {"-b", "--batch-size"}, .group = RF_GROUP_MEMORY, .kind = RF_KIND_INT32, .value = "N", FIELD(batch),
     RANGE(1, 65536), .help = "prompt tokens processed at once (the prefill chunk) [512]"},

    /* ---- Prompt and output */
    {.names = {"-p", "--prompt"}, .group = RF_GROUP_TEXT, .kind = RF_KIND_TEXT, .value = "TEXT", FIELD(prompt),
     .help = "the prompt; without -p and -f, lines are read from standard input"},
    {.names = {"-f", "--file"}, .group = RF_GROUP_TEXT, .kind = RF_KIND_STRING, .value = "FILE", FIELD(prompt_file),
     .help = "a file that holds the prompt; all its bytes count"},
    {.names = {"-sys", "--system-prompt", "--system"}, .group = RF_GROUP_TEXT, .kind = RF_KIND_TEXT, .value = "TEXT",
     FIELD(system), .help = "system text, put before the first turn"},
    {.names = {"-n", "--n-predict", "--predict"}, .group = RF_GROUP_TEXT, .kind = RF_KIND_INT64, .value = "N", FIELD(n_predict),
     RANGE(-1, INT32_MAX), .help = "tokens to generate at most; -1: until the model ends or the context is full [-1]"},
    {.names = {"-r", "--reverse-prompt"}, .group = RF_GROUP_TEXT, .kind = RF_KIND_CUSTOM, .value = "TEXT",
     .set = rf_option_add_stop, .help = "stop when this text has been generated; may be given several times"},
    {.names = {"-e", "--escape"}, .group = RF_GROUP_TEXT, .kind = RF_KIND_TRUE, FIELD(escape),
     .help = "in -p, -sys and -r, turn \\n \\r \\t \\\\ \\\" \\' \\xHH into what they stand for [on]"},
    {.names = {"--no-escape"}, .group = RF_GROUP_TEXT, .kind = RF_KIND_CUSTOM, .set = rf_option_set_no_escape,
     .help = "leave backslashes in -p, -sys and -r alone"},
    {.names = {"--raw"}, .group = RF_GROUP_TEXT, .kind = RF_KIND_TRUE, FIELD(raw),
     .help = "send the text as it is, without the chat template"},
    {.names = {"--special"}, .group = RF_GROUP_TEXT, .kind = RF_KIND_TRUE, FIELD(special),
     .help = "control tokens written in the input count as such; they are never written to standard output"},
    {.names = {"--reasoning"}, .group = RF_GROUP_TEXT, .kind = RF_KIND_CHOICE, .value = "on|off|auto", FIELD(reasoning),
     .choices = reasonings, .help = "have the model think first [auto: if its chat template mentions thinking]"},
    {.names = {"--ignore-eos"}, .group = RF_GROUP_TEXT, .kind = RF_KIND_TRUE, FIELD(ignore_eos),
     .help = "go on after a token that ends the generation"},

    /* ---- Sampling */
    {.names = {"-s", "--seed"}, .group = RF_GROUP_SAMPLING, .kind = RF_KIND_CUSTOM, .value = "N", .set = rf_option_set_seed,
     .help = "64-bit seed; the same seed gives the same text; -1: a random one, which is printed [-1]"},
    {.names = {"--temperature", "--temp"}, .group = RF_GROUP_SAMPLING, .kind = RF_KIND_REAL, .value = "T", FIELD(temperature),
     REAL_RANGE(0, FLT_MAX), .help = "temperature; 0: always the likeliest token [0.8]"},
    {.names = {"--top-k"}, .group = RF_GROUP_SAMPLING, .kind = RF_KIND_INT32, .value = "K", FIELD(top_k), RANGE(0, INT32_MAX),
     .help = "only the K likeliest tokens; 0: off [40]"},
    {.names = {"--top-p"}, .group = RF_GROUP_SAMPLING, .kind = RF_KIND_REAL, .value = "P", FIELD(top_p), REAL_RANGE(0, 1),
     .help = "of those, the likeliest that together have this probability; 1: off [0.95]"},
    {.names = {"--min-p"}, .group = RF_GROUP_SAMPLING, .kind = RF_KIND_REAL, .value = "P", FIELD(min_p), REAL_RANGE(0, 1),
     .help = "of those, the ones at least P times as likely as the likeliest; 0: off [0.05]"},
    {.names = {"--presence-penalty"}, .group = RF_GROUP_SAMPLING, .kind = RF_KIND_CUSTOM, .value = "N",
     .set = rf_option_set_neutral, .real_low = 0, .help = "this version has no penalties: only 0 is accepted [0]"},
    {.names = {"--frequency-penalty"}, .group = RF_GROUP_SAMPLING, .kind = RF_KIND_CUSTOM, .value = "N",
     .set = rf_option_set_neutral, .real_low = 0, .help = "this version has no penalties: only 0 is accepted [0]"},
    {.names = {"--repeat-penalty"}, .group = RF_GROUP_SAMPLING, .kind = RF_KIND_CUSTOM, .value = "N",
     .set = rf_option_set_neutral, .real_low = 1, .help = "this version has no penalties: only 1 is accepted [1]"},
    {.names = {"--repeat-last-n"}, .group = RF_GROUP_SAMPLING, .kind = RF_KIND_IGNORED, .value = "N", RANGE(-1, INT32_MAX),
     .notice = "no penalty is on, so there is nothing to look back for", .help = "how far back penalties look"},

    /* ---- Reports */
    {.names = {"--plan"}, .group = RF_GROUP_REPORTS, .kind = RF_KIND_ACTION, RANGE(RF_ACTION_PLAN, 0),
     .help = "print who would hold what, in bytes, and stop; needs no launcher"},
    {.names = {"--ranks"}, .group = RF_GROUP_REPORTS, .kind = RF_KIND_INT32, .value = "N", FIELD(plan_ranks), RANGE(1, 65536),
     .help = "with --plan: plan for this many ranks [those that run]"},
    {.names = {"--check"}, .group = RF_GROUP_REPORTS, .kind = RF_KIND_TRUE, FIELD(check),
     .help = "print one 64-bit hash of the logits per generated position"},
    {.names = {"--json"}, .group = RF_GROUP_REPORTS, .kind = RF_KIND_TRUE, FIELD(json),
     .help = "print the statistics as one JSON object on standard error"},
    {.names = {"--verbose"}, .group = RF_GROUP_REPORTS, .kind = RF_KIND_TRUE, FIELD(verbose),
     .help = "say more, such as which op runs on which code"},
    {.names = {"--version"}, .group = RF_GROUP_REPORTS, .kind = RF_KIND_ACTION, RANGE(RF_ACTION_VERSION, 0),
     .help = "print the version and stop"},
    {.names = {"-h", "--help"}, .group = RF_GROUP_REPORTS, .kind = RF_KIND_ACTION, RANGE(RF_ACTION_HELP, 0),
     .help = "print this and stop"},

    /* ---- Known from llama.cpp, change nothing */
    {.names = {"-fa", "--flash-attn"}, .group = RF_GROUP_NOTHING, .kind = RF_KIND_CHOICE, .value = "on|off|auto",
     FIELD(flash_attn), .choices = switches, .notice = "attention is always blockwise here, with the same results",
     .help = "attention is always blockwise"},
    {.names = {"-ub", "--ubatch-size"}, .group = RF_GROUP_NOTHING, .kind = RF_KIND_IGNORED, .value = "N", RANGE(1, INT32_MAX),
     .notice = "there is one batch size here, -b", .help = "there is one batch size, -b"},
    {.names = {"-np", "--parallel"}, .group = RF_GROUP_NOTHING, .kind = RF_KIND_CUSTOM, .value = "N",
     .set = rf_option_set_parallel, .help = "sequences at once; this version has 1 [1]"},
    {.names = {"--no-mmap"}, .group = RF_GROUP_NOTHING, .kind = RF_KIND_IGNORED,
     .notice = "the file is always mapped, and every rank copies its own shard", .help = "the file is always mapped"},
    {.names = {"--mlock"}, .group = RF_GROUP_NOTHING, .kind = RF_KIND_IGNORED, .notice = "weights are copied, not locked",
     .help = "weights are copied out of the file"},
    {.names = {"--jinja"}, .group = RF_GROUP_NOTHING, .kind = RF_KIND_IGNORED,
     .notice = "chat templates are not interpreted; ChatML is built in", .help = "ChatML is built in"},
    {.names = {"-cnv", "--conversation"}, .group = RF_GROUP_NOTHING, .kind = RF_KIND_IGNORED,
     .notice = "conversation is the default", .help = "conversation is the default"},
    {.names = {"-st", "--single-turn"}, .group = RF_GROUP_NOTHING, .kind = RF_KIND_IGNORED,
     .notice = "with -p or -f there is one turn, without them as many as there are lines", .help = "-p and -f are one turn"},
    {.names = {"--no-warmup"}, .group = RF_GROUP_NOTHING, .kind = RF_KIND_IGNORED, .notice = "there is no warm-up run",
     .help = "there is no warm-up run"},
    {.names = {"--no-display-prompt"}, .group = RF_GROUP_NOTHING, .kind = RF_KIND_IGNORED, .notice = "the prompt is never echoed",
     .help = "the prompt is never echoed"},
    {.names = {"--color"}, .group = RF_GROUP_NOTHING, .kind = RF_KIND_IGNORED, .notice = "output has no colours",
     .help = "output has no colours"},
    {.names = {"--perf"}, .group = RF_GROUP_NOTHING, .kind = RF_KIND_IGNORED, .notice = "speeds are always printed at the end",
     .help = "speeds are always printed at the end"},
    {.names = {"--no-perf"}, .group = RF_GROUP_NOTHING, .kind = RF_KIND_IGNORED, .notice = "speeds are always printed at the end",
     .help = "speeds are always printed at the end"},

    /* ---- Not in this version */
    {.names = {"--batch"}, .group = RF_GROUP_LATER, .kind = RF_KIND_LATER, .value = "FILE", .help = "batch jobs from JSON Lines"},
    {.names = {"--output"}, .group = RF_GROUP_LATER, .kind = RF_KIND_LATER, .value = "FILE", .help = "where batch results go"},
    {.names = {"--prompt-cache"}, .group = RF_GROUP_LATER, .kind = RF_KIND_LATER, .value = "FILE", .help = "saved sessions"},
    {.names = {"-dev", "--device"}, .group = RF_GROUP_LATER, .kind = RF_KIND_LATER, .value = "N", .help = "choice of a GPU"},
    {.names = {"--list-devices"}, .group = RF_GROUP_LATER, .kind = RF_KIND_LATER, .help = "list of GPUs"},
    {.names = {"-l", "--logit-bias"}, .group = RF_GROUP_LATER, .kind = RF_KIND_LATER, .value = "TOKEN+BIAS",
     .help = "logit bias"},
};

const rf_option *rf_option_table(size_t *n)
{
    *n = sizeof table / sizeof *table;
    return table;
}

const char *rf_option_group_title(rf_option_group group)
{
    static const char *const titles[RF_N_GROUPS] = {
        [RF_GROUP_MODEL] = "Model",
        [RF_GROUP_SPECULATION] = "Speculation",
        [RF_GROUP_DEVICES] = "Split, devices and threads",
        [RF_GROUP_MEMORY] = "Context and memory",
        [RF_GROUP_TEXT] = "Prompt and output",
        [RF_GROUP_SAMPLING] = "Sampling",
        [RF_GROUP_REPORTS] = "Reports",
        [RF_GROUP_NOTHING] = "Accepted, but change nothing here",
        [RF_GROUP_LATER] = "Not in this version",
    };

    return titles[group];
}
