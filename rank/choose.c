#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "leader.h"

int rf_chooser_create(rf_chooser *c, const rf_engine_spec *spec, rf_error *err)
{
    memset(c, 0, sizeof *c);
    c->max_rows = spec->sizes.n_slots * RF_MAX_BLOCK;
    c->n_vocab = spec->target->n_vocab;
    c->max_k = spec->max_collect;
    c->cand = calloc(c->max_rows * c->max_k, sizeof *c->cand);
    c->best = calloc(c->max_rows, sizeof *c->best);
    c->hash = calloc(c->max_rows, sizeof *c->hash);
    if (c->cand && c->best && c->hash)
        return 0;
    rf_chooser_destroy(c);
    return rf_fail(err, RF_ERR_MEMORY, "no memory for the candidates of %zu rows", c->max_rows);
}

void rf_chooser_destroy(rf_chooser *c)
{
    free(c->cand);
    free(c->best);
    free(c->hash);
    memset(c, 0, sizeof *c);
}

rf_collect rf_chooser_wants(const rf_chooser *c, rf_sequence *const *seqs, size_t n, bool hashes)
{
    rf_collect want = {1, 0, hashes};

    for (size_t i = 0; i < n; i++) {
        rf_sample_needs needs = rf_sampler_needs(&seqs[i]->sampling);

        needs.k = needs.k < c->max_k ? needs.k : c->max_k;
        if ((int32_t)needs.k > want.k)
            want.k = (int32_t)needs.k;
        if (needs.gumbel)
            want.gumbel = 1;
    }
    return want;
}

void rf_chooser_begin(rf_chooser *c, rf_leader *l, size_t n_rows)
{
    const rf_collected *got = &rf_engine_get(l->engine)->rows;

    c->k = got->k;
    memcpy(c->cand, got->cand, n_rows * got->k * sizeof *c->cand);
    memcpy(c->best, got->best, n_rows * sizeof *c->best);
    memcpy(c->hash, got->hash, n_rows * sizeof *c->hash);
}

uint64_t rf_chooser_hash(const rf_chooser *c, size_t row)
{
    return c->hash[row];
}

static size_t present(const rf_candidate *cand, size_t n)
{
    while (n && cand[n - 1].id < 0)
        n--;
    return n;
}

static const rf_candidate *widen(rf_leader *l, size_t row, size_t k)
{
    rf_command_begin(&l->command, RF_CMD_WIDEN);
    l->command.head.row = (int32_t)row;
    l->command.head.collect = (rf_collect){(int32_t)k, 0, 0};
    rf_leader_send(l);
    return rf_engine_get(l->engine)->rows.cand;
}

static uint64_t total_mass(rf_leader *l, size_t row, float max)
{
    rf_command_begin(&l->command, RF_CMD_MASS);
    l->command.head.row = (int32_t)row;
    l->command.head.max = max;
    rf_leader_send(l);
    return rf_engine_get(l->engine)->rows.mass;
}

static int empty_row(int64_t position, rf_error *err)
{
    return rf_fail(err, RF_ERR_DEVICE, "the logits for position %lld hold no number (NaN or -infinity only): the model or its weights are broken",
                   (long long)position);
}

int rf_choose(rf_chooser *c, rf_leader *l, const rf_sequence *s, size_t row, int64_t position, int32_t *token, rf_error *err)
{
    const rf_candidate *cand = c->cand + row * c->k;
    size_t k = c->k, n = present(cand, k);
    uint64_t mass;
    bool has_mass = false;

    if (n && cand[0].logit > -INFINITY && rf_sampler_needs(&s->sampling).gumbel) {
        *token = c->best[row].id;
        return 0;
    }
    for (;;) {
        switch (rf_sampler_try(&s->sampling, position, cand, n, k >= c->n_vocab, has_mass ? &mass : NULL, token)) {
        case RF_SAMPLE_DONE:
            return 0;
        case RF_SAMPLE_EMPTY:
            return empty_row(position, err);
        case RF_SAMPLE_MORE:
            k = rf_sampler_wider(k, c->n_vocab);
            cand = widen(l, row, k);
            n = present(cand, k);
            break;
        case RF_SAMPLE_MASS:
            mass = total_mass(l, row, cand[0].logit);
            has_mass = true;
            break;
        }
    }
}
