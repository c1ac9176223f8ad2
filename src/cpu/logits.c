/* What is asked of logits: scaling, best candidates, coupled argmax, integer masses, hashes. */
#include "config.h"

#include "../gumbel.h"
#include "../hash.h"
#include "isa.h"
#include "vec16.h"

#define CHUNK 4096          /* columns of a task where a row is divided */
#define MASS_ONE 1099511627776.0 /* 2^40 */

static void logit_scale(rf_backend *b, size_t n_rows, size_t n_cols, float scale, float cap, rf_mat logits)
{
#pragma omp parallel for schedule(static) num_threads(cpu_of(b)->n_threads)
    for (size_t r = 0; r < n_rows; r++) {
        float *l = mat_row(logits, r);

        for (size_t i = 0; i < n_cols; i++) {
            if (scale != 1.0f)
                l[i] *= scale;
            if (cap > 0)
                l[i] = cap * tanhf(l[i] / cap);
        }
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

static rf_gumbel_best best_of_chunk(const float *l, size_t from, size_t to, int32_t first_id, const rf_gumbel_row *row)
{
    rf_gumbel_best best = {-INFINITY, -INFINITY, -1};

    for (size_t i = from; i < to; i++) {
        rf_gumbel_best one = {(double)l[i] / row->temperature, l[i], first_id + (int32_t)i};

        if (!(l[i] > -INFINITY)) /* NaN too */
            continue;
        one.score += rf_gumbel(row->seed, row->position, one.id);
        if (better(one, best))
            best = one;
    }
    return best;
}

static void gumbel_argmax(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat logits, int32_t first_id, const rf_buf *rows, rf_buf *out)
{
    rf_gumbel_best *best = out->data;
    const rf_gumbel_row *row = rows->data;

    for (size_t r = 0; r < n_rows; r++) {
        best[r] = (rf_gumbel_best){-INFINITY, -INFINITY, -1};
#pragma omp parallel for schedule(dynamic, 1) num_threads(cpu_of(b)->n_threads)
        for (size_t from = 0; from < n_cols; from += CHUNK) {
            rf_gumbel_best one = best_of_chunk(mat_row(logits, r), from, from + CHUNK < n_cols ? from + CHUNK : n_cols, first_id, &row[r]);

#pragma omp critical
            if (better(one, best[r])) /* a total order: the last word does not depend on who comes first */
                best[r] = one;
        }
    }
}

static uint64_t mass(float l, float max)
{
    if (l == max)
        return (uint64_t)MASS_ONE;
    return l < max ? (uint64_t)floor(exp((double)l - (double)max) * MASS_ONE) : 0;
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
