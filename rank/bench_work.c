/* What a step must move and multiply, from the headers alone. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "../models/slice.h"
#include "bench.h"

static double element_bytes(uint32_t type)
{
    return type == RF_TYPE_F16 ? 2 : 4;
}

/* KV heads that all ranks together hold: one that two ranks need counts twice. */
static double held_kv_heads(const rf_job *job, rf_axis_id axis, size_t n_head, size_t n_head_kv)
{
    double sum = 0;

    if (job->options->split != RF_SPLIT_TENSOR)
        return (double)n_head_kv;
    for (int r = 0; r < rf_world_size(); r++) {
        rf_shard shard;
        rf_range heads;

        rf_plan_shard(job->plan, r, &shard);
        heads = rf_shard_elements(&shard, axis);
        if (heads.count)
            sum += (double)rf_kv_heads(heads, n_head, n_head_kv).count;
    }
    return sum;
}

/* Products of a row with the trunk's matrices: one an element. */
static int count_products(const rf_job *job, bench_work *w, rf_error *err)
{
    const rf_qwen35_params *p = &job->files.target;
    size_t n;
    rf_tensor_want *wants = rf_qwen35_tensors(p, job->files.with_mtp, &n, err);

    if (!wants)
        return -1;
    for (size_t i = 0; i < n; i++) {
        double elements = (double)rf_want_rows(&wants[i]) * (double)rf_want_cols(&wants[i]);
        bool trunk = wants[i].part == RF_PART_LAYER;

        if (wants[i].vector ||
            (wants[i].cut != RF_CUT_ROWS && wants[i].cut != RF_CUT_COLS && wants[i].cut != RF_CUT_REPLICATED))
            continue;
        if (trunk)
            w->body += elements;
    }
    w->head = (double)p->n_vocab * (double)p->n_embd;
    free(wants);
    return 0;
}

static void count_caches(const rf_job *job, bench_work *w)
{
    const rf_qwen35_params *p = &job->files.target;
    const rf_dflash_params *d = &job->files.drafter;
    double both = element_bytes(job->sizes.type_k) + element_bytes(job->sizes.type_v),
           draft_both = element_bytes(job->drafter_sizes.type_k) + element_bytes(job->drafter_sizes.type_v), layer;

    layer = held_kv_heads(job, RF_AXIS_HEADS, p->n_head, p->n_head_kv) * (double)p->head_dim * both;
    for (size_t i = 0; i < p->n_layer; i++)
        if (p->full_attention[i])
            w->kv += layer;
        else
            w->states += (double)(p->n_value_heads * p->state_size * p->state_size) * sizeof(float);
    w->mtp_kv = job->files.with_mtp ? layer : 0;
    if (!job->files.has_drafter)
        return;
    w->n_draft_layers = d->n_layer < 64 ? d->n_layer : 64;
    for (size_t i = 0; i < w->n_draft_layers; i++) {
        w->draft_kv[i] =
            held_kv_heads(job, RF_AXIS_DRAFT_HEADS, d->n_head, d->n_head_kv) * (double)d->head_dim * draft_both;
        w->draft_window[i] = d->window[i];
    }
}

int bench_work_make(const rf_job *job, bench_work *w, rf_error *err)
{
    memset(w, 0, sizeof *w);
    count_caches(job, w);
    return count_products(job, w, err);
}

double bench_draft_cache(const bench_work *w, size_t depth)
{
    double bytes = 0;

    for (size_t i = 0; i < w->n_draft_layers; i++) {
        size_t seen = w->draft_window[i] && w->draft_window[i] < depth ? w->draft_window[i] : depth;

        bytes += w->draft_kv[i] * (double)seen;
    }
    return bytes;
}
