#include "config.h"

#include "synth_options.h"

#include <string.h>

#define FIELD(name) .field = offsetof(rf_synth_options, name)
#define RANGE(from, to) .low = (from), .high = (to)

enum { GROUP_FILES, GROUP_WEIGHTS, GROUP_SHAPE, GROUP_DRAFTER, GROUP_REPORTS, N_GROUPS };

static const char *const titles[N_GROUPS] = {
    [GROUP_FILES] = "Files",
    [GROUP_WEIGHTS] = "Weights",
    [GROUP_SHAPE] = "Shape of the target",
    [GROUP_DRAFTER] = "Shape of the drafter",
    [GROUP_REPORTS] = "Reports",
};

/* The targets are Qwen3.5's dense sizes as published; the 27B's drafter is the published DFlash2 one, the others'
 * drafters follow its proportions. tiny is the demo pair. */
static const rf_synth_shape shapes[] = {
    {"tiny", 8, 256, 768, 4, 2, 64, 4, 8, 32, 4, 4, 4096, RF_SYNTH_ON, RF_SYNTH_ON, 2, 4, 2, 64, 8, 64, 8},
    {"0.8B", 24, 1024, 3584, 8, 2, 256, 16, 16, 128, 4, 4, 248320, RF_SYNTH_ON, RF_SYNTH_ON, 5, 16, 8, 128, 8, 256, 16},
    {"2B", 24, 2048, 6144, 8, 2, 256, 16, 16, 128, 4, 4, 248320, RF_SYNTH_ON, RF_SYNTH_ON, 5, 16, 8, 128, 8, 256, 16},
    {"4B", 32, 2560, 9216, 16, 4, 256, 16, 32, 128, 4, 4, 248320, RF_SYNTH_ON, RF_SYNTH_ON, 5, 32, 8, 128, 8, 256, 16},
    {"9B", 32, 4096, 12288, 16, 4, 256, 16, 32, 128, 4, 4, 248320, RF_SYNTH_OFF, RF_SYNTH_ON, 5, 32, 8, 128, 8, 256,
     16},
    {"27B", 64, 5120, 17408, 24, 4, 256, 16, 48, 128, 4, 4, 248320, RF_SYNTH_OFF, RF_SYNTH_ON, 5, 32, 8, 128, 8, 256,
     16},
};

static const rf_flag_choice switches[] = {{"on", RF_SYNTH_ON, false}, {"off", RF_SYNTH_OFF, false}, {NULL, 0, false}};

static int set_seed(void *options, const rf_flag *row, const char *value, rf_error *err)
{
    rf_synth_options *o = options;

    return rf_flag_uint64(value, &o->seed) == 0
               ? 0
               : rf_flag_bad_value(row, value, "a whole number from 0 to 18446744073709551615", err);
}

/* A size of the shape. */
#define SIZE(flag, where, field_name, most, text)                                                                      \
    {.names = {flag},                                                                                                  \
     .group = where,                                                                                                   \
     .kind = RF_KIND_INT32,                                                                                            \
     .value = "N",                                                                                                     \
     FIELD(shape.field_name),                                                                                          \
     RANGE(1, most),                                                                                                   \
     .help = text}

static const rf_flag table[] = {
    {.names = {"-o", "--output"},
     .group = GROUP_FILES,
     .kind = RF_KIND_STRING,
     .value = "FILE",
     FIELD(target),
     .help = "the target to write; needed"},
    {.names = {"-d", "--drafter"},
     .group = GROUP_FILES,
     .kind = RF_KIND_STRING,
     .value = "FILE",
     FIELD(drafter),
     .help = "also write a DFlash2 drafter for it [none]"},
    {.names = {"--vocabulary"},
     .group = GROUP_FILES,
     .kind = RF_KIND_STRING,
     .value = "FILE",
     FIELD(vocabulary),
     .help = "GGUF file whose vocabulary both get, filled up with unused tokens [the demo pair's]"},

    {.names = {"--type"},
     .group = GROUP_WEIGHTS,
     .kind = RF_KIND_STRING,
     .value = "TYPE",
     FIELD(type),
     .help = "block type of the matrices, by its GGUF name: any type this version computes with [Q8_0]"},
    {.names = {"--embd-type"},
     .group = GROUP_WEIGHTS,
     .kind = RF_KIND_STRING,
     .value = "TYPE",
     FIELD(embd_type),
     .help = "block type of the embedding and output matrices [that of --type]"},
    {.names = {"-s", "--seed"},
     .group = GROUP_WEIGHTS,
     .kind = RF_KIND_CUSTOM,
     .value = "N",
     .set = set_seed,
     .help = "64-bit seed; the same seed and flags give the same bytes [0]"},
    {.names = {"-t", "--threads"},
     .group = GROUP_WEIGHTS,
     .kind = RF_KIND_INT32,
     .value = "N",
     FIELD(threads),
     RANGE(1, 4096),
     .help = "threads that make weights; they change nothing in the file [the cores there are]"},

    {.names = {"--shape"},
     .group = GROUP_SHAPE,
     .kind = RF_KIND_STRING,
     .value = "NAME",
     FIELD(shape.name),
     .help = "tiny (the demo pair's), 0.8B, 2B, 4B, 9B or 27B (Qwen3.5's dense sizes as published); the flags below "
             "change it [tiny]"},
    SIZE("--layers", GROUP_SHAPE, n_layer, 1000, "layers, without the MTP block"),
    SIZE("--embd", GROUP_SHAPE, n_embd, 1 << 16, "embedding length (hidden size)"),
    SIZE("--ffn", GROUP_SHAPE, n_ff, 1 << 19, "feed-forward length (intermediate size)"),
    SIZE("--heads", GROUP_SHAPE, n_head, 1024, "query heads of full attention"),
    SIZE("--kv-heads", GROUP_SHAPE, n_head_kv, 1024, "its KV heads"),
    SIZE("--head-dim", GROUP_SHAPE, head_dim, 1024, "its head size, a multiple of 8; a quarter of it is rotated"),
    SIZE("--key-heads", GROUP_SHAPE, n_key_heads, 1024, "DeltaNet key heads (linear_num_key_heads)"),
    SIZE("--value-heads", GROUP_SHAPE, n_value_heads, 4096, "DeltaNet value heads (linear_num_value_heads)"),
    SIZE("--state-size", GROUP_SHAPE, state_size, 1024, "DeltaNet head size"),
    SIZE("--conv-kernel", GROUP_SHAPE, conv_kernel, 16, "taps of the DeltaNet convolution, at least 2"),
    SIZE("--interval", GROUP_SHAPE, interval, 1024, "every N-th layer is full attention"),
    SIZE("--vocab", GROUP_SHAPE, n_vocab, 1 << 22, "tokens, at least those of the vocabulary"),
    {.names = {"--tied"},
     .group = GROUP_SHAPE,
     .kind = RF_KIND_CHOICE,
     .value = "on|off",
     FIELD(shape.tied),
     .choices = switches,
     .help = "the embedding matrix is also the output matrix [the shape's: on up to 4B, off for 9B and 27B]"},
    {.names = {"--mtp"},
     .group = GROUP_SHAPE,
     .kind = RF_KIND_CHOICE,
     .value = "on|off",
     FIELD(shape.mtp),
     .choices = switches,
     .help = "with a multi-token prediction head [on]"},

    SIZE("--draft-layers", GROUP_DRAFTER, draft_layers, 256, "layers of the drafter"),
    SIZE("--draft-heads", GROUP_DRAFTER, draft_heads, 1024, "its query heads"),
    SIZE("--draft-kv-heads", GROUP_DRAFTER, draft_heads_kv, 1024, "its KV heads"),
    SIZE("--draft-head-dim", GROUP_DRAFTER, draft_head_dim, 1024, "its head size, even"),
    SIZE("--draft-block", GROUP_DRAFTER, draft_block, 16, "its block: the anchor and the drafts, at least 2"),
    SIZE("--selector-rank", GROUP_DRAFTER, selector_rank, 4096, "rank of the candidate selector"),
    SIZE("--selector-top-k", GROUP_DRAFTER, selector_top_k, 64, "candidates of a draft position"),

    {.names = {"--version"},
     .group = GROUP_REPORTS,
     .kind = RF_KIND_STOP,
     FIELD(action),
     RANGE(RF_SYNTH_VERSION, 0),
     .help = "print the version and stop"},
    {.names = {"-h", "--help"},
     .group = GROUP_REPORTS,
     .kind = RF_KIND_STOP,
     FIELD(action),
     RANGE(RF_SYNTH_HELP, 0),
     .help = "print this and stop"},
};

const rf_flag_set *rf_synth_flags(void)
{
    static const rf_flag_set set = {
        .rows = table,
        .n_rows = sizeof table / sizeof *table,
        .groups = titles,
        .n_groups = N_GROUPS,
        .plain = "the file to write goes after -o, a size after --shape",
    };

    return &set;
}

void rf_synth_print_help(FILE *out)
{
    fputs("rankflash-synth: writes models with random weights, to try sizes and speeds without the real ones\n\n"
          "  rankflash-synth --shape 4B -o 4B.gguf -d 4B-drafter.gguf\n"
          "  rankflash-synth --shape tiny --layers 4 --heads 8 --type F16 -o small.gguf\n\n"
          "Defaults are in [brackets]; of sizes, the default is the shape's. The targets 0.8B to 27B are Qwen3.5's\n"
          "published dense sizes. Of their drafters only the 27B's is published; the others have its layers and\n"
          "block, and heads of our choice. Text from random weights means nothing; speed and memory do.\n",
          out);
    rf_flags_print(rf_synth_flags(), out);
    fputs("\nExit codes: 0 done, 2 usage, 3 a file that cannot be read or written, 4 out of memory,\n"
          "128 + signal when interrupted.\n",
          out);
}

/* ---- What must fit together */

static void fill(int32_t *value, int32_t preset)
{
    if (!*value)
        *value = preset;
}

static int complete(rf_synth_shape *s, rf_error *err)
{
    const rf_synth_shape *p = NULL;

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(shapes[i].name, s->name) == 0)
            p = &shapes[i];
    if (!p)
        return rf_fail(err, RF_ERR_USAGE, "--shape %.40s: expected tiny, 0.8B, 2B, 4B, 9B or 27B", s->name);
    for (size_t i = 0; i < rf_synth_flags()->n_rows; i++) {
        const rf_flag *row = &table[i];
        size_t at = row->field - offsetof(rf_synth_options, shape);

        if (row->kind == RF_KIND_INT32 && (row->group == GROUP_SHAPE || row->group == GROUP_DRAFTER))
            fill((int32_t *)((char *)s + at), *(const int32_t *)((const char *)p + at));
    }
    s->tied = s->tied ? s->tied : p->tied;
    s->mtp = s->mtp ? s->mtp : p->mtp;
    return 0;
}

static int divides(const char *part, int32_t n_parts, const char *whole, int32_t n, rf_error *err)
{
    if (n % n_parts == 0)
        return 0;
    return rf_fail(err, RF_ERR_USAGE, "%s %d does not divide %s %d", part, (int)n_parts, whole, (int)n);
}

static int check_shape(const rf_synth_shape *s, rf_error *err)
{
    if (divides("--kv-heads", s->n_head_kv, "--heads", s->n_head, err) < 0 ||
        divides("--key-heads", s->n_key_heads, "--value-heads", s->n_value_heads, err) < 0 ||
        divides("--draft-kv-heads", s->draft_heads_kv, "--draft-heads", s->draft_heads, err) < 0)
        return -1;
    if (s->head_dim % 8)
        return rf_fail(err, RF_ERR_USAGE, "--head-dim %d: expected a multiple of 8", (int)s->head_dim);
    if (s->draft_head_dim % 2)
        return rf_fail(err, RF_ERR_USAGE, "--draft-head-dim %d: expected an even number", (int)s->draft_head_dim);
    if (s->conv_kernel < 2)
        return rf_fail(err, RF_ERR_USAGE, "--conv-kernel %d: expected at least 2", (int)s->conv_kernel);
    if (s->draft_block < 2)
        return rf_fail(err, RF_ERR_USAGE, "--draft-block %d: expected at least 2", (int)s->draft_block);
    return 0;
}

int rf_synth_options_parse(rf_synth_options *o, int argc, char **argv, rf_error *err)
{
    *o = (rf_synth_options){.type = "Q8_0", .shape = {.name = "tiny"}};
    if (rf_flags_parse(rf_synth_flags(), o, argc, argv, err) < 0)
        return -1;
    if (o->action != RF_SYNTH_RUN)
        return 0;
    if (!o->target)
        return rf_fail(err, RF_ERR_USAGE, "no file to write: add -o FILE");
    if (o->drafter && strcmp(o->drafter, o->target) == 0)
        return rf_fail(err, RF_ERR_USAGE, "-o and -d both give %.200s: the drafter is a file of its own", o->target);
    if (complete(&o->shape, err) < 0)
        return -1;
    return check_shape(&o->shape, err);
}
