/* Logits: scaling, integer masses, hashes. Sums of integers, which no order changes: they may be atomic. */
#include "gpu_internal.h"

#include "device.h"

#include "../hash.h"

namespace RT_SPACE {

#define THREADS 256
#define CHUNK 4096               /* columns of a block */
#define MASS_ONE 1099511627776.0 /* 2^40 */
#define NO_MASS (-27.8)          /* exp of less is below 2^-40 */

RT_KERNEL scale_kernel(size_t n, float scale, float cap, rt_mat logits)
{
    size_t i = (size_t)rt_block() * rt_n_threads() + rt_thread();
    float *l = logits.p + rt_block_y() * logits.stride + i;

    if (i < n && scale != 1.0f)
        *l = *l * scale;
    if (i < n && cap > 0)
        *l = cap * tanhf(*l / cap);
}

RT_DEVICE uint64_t mass_of(float l, float max)
{
    double below = (double)l - (double)max;

    if (l == max)
        return (uint64_t)MASS_ONE;
    return below < 0 && below > NO_MASS ? (uint64_t)floor(exp(below) * MASS_ONE) : 0;
}

/* Adds what the threads of the block found to *out. */
RT_DEVICE void add_up(uint64_t sum, uint64_t *out)
{
    RT_SHARED(uint64_t, sums, THREADS / RT_GROUP);

    for (unsigned mask = RT_GROUP / 2; mask; mask /= 2)
        sum += rt_shuffle_xor(sum, mask);
    if (rt_thread() % RT_GROUP == 0)
        sums[rt_thread() / RT_GROUP] = sum;
    rt_sync();
    if (rt_thread())
        return;
    sum = 0;
    for (unsigned i = 0; i < THREADS / RT_GROUP; i++)
        sum += sums[i];
    rt_atomic_add(out, sum);
}

/* grid: chunks of columns, rows */
RT_KERNEL mass_kernel(size_t n, rt_mat logits, const float *max, uint64_t *out)
{
    const float *l = logits.p + rt_block_y() * logits.stride;
    size_t first = (size_t)rt_block() * CHUNK, end = first + CHUNK < n ? first + CHUNK : n;
    uint64_t sum = 0;

    for (size_t i = first + rt_thread(); i < end; i += THREADS)
        sum += mass_of(l[i], max[rt_block_y()]);
    add_up(sum, out + rt_block_y());
}

RT_KERNEL hash_kernel(size_t n, rt_mat logits, int32_t first_id, uint64_t *out)
{
    const float *l = logits.p + rt_block_y() * logits.stride;
    size_t first = (size_t)rt_block() * CHUNK, end = first + CHUNK < n ? first + CHUNK : n;
    uint64_t sum = 0;

    for (size_t i = first + rt_thread(); i < end; i += THREADS)
        sum += rf_hash_mix(first_id + (int32_t)i, rt_f32_to_bits(l[i]));
    add_up(sum, out + rt_block_y());
}

/* ---- host */

static void logit_scale(rf_backend *b, size_t n_rows, size_t n_cols, float scale, float cap, rf_mat logits)
{
    if (scale == 1.0f && !(cap > 0))
        return;
    launch(gpu_of(b), {"logit_scale", grid_of(divide_up(n_cols, THREADS), n_rows), THREADS, 0, false}, scale_kernel, n_cols,
           scale, cap, mat_of(logits));
}

static void log_mass(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat logits, const rf_buf *max, rf_buf *out)
{
    rt_zero(out->data, n_rows * sizeof(uint64_t), gpu_of(b)->stream);
    launch(gpu_of(b), {"log_mass", grid_of(divide_up(n_cols, CHUNK), n_rows), THREADS, 0, true}, mass_kernel, n_cols,
           mat_of(logits), data_of<float>(max), data_of<uint64_t>(out));
}

static void row_hash(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat logits, int32_t first_id, rf_buf *out)
{
    rt_zero(out->data, n_rows * sizeof(uint64_t), gpu_of(b)->stream);
    launch(gpu_of(b), {"row_hash", grid_of(divide_up(n_cols, CHUNK), n_rows), THREADS, 0, true}, hash_kernel, n_cols,
           mat_of(logits), first_id, data_of<uint64_t>(out));
}

void logit_ops(rf_ops *ops)
{
    ops->logit_scale = logit_scale;
    ops->log_mass = log_mass;
    ops->row_hash = row_hash;
}

} /* namespace */
