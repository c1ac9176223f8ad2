/* The command line: every flag is a row of one table (options_table.c), from which parsing, --help and docs/cli.md
 * follow. */
#ifndef RF_OPTIONS_H
#define RF_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "error.h"
#include "modes.h"
#include "text.h"

typedef enum { RF_ACTION_RUN, RF_ACTION_HELP, RF_ACTION_VERSION, RF_ACTION_PLAN, RF_ACTION_DEVICES } rf_action;
typedef enum { RF_SPEC_AUTO, RF_SPEC_NONE, RF_SPEC_MTP, RF_SPEC_DFLASH } rf_spec_type;
typedef enum { RF_SWITCH_AUTO, RF_SWITCH_OFF, RF_SWITCH_ON } rf_switch;
typedef enum {
    RF_WANT_AUTO,
    RF_WANT_CPU,
    RF_WANT_CUDA,
    RF_WANT_HIP,
    RF_WANT_EMU_32, /* the emulated GPU, by lanes a warp */
    RF_WANT_EMU_64
} rf_want_backend;

#define RF_LAYERS_UNSET (-1) /* -ngl was not given */
#define RF_LAYERS_ALL INT32_MAX
#define RF_MOST_PARALLEL 64
#define RF_DEFAULT_PARALLEL 8

typedef struct {
    rf_action action;

    /* Model */
    const char *model, *draft_model; /* NULL: not given; no model at all means the demo pair */

    /* Speculation */
    rf_spec_type
        spec_type; /* auto: draft-dflash if there is a drafter, else draft-mtp if the file has the head, else none */
    int32_t
        spec_n_max; /* -1: block_size - 1 (MTP: 3); 0: plain decoding; larger than the drafter can: clamp and warn */
    int32_t spec_n_min; /* fewer drafts than this: draft nothing */
    double spec_p_min;  /* 0: off */

    /* Split and devices */
    rf_split split;
    double *tensor_split;  /* owned; n_tensor_split positive numbers, 0 when not given (equal shares) */
    size_t n_tensor_split; /* compared with the number of ranks by the plan */
    int32_t n_gpu_layers, n_gpu_layers_draft; /* 0: CPU; RF_LAYERS_ALL; RF_LAYERS_UNSET */
    int32_t threads;                          /* 0: from the binding mask */
    const char *isa;                          /* "auto" or a level of rf_cpu_create */
    rf_want_backend backend;
    int32_t device; /* -1: not given */
    rf_allreduce allreduce;
    rf_switch gpu_aware;
    rf_switch flash_attn; /* attention is blockwise whatever it says */

    /* Memory */
    int64_t n_ctx;                                       /* -1: not given; 0: the trained length */
    uint32_t type_k, type_v, type_k_draft, type_v_draft; /* GGUF type ids: 0 f32, 1 f16 */
    bool fit;
    int32_t batch; /* rows of a prefill chunk */

    /* Text */
    rf_text prompt; /* absent: NULL; escapes are done */
    const char *prompt_file;
    rf_text system;
    rf_text *stop; /* owned; -r, escapes done */
    size_t n_stop;
    bool escape, raw, special, ignore_eos;
    rf_reasoning reasoning;
    int64_t n_predict; /* -1: until the end or the context limit */

    /* Batch jobs */
    const char *batch_in, *batch_out; /* both or neither */
    int32_t parallel;                 /* requests decoded together; 0: what fits, RF_DEFAULT_PARALLEL at most */

    /* Sampling */
    bool seed_given; /* false (also -s -1): draw one (random_seed.h) and print it */
    uint64_t seed;
    double temperature;  /* 0: greedy */
    int32_t top_k;       /* 0: off */
    double top_p, min_p; /* 1, 0: off */

    /* Reports */
    int32_t plan_ranks; /* 0: not given */
    const char *cost_bench; /* --plan: a report of rankflash-bench whose numbers count; NULL: none */
    /* --plan: of a rank; 0: not given. GB and G are 10^9. */
    double cost_read, cost_products, cost_reached, cost_latency, cost_link; /* GB/s, G/s, percent, us, GB/s */
    bool check, json, verbose;
    bool time_ops; /* no flag: a program that measures asks for op_timers.h */

    /* One sentence for every flag that was accepted and changes nothing here; the leader prints them. Owned. */
    char **notices;
    size_t n_notices;

    char **owned; /* memory behind the texts above */
    size_t n_owned;
} rf_options;

/* Reads argv[1..]; argv must outlive o. Checks ranges and contradictions; touches no file. 0, or -1 with *err
 * (RF_ERR_USAGE, one sentence). Either way pair with rf_options_free. With --help or --version the action says so and
 * the rest is not read. */
int rf_options_parse(rf_options *o, int argc, char **argv, rf_error *err);
/* Its parts, for a program with flags of its own that takes over some of these (options_table.h): what stands before a
 * flag is read, and the checks after the last. */
void rf_options_defaults(rf_options *o);
int rf_options_check(rf_options *o, rf_error *err);
void rf_options_free(rf_options *o);
/* -f: reads the whole file into o->prompt (leader only). 0 also without -f. */
int rf_options_load_prompt(rf_options *o, rf_error *err);

void rf_options_print_help(FILE *out);
void rf_options_print_version(FILE *out);

#endif
