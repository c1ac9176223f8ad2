#include "pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names with a leading dot or slash are paths of their own. */
static void path_of(const char *name, char *path, size_t size)
{
    bool data = name[0] != '.' && name[0] != '/';

    assert_true(snprintf(path, size, "%s%s", data ? RF_TEST_DATA "/" : "", name) < (int)size);
}

static rf_gguf *open_file(const char *name)
{
    char path[1024];
    rf_error err = {0};
    rf_gguf *file;

    path_of(name, path, sizeof path);
    file = rf_gguf_open(path, &err);
    if (!file)
        fail_msg("%s", err.text);
    return file;
}

void whole_shard(const rf_qwen35_params *target, bool with_mtp, const rf_dflash_params *drafter,
                 size_t begin[RF_N_AXES][2], rf_shard *shard)
{
    *shard = (rf_shard){.split = RF_SPLIT_NONE, .n_ranks = 1, .n_layers = target->n_layer, .tail = true};
    rf_qwen35_axes(target, with_mtp, shard->axis);
    if (drafter)
        rf_dflash_axes(drafter, shard->axis);
    for (size_t i = 0; i < RF_N_AXES; i++) {
        begin[i][0] = 0;
        begin[i][1] = shard->axis[i].n_units;
        shard->axis[i].begin = begin[i];
    }
}

static void create_models(pair *p, const pair_spec *spec, rf_error *err)
{
    p->target = rf_qwen35_create(&p->env, p->target_file, &p->target_params, &p->options, NULL, NULL, err);
    if (!p->target)
        fail_msg("%s", err->text);
    p->batch = p->b->ops->batch_create(p->b, spec->n_slots, spec->max_rows, err);
    assert_non_null(p->batch);
    if (!spec->drafter)
        return;
    p->drafter = rf_dflash_create(&p->env, p->drafter_file, &p->drafter_params, p->target, err);
    if (!p->drafter)
        fail_msg("%s", err->text);
    p->selector = rf_selector_create(p->drafter_file, &p->drafter_params, err);
    assert_non_null(p->selector);
}

void pair_open(pair *p, const pair_spec *spec)
{
    rf_error err = {0};

    *p = (pair){0};
    p->b = rf_cpu_create(1, true, "auto", &err);
    assert_non_null(p->b);
    p->self = rf_comm_create_self(p->b);
    assert_non_null(p->self);
    p->target_file = open_file(spec->target);
    if (rf_qwen35_params_read(p->target_file, spec->with_mtp, &p->target_params, &err) != 0)
        fail_msg("%s", err.text);
    if (spec->drafter) {
        p->drafter_file = open_file(spec->drafter);
        if (rf_dflash_params_read(p->drafter_file, &p->target_params, &p->drafter_params, &err) != 0)
            fail_msg("%s", err.text);
    }
    whole_shard(&p->target_params, spec->with_mtp, spec->drafter ? &p->drafter_params : NULL, p->begin, &p->shard);
    p->options = (rf_qwen35_options){spec->with_mtp, p->drafter_params.taps, p->drafter_params.n_taps};
    p->env = (rf_model_env){
        p->b, p->self, p->self, &p->shard, {spec->n_slots, spec->n_ctx, spec->max_rows, spec->type_kv, spec->type_kv}};
    create_models(p, spec, &err);
}

void pair_close(pair *p)
{
    p->b->ops->batch_destroy(p->batch);
    rf_selector_destroy(p->selector);
    rf_dflash_destroy(p->drafter);
    rf_qwen35_destroy(p->target);
    rf_dflash_params_free(&p->drafter_params);
    rf_qwen35_params_free(&p->target_params);
    rf_gguf_close(p->drafter_file);
    rf_gguf_close(p->target_file);
    rf_comm_destroy(p->self);
    p->b->ops->destroy(p->b);
}

void pair_batch(pair *p, int32_t slot, int64_t first_pos, const int32_t *tokens, size_t n, rf_role role,
                rf_wants_logits wants)
{
    rf_batch_seq seq = {slot, (int32_t)n, first_pos, (int32_t)role, (int32_t)wants};

    p->b->ops->batch_set(p->b, p->batch, 1, &seq, tokens);
}

void pair_logits(pair *p, size_t n_rows, float *out)
{
    rf_mat logits = rf_qwen35_logits(p->target);
    size_t n = p->target_params.n_vocab;

    for (size_t i = 0; i < n_rows; i++)
        p->b->ops->download(p->b, logits.buf, (logits.offset + i * logits.stride) * sizeof *out, out + i * n,
                            n * sizeof *out);
}

size_t argmax(const float *row, size_t n)
{
    size_t best = 0;

    for (size_t i = 1; i < n; i++)
        if (row[i] > row[best])
            best = i;
    return best;
}

void pair_prefill(pair *p, int32_t slot, int64_t first_pos, const int32_t *tokens, size_t n, size_t chunk,
                  float *logits)
{
    for (size_t done = 0; done < n;) {
        size_t count = n - done < chunk ? n - done : chunk;

        pair_batch(p, slot, first_pos + (int64_t)done, tokens + done, count, RF_ROLE_GIVEN,
                   logits ? RF_LOGITS_ALL : RF_LOGITS_LAST);
        rf_qwen35_forward(p->target, p->batch);
        if (logits)
            pair_logits(p, count, logits + done * p->target_params.n_vocab);
        if (p->drafter)
            rf_dflash_inject(p->drafter, p->batch);
        if (p->options.with_mtp) {
            pair_batch(p, slot, first_pos + (int64_t)done, tokens + done, count, RF_ROLE_GIVEN, RF_LOGITS_NONE);
            rf_qwen35_mtp_prefill(p->target, p->batch);
        }
        done += count;
    }
}

void pair_verify(pair *p, int32_t slot, int64_t first_pos, const int32_t *tokens, size_t n, float *logits)
{
    pair_batch(p, slot, first_pos, tokens, n, RF_ROLE_GENERATED, RF_LOGITS_ALL);
    rf_qwen35_forward(p->target, p->batch);
    if (logits)
        pair_logits(p, n, logits);
}

void pair_commit(pair *p, int32_t slot, int64_t n, size_t k, const int32_t *fresh)
{
    pair_batch(p, slot, n, fresh, k + 1, RF_ROLE_GENERATED, RF_LOGITS_NONE);
    rf_qwen35_commit(p->target, p->batch);
    if (p->drafter)
        rf_dflash_inject_kept(p->drafter, p->batch);
    if (!p->options.with_mtp)
        return;
    pair_batch(p, slot, n + 1, fresh, k + 1, RF_ROLE_GENERATED, RF_LOGITS_LAST);
    rf_qwen35_mtp_commit(p->target, p->batch);
}

static void draft_rows(pair *p, size_t m, rf_candidate *cand, size_t k, float *selector)
{
    const rf_ops *ops = p->b->ops;
    size_t rank = p->drafter_params.selector_rank;
    rf_error err = {0};
    rf_buf *best = ops->buf_create(p->b, m * k * sizeof *cand, &err);

    assert_non_null(best);
    ops->top_k(p->b, m, rf_dflash_vocab(p->drafter).count, rf_dflash_logits(p->drafter), 0, k, best);
    ops->download(p->b, best, 0, cand, m * k * sizeof *cand);
    if (p->drafter_params.v2)
        ops->download(p->b, rf_dflash_selector_rows(p->drafter), 0, selector, m * rank * sizeof *selector);
    ops->buf_destroy(best);
}

void pair_draft_dflash(pair *p, int32_t slot, int64_t n, int32_t anchor, size_t m, int32_t *drafts, rf_candidate *cand,
                       float *scores, size_t k)
{
    int32_t tokens[RF_MAX_BLOCK], prev = anchor;
    size_t rank = p->drafter_params.selector_rank;
    rf_candidate *rows = malloc(m * k * sizeof *rows);
    float *score = malloc(k * sizeof *score), *selector = malloc((m * rank + 1) * sizeof *selector);

    tokens[0] = anchor;
    for (size_t i = 1; i <= m; i++)
        tokens[i] = p->drafter_params.mask_token;
    pair_batch(p, slot, n, tokens, m + 1, RF_ROLE_GENERATED, RF_LOGITS_ALL_BUT_FIRST);
    rf_dflash_draft(p->drafter, p->batch);
    draft_rows(p, m, rows, k, selector);
    for (size_t i = 0; i < m * k; i++)
        rows[i].id = rf_selector_token(p->selector, rows[i].id);
    for (size_t i = 0; i < m; i++) {
        rf_selector_scores(p->selector, prev, selector + i * rank, rows + i * k, k, score);
        prev = drafts[i] = rows[i * k + argmax(score, k)].id;
        if (scores)
            memcpy(scores + i * k, score, k * sizeof *score);
    }
    if (cand)
        memcpy(cand, rows, m * k * sizeof *rows);
    free(rows);
    free(score);
    free(selector);
}

static int32_t best_of_last_row(pair *p)
{
    size_t n = p->target_params.n_vocab;
    float *row = malloc(n * sizeof *row);
    int32_t best;

    pair_logits(p, 1, row);
    best = (int32_t)argmax(row, n);
    free(row);
    return best;
}

void pair_draft_mtp(pair *p, int32_t slot, int64_t n, int32_t anchor, size_t m, bool first, int32_t *drafts)
{
    for (size_t i = 0; i < m; i++) {
        if (i || first) {
            pair_batch(p, slot, n + (int64_t)i, i ? &drafts[i - 1] : &anchor, 1, RF_ROLE_GENERATED, RF_LOGITS_LAST);
            if (i)
                rf_qwen35_mtp_next(p->target, p->batch);
            else
                rf_qwen35_mtp_first(p->target, p->batch);
        }
        drafts[i] = best_of_last_row(p);
    }
}

uint64_t pair_state_hash(pair *p, int32_t slot, int64_t n)
{
    uint64_t hash = rf_qwen35_state_hash(p->target, (size_t)slot, n);

    if (p->options.with_mtp)
        hash += rf_qwen35_mtp_state_hash(p->target, (size_t)slot, n);
    return p->drafter ? hash + rf_dflash_state_hash(p->drafter, (size_t)slot, n) : hash;
}
