/* Random weights of any block type, in pieces: what a block holds follows from (seed, tensor name, block index) alone,
 * so that pieces made in any order, by any number of threads, are the same bytes. */
#ifndef RF_SYNTH_WEIGHTS_H
#define RF_SYNTH_WEIGHTS_H

#include "error.h"
#include "quant.h"

typedef struct {
    double center, spread; /* mean and standard deviation of the weights; block types have mean 0 */
} rf_synth_range;

typedef struct {
    const rf_format *format;
    uint64_t key;
    double center, half_width;  /* of a uniform draw, for types of single numbers */
    double scale;               /* of a block, so that its weights have the spread */
    double min_ratio;           /* minimum field over scale field: the one that makes the mean 0 */
} rf_synth_source;

/* A type that computes here and that random blocks can be made of: by its name (as in rf_format), or NULL and *err
 * (RF_ERR_USAGE) with the names there are. `flag` is who asks. */
const rf_format *rf_synth_format(const char *flag, const char *name, rf_error *err);

/* What tensor `name` of this type is drawn from. */
void rf_synth_source_init(rf_synth_source *s, const rf_format *format, uint64_t seed, const char *name,
                          rf_synth_range range);
/* Blocks [first, first + n), format->bytes each. */
void rf_synth_blocks(const rf_synth_source *s, size_t first, size_t n, unsigned char *out);

#endif
