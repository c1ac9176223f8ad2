/* Norms, elementwise ops, rotary embedding, the DFlash2 convolution.
 *
 * Sums of squares: of a row by 256 lanes (element i in lane i mod 256, ascending, fma), of a head by a group of 32; then
 * lanes are added as in device.h. Elementwise arithmetic is the CPU's, bit for bit. */
#include "gpu_internal.h"

#include "device.h"

namespace RT_SPACE {

#define THREADS 256
#define GROUPS_A_BLOCK 4

/* ---- rows */

RT_KERNEL rms_norm_kernel(rt_mat x, const float *w, size_t n, float eps, rt_mat y)
{
    const float *in = x.p + rt_block() * x.stride;
    float *out = y.p + rt_block() * y.stride, sum = 0, s;
    RT_SHARED(float, scratch, THREADS / RT_GROUP + 1);

    for (size_t i = rt_thread(); i < n; i += THREADS)
        sum = fmaf(in[i], in[i], sum);
    s = 1.0f / sqrtf(rt_block_sum(sum, scratch) / (float)n + eps);
    for (size_t i = rt_thread(); i < n; i += THREADS)
        out[i] = (in[i] * s) * w[i];
}

/* The columns of a row are dealt out to blocks in x, rows are blocks in y. */
RT_DEVICE size_t own_column() { return (size_t)rt_block() * rt_n_threads() + rt_thread(); }
RT_DEVICE size_t own_row() { return rt_block_y(); }

RT_KERNEL add_kernel(size_t n, rt_mat x, rt_mat y)
{
    size_t i = own_column();

    if (i < n)
        x.p[own_row() * x.stride + i] = x.p[own_row() * x.stride + i] + y.p[own_row() * y.stride + i];
}

RT_KERNEL silu_mul_kernel(size_t n, rt_mat gate, rt_mat up, rt_mat y)
{
    size_t i = own_column();

    if (i < n)
        y.p[own_row() * y.stride + i] = rt_silu(gate.p[own_row() * gate.stride + i]) * up.p[own_row() * up.stride + i];
}

RT_KERNEL sigmoid_mul_kernel(size_t n, size_t head_dim, rt_mat x, rt_mat gate, size_t gate_stride)
{
    size_t i = own_column(), head = i / head_dim;
    float *p = x.p + own_row() * x.stride + i;

    if (i < n)
        *p = *p * rt_sigmoid(gate.p[own_row() * gate.stride + head * gate_stride + i % head_dim]);
}

RT_KERNEL sanitize_kernel(size_t n, rt_mat x, int32_t *flag)
{
    size_t i = own_column();
    float *p = x.p + own_row() * x.stride + i;
    uint32_t bits;

    if (i >= n)
        return;
    bits = rt_f32_to_bits(*p);
    if ((bits & 0x7f800000u) != 0x7f800000u)
        return;
    *p = bits & 0x7fffffu ? 0.0f : bits >> 31 ? -65504.0f : 65504.0f;
    *flag = 1; /* whoever replaces anything writes the same */
}

/* ---- heads: a group each */

RT_DEVICE size_t own_head() { return (size_t)rt_block() * GROUPS_A_BLOCK + rt_thread() / RT_GROUP; }

/* 1 / rms of n elements, for all lanes of the group */
RT_DEVICE float head_scale(const float *x, size_t n, float eps)
{
    float sum = 0;

    for (size_t i = rt_thread() % RT_GROUP; i < n; i += RT_GROUP)
        sum = fmaf(x[i], x[i], sum);
    return 1.0f / sqrtf(rt_group_sum(sum) / (float)n + eps);
}

RT_KERNEL gated_norm_kernel(size_t n_heads, size_t head_dim, rt_mat x, const float *w, float eps, rt_mat z)
{
    bool there = own_head() < n_heads;
    size_t at = (there ? own_head() : 0) * head_dim;
    float *p = x.p + own_row() * x.stride + at, s = head_scale(p, head_dim, eps);
    const float *g = z.p + own_row() * z.stride + at;

    for (size_t i = rt_thread() % RT_GROUP; there && i < head_dim; i += RT_GROUP)
        p[i] = ((p[i] * s) * w[i]) * rt_silu(g[i]);
}

typedef struct {
    const float *cosine, *sine; /* [rows][half] */
    size_t half;
} rope_view;

RT_KERNEL head_norm_rope_kernel(rope_view rope, size_t n_heads, size_t head_dim, size_t head_stride, const float *w,
                                float eps, rt_mat x)
{
    bool there = own_head() < n_heads;
    float *p = x.p + own_row() * x.stride + (there ? own_head() : 0) * head_stride, s = head_scale(p, head_dim, eps);
    const float *cosine = rope.cosine + own_row() * rope.half, *sine = rope.sine + own_row() * rope.half;

    if (!there) /* all lanes have read what others write */
        return;
    for (size_t i = rt_thread() % RT_GROUP; i < rope.half; i += RT_GROUP) {
        float a = (p[i] * s) * w[i], b = (p[i + rope.half] * s) * w[i + rope.half];

        p[i] = fmaf(a, cosine[i], -(b * sine[i]));
        p[i + rope.half] = fmaf(a, sine[i], b * cosine[i]);
    }
    for (size_t i = 2 * rope.half + rt_thread() % RT_GROUP; i < head_dim; i += RT_GROUP)
        p[i] = (p[i] * s) * w[i];
}

RT_KERNEL rope_kernel(rt_batch_view batch, const double *frequency, size_t half, float *cosine, float *sine)
{
    size_t i = own_column(), row = own_row();
    uint32_t seq = batch.seq_of[row];
    double angle;

    if (i >= half)
        return;
    angle = (double)(batch.seqs[seq].first_pos + (int64_t)(row - batch.first_row[seq])) * frequency[i];
    cosine[row * half + i] = (float)cos(angle);
    sine[row * half + i] = (float)sin(angle);
}

/* ---- DFlash2: coefficients [taps][n_cols / group] of a row, constant [taps][n_cols] */

RT_KERNEL dynamic_conv_kernel(rt_batch_view batch, size_t n_cols, size_t taps, size_t group, size_t side, rt_mat dyn,
                              const float *base, rt_mat x, rt_mat y)
{
    size_t c = own_column(), row = own_row(), seen = row - batch.first_row[batch.seq_of[row]], n_groups = n_cols / group;
    const float *coefficients = dyn.p + row * dyn.stride + side * taps * n_groups, *constant = base + side * taps * n_cols;
    float sum = 0;

    if (c >= n_cols)
        return;
    for (size_t t = 0; t < taps && t <= seen; t++)
        sum = fmaf(coefficients[t * n_groups + c / group] + constant[t * n_cols + c], x.p[(row - t) * x.stride + c], sum);
    y.p[row * y.stride + c] = sum;
}

/* ---- host */

static rt_launch_spec elements(const char *name, size_t n_rows, size_t n_cols)
{
    return rt_launch_spec{name, grid_of(divide_up(n_cols, THREADS), n_rows), THREADS, 0, false};
}

static rt_launch_spec heads(const char *name, size_t n_rows, size_t n_heads)
{
    return rt_launch_spec{name, grid_of(divide_up(n_heads, GROUPS_A_BLOCK), n_rows), GROUPS_A_BLOCK * RT_GROUP, 0, true};
}

static void rms_norm(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat x, const rf_buf *w, float eps, rf_mat y)
{
    launch(gpu_of(b), {"rms_norm", grid_of(n_rows), THREADS, 0, true}, rms_norm_kernel, mat_of(x), data_of<float>(w),
           n_cols, eps, mat_of(y));
}

static void add(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat x, rf_mat y)
{
    launch(gpu_of(b), elements("add", n_rows, n_cols), add_kernel, n_cols, mat_of(x), mat_of(y));
}

static void silu_mul(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat gate, rf_mat up, rf_mat y)
{
    launch(gpu_of(b), elements("silu_mul", n_rows, n_cols), silu_mul_kernel, n_cols, mat_of(gate), mat_of(up), mat_of(y));
}

static void sigmoid_mul(rf_backend *b, size_t n_rows, size_t n_heads, size_t head_dim, rf_mat x, rf_mat gate,
                        size_t gate_stride)
{
    launch(gpu_of(b), elements("sigmoid_mul", n_rows, n_heads * head_dim), sigmoid_mul_kernel, n_heads * head_dim,
           head_dim, mat_of(x), mat_of(gate), gate_stride);
}

static void gated_norm(rf_backend *b, size_t n_rows, size_t n_heads, size_t head_dim, rf_mat x, const rf_buf *w,
                       float eps, rf_mat z)
{
    launch(gpu_of(b), heads("gated_norm", n_rows, n_heads), gated_norm_kernel, n_heads, head_dim, mat_of(x),
           data_of<float>(w), eps, mat_of(z));
}

static void sanitize(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat x, rf_buf *flag)
{
    launch(gpu_of(b), elements("sanitize", n_rows, n_cols), sanitize_kernel, n_cols, mat_of(x), data_of<int32_t>(flag));
}

static void rope_prepare(rf_backend *b, const rf_batch *batch, rf_rope *rope)
{
    launch(gpu_of(b), elements("rope_prepare", batch->n_rows, rope->half), rope_kernel, batch_of(batch)->view,
           rope->frequency, rope->half, rope->cosine, rope->sine);
}

static void head_norm_rope(rf_backend *b, const rf_batch *batch, const rf_rope *rope, size_t n_heads, size_t head_dim,
                           size_t head_stride, const rf_buf *w, float eps, rf_mat x)
{
    rope_view view = {rope->cosine, rope->sine, rope->half};

    launch(gpu_of(b), heads("head_norm_rope", batch->n_rows, n_heads), head_norm_rope_kernel, view, n_heads, head_dim,
           head_stride, data_of<float>(w), eps, mat_of(x));
}

static void dynamic_conv(rf_backend *b, const rf_batch *batch, size_t n_cols, size_t taps, size_t group, size_t side,
                         rf_mat dyn, const rf_buf *base, rf_mat x, rf_mat y)
{
    launch(gpu_of(b), elements("dynamic_conv", batch->n_rows, n_cols), dynamic_conv_kernel, batch_of(batch)->view, n_cols,
           taps, group, side, mat_of(dyn), data_of<float>(base), mat_of(x), mat_of(y));
}

void basic_ops(rf_ops *ops)
{
    ops->rms_norm = rms_norm;
    ops->add = add;
    ops->silu_mul = silu_mul;
    ops->sigmoid_mul = sigmoid_mul;
    ops->gated_norm = gated_norm;
    ops->sanitize = sanitize;
    ops->rope_prepare = rope_prepare;
    ops->head_norm_rope = head_norm_rope;
    ops->dynamic_conv = dynamic_conv;
}

} /* namespace */
