/* What part of a network this rank holds: contiguous unit ranges along each axis, or layers. Made by
 * rank/plan; pure data. */
#ifndef RF_SHARD_H
#define RF_SHARD_H

#include <stdbool.h>
#include <stddef.h>

#include "modes.h"
#include "sum_tree.h"

typedef enum {
    RF_AXIS_HEADS,       /* query heads of the target (and of its MTP head) */
    RF_AXIS_KEY_HEADS,   /* DeltaNet key heads with their value heads */
    RF_AXIS_FFN,         /* feed-forward columns of target and MTP head */
    RF_AXIS_VOCAB,       /* rows of the output matrix, 64 a unit */
    RF_AXIS_EMBD,        /* output rows of the MTP eh_proj and the drafter's fc, 32 a unit */
    RF_AXIS_DRAFT_HEADS, /* query heads of the drafter */
    RF_AXIS_DRAFT_FFN,
    RF_AXIS_DRAFT_VOCAB, /* rows of the drafter's own output matrix, when it has one */
    RF_N_AXES
} rf_axis_id;

typedef struct {
    size_t n_units;      /* 0: the axis does not occur */
    size_t unit;         /* heads: 1; else columns or rows a unit (the last may be smaller) */
    size_t size;         /* heads, columns or rows in all */
    const size_t *begin; /* [n_ranks + 1] unit boundaries; outside tensor mode a rank that computes owns all units */
} rf_axis;

typedef struct {
    rf_split split;
    int rank, n_ranks;  /* of the world */
    rf_axis axis[RF_N_AXES];
    /* Layers computed here: all in tensor mode; in layer mode [first_layer, first_layer + n_layers) of the trunk. */
    size_t first_layer, n_layers;
    const size_t *layer_begin; /* [n_ranks + 1], layer mode; else NULL */
    /* Holds output norm and matrix, MTP head and drafter: everyone in tensor mode, the last rank in layer mode. */
    bool tail;
} rf_shard;

/* Units, and elements (heads, columns, rows), of an axis that this rank holds. In layer and none mode: all. */
static inline rf_range rf_shard_units(const rf_shard *s, rf_axis_id id)
{
    const rf_axis *a = &s->axis[id];

    if (s->split != RF_SPLIT_TENSOR || !a->n_units)
        return (rf_range){0, a->n_units};
    return (rf_range){a->begin[s->rank], a->begin[s->rank + 1] - a->begin[s->rank]};
}

static inline rf_range rf_shard_elements(const rf_shard *s, rf_axis_id id)
{
    const rf_axis *a = &s->axis[id];
    rf_range units = rf_shard_units(s, id);
    size_t first = units.first * a->unit, end = (units.first + units.count) * a->unit;

    return (rf_range){first < a->size ? first : a->size,
                      (end < a->size ? end : a->size) - (first < a->size ? first : a->size)};
}

#endif
