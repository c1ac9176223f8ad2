#include "plan.h"

#include <stdlib.h>
#include <string.h>

/* Shares outside mean nothing, and their sums might not be finite. */
#define LEAST_RATIO 1e-9
#define MOST_RATIO 1e9

struct rf_plan {
    rf_plan_spec spec;
    rf_axis axes[RF_N_AXES];
    size_t *begin[RF_N_AXES]; /* [n_ranks + 1] */
    size_t *layer_begin;      /* [n_ranks + 1], layer mode */
    double *ratios;
};

static const char *const axis_names[RF_N_AXES] = {
    [RF_AXIS_HEADS] = "query heads",
    [RF_AXIS_KEY_HEADS] = "DeltaNet key heads",
    [RF_AXIS_FFN] = "feed-forward units",
    [RF_AXIS_VOCAB] = "vocabulary units",
    [RF_AXIS_EMBD] = "embedding units",
    [RF_AXIS_DRAFT_HEADS] = "drafter query heads",
    [RF_AXIS_DRAFT_FFN] = "drafter feed-forward units",
    [RF_AXIS_DRAFT_VOCAB] = "drafter vocabulary units",
};

static bool even(const double *ratios, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (ratios[i] != ratios[0])
            return false;
    return true;
}

static int check_ratios(const rf_plan_spec *s, rf_error *err)
{
    if (s->ratios && s->n_ratios != (size_t)s->n_ranks)
        return rf_fail(err, RF_ERR_USAGE,
                       "--tensor-split has %zu numbers, but there are %d ranks: one number a rank is expected",
                       s->n_ratios, s->n_ranks);
    for (size_t i = 0; s->ratios && i < s->n_ratios; i++)
        if (!(s->ratios[i] >= LEAST_RATIO && s->ratios[i] <= MOST_RATIO))
            return rf_fail(err, RF_ERR_USAGE, "--tensor-split: %g is no share: numbers from %g to %g are expected",
                           s->ratios[i], LEAST_RATIO, MOST_RATIO);
    if (s->split == RF_SPLIT_NONE && s->n_ranks > 1)
        return rf_fail(err, RF_ERR_USAGE,
                       "--split-mode none uses one rank, but there are %d: start one, or use tensor or layer",
                       s->n_ranks);
    return 0;
}

static int check_limit(const rf_plan *p, rf_error *err)
{
    size_t limit = p->spec.target->n_layer + 1;
    const char *what = "layers and the output";

    if (p->spec.split == RF_SPLIT_TENSOR) {
        limit = SIZE_MAX;
        for (int a = 0; a < RF_N_AXES; a++)
            if (p->axes[a].n_units && p->axes[a].n_units < limit) {
                limit = p->axes[a].n_units;
                what = axis_names[a];
            }
    }
    if ((size_t)p->spec.n_ranks <= limit)
        return 0;
    return rf_fail(err, RF_ERR_USAGE,
                   "%d ranks are too many for --split-mode %s of this model: its %s can be cut for at most %zu ranks",
                   p->spec.n_ranks, p->spec.split == RF_SPLIT_TENSOR ? "tensor" : "layer", what, limit);
}

static int cut_axes(rf_plan *p, const double *ratios, rf_error *err)
{
    const rf_plan_spec *s = &p->spec;
    size_t n = (size_t)s->n_ranks + 1;

    for (int a = 0; a < RF_N_AXES; a++) {
        size_t units = p->axes[a].n_units;
        int failed = 0;

        if (!units)
            continue;
        p->begin[a] = calloc(n, sizeof(size_t));
        if (!p->begin[a])
            return rf_fail(err, RF_ERR_MEMORY, "no memory for the plan");
        if (s->split != RF_SPLIT_TENSOR) { /* whoever computes owns all units */
            for (size_t r = 1; r < n; r++)
                p->begin[a][r] = units;
        } else if (!ratios && a == RF_AXIS_HEADS) {
            failed = rf_plan_cut_heads(units, s->target->n_head_kv, s->n_ranks, p->begin[a], err);
        } else if (!ratios && a == RF_AXIS_DRAFT_HEADS) {
            failed = rf_plan_cut_heads(units, s->drafter->n_head_kv, s->n_ranks, p->begin[a], err);
        } else {
            rf_plan_cut(units, s->n_ranks, ratios, p->begin[a]);
        }
        if (failed)
            return -1;
        p->axes[a].begin = p->begin[a];
    }
    return 0;
}

/* Bytes of the file that a layer, or the tail, stands for. */
static void add_bytes(const rf_gguf *file, rf_tensor_want *wants, size_t n, size_t *layer_bytes, size_t *tail)
{
    for (size_t i = 0; i < n; i++) {
        const rf_tensor *t = rf_gguf_find(file, wants[i].name);

        if (!t || wants[i].cut == RF_CUT_UNUSED || wants[i].cut == RF_CUT_MAPPED)
            continue;
        if (wants[i].part == RF_PART_LAYER)
            layer_bytes[wants[i].layer] += t->bytes;
        else
            *tail += t->bytes;
    }
    free(wants);
}

static int cut_layers(rf_plan *p, const double *ratios, rf_error *err)
{
    const rf_plan_spec *s = &p->spec;
    size_t *layer_bytes = calloc(s->target->n_layer, sizeof *layer_bytes), tail = 0, n;
    rf_tensor_want *wants;

    p->layer_begin = calloc((size_t)s->n_ranks + 1, sizeof *p->layer_begin);
    if (!layer_bytes || !p->layer_begin) {
        free(layer_bytes);
        return rf_fail(err, RF_ERR_MEMORY, "no memory for the plan");
    }
    wants = rf_qwen35_tensors(s->target, s->with_mtp, &n, err);
    if (wants)
        add_bytes(s->target_file, wants, n, layer_bytes, &tail);
    if (wants && s->drafter) {
        wants = rf_dflash_tensors(s->drafter, &n, err);
        if (wants)
            add_bytes(s->drafter_file, wants, n, layer_bytes, &tail);
    }
    if (wants)
        rf_plan_cut_layers(layer_bytes, s->target->n_layer, tail, s->n_ranks, ratios, p->layer_begin);
    free(layer_bytes);
    return wants ? 0 : -1;
}

static int cut(rf_plan *p, rf_error *err)
{
    const double *ratios = p->ratios && !even(p->ratios, p->spec.n_ratios) ? p->ratios : NULL;

    if (check_ratios(&p->spec, err) != 0)
        return -1;
    rf_qwen35_axes(p->spec.target, p->spec.with_mtp, p->axes);
    if (p->spec.drafter)
        rf_dflash_axes(p->spec.drafter, p->axes);
    if (check_limit(p, err) != 0 || cut_axes(p, ratios, err) != 0)
        return -1;
    return p->spec.split == RF_SPLIT_LAYER ? cut_layers(p, ratios, err) : 0;
}

rf_plan *rf_plan_create(const rf_plan_spec *spec, rf_error *err)
{
    rf_plan *p = calloc(1, sizeof *p);

    if (!p) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for the plan");
        return NULL;
    }
    p->spec = *spec;
    if (spec->ratios) {
        p->ratios = calloc(spec->n_ratios, sizeof *p->ratios);
        if (!p->ratios) {
            rf_fail(err, RF_ERR_MEMORY, "no memory for the plan");
            free(p);
            return NULL;
        }
        memcpy(p->ratios, spec->ratios, spec->n_ratios * sizeof *p->ratios);
        p->spec.ratios = p->ratios;
    }
    if (cut(p, err) == 0)
        return p;
    rf_plan_destroy(p);
    return NULL;
}

void rf_plan_destroy(rf_plan *p)
{
    if (!p)
        return;
    for (int a = 0; a < RF_N_AXES; a++)
        free(p->begin[a]);
    free(p->layer_begin);
    free(p->ratios);
    free(p);
}

void rf_plan_shard(const rf_plan *p, int rank, rf_shard *shard)
{
    memset(shard, 0, sizeof *shard);
    shard->split = p->spec.split;
    shard->rank = rank;
    shard->n_ranks = p->spec.n_ranks;
    memcpy(shard->axis, p->axes, sizeof shard->axis);
    shard->n_layers = p->spec.target->n_layer;
    shard->tail = true;
    if (p->spec.split == RF_SPLIT_LAYER) {
        shard->layer_begin = p->layer_begin;
        shard->first_layer = p->layer_begin[rank];
        shard->n_layers = p->layer_begin[rank + 1] - p->layer_begin[rank];
        shard->tail = rank == p->spec.n_ranks - 1;
    }
}

const rf_plan_spec *rf_plan_spec_of(const rf_plan *p)
{
    return &p->spec;
}
