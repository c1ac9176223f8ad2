#include "gpu/device.h"

#include "emu_kernels.h"

namespace RT_SPACE {

#define THREADS 64

RT_KERNEL fine(float *out)
{
    RT_SHARED(float, x, THREADS);
    RT_SHARED(float, scratch, THREADS / RT_GROUP + 1);
    float sum;

    x[rt_thread()] = (float)rt_thread();
    rt_sync();
    sum = rt_block_sum(x[THREADS - 1 - rt_thread()], scratch);
    if (rt_thread() == 0)
        out[rt_block()] = sum;
}

RT_KERNEL race_read(float *out)
{
    RT_SHARED(float, x, THREADS);

    x[rt_thread()] = 0;
    rt_sync();
    x[rt_thread()] = 1;
    out[rt_block()] = x[rt_thread() ^ 1];
    rt_sync();
}

RT_KERNEL race_write(float *out)
{
    RT_SHARED(float, x, THREADS);

    x[rt_thread() / 2] = 1;
    rt_sync();
    out[rt_block()] = x[0];
}

RT_KERNEL histogram(float *out, bool atomic)
{
    RT_SHARED(uint32_t, bins, 4);

    if (rt_thread() < 4)
        bins[rt_thread()] = 0;
    rt_sync();
    if (atomic)
        rt_atomic_add(bins[rt_thread() % 4], 1);
    else
        bins[rt_thread() % 4] += 1;
    rt_sync();
    if (rt_thread() == 0)
        out[rt_block()] = (float)bins[0] + (float)bins[3];
}

RT_KERNEL out_of_bounds(float *out)
{
    RT_SHARED(float, x, THREADS);

    x[rt_thread() + 1] = 1;
    rt_sync();
    out[rt_block()] = x[rt_thread()];
}

RT_KERNEL dynamic_too_far(float *out)
{
    RT_SHARED_DYNAMIC(float, x);
    rt_shared<float> tail = x + THREADS / 2;

    tail[rt_thread()] = 1;
    rt_sync();
    out[rt_block()] = x[0];
}

RT_KERNEL uninitialised(float *out)
{
    RT_SHARED(float, x, THREADS);

    if (rt_thread() != 7)
        x[rt_thread()] = 1;
    rt_sync();
    out[rt_block()] = x[rt_thread()];
}

RT_KERNEL leftover(float *out)
{
    RT_SHARED(float, x, THREADS);

    if (rt_block() == 0)
        x[rt_thread()] = 1;
    rt_sync();
    out[rt_block()] = x[rt_thread()];
}

RT_KERNEL missed_barrier(float *out)
{
    if (rt_thread() / RT_GROUP == 0)
        rt_sync();
    out[rt_block()] = 1;
}

RT_KERNEL diverged_shuffle(float *out)
{
    float v = 1;

    if (rt_thread() % RT_GROUP < 16)
        v = rt_shuffle_xor(v, 1);
    out[rt_block()] = v;
}

RT_KERNEL too_much(float *out)
{
    RT_SHARED(float, x, 8000);
    RT_SHARED(float, y, 8000);

    x[rt_thread()] = y[rt_thread()] = 1;
    out[rt_block()] = 1;
}

/* Wrong, though no two threads touch an element between two barriers: whoever comes first adds first. */
RT_KERNEL order_matters(float *sums)
{
    float x = 1.0f / (float)(rt_thread() + 1);

    rt_sync();
    sums[rt_block()] = sums[rt_block()] + x;
}

} /* namespace */

using namespace RT_SPACE;

void emu_run_case(emu_case which, unsigned width, uint64_t order, float *out)
{
    rt_stream stream = {width, order};
    rt_launch_spec s = {"case", {2, 1, 1}, THREADS, THREADS * sizeof(float), true};

    switch (which) {
    case EMU_FINE: rt_launch(stream, s, fine, out); break;
    case EMU_RACE_READ: rt_launch(stream, s, race_read, out); break;
    case EMU_RACE_WRITE: rt_launch(stream, s, race_write, out); break;
    case EMU_RACE_HISTOGRAM: rt_launch(stream, s, histogram, out, false); break;
    case EMU_HISTOGRAM: rt_launch(stream, s, histogram, out, true); break;
    case EMU_OUT_OF_BOUNDS: rt_launch(stream, s, out_of_bounds, out); break;
    case EMU_DYNAMIC_TOO_FAR: rt_launch(stream, s, dynamic_too_far, out); break;
    case EMU_UNINITIALISED: rt_launch(stream, s, uninitialised, out); break;
    case EMU_LEFTOVER: rt_launch(stream, s, leftover, out); break;
    case EMU_MISSED_BARRIER: rt_launch(stream, s, missed_barrier, out); break;
    case EMU_DIVERGED_SHUFFLE: rt_launch(stream, s, diverged_shuffle, out); break;
    case EMU_NOT_TOGETHER:
        s.together = false;
        rt_launch(stream, s, fine, out);
        break;
    case EMU_TOO_MUCH: rt_launch(stream, s, too_much, out); break;
    case EMU_ORDER: rt_launch(stream, s, order_matters, out); break;
    }
}
