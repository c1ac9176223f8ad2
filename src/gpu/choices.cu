/* Best candidates and coupled argmax: one block a row, no memory but the result's. What counts is a total order of
 * (logit or score, id), so it does not matter which thread looks at which column. */
#include "gpu_internal.h"

#include "device.h"

#include "../philox.h"

namespace RT_SPACE {

#define THREADS 512
#define DIGIT_BITS 11
#define BINS (1u << DIGIT_BITS)
#define BINS_A_THREAD (BINS / THREADS)
#define SORTED_IN_SHARED 1024 /* candidates */

/* ---- top k. A column's key: its logit, ordered as an unsigned number, above its number, inverted: larger is better,
 * no two are alike. NaN counts as -infinity, and -0 as 0. */

RT_DEVICE float logit_of(float l) { return l != l ? rt_bits_to_f32(0xff800000u) : l; }

RT_DEVICE uint64_t key_of(float l, uint32_t column)
{
    uint32_t bits = rt_f32_to_bits(logit_of(l) == 0 ? 0.0f : logit_of(l));

    bits ^= bits >> 31 ? 0xffffffffu : 0x80000000u;
    return (uint64_t)bits << 32 | (0xffffffffu - column);
}

typedef struct {
    rt_shared<uint32_t> bins, sums, answer; /* [BINS], [THREADS + 32], [3]: digit, how many are above it, in it */
} select_memory;

/* answer: the bin that holds the n-th best (n >= 1) of those counted. */
RT_DEVICE void find_bin(const select_memory &m, uint32_t n)
{
    uint32_t sum = 0, above = 0, at;

    for (unsigned i = 0; i < BINS_A_THREAD; i++)
        sum += m.bins[rt_thread() * BINS_A_THREAD + i];
    m.sums[rt_thread()] = sum;
    rt_sync();
    if (rt_thread() < 32) {
        sum = 0;
        for (unsigned i = 0; i < THREADS / 32; i++)
            sum += m.sums[rt_thread() * (THREADS / 32) + i];
        m.sums[THREADS + rt_thread()] = sum;
    }
    rt_sync();
    if (rt_thread())
        return;
    for (at = 31; above + m.sums[THREADS + at] < n; at--)
        above += m.sums[THREADS + at];
    for (at = at * (THREADS / 32) + THREADS / 32 - 1; above + m.sums[at] < n; at--)
        above += m.sums[at];
    for (at = at * BINS_A_THREAD + BINS_A_THREAD - 1; above + m.bins[at] < n; at--)
        above += m.bins[at];
    m.answer[0] = at;
    m.answer[1] = above;
    m.answer[2] = m.bins[at];
}

/* The least key of the k best of n columns, 1 <= k <= n: digit by digit from the top. */
RT_DEVICE uint64_t least_key(const select_memory &m, const float *l, size_t n, uint32_t k)
{
    uint64_t prefix = 0;
    unsigned shift = 64;

    while (shift) {
        unsigned bits = shift < DIGIT_BITS ? shift : DIGIT_BITS, before = shift;

        shift -= bits;
        for (unsigned i = rt_thread(); i < BINS; i += THREADS)
            m.bins[i] = 0;
        rt_sync();
        for (size_t i = rt_thread(); i < n; i += THREADS) {
            uint64_t key = key_of(l[i], (uint32_t)i);

            if (before == 64 || key >> before == prefix)
                rt_atomic_add(m.bins[(uint32_t)(key >> shift) & ((1u << bits) - 1)], 1);
        }
        rt_sync();
        find_bin(m, k);
        rt_sync();
        prefix = prefix << bits | m.answer[0];
        k -= m.answer[1];
        if (k == m.answer[2]) /* all of this bin */
            break;
        rt_sync();
    }
    return prefix << shift;
}

/* Descending, any n: bitonic merging, where what lies behind the end counts as least. */
template <class Keys> RT_DEVICE void sort_keys(Keys keys, uint32_t n)
{
    for (uint32_t size = 2; size / 2 < n; size *= 2)
        for (uint32_t stride = size / 2; stride; stride /= 2) {
            uint32_t flip = stride == size / 2 ? size - 1 : stride;

            for (uint32_t i = rt_thread(); i < n; i += THREADS) {
                uint32_t other = i ^ flip;

                if (other > i && other < n) {
                    uint64_t a = keys[i], b = keys[other];

                    if (a < b) {
                        keys[i] = b;
                        keys[other] = a;
                    }
                }
            }
            rt_sync();
        }
}

/* All keys of the row that are not below `least`, in any order. next: one counter, 0. */
template <class Keys>
RT_DEVICE void gather_keys(Keys keys, rt_shared<uint32_t> next, const float *l, size_t n, uint64_t least)
{
    for (size_t i = rt_thread(); i < n; i += THREADS) {
        uint64_t key = key_of(l[i], (uint32_t)i);

        if (key >= least)
            keys[rt_atomic_add(next[0], 1)] = key;
    }
    rt_sync();
}

RT_DEVICE rf_candidate candidate_of(const float *l, int32_t first_id, uint64_t key)
{
    uint32_t column = 0xffffffffu - (uint32_t)key;
    rf_candidate c = {logit_of(l[column]), first_id + (int32_t)column};

    return c;
}

/* grid: rows */
RT_KERNEL top_k_kernel(size_t n, rt_mat logits, int32_t first_id, size_t k, rf_candidate *out)
{
    const float *l = logits.p + rt_block() * logits.stride;
    uint32_t found = (uint32_t)(k < n ? k : n);
    rf_candidate *best = out + rt_block() * k;
    uint64_t *in_place = reinterpret_cast<uint64_t *>(best), least; /* a key takes a candidate's place */
    RT_SHARED(uint32_t, bins, BINS);
    RT_SHARED(uint32_t, sums, THREADS + 32);
    RT_SHARED(uint32_t, answer, 3);
    RT_SHARED(uint32_t, next, 1);
    RT_SHARED(uint64_t, keys, SORTED_IN_SHARED);
    select_memory m = {bins, sums, answer};

    if (rt_thread() == 0)
        next[0] = 0;
    least = least_key(m, l, n, found);
    if (found <= SORTED_IN_SHARED) {
        gather_keys(keys, next, l, n, least);
        sort_keys(keys, found);
    } else {
        gather_keys(in_place, next, l, n, least);
        sort_keys(in_place, found);
    }
    for (size_t i = rt_thread(); i < k; i += THREADS) {
        rf_candidate none = {rt_bits_to_f32(0xff800000u), -1};

        best[i] = i >= found ? none : candidate_of(l, first_id, found <= SORTED_IN_SHARED ? (uint64_t)keys[i] : in_place[i]);
    }
}

/* ---- coupled argmax. Which columns can win is decided with bounds, because two logarithms a column cost more than the
 * output matrix: G is at most 33 ln 2 (u = 1 - 2^-33), and since -log(u) >= 1 - u, at most (z + 1) ln 2 where ~w has z
 * leading zero bits. */

#define LARGEST_GUMBEL 22.88
#define LN_2 0.69314718056
#define MARGIN 1e-6 /* far above the rounding of scores that can matter */

typedef struct {
    rt_shared<double> score;
    rt_shared<float> logit;
    rt_shared<int32_t> id; /* [THREADS] each */
} best_memory;

RT_DEVICE bool better(const rf_gumbel_best &a, const rf_gumbel_best &b)
{
    if (a.id < 0 || b.id < 0)
        return a.id >= 0;
    return a.score > b.score || (!(a.score < b.score) && a.id < b.id);
}

RT_DEVICE rf_gumbel_best best_at(const best_memory &m, unsigned i)
{
    rf_gumbel_best best = {m.score[i], m.logit[i], m.id[i]};

    return best;
}

/* The best of all threads' */
RT_DEVICE rf_gumbel_best best_of_block(const best_memory &m, rf_gumbel_best own)
{
    for (unsigned left = THREADS; ; left /= 2) {
        if (rt_thread() < left) {
            m.score[rt_thread()] = own.score;
            m.logit[rt_thread()] = own.logit;
            m.id[rt_thread()] = own.id;
        }
        rt_sync();
        if (left == 1)
            break;
        if (rt_thread() < left / 2) {
            rf_gumbel_best other = best_at(m, rt_thread() + left / 2);

            own = better(other, own) ? other : own;
        }
        rt_sync();
    }
    own = best_at(m, 0);
    rt_sync();
    return own;
}

RT_DEVICE double gumbel_of(const rf_gumbel_row &row, int32_t id)
{
    return -log(-log(((double)rf_gumbel_word(row.seed, row.position, id) + 0.5) / 4294967296.0));
}

RT_DEVICE double gumbel_bound(const rf_gumbel_row &row, int32_t id)
{
    return (double)(rt_leading_zeros(~rf_gumbel_word(row.seed, row.position, id)) + 1) * LN_2 + MARGIN;
}

RT_DEVICE double cutoff_of(const rf_gumbel_row &row, double score)
{
    double cutoff = (score - LARGEST_GUMBEL) * row.temperature;

    return cutoff - (fabs(cutoff) * MARGIN + row.temperature * MARGIN);
}

/* grid: rows */
RT_KERNEL gumbel_kernel(size_t n, rt_mat logits, int32_t first_id, const rf_gumbel_row *rows, rf_gumbel_best *out)
{
    const float *l = logits.p + rt_block() * logits.stride;
    const rf_gumbel_row row = rows[rt_block()];
    const float least = rt_bits_to_f32(0xff800000u);
    const rf_gumbel_best none = {(double)least, least, -1};
    rf_gumbel_best best = none;
    double cutoff;
    RT_SHARED(double, score, THREADS);
    RT_SHARED(float, logit, THREADS);
    RT_SHARED(int32_t, id, THREADS);
    best_memory m = {score, logit, id};

    for (size_t i = rt_thread(); i < n; i += THREADS) { /* first the largest logit */
        rf_gumbel_best one = {(double)l[i], l[i], first_id + (int32_t)i};

        if (l[i] > least && better(one, best))
            best = one;
    }
    best = best_of_block(m, best);
    if (best.id >= 0)
        best.score = (double)best.logit / row.temperature + gumbel_of(row, best.id);
    cutoff = cutoff_of(row, best.score);
    for (size_t i = rt_thread(); best.id >= 0 && i < n; i += THREADS) {
        rf_gumbel_best one = {(double)l[i] / row.temperature, l[i], first_id + (int32_t)i};

        if (!(l[i] > least) || (double)l[i] < cutoff || one.score + gumbel_bound(row, one.id) < best.score)
            continue;
        one.score += gumbel_of(row, one.id);
        if (better(one, best)) {
            best = one;
            cutoff = cutoff_of(row, best.score);
        }
    }
    best = best_of_block(m, best);
    if (rt_thread() == 0)
        out[rt_block()] = best;
}

/* ---- host */

static void top_k(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat logits, int32_t first_id, size_t k, rf_buf *out)
{
    launch(gpu_of(b), {"top_k", grid_of(n_rows), THREADS, 0, true}, top_k_kernel, n_cols, mat_of(logits), first_id, k,
           data_of<rf_candidate>(out));
}

static void gumbel_argmax(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat logits, int32_t first_id,
                          const rf_buf *rows, rf_buf *out)
{
    launch(gpu_of(b), {"gumbel_argmax", grid_of(n_rows), THREADS, 0, true}, gumbel_kernel, n_cols, mat_of(logits), first_id,
           data_of<rf_gumbel_row>(rows), data_of<rf_gumbel_best>(out));
}

void choice_ops(rf_ops *ops)
{
    ops->top_k = top_k;
    ops->gumbel_argmax = gumbel_argmax;
}

} /* namespace */
