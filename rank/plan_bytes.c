#include <stdlib.h>
#include <string.h>

#include "../models/slice.h"
#include "collect.h"
#include "plan.h"
#include "quant.h"

#define PROGRAM_BYTES ((size_t)8 << 20) /* MPI, hwloc and the C library of a running rank: about 7 MiB were measured */
#define TOKEN_BYTES 224                 /* tables of the tokenizer, a token and its merge */

static void add_model(rf_plan_bytes *sum, const rf_model_bytes *m)
{
    sum->weights += m->weights;
    sum->caches += m->caches;
    sum->states += m->states;
    sum->scratch += m->scratch;
}

int rf_plan_memory(const rf_plan *p, int rank, const rf_ops *ops, const rf_model_sizes *sizes,
                   const rf_model_sizes *drafter_sizes, size_t max_collect, rf_plan_bytes *bytes, rf_error *err)
{
    const rf_plan_spec *s = rf_plan_spec_of(p);
    rf_backend traits = {ops};
    rf_shard shard;
    rf_model_env env = {&traits, NULL, NULL, &shard, *sizes};
    rf_qwen35_options options = {s->with_mtp, s->drafter ? s->drafter->taps : NULL,
                                 s->drafter ? s->drafter->n_taps : 0};
    rf_model_bytes m;

    memset(bytes, 0, sizeof *bytes);
    rf_plan_shard(p, rank, &shard);
    if (rf_qwen35_bytes(&env, s->target_file, s->target, &options, &m, err) != 0)
        return -1;
    add_model(bytes, &m);
    env.sizes = *drafter_sizes;
    if (s->drafter) {
        if (rf_dflash_bytes(&env, s->drafter_file, s->drafter, &m, err) != 0)
            return -1;
        add_model(bytes, &m);
    }
    bytes->exchange =
        rf_comm_plan_bytes(s->n_ranks) + rf_collector_bytes(rank == 0 ? (size_t)s->n_ranks : 1, s->target->n_vocab,
                                                            sizes->n_slots * RF_MAX_BLOCK, max_collect);
    bytes->program = PROGRAM_BYTES + (rank == 0 ? s->target->n_vocab * TOKEN_BYTES : 0);
    bytes->total = bytes->weights + bytes->caches + bytes->states + bytes->scratch + bytes->exchange + bytes->program;
    return 0;
}

/* Bytes of an n_rows x n_cols piece of a tensor as stored. */
static size_t stored(const rf_tensor *t, size_t n_rows, size_t n_cols)
{
    return n_rows * n_cols / t->format->block * t->format->bytes;
}

/* One tensor's place in the account. */
static int account_tensor(const rf_plan *p, const rf_tensor_want *want, const rf_tensor *t, rf_plan_account *a,
                          rf_error *err)
{
    int n_ranks = rf_plan_spec_of(p)->n_ranks;
    bool whole = want->cut == RF_CUT_REPLICATED && rf_plan_spec_of(p)->split == RF_SPLIT_TENSOR;

    if (want->cut == RF_CUT_MAPPED || want->cut == RF_CUT_UNUSED) {
        *(want->cut == RF_CUT_MAPPED ? &a->mapped : &a->unused) += t->bytes;
        return 0;
    }
    if (whole)
        a->replicated_once += t->bytes;
    for (int r = 0; r < n_ranks; r++) {
        rf_shard shard;
        rf_slice slice = {0};

        rf_plan_shard(p, r, &shard);
        if (!rf_slice_held(want, &shard))
            continue;
        if (rf_slice_make(want, &shard, &slice, err) != 0)
            return -1;
        if (whole)
            a->replicated[r] += stored(t, slice.n_rows, slice.n_cols);
        else
            a->sharded[r] += stored(t, slice.n_rows, slice.n_cols);
        a->repeated += stored(t, slice.n_rows_repeated, slice.n_cols);
        rf_slice_free(&slice);
    }
    return 0;
}

static const rf_tensor_want *want_of(const rf_tensor_want *wants, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(wants[i].name, name) == 0)
            return &wants[i];
    return NULL;
}

static int account_file(const rf_plan *p, const rf_gguf *file, rf_tensor_want *wants, size_t n, rf_plan_account *a,
                        rf_error *err)
{
    size_t data = 0;
    int failed = wants ? 0 : -1;

    for (size_t i = 0; !failed && i < rf_gguf_n_tensors(file); i++) {
        const rf_tensor *t = rf_gguf_tensor(file, i);
        const rf_tensor_want *want = want_of(wants, n, t->name);

        data += t->bytes;
        if (want)
            failed = account_tensor(p, want, t, a, err);
        else
            a->unused += t->bytes;
    }
    a->file_size += rf_gguf_file_size(file);
    a->header += rf_gguf_file_size(file) - data;
    free(wants);
    return failed;
}

int rf_plan_account_make(const rf_plan *p, rf_plan_account *a, rf_error *err)
{
    const rf_plan_spec *s = rf_plan_spec_of(p);
    rf_tensor_want *wants;
    size_t n = 0;
    int failed;

    memset(a, 0, sizeof *a);
    a->sharded = calloc((size_t)s->n_ranks, sizeof *a->sharded);
    a->replicated = calloc((size_t)s->n_ranks, sizeof *a->replicated);
    if (!a->sharded || !a->replicated) {
        rf_plan_account_free(a);
        return rf_fail(err, RF_ERR_MEMORY, "no memory for the plan");
    }
    wants = rf_qwen35_tensors(s->target, s->with_mtp, &n, err);
    failed = account_file(p, s->target_file, wants, n, a, err);
    if (!failed && s->drafter) {
        wants = rf_dflash_tensors(s->drafter, &n, err);
        failed = account_file(p, s->drafter_file, wants, n, a, err);
    }
    if (failed)
        rf_plan_account_free(a);
    return failed;
}

void rf_plan_account_free(rf_plan_account *a)
{
    free(a->sharded);
    free(a->replicated);
    memset(a, 0, sizeof *a);
}

static int fits(const rf_plan *p, const rf_ops *ops, const rf_model_sizes *sizes, const rf_model_sizes *drafter_sizes,
                size_t max_collect, size_t n_ctx, size_t available, bool *yes, rf_error *err)
{
    rf_model_sizes target = *sizes, drafter = *drafter_sizes;

    target.n_ctx = drafter.n_ctx = n_ctx;
    *yes = true;
    for (int r = 0; *yes && r < rf_plan_spec_of(p)->n_ranks; r++) {
        rf_plan_bytes bytes;

        if (rf_plan_memory(p, r, ops, &target, &drafter, max_collect, &bytes, err) != 0)
            return -1;
        *yes = bytes.total <= available;
    }
    return 0;
}

int rf_plan_fit(const rf_plan *p, const rf_ops *ops, const rf_model_sizes *sizes, const rf_model_sizes *drafter_sizes,
                size_t max_collect, size_t available, size_t *n_ctx, rf_error *err)
{
    size_t low = 0, high = (sizes->n_ctx + 255) / 256; /* blocks: low fits, high + 1 is not wanted */
    bool yes;

    if (fits(p, ops, sizes, drafter_sizes, max_collect, sizes->n_ctx, available, &yes, err) != 0)
        return -1;
    if (yes) {
        *n_ctx = sizes->n_ctx;
        return 0;
    }
    high--;
    while (low < high) {
        size_t middle = (low + high + 1) / 2;

        if (fits(p, ops, sizes, drafter_sizes, max_collect, middle * 256, available, &yes, err) != 0)
            return -1;
        if (yes)
            low = middle;
        else
            high = middle - 1;
    }
    *n_ctx = low * 256;
    return 0;
}
