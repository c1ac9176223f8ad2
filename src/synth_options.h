/* The command line of rankflash-synth, and the shapes it knows. */
#ifndef RF_SYNTH_OPTIONS_H
#define RF_SYNTH_OPTIONS_H

#include "flags.h"

typedef enum { RF_SYNTH_RUN, RF_SYNTH_HELP, RF_SYNTH_VERSION } rf_synth_action;
typedef enum { RF_SYNTH_UNSET, RF_SYNTH_OFF, RF_SYNTH_ON } rf_synth_switch;

/* Sizes of the two networks, in the words of docs/models.md. 0 (UNSET): not given. */
typedef struct {
    const char *name;
    int32_t n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim, n_key_heads, n_value_heads, state_size, conv_kernel,
        interval, n_vocab;
    rf_synth_switch tied, mtp;
    int32_t draft_layers, draft_heads, draft_heads_kv, draft_head_dim, draft_block, selector_rank, selector_top_k;
} rf_synth_shape;

typedef struct {
    rf_synth_action action;
    const char *target, *drafter; /* files to write; drafter NULL: none */
    const char *vocabulary;       /* NULL: the demo's */
    rf_synth_shape shape;         /* complete after parsing */
    const char *type, *embd_type; /* names of block types; embd_type NULL: type */
    uint64_t seed;
    int32_t threads;              /* 0: all there are */
} rf_synth_options;

/* 0, or -1 with one sentence (RF_ERR_USAGE, RF_ERR_MEMORY). Strings point into argv. */
int rf_synth_options_parse(rf_synth_options *o, int argc, char **argv, rf_error *err);
const rf_flag_set *rf_synth_flags(void);
void rf_synth_print_help(FILE *out);

#endif
