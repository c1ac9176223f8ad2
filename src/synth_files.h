/* A synthetic model's two files: described, checked by the reader that will load them, filled. */
#ifndef RF_SYNTH_FILES_H
#define RF_SYNTH_FILES_H

#include "../models/dflash.h"
#include "../models/qwen35.h"
#include "gguf_writer.h"
#include "synth_options.h"
#include "synth_weights.h"

typedef struct {
    const char *path;
    rf_gguf_writer *writer;
    rf_tensor_want *wants;        /* owned; in the order of the file */
    const rf_format **formats;    /* [n]; owned */
    size_t n;
} rf_synth_file;

/* Writes the header of the target under its temporary name, takes the disk space, and has the reader read it back:
 * *params is what it found (rf_qwen35_params_free). 0, or -1 with *err; either way pair with rf_synth_file_free. */
int rf_synth_target(rf_synth_file *f, const rf_synth_options *o, const rf_gguf *vocabulary, rf_qwen35_params *params,
                    rf_error *err);
int rf_synth_drafter(rf_synth_file *f, const rf_synth_options *o, const rf_gguf *vocabulary,
                     const rf_qwen35_params *target, rf_error *err);
/* Makes the weights and gives the file its name: 0, or -1 with *err. */
int rf_synth_fill(rf_synth_file *f, const rf_synth_options *o, rf_error *err);
void rf_synth_file_free(rf_synth_file *f); /* removes what is unfinished */

#endif
