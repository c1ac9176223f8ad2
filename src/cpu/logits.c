/* What is asked of logits: scaling, best candidates, coupled argmax, integer masses, hashes. */
#include "config.h"

#include "../gumbel.h"
#include "../hash.h"
#include "isa.h"
#include "vec16.h"

#define CHUNK 4096          /* columns of a task where a row is divided */
#define MASS_ONE 1099511627776.0 /* 2^40 */
#define NO_MASS (-27.8)          /* exp of less is below 2^-40 */

static void logit_scale(rf_backend *b, size_t n_rows, size_t n_cols, float scale, float cap, rf_mat logits)
{
    if (scale == 1.0f && !(cap > 0))
        return;
#pragma omp parallel for collapse(2) schedule(static) num_threads(cpu_of(b)->n_threads)
    for (size_t r = 0; r < n_rows; r++)
        for (size_t i = 0; i < n_cols; i++) {
            float *l = mat_row(logits, r) + i;

            if (scale != 1.0f)
                *l *= scale;
            if (cap > 0)
                *l = cap * tanhf(*l / cap);
        }
}

/* a is worse than b: smaller logit, ties higher id */
static inline bool worse(rf_candidate a, rf_candidate b)
{
    return a.logit < b.logit || (!(a.logit > b.logit) && a.id > b.id);
}

/* heap[0] is the worst of the kept */
static void sift(rf_candidate *heap, size_t n, size_t at)
{
    for (;;) {
        size_t child = 2 * at + 1, worst = at;
        rf_candidate swap;

        for (size_t i = child; i < child + 2 && i < n; i++)
            if (worse(heap[i], heap[worst]))
                worst = i;
        if (worst == at)
            return;
        swap = heap[at];
        heap[at] = heap[worst];
        heap[worst] = swap;
        at = worst;
    }
}

static void best_of_row(const float *l, size_t n, int32_t first_id, size_t k, rf_candidate *heap)
{
    size_t kept = k < n ? k : n;

    for (size_t i = 0; i < kept; i++)
        heap[i] = (rf_candidate){isnan(l[i]) ? -INFINITY : l[i], first_id + (int32_t)i};
    for (size_t i = kept / 2; i-- > 0;)
        sift(heap, kept, i);
    for (size_t i = kept; i < n; i++) /* ids ascend, so an equal logit is never better; NaN compares false */
        if (l[i] > heap[0].logit) {
            heap[0] = (rf_candidate){l[i], first_id + (int32_t)i};
            sift(heap, kept, 0);
        }
    for (size_t end = kept; end > 1; end--) { /* worst to the back, place by place */
        rf_candidate worst = heap[0];

        heap[0] = heap[end - 1];
        heap[end - 1] = worst;
        sift(heap, end - 1, 0);
    }
    for (size_t i = kept; i < k; i++)
        heap[i] = (rf_candidate){-INFINITY, -1};
}

static void top_k(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat logits, int32_t first_id, size_t k, rf_buf *out)
{
#pragma omp parallel for schedule(static) num_threads(cpu_of(b)->n_threads) if (n_rows > 1)
    for (size_t r = 0; r < n_rows; r++)
        best_of_row(mat_row(logits, r), n_cols, first_id, k, (rf_candidate *)out->data + r * k);
}

static bool better(rf_gumbel_best a, rf_gumbel_best b)
{
    if (a.id < 0 || b.id < 0)
        return a.id >= 0;
    return a.score > b.score || (!(a.score < b.score) && a.id < b.id);
}

/* Which columns can win is decided with bounds, because two logarithms a column cost more than the output matrix: G is
 * at most 33 ln 2 (u = 1 - 2^-33), and since -log(u) >= 1 - u, at most (z + 1) ln 2 where ~w has z leading zero bits.
 */
#define LARGEST_GUMBEL 22.88
#define LN_2 0.69314718056
#define MARGIN 1e-6 /* far above the rounding of scores that can matter */

typedef struct {
    const rf_gumbel_row *row;
    rf_gumbel_best best;
    double cutoff; /* smaller logits cannot win */
} drawing;

static void keep(drawing *d, rf_gumbel_best one)
{
    if (!better(one, d->best))
        return;
    d->best = one;
    d->cutoff = (one.score - LARGEST_GUMBEL) * d->row->temperature;
    d->cutoff -= fabs(d->cutoff) * MARGIN + d->row->temperature * MARGIN;
}

static double gumbel_bound(const rf_gumbel_row *row, int32_t id)
{
    uint32_t word = ~rf_gumbel_word(row->seed, row->position, id);

    return (double)(word ? __builtin_clz(word) + 1 : 33) * LN_2 + MARGIN;
}

static void consider(drawing *d, float logit, int32_t id)
{
    const rf_gumbel_row *row = d->row;
    double score = (double)logit / row->temperature;

    if (score + gumbel_bound(row, id) < d->best.score)
        return;
    keep(d, (rf_gumbel_best){score + rf_gumbel(row->seed, row->position, id), logit, id});
}

/* A first candidate: the largest logit. id -1 where there is none but NaN and -inf. */
static rf_gumbel_best largest_logit(const float *l, size_t n, int32_t first_id, const rf_gumbel_row *row)
{
    rf_gumbel_best best = {-INFINITY, -INFINITY, -1};
    v16 most = v_set1(-INFINITY);
    size_t at = 0;
    float max;

    for (; at + LANES <= n; at += LANES)
        most = v_max(v_load(l + at), most);
    max = v_largest(most);
    for (; at < n; at++)
        max = l[at] > max ? l[at] : max;
    for (at = 0; at < n && !(l[at] >= max); at++)
        ;
    if (at == n || !(max > -INFINITY))
        return best;
    best.logit = max;
    best.id = first_id + (int32_t)at;
    best.score = (double)max / row->temperature + rf_gumbel(row->seed, row->position, best.id);
    return best;
}

static rf_gumbel_best best_of_chunk(const float *l, size_t from, size_t to, int32_t first_id, const rf_gumbel_row *row,
                                    rf_gumbel_best first)
{
    drawing d = {row, {-INFINITY, -INFINITY, -1}, -INFINITY};

    keep(&d, first);
    for (size_t i = from; i < to; i++)
        if ((double)l[i] >= d.cutoff && l[i] > -INFINITY) /* not NaN */
            consider(&d, l[i], first_id + (int32_t)i);
    return d.best;
}

static void gumbel_argmax(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat logits, int32_t first_id,
                          const rf_buf *rows, rf_buf *out)
{
    rf_gumbel_best *best = out->data;
    const rf_gumbel_row *row = rows->data;

#pragma omp parallel num_threads(cpu_of(b)->n_threads)
    {
#pragma omp for schedule(static)
        for (size_t r = 0; r < n_rows; r++)
            best[r] = largest_logit(mat_row(logits, r), n_cols, first_id, &row[r]);
#pragma omp for collapse(2) schedule(dynamic, 1)
        for (size_t r = 0; r < n_rows; r++)
            for (size_t from = 0; from < n_cols; from += CHUNK) {
                size_t to = from + CHUNK < n_cols ? from + CHUNK : n_cols;
                rf_gumbel_best one;

#pragma omp critical(gumbel_argmax)
                one = best[r];
                one = best_of_chunk(mat_row(logits, r), from, to, first_id, &row[r], one);
#pragma omp critical(gumbel_argmax)
                if (better(one, best[r])) /* a total order: it does not matter who comes first */
                    best[r] = one;
            }
    }
}

static uint64_t mass(float l, float max)
{
    double below = (double)l - (double)max;

    if (l == max)
        return (uint64_t)MASS_ONE;
    return below < 0 && below > NO_MASS ? (uint64_t)floor(exp(below) * MASS_ONE) : 0;
}

static void log_mass(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat logits, const rf_buf *max, rf_buf *out)
{
    for (size_t r = 0; r < n_rows; r++) {
        const float *l = mat_row(logits, r);
        float most = ((const float *)max->data)[r];
        uint64_t sum = 0;

#pragma omp parallel for schedule(static) num_threads(cpu_of(b)->n_threads) reduction(+ : sum)
        for (size_t i = 0; i < n_cols; i++)
            sum += mass(l[i], most);
        ((uint64_t *)out->data)[r] = sum;
    }
}

static void row_hash(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat logits, int32_t first_id, rf_buf *out)
{
    for (size_t r = 0; r < n_rows; r++) {
        const float *l = mat_row(logits, r);
        uint64_t sum = 0;

#pragma omp parallel for schedule(static) num_threads(cpu_of(b)->n_threads) reduction(+ : sum) if (n_cols >= CHUNK)
        for (size_t i = 0; i < n_cols; i++)
            sum += rf_hash_mix(first_id + (int32_t)i, rf_f32_to_bits(l[i]));
        ((uint64_t *)out->data)[r] = sum;
    }
}

void RF_ISA_NAME(logit_ops)(rf_ops *ops)
{
    ops->logit_scale = logit_scale;
    ops->top_k = top_k;
    ops->gumbel_argmax = gumbel_argmax;
    ops->log_mass = log_mass;
    ops->row_hash = row_hash;
}
