/* What kernels share: the one exp, sigmoid and softplus, sums over lanes, 16-bit and mixed loads.
 *
 * Orders of this backend (they are its own; the CPU's are in backend.h). "A group" is RT_GROUP = 32 lanes whatever the
 * width of a warp. A sum over lanes l = 0 .. n-1 (n a power of two): lane l adds lane l xor n/2, then xor n/4, .. xor 1,
 * so that all lanes hold the same bits. */
#ifndef RF_GPU_DEVICE_H
#define RF_GPU_DEVICE_H

#include "gpu_rt.h"

namespace RT_SPACE {

/* exp within 1.5 ulp: n = round(x / ln 2), r = x - n ln 2 in two steps, a polynomial of degree 7 on |r| <= 0.347, scaled
 * by 2^n in two exact steps. exp(-inf) = 0, exp of 89 and more is infinite, NaN stays: bit for bit the CPU's. */
RT_DEVICE float rt_pow2(float n) { return rt_bits_to_f32((uint32_t)((int32_t)n + 127) << 23); }

RT_DEVICE float rt_exp(float x)
{
    float t = x > -105.0f ? x : -105.0f, n, r, p, half;

    t = t < 89.0f ? t : 89.0f;
    n = rintf(t * 1.44269504088896341f);
    r = fmaf(n, -0.693145751953125f, t);
    r = fmaf(n, -1.42860682030941723212e-6f, r);
    p = 1.98412698e-4f;
    p = fmaf(p, r, 1.38888889e-3f);
    p = fmaf(p, r, 8.33333333e-3f);
    p = fmaf(p, r, 4.16666667e-2f);
    p = fmaf(p, r, 1.66666667e-1f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    half = rintf(n * 0.5f);
    p = p * rt_pow2(half) * rt_pow2(n - half);
    return x != x ? x : p;
}

RT_DEVICE float rt_sigmoid(float x) { return 1.0f / (1.0f + rt_exp(0.0f - x)); }
RT_DEVICE float rt_silu(float x) { return x * rt_sigmoid(x); }

/* log(1 + e^x) within 2 ulp: max(x, 0) + log(1 + e), e = exp(-|x|), by the series of 2 artanh(e / (2 + e)) */
RT_DEVICE float rt_softplus(float x)
{
    float below = x < 0.0f - x ? x : 0.0f - x, e = rt_exp(below), s = e / (2.0f + e), square = s * s, p;

    p = 2.0f / 15;
    p = fmaf(p, square, 2.0f / 13);
    p = fmaf(p, square, 2.0f / 11);
    p = fmaf(p, square, 2.0f / 9);
    p = fmaf(p, square, 2.0f / 7);
    p = fmaf(p, square, 2.0f / 5);
    p = fmaf(p, square, 2.0f / 3);
    return (x > 0.0f ? x : 0.0f) + fmaf(s * square, p, s + s);
}

/* Over n neighbouring lanes, n a power of two and at most RT_GROUP */
RT_DEVICE float rt_lanes_sum(float v, unsigned n)
{
    for (unsigned mask = n / 2; mask; mask /= 2)
        v = v + rt_shuffle_xor(v, mask);
    return v;
}

/* Sums of V values over LANES lanes, both powers of two: rt_lanes_sum of each, but in every step a lane keeps half of
 * the values and hands its neighbour the other half. In the end a lane holds V / LANES sums (at least one), that of
 * value *index and those behind it. Lanes that would hold the same one say it is not theirs. */
template <unsigned LANES, int V> RT_DEVICE bool share_sums(float (&v)[V], unsigned *index)
{
    unsigned lane = rt_thread() % LANES, at = 0, mask = LANES / 2;
    bool mine = true;

    RT_UNROLL
    for (int half = V / 2; half >= 1 && mask; half /= 2, mask /= 2) {
        bool upper = (lane & mask) != 0;

        RT_UNROLL
        for (int i = 0; i < half; i++) {
            float theirs = upper ? v[i] : v[i + half], own = upper ? v[i + half] : v[i];

            v[i] = own + rt_shuffle_xor(theirs, mask);
        }
        at += upper ? (unsigned)half : 0;
    }
    for (; mask; mask /= 2) {
        v[0] = v[0] + rt_shuffle_xor(v[0], mask);
        mine = mine && !(lane & mask);
    }
    *index = at;
    return mine;
}

template <unsigned LANES, int V> struct sums_held {
    static const int COUNT = V / (int)LANES > 1 ? V / (int)LANES : 1;
};

RT_DEVICE float rt_group_sum(float v) { return rt_lanes_sum(v, RT_GROUP); }

/* NaN counts as less than everything */
RT_DEVICE float rt_group_max(float v)
{
    for (unsigned mask = RT_GROUP / 2; mask; mask /= 2) {
        float other = rt_shuffle_xor(v, mask);

        v = other > v || v != v ? other : v;
    }
    return v;
}

/* Over a block of whole groups: group sums, added in ascending order. scratch: [n_threads / RT_GROUP + 1]. Two barriers;
 * the scratch may be used again after the next one. */
RT_DEVICE float rt_block_sum(float v, rt_shared<float> scratch)
{
    unsigned n_groups = rt_n_threads() / RT_GROUP;

    v = rt_group_sum(v);
    if (rt_thread() % RT_GROUP == 0)
        scratch[rt_thread() / RT_GROUP] = v;
    rt_sync();
    if (rt_thread() == 0) {
        float sum = scratch[0];

        for (unsigned i = 1; i < n_groups; i++)
            sum = sum + scratch[i];
        scratch[n_groups] = sum;
    }
    rt_sync();
    return scratch[n_groups];
}

/* Element i of an array of RF_TYPE_F32 (half false) or RF_TYPE_F16 */
RT_DEVICE float rt_load(const void *p, bool half, size_t i)
{
    return half ? rt_f16_to_f32(static_cast<const uint16_t *>(p)[i]) : static_cast<const float *>(p)[i];
}

/* 16 bytes that are read at once */
struct alignas(16) four_words {
    int32_t v[4];
};

} /* namespace */

#endif
