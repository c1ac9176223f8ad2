/* Sampling: exact draws (chi-square against softmax after each filter), coupling, ties, widening, shards. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "gumbel.h"
#include "sampler.h"

#define DRAWS 200000
#define VOCAB 24

/* Philox 4x32-10 known answers, from the authors' Random123 distribution. */
static void philox_known_answers(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];

        rf_philox4x32_10(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static int by_logit(const void *a, const void *b)
{
    const rf_candidate *x = a, *y = b;

    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static void sorted(const float *logits, size_t n, rf_candidate *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (rf_candidate){isnan(logits[i]) ? -INFINITY : logits[i], (int32_t)i};
    qsort(out, n, sizeof *out, by_logit);
}

static int32_t draw(const rf_sampling *s, int64_t position, const rf_candidate *all, size_t n)
{
    int32_t token = -1;
    uint64_t mass = 0;

    for (size_t i = 0; i < n; i++)
        mass += rf_sampler_mass(all[i].logit, all[0].logit);
    assert_int_equal(rf_sampler_try(s, position, all, n, true, &mass, &token), RF_SAMPLE_DONE);
    return token;
}

/* Softmax after the filters, in long double and from the definitions alone (no integer masses). */
static void expected(const rf_sampling *s, const rf_candidate *all, size_t n, double *p)
{
    long double mass[VOCAB], sum = 0, prefix = 0, total = 0;
    size_t keep = s->top_k > 0 && (size_t)s->top_k < n ? (size_t)s->top_k : n, kept = 0;

    memset(p, 0, n * sizeof *p);
    for (size_t i = 0; i < n; i++)
        mass[i] = expl((long double)all[i].logit - (long double)all[0].logit);
    for (size_t i = 0; i < keep; i++)
        sum += mass[i];
    for (size_t i = 0; i < keep; i++, kept++) {
        if ((s->top_p < 1 && i && prefix >= (long double)s->top_p * sum) ||
            (s->min_p > 0 && mass[i] < (long double)s->min_p))
            break;
        prefix += mass[i];
    }
    for (size_t i = 0; i < kept; i++)
        total += expl(((long double)all[i].logit - (long double)all[0].logit) / (long double)s->temperature);
    for (size_t i = 0; i < kept; i++)
        p[all[i].id] =
            (double)(expl(((long double)all[i].logit - (long double)all[0].logit) / (long double)s->temperature) /
                     total);
}

/* Chi-square of the draws against p; the limit is the mean plus 5 standard deviations (a chance of about 1e-6). */
static void check_draws(const rf_sampling *s, const float *logits)
{
    rf_candidate all[VOCAB];
    double p[VOCAB], chi = 0;
    size_t count[VOCAB] = {0}, cells = 0;

    sorted(logits, VOCAB, all);
    expected(s, all, VOCAB, p);
    for (int64_t i = 0; i < DRAWS; i++)
        count[draw(s, i, all, VOCAB)]++;
    for (size_t i = 0; i < VOCAB; i++) {
        double want = p[i] * DRAWS;

        if (p[i] == 0) {
            assert_int_equal(count[i], 0);
            continue;
        }
        cells++;
        chi += ((double)count[i] - want) * ((double)count[i] - want) / want;
    }
    assert_true(cells > 1);
    assert_true(chi < (double)(cells - 1) + 5 * sqrt(2.0 * (double)(cells - 1)));
}

static void make_logits(float *logits)
{
    for (size_t i = 0; i < VOCAB; i++)
        logits[i] = 3.0f * sinf((float)i * 1.7f) + 0.01f * (float)i;
}

static void draws_follow_softmax(void **state)
{
    static const rf_sampling cases[] = {
        {1.0, 0, 1, 0, 1},        {0.5, 0, 1, 0, 2},
        {1.7, 0, 1, 0, 3},        {0.8, 7, 1, 0, 4},
        {1.0, 0, 0.8, 0, 5},      {1.0, 0, 1, 0.1, 6},
        {0.8, 12, 0.9, 0, 7},     {0.8, 12, 1, 0.05, 8},
        {0.8, 12, 0.95, 0.05, 9}, {2.0, 5, 0.99, 0.02, UINT64_MAX},
    };
    float logits[VOCAB];

    (void)state;
    make_logits(logits);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_draws(&cases[i], logits);
}

/* Two coupled draws agree with probability sum_j 1 / sum_i max(p_i / p_j, q_i / q_j). */
static void coupled_draws_agree_as_they_should(void **state)
{
    static const rf_sampling s = {0.9, 0, 1, 0, 77};
    float a[VOCAB], b[VOCAB], scores[VOCAB];
    rf_candidate x[VOCAB], y[VOCAB];
    int32_t ids[VOCAB];
    double p[VOCAB], q[VOCAB], exact = 0, deviation;
    size_t same = 0, drafted = 0;

    (void)state;
    make_logits(a);
    for (size_t i = 0; i < VOCAB; i++) {
        b[i] = a[i] + 0.7f * cosf((float)i * 2.3f);
        ids[i] = (int32_t)i;
        scores[i] = b[i];
    }
    sorted(a, VOCAB, x);
    sorted(b, VOCAB, y);
    expected(&s, x, VOCAB, p);
    expected(&s, y, VOCAB, q);
    for (size_t j = 0; j < VOCAB; j++) {
        double sum = 0;

        for (size_t i = 0; i < VOCAB; i++)
            sum += fmax(p[i] / p[j], q[i] / q[j]);
        exact += 1 / sum;
    }
    for (int64_t i = 0; i < DRAWS; i++) {
        int32_t t = draw(&s, i, x, VOCAB);

        same += t == draw(&s, i, y, VOCAB);
        drafted += t == ids[rf_sampler_draft(&s, i, scores, ids, VOCAB)];
    }
    deviation = sqrt(exact * (1 - exact) / DRAWS);
    assert_true(fabs((double)same / DRAWS - exact) < 5 * deviation);
    assert_int_equal(drafted, same);
    assert_true(exact > 0.5 && exact < 0.99);
}

static uint64_t random_state = 12345;

static double uniform(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(random_state >> 11) / 9007199254740992.0;
}

/* The leader's loop: starts from k candidates and gives what is asked for. */
static int32_t widened(const rf_sampling *s, int64_t position, const rf_candidate *all, size_t n, size_t k)
{
    uint64_t mass = 0;
    bool has_mass = false;
    int32_t token = -1;

    for (int turns = 0; turns < 64; turns++) {
        switch (rf_sampler_try(s, position, all, k, k >= n, has_mass ? &mass : NULL, &token)) {
        case RF_SAMPLE_DONE:
            return token;
        case RF_SAMPLE_MORE:
            k = k + 1 + k / 2 < n ? k + 1 + k / 2 : n;
            break;
        case RF_SAMPLE_MASS:
            for (size_t i = 0; i < n; i++)
                mass += rf_sampler_mass(all[i].logit, all[0].logit);
            has_mass = true;
            break;
        case RF_SAMPLE_EMPTY:
            return -2;
        }
    }
    return -3;
}

/* Logits of several kinds: spread, all equal, few values with many ties, and with NaN and infinities. */
static void random_logits(int kind, size_t n, float *logits)
{
    for (size_t i = 0; i < n; i++)
        logits[i] = kind == 0   ? (float)(uniform() * 20)
                    : kind == 1 ? 1.0f
                    : kind == 2 ? (float)(int)(uniform() * 3)
                    : i % 7     ? (float)uniform()
                    : i % 14    ? NAN
                                : -INFINITY;
}

static rf_sampling random_filters(int round)
{
    rf_sampling s = {0.3 + 2 * uniform(), round % 3 ? 0 : 1 + (int32_t)(uniform() * 400),
                     round % 5 ? 0.2 + 0.8 * uniform() : 1, round % 2 ? uniform() * 0.5 : 0, (uint64_t)round};

    if (s.top_k <= 0 && s.top_p >= 1 && s.min_p <= 0)
        s.min_p = 0.01;
    return s;
}

/* The filters as their definition says, one token at a time, without the sampler's own prefixes. */
static int32_t drawn_by_definition(const rf_sampling *s, int64_t position, const rf_candidate *all, size_t n)
{
    uint64_t mass[1000], sum = 0, before = 0;
    size_t kept = s->top_k > 0 && (size_t)s->top_k < n ? (size_t)s->top_k : n, best = 0;
    double top = -INFINITY;

    for (size_t i = 0; i < n; i++)
        mass[i] = (uint64_t)floor(exp((double)all[i].logit - (double)all[0].logit) * 1099511627776.0);
    for (size_t i = 0; i < kept; i++)
        sum += mass[i];
    for (size_t i = 0; i < kept; before += mass[i++]) {
        bool reached = s->top_p < 1 && before >= (uint64_t)ceil(s->top_p * (double)sum),
             small = mass[i] < (uint64_t)floor(s->min_p * 1099511627776.0);
        double score = (double)all[i].logit / s->temperature + rf_gumbel(s->seed, position, all[i].id);

        if (i && (reached || (s->min_p > 0 && small)))
            break;
        if (score > top || (score == top && all[i].id < all[best].id)) {
            top = score;
            best = i;
        }
    }
    return all[best].id;
}

static void draws_follow_the_definition(void **state)
{
    enum { N = 300 };
    float logits[N];
    rf_candidate all[N];

    (void)state;
    for (int round = 0; round < 400; round++) {
        rf_sampling s = random_filters(round);

        random_logits(round % 4, N, logits);
        sorted(logits, N, all);
        for (int64_t position = 0; position < 20; position++)
            assert_int_equal(draw(&s, position, all, N), drawn_by_definition(&s, position, all, N));
    }
}

static void widening_changes_nothing(void **state)
{
    enum { N = 700 };
    float logits[N];
    rf_candidate all[N];

    (void)state;
    for (int round = 0; round < 600; round++) {
        rf_sampling s = random_filters(round);

        random_logits(round % 4, N, logits);
        sorted(logits, N, all);
        for (size_t k = 1; k < N; k = k * 3 + 1)
            assert_int_equal(widened(&s, round, all, N, k), draw(&s, round, all, N));
    }
}

/* ---- shards */

enum { ROW = 700, MOST_SHARDS = 5 };

/* What one shard sends: its k best, then its best of logit / T + G. */
typedef struct {
    rf_gumbel_best best;
    rf_candidate cand[ROW];
} shard_part;

static void send_part(const rf_sampling *s, const float *logits, size_t first, size_t n, size_t k, shard_part *part)
{
    rf_candidate local[ROW];

    sorted(logits + first, n, local);
    part->best = (rf_gumbel_best){-INFINITY, -INFINITY, -1};
    for (size_t i = 0; i < n; i++) {
        double score;

        local[i].id += (int32_t)first;
        score = (double)local[i].logit / s->temperature + rf_gumbel(s->seed, 9, local[i].id);
        if (part->best.id < 0 || score > part->best.score || (score == part->best.score && local[i].id < part->best.id))
            part->best = (rf_gumbel_best){score, local[i].logit, local[i].id};
    }
    for (size_t i = 0; i < k; i++)
        part->cand[i] = i < n ? local[i] : (rf_candidate){-INFINITY, -1};
}

/* Random cuts, now and then with an empty shard. */
static void random_cuts(size_t n_shards, size_t *begin)
{
    begin[0] = 0;
    begin[n_shards] = ROW;
    for (size_t r = 1; r < n_shards; r++)
        begin[r] = begin[r - 1] + (size_t)(uniform() < 0.2 ? 0 : uniform() * (double)(ROW - begin[r - 1]));
}

static void shards_merge_to_the_whole_row(void **state)
{
    static const size_t ks[] = {1, 7, 40, 256, ROW};
    static shard_part parts[MOST_SHARDS];
    float logits[ROW];
    rf_candidate all[ROW], merged[ROW];

    (void)state;
    for (int round = 0; round < 120; round++) {
        size_t n_shards = 1 + (size_t)round % MOST_SHARDS, begin[MOST_SHARDS + 1], next[MOST_SHARDS],
               k = ks[round / 5 % 5];
        rf_sampling s = {0.8, 0, 1, 0, (uint64_t)round};
        rf_gumbel_best best;

        random_logits(round % 4, ROW, logits);
        sorted(logits, ROW, all);
        random_cuts(n_shards, begin);
        for (size_t r = 0; r < n_shards; r++)
            send_part(&s, logits, begin[r], begin[r + 1] - begin[r], k, &parts[r]);
        rf_sampler_merge(parts->cand, sizeof *parts, n_shards, k, next, merged);
        assert_memory_equal(merged, all, k * sizeof *merged);
        best = rf_sampler_merge_best(&parts->best, sizeof *parts, n_shards);
        s.min_p = 1e-13; /* a filter that keeps all: the sampler's own argmax of logit / T + G */
        assert_int_equal(best.id, draw(&s, 9, all, ROW));
    }
}

/* More places than the shards can fill: the rest is empty. */
static void empty_places_come_last(void **state)
{
    const rf_candidate parts[3][2] = {
        {{-INFINITY, 5}, {-INFINITY, -1}}, {{-INFINITY, -1}, {-INFINITY, -1}}, {{1, 9}, {-INFINITY, -1}}};
    const rf_gumbel_best none[2] = {{-INFINITY, -INFINITY, -1}, {-INFINITY, -INFINITY, -1}};
    const rf_gumbel_best low[2] = {{-INFINITY, -INFINITY, 3}, {-INFINITY, -INFINITY, -1}},
                         same[2] = {{7, 1, 9}, {7, 2, 4}};
    rf_candidate out[2], wide[2];
    size_t next[3];

    (void)state;
    rf_sampler_merge(parts, sizeof *parts, 3, 2, next, out);
    assert_int_equal(out[0].id, 9);
    assert_int_equal(out[1].id, 5);
    rf_sampler_merge(parts, sizeof *parts, 2, 2, next, wide);
    assert_int_equal(wide[0].id, 5);
    assert_int_equal(wide[1].id, -1);
    assert_int_equal(rf_sampler_merge_best(none, sizeof *none, 2).id, -1);
    assert_int_equal(rf_sampler_merge_best(low, sizeof *low, 2).id, 3);
    assert_int_equal(rf_sampler_merge_best(same, sizeof *same, 2).id, 4); /* a tie: the lower id */
}

static void ties_and_broken_rows(void **state)
{
    rf_sampling greedy = {0, 0, 1, 0, 0};
    float logits[4] = {1, 2, 2, NAN}, none[3] = {NAN, -INFINITY, NAN}, infinite[3] = {1, INFINITY, 2};
    float scores[3] = {5, 7, 7};
    int32_t ids[3] = {1, 9, 4}, token = -1;
    rf_candidate all[4];

    (void)state;
    sorted(logits, 4, all);
    assert_int_equal(draw(&greedy, 0, all, 4), 1);
    sorted(none, 3, all);
    assert_int_equal(rf_sampler_try(&greedy, 0, all, 3, true, NULL, &token), RF_SAMPLE_EMPTY);
    assert_int_equal(rf_sampler_try(&greedy, 0, all, 0, true, NULL, &token), RF_SAMPLE_EMPTY);
    sorted(infinite, 3, all);
    assert_int_equal(draw(&(rf_sampling){1, 2, 0.9, 0.1, 3}, 0, all, 3), 1);
    assert_int_equal(rf_sampler_draft(&greedy, 0, scores, ids, 3), 2); /* the lower token of the two */
}

/* Which of the first 32 tokens are ever drawn, as bits. */
static unsigned drawn(const rf_sampling *s, const float *logits, size_t n)
{
    rf_candidate all[32];
    unsigned seen = 0;

    sorted(logits, n, all);
    for (int64_t i = 0; i < 2000; i++)
        seen |= 1u << draw(s, i, all, n);
    return seen;
}

/* A filter's edge keeps the lower id, a mass exactly at a threshold counts, and the first candidate is always kept. */
static void edges(void **state)
{
    const float logits[5] = {1, 3, 3, 3, 0}, twins[2] = {4, 4}, infinite[3] = {1, INFINITY, INFINITY};

    (void)state;
    assert_int_equal(drawn(&(rf_sampling){1, 2, 1, 0, 5}, logits, 5), 1u << 1 | 1u << 2);
    assert_int_equal(drawn(&(rf_sampling){1, 0, 0.0, 0, 5}, logits, 5), 1u << 1);
    assert_int_equal(drawn(&(rf_sampling){1, 0, 1, 1.0, 5}, logits, 5), 1u << 1 | 1u << 2 | 1u << 3);
    assert_int_equal(drawn(&(rf_sampling){1, 0, 1, 2.0, 5}, logits, 5), 1u << 1);
    assert_int_equal(drawn(&(rf_sampling){1, 0, 0.5, 0, 5}, twins, 2),
                     1u << 0); /* half of the mass is exactly reached */
    assert_int_equal(drawn(&(rf_sampling){1, 0, nextafter(0.5, 1), 0, 5}, twins, 2), 1u << 0 | 1u << 1);
    assert_int_equal(drawn(&(rf_sampling){1, 3, 1, 0, 5}, infinite, 3), 1u << 1); /* equal scores: the lower id */
}

static void needs(void **state)
{
    (void)state;
    assert_int_equal(rf_sampler_needs(&(rf_sampling){0, 40, 0.9, 0, 0}).k, 1);
    assert_int_equal(rf_sampler_needs(&(rf_sampling){1, 40, 0.9, 0, 0}).k, 40);
    assert_int_equal(rf_sampler_needs(&(rf_sampling){1, 0, 0.9, 0, 0}).k, RF_SAMPLE_FIRST_K);
    assert_true(rf_sampler_needs(&(rf_sampling){1, 0, 1, 0, 0}).gumbel);
    assert_int_equal(rf_sampler_wider(40, 100000), RF_SAMPLE_FIRST_K);
    assert_int_equal(rf_sampler_wider(256, 100000), 4096);
    assert_int_equal(rf_sampler_wider(4096, 100000), 100000);
    assert_int_equal(rf_sampler_wider(40, 100), 100);
}

static void draft_probability(void **state)
{
    float scores[3] = {1, 2, 3};

    (void)state;
    assert_true(fabs(rf_draft_probability(scores, 3, 2) - exp(3) / (exp(1) + exp(2) + exp(3))) < 1e-12);
    assert_true(rf_draft_probability(scores, 1, 0) == 1.0);
}

/* Scores of a broken drafter: NaN counts as -inf, probabilities stay in [0, 1]. */
static void broken_draft_scores(void **state)
{
    float some[3] = {NAN, 1, -INFINITY}, infinite[3] = {INFINITY, NAN, INFINITY}, none[2] = {NAN, -INFINITY};
    int32_t ids[3] = {2, 8, 4};
    rf_sampling greedy = {0, 0, 1, 0, 0}, warm = {0.8, 0, 1, 0, 3};

    (void)state;
    assert_int_equal(rf_sampler_draft(&greedy, 0, some, ids, 3), 1);
    assert_int_equal(rf_sampler_draft(&warm, 0, some, ids, 3), 1);
    assert_int_equal(rf_sampler_draft(&greedy, 0, infinite, ids, 3), 0);
    assert_int_equal(rf_sampler_draft(&greedy, 0, none, ids, 2), 0);
    assert_true(rf_draft_probability(some, 3, 1) == 1.0);
    assert_true(rf_draft_probability(some, 3, 0) == 0.0);
    assert_true(rf_draft_probability(infinite, 3, 2) == 0.5);
    assert_true(rf_draft_probability(none, 2, 0) == 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(draws_follow_softmax),
        cmocka_unit_test(coupled_draws_agree_as_they_should),
        cmocka_unit_test(draws_follow_the_definition),
        cmocka_unit_test(widening_changes_nothing),
        cmocka_unit_test(shards_merge_to_the_whole_row),
        cmocka_unit_test(empty_places_come_last),
        cmocka_unit_test(ties_and_broken_rows),
        cmocka_unit_test(edges),
        cmocka_unit_test(needs),
        cmocka_unit_test(draft_probability),
        cmocka_unit_test(broken_draft_scores),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
