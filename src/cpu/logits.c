/* What is asked of logits: scaling, best candidates, coupled argmax, integer masses, hashes. */
#include "config.h"

#include "../gumbel.h"
#include "../hash.h"
#include "isa.h"
#include "vec16.h"

#define CHUNK 4096          /* columns of a task where a row is divided */
#define SKIP 128            /* columns that are passed over together where none is among the best */
#define MASS_ONE 1099511627776.0 /* 2^40 */
#define NO_MASS (-27.8)          /* exp of less is below 2^-40 */

/* Rows of logits divided into chunks of columns: item = row * n_chunks + chunk. */
typedef struct {
    size_t n_cols, n_chunks;
    rf_mat logits;
    int32_t first_id;
} chunked;

static chunked in_chunks(size_t n_cols, rf_mat logits, int32_t first_id)
{
    return (chunked){n_cols, (n_cols + CHUNK - 1) / CHUNK, logits, first_id};
}

static size_t chunk_first(const chunked *c, size_t item)
{
    return item % c->n_chunks * CHUNK;
}

static size_t chunk_end(const chunked *c, size_t item)
{
    size_t first = chunk_first(c, item);

    return c->n_cols - first < CHUNK ? c->n_cols : first + CHUNK;
}

static float *chunk_row(const chunked *c, size_t item)
{
    return mat_row(c->logits, item / c->n_chunks);
}

typedef struct {
    chunked chunks;
    float scale, cap;
} scale_work;

static void scale_part(const void *work, size_t first, size_t end)
{
    const scale_work *k = work;

    for (size_t item = first; item < end; item++) {
        float *l = chunk_row(&k->chunks, item);

        for (size_t i = chunk_first(&k->chunks, item); i < chunk_end(&k->chunks, item); i++) {
            if (k->scale != 1.0f)
                l[i] *= k->scale;
            if (k->cap > 0)
                l[i] = k->cap * tanhf(l[i] / k->cap);
        }
    }
}

static void logit_scale(rf_backend *b, size_t n_rows, size_t n_cols, float scale, float cap, rf_mat logits)
{
    scale_work k = {in_chunks(n_cols, logits, 0), scale, cap};

    if (scale != 1.0f || cap > 0)
        cpu_team_each(team_of(b), n_rows * k.chunks.n_chunks, scale_part, &k);
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

/* Whether one of SKIP logits is more than x: in v_max(logit, most) a NaN gives way to what was found before. */
static bool any_above(const float *l, float x)
{
    v16 most = v_set1(x);

    for (size_t i = 0; i < SKIP; i += LANES)
        most = v_max(v_load(l + i), most);
    return v_largest(most) > x;
}

static void best_of_row(const float *l, size_t n, int32_t first_id, size_t k, rf_candidate *heap)
{
    size_t kept = k < n ? k : n;

    for (size_t i = 0; i < kept; i++)
        heap[i] = (rf_candidate){isnan(l[i]) ? -INFINITY : l[i], first_id + (int32_t)i};
    for (size_t i = kept / 2; i-- > 0;)
        sift(heap, kept, i);
    for (size_t i = kept; i < n;) { /* ids ascend, so an equal logit is never better; NaN compares false */
        size_t end = i + SKIP <= n ? i + SKIP : n;

        if (end == i + SKIP && !any_above(l + i, heap[0].logit)) {
            i = end;
            continue;
        }
        for (; i < end; i++)
            if (l[i] > heap[0].logit) {
                heap[0] = (rf_candidate){l[i], first_id + (int32_t)i};
                sift(heap, kept, 0);
            }
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

typedef struct {
    size_t n_cols, k;
    rf_mat logits;
    int32_t first_id;
    rf_candidate *out; /* [row][k] */
} top_k_work;

static void top_k_part(const void *work, size_t first, size_t end)
{
    const top_k_work *t = work;

    for (size_t r = first; r < end; r++)
        best_of_row(mat_row(t->logits, r), t->n_cols, t->first_id, t->k, t->out + r * t->k);
}

static void top_k(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat logits, int32_t first_id, size_t k, rf_buf *out)
{
    top_k_work t = {n_cols, k, logits, first_id, out->data};

    cpu_team_each(team_of(b), n_rows, top_k_part, &t);
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

typedef struct {
    chunked chunks;
    const rf_gumbel_row *row;
    rf_gumbel_best *best; /* [row] */
} gumbel_work;

static void largest_part(const void *work, size_t first, size_t end)
{
    const gumbel_work *k = work;

    for (size_t r = first; r < end; r++)
        k->best[r] = largest_logit(mat_row(k->chunks.logits, r), k->chunks.n_cols, k->chunks.first_id, &k->row[r]);
}

static void gumbel_part(const void *work, size_t first, size_t end)
{
    const gumbel_work *k = work;

    for (size_t item = first; item < end; item++) {
        size_t r = item / k->chunks.n_chunks;
        rf_gumbel_best one;

#pragma omp critical(gumbel_argmax)
        one = k->best[r];
        one = best_of_chunk(chunk_row(&k->chunks, item), chunk_first(&k->chunks, item), chunk_end(&k->chunks, item),
                            k->chunks.first_id, &k->row[r], one);
#pragma omp critical(gumbel_argmax)
        if (better(one, k->best[r])) /* a total order: it does not matter who comes first */
            k->best[r] = one;
    }
}

static void gumbel_argmax(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat logits, int32_t first_id,
                          const rf_buf *rows, rf_buf *out)
{
    gumbel_work k = {in_chunks(n_cols, logits, first_id), rows->data, out->data};

    cpu_team_each(team_of(b), n_rows, largest_part, &k);
    cpu_team_each_free(team_of(b), n_rows * k.chunks.n_chunks, gumbel_part, &k);
}

static uint64_t mass(float l, float max)
{
    double below = (double)l - (double)max;

    if (l == max)
        return (uint64_t)MASS_ONE;
    return below < 0 && below > NO_MASS ? (uint64_t)floor(exp(below) * MASS_ONE) : 0;
}

typedef struct {
    chunked chunks;
    const float *max;
    uint64_t *out; /* [row]: integer sums, so any order gives the same */
} sum_work;

static void mass_part(const void *work, size_t first, size_t end)
{
    const sum_work *k = work;

    for (size_t item = first; item < end; item++) {
        const float *l = chunk_row(&k->chunks, item);
        size_t r = item / k->chunks.n_chunks;
        uint64_t sum = 0;

        for (size_t i = chunk_first(&k->chunks, item); i < chunk_end(&k->chunks, item); i++)
            sum += mass(l[i], k->max[r]);
#pragma omp atomic
        k->out[r] += sum;
    }
}

static void hash_part(const void *work, size_t first, size_t end)
{
    const sum_work *k = work;

    for (size_t item = first; item < end; item++) {
        const float *l = chunk_row(&k->chunks, item);
        uint64_t sum = 0;

        for (size_t i = chunk_first(&k->chunks, item); i < chunk_end(&k->chunks, item); i++)
            sum += rf_hash_mix(k->chunks.first_id + (int32_t)i, rf_f32_to_bits(l[i]));
#pragma omp atomic
        k->out[item / k->chunks.n_chunks] += sum;
    }
}

static void sum_chunks(rf_backend *b, size_t n_rows, const sum_work *k, cpu_part part)
{
    memset(k->out, 0, n_rows * sizeof *k->out);
    cpu_team_each(team_of(b), n_rows * k->chunks.n_chunks, part, k);
}

static void log_mass(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat logits, const rf_buf *max, rf_buf *out)
{
    sum_work k = {in_chunks(n_cols, logits, 0), max->data, out->data};

    sum_chunks(b, n_rows, &k, mass_part);
}

static void row_hash(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat logits, int32_t first_id, rf_buf *out)
{
    sum_work k = {in_chunks(n_cols, logits, first_id), NULL, out->data};

    sum_chunks(b, n_rows, &k, hash_part);
}

void RF_ISA_NAME(logit_ops)(rf_ops *ops)
{
    ops->logit_scale = logit_scale;
    ops->top_k = top_k;
    ops->gumbel_argmax = gumbel_argmax;
    ops->log_mass = log_mass;
    ops->row_hash = row_hash;
}
