#include "sampler.h"

#include <math.h>
#include <string.h>

#include "gumbel.h"

#define MASS_ONE 1099511627776.0 /* 2^40 */

static bool filters(const rf_sampling *s)
{
    return s->top_k > 0 || s->top_p < 1 || s->min_p > 0;
}

rf_sample_needs rf_sampler_needs(const rf_sampling *s)
{
    if (s->temperature <= 0)
        return (rf_sample_needs){1, false};
    if (!filters(s))
        return (rf_sample_needs){1, true};
    if (s->top_k > 0 && s->top_k < RF_SAMPLE_FIRST_K)
        return (rf_sample_needs){(size_t)s->top_k, false};
    return (rf_sample_needs){RF_SAMPLE_FIRST_K, false};
}

size_t rf_sampler_wider(size_t n, size_t n_vocab)
{
    size_t k = n < RF_SAMPLE_FIRST_K ? RF_SAMPLE_FIRST_K : n < 4096 ? 4096 : n_vocab;

    return k < n_vocab ? k : n_vocab;
}

uint64_t rf_sampler_mass(float logit, float max)
{
    if (logit == max)
        return (uint64_t)MASS_ONE;
    if (!(logit < max)) /* NaN */
        return 0;
    return (uint64_t)floor(exp((double)logit - (double)max) * MASS_ONE);
}

/* Length of the shortest prefix of the n best whose mass reaches the threshold; n + 1 if none does. */
static size_t top_p_prefix(const rf_candidate *cand, size_t n, uint64_t threshold)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += rf_sampler_mass(cand[i].logit, cand[0].logit);
        if (sum >= threshold)
            return i + 1;
    }
    return n + 1;
}

static uint64_t sum_masses(const rf_candidate *cand, size_t n)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += rf_sampler_mass(cand[i].logit, cand[0].logit);
    return sum;
}

static size_t min_p_prefix(const rf_candidate *cand, size_t n, double p)
{
    uint64_t threshold = (uint64_t)floor(p * MASS_ONE);
    size_t i = 0;

    while (i < n && rf_sampler_mass(cand[i].logit, cand[0].logit) >= threshold)
        i++;
    return i;
}

/* argmax of logit / T + G, ties to the lower id */
static int32_t coupled(const rf_sampling *s, int64_t position, const rf_candidate *cand, size_t n)
{
    double best = -INFINITY;
    int32_t token = -1;

    for (size_t i = 0; i < n; i++) {
        double score = (double)cand[i].logit / s->temperature + rf_gumbel(s->seed, position, cand[i].id);

        if (token < 0 || score > best || (!(score < best) && cand[i].id < token)) {
            best = score;
            token = cand[i].id;
        }
    }
    return token;
}

rf_sample_state rf_sampler_try(const rf_sampling *s, int64_t position, const rf_candidate *cand, size_t n,
                               bool complete, const uint64_t *mass, int32_t *token)
{
    size_t keep = n;
    bool closed = complete; /* keep is final: nothing outside the candidates can be kept */

    if (!n || !(cand[0].logit > -INFINITY))
        return RF_SAMPLE_EMPTY;
    if (s->temperature <= 0) {
        *token = cand[0].id;
        return RF_SAMPLE_DONE;
    }
    if (s->top_k > 0) {
        if (n < (size_t)s->top_k && !complete)
            return RF_SAMPLE_MORE;
        keep = n < (size_t)s->top_k ? n : (size_t)s->top_k;
        closed = true;
    }
    if (s->top_p < 1) {
        size_t prefix;

        if (!closed && !mass)
            return RF_SAMPLE_MASS;
        prefix = top_p_prefix(cand, keep, (uint64_t)ceil(s->top_p * (double)(closed ? sum_masses(cand, keep) : *mass)));
        if (prefix > keep && !closed)
            return RF_SAMPLE_MORE;
        keep = prefix < keep ? prefix : keep;
        closed = true;
    }
    if (s->min_p > 0) {
        size_t prefix = min_p_prefix(cand, keep, s->min_p);

        if (prefix == keep && !closed)
            return RF_SAMPLE_MORE;
        keep = prefix > 0 ? prefix : 1;
        closed = true;
    }
    if (!closed)
        return RF_SAMPLE_MORE;
    *token = coupled(s, position, cand, keep);
    return RF_SAMPLE_DONE;
}

/* a comes before b: larger logit, ties lower id; an empty place comes last */
static bool before(rf_candidate a, rf_candidate b)
{
    if (a.id < 0 || b.id < 0)
        return b.id < 0 && a.id >= 0;
    return a.logit > b.logit || (!(a.logit < b.logit) && a.id < b.id);
}

void rf_sampler_merge(const void *parts, size_t stride, size_t n_shards, size_t k, size_t *next, rf_candidate *out)
{
    memset(next, 0, n_shards * sizeof *next);
    for (size_t i = 0; i < k; i++) {
        rf_candidate top = {-INFINITY, -1};
        size_t from = 0;

        for (size_t r = 0; r < n_shards; r++) { /* next[r] <= i < k */
            rf_candidate head;

            memcpy(&head, (const unsigned char *)parts + r * stride + next[r] * sizeof head, sizeof head);
            if (before(head, top)) {
                top = head;
                from = r;
            }
        }
        out[i] = top;
        if (top.id >= 0)
            next[from]++;
    }
}

rf_gumbel_best rf_sampler_merge_best(const void *parts, size_t stride, size_t n_shards)
{
    rf_gumbel_best top = {-INFINITY, -INFINITY, -1};

    for (size_t r = 0; r < n_shards; r++) {
        rf_gumbel_best one;

        memcpy(&one, (const unsigned char *)parts + r * stride, sizeof one);
        if (one.id >= 0 && (top.id < 0 || one.score > top.score || (!(one.score < top.score) && one.id < top.id)))
            top = one;
    }
    return top;
}

static double number(float score)
{
    return isnan(score) ? -INFINITY : (double)score;
}

size_t rf_sampler_draft(const rf_sampling *s, int64_t position, const float *scores, const int32_t *tokens, size_t n)
{
    size_t best = 0;
    double top = -INFINITY;

    for (size_t i = 0; i < n; i++) {
        double score = number(scores[i]);

        if (s->temperature > 0)
            score = score / s->temperature + rf_gumbel(s->seed, position, tokens[i]);
        if (i == 0 || score > top || (!(score < top) && tokens[i] < tokens[best])) {
            top = score;
            best = i;
        }
    }
    return best;
}

/* exp(score - max), also where both are the same infinity */
static double weight(double score, double max)
{
    return score < max ? exp(score - max) : 1;
}

double rf_draft_probability(const float *scores, size_t n, size_t chosen)
{
    double max = -INFINITY, sum = 0;

    for (size_t i = 0; i < n; i++)
        max = fmax(max, number(scores[i]));
    for (size_t i = 0; i < n; i++)
        sum += weight(number(scores[i]), max);
    return weight(number(scores[chosen]), max) / sum;
}
