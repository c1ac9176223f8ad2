/* The one place that knows the vendor: CUDA (nvcc), HIP (hipcc), or the emulator (the host's C++ compiler, RT_EMU).
 *
 * What kernels may use: RT_KERNEL and RT_DEVICE functions, rt_thread() .. rt_n_blocks(), rt_sync() (a barrier of the
 * block), rt_shuffle_xor(v, mask) with mask < RT_GROUP, shared arrays (RT_SHARED, RT_SHARED_DYNAMIC, rt_shared<T>),
 * rt_atomic_add (integers only), rt_dot4 and 16-bit floats.
 *
 * A warp has 32 or 64 lanes, and no kernel may depend on which. Lanes work together in groups of RT_GROUP, which every
 * warp holds one or two of; a sum over a group has the same bits on all devices. All lanes of a block take part in every
 * shuffle and barrier. Between two barriers an element of shared memory belongs to one thread, or is only read, or is
 * only changed by rt_atomic_add. */
#ifndef RF_GPU_RT_H
#define RF_GPU_RT_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RT_GROUP 32u        /* lanes: the most that every width has */
#define RT_MAX_THREADS 1024 /* a block */
#define RT_SHARED_BYTES ((size_t)49152) /* a block may have without asking for more */

typedef struct {
    unsigned x, y, z;
} rt_grid;

/* A launch. together: threads of a block synchronise, shuffle or share memory. */
typedef struct {
    const char *name;
    rt_grid grid;
    unsigned n_threads;
    size_t dynamic_bytes;
    bool together;
} rt_launch_spec;

#if defined(__CUDACC__) || defined(__HIPCC__)
#define RF_DEVICE_FN __host__ __device__ /* small functions of ../ that kernels use too */
#endif

#if defined(RT_EMU)

/* ================================================================ emulator */

#include "emu.h"

#define RT_SPACE rf_gpu_emu
#define RT_NAME "emu"
#define RT_VENDOR_FUNCTION rf_gpu_vendor_emu
#define RT_KERNEL static void
#define RT_DEVICE static inline
#define RT_UNROLL

typedef struct { /* everything is done when the call returns */
    unsigned width;
    uint64_t order;
} rt_stream;
typedef int rt_event;

namespace RT_SPACE {

static inline unsigned rt_thread() { return rf_emu_here.thread; }
static inline unsigned rt_n_threads() { return rf_emu_here.n_threads; }
static inline unsigned rt_block() { return rf_emu_here.block[0]; }
static inline unsigned rt_block_y() { return rf_emu_here.block[1]; }
static inline unsigned rt_block_z() { return rf_emu_here.block[2]; }
static inline unsigned rt_n_blocks() { return rf_emu_here.n_blocks[0]; }
static inline unsigned rt_n_blocks_y() { return rf_emu_here.n_blocks[1]; }
static inline void rt_sync() { rf_emu_barrier(); }

template <class T> static inline T rt_shuffle_xor(T v, unsigned mask)
{
    uint64_t word = 0;

    memcpy(&word, &v, sizeof v);
    word = rf_emu_shuffle_xor(word, mask);
    memcpy(&v, &word, sizeof v);
    return v;
}

/* An element of a shared array: every read and write is looked at. */
template <class T> struct rt_element {
    rf_emu_array *array;
    size_t i;

    operator T() const { return *static_cast<const T *>(rf_emu_read(array, i)); }
    const rt_element &operator=(T v) const
    {
        *static_cast<T *>(rf_emu_write(array, i)) = v;
        return *this;
    }
    const rt_element &operator=(const rt_element &other) const { return *this = static_cast<T>(other); }
    const rt_element &operator+=(T v) const { return *this = static_cast<T>(*this) + v; }
};

template <class T> struct rt_shared {
    rf_emu_array *array;
    size_t offset;

    rt_element<T> operator[](size_t i) const { return rt_element<T>{array, offset + i}; }
    rt_shared operator+(size_t n) const { return rt_shared{array, offset + n}; }
};

#define RT_SHARED(type, name, count) rt_shared<type> name = {rf_emu_shared(sizeof(type), (count)), 0}
#define RT_SHARED_DYNAMIC(type, name) rt_shared<type> name = {rf_emu_shared(sizeof(type), SIZE_MAX), 0}

/* Returns the value before. */
static inline uint32_t rt_atomic_add(const rt_element<uint32_t> &e, uint32_t v)
{
    uint32_t *p = static_cast<uint32_t *>(rf_emu_atomic(e.array, e.i)), before = *p;

    *p += v;
    return before;
}

static inline void rt_atomic_add(uint64_t *p, uint64_t v) { *p += v; }

/* acc + the dot product of four int8 */
static inline int32_t rt_dot4(int32_t a, int32_t b, int32_t acc)
{
    int8_t x[4], y[4];

    memcpy(x, &a, sizeof a);
    memcpy(y, &b, sizeof b);
    for (int i = 0; i < 4; i++)
        acc += x[i] * y[i];
    return acc;
}

} /* namespace */

#include "../half.h"

namespace RT_SPACE {

static inline float rt_f16_to_f32(uint16_t h) { return rf_f16_to_f32(h); }
static inline uint16_t rt_f32_to_f16(float f) { return rf_f32_to_f16(f); }
static inline float rt_bits_to_f32(uint32_t bits) { return rf_bits_to_f32(bits); }
static inline uint32_t rt_f32_to_bits(float f) { return rf_f32_to_bits(f); }
static inline int rt_leading_zeros(uint32_t v) { return v ? __builtin_clz(v) : 32; }

/* ---- host side: NULL or a sentence */

static inline const char *rt_error() { return rf_emu_take_error(); }
static inline const char *rt_malloc(void **p, size_t bytes) { return (*p = rf_emu_alloc(bytes)) ? NULL : "out of memory"; }
static inline void rt_free(void *p, size_t bytes) { rf_emu_free(p, bytes); }
static inline const char *rt_pinned(void **p, size_t bytes) { return (*p = calloc(1, bytes)) ? NULL : "out of memory"; }
static inline void rt_pinned_free(void *p) { free(p); }
static inline const char *rt_open(int device, rt_stream *stream)
{
    stream->width = (unsigned)device;
    stream->order = rf_emu_order();
    return device == 32 || device == 64 ? NULL : "an emulated GPU has 32 or 64 lanes a warp";
}
static inline void rt_close(rt_stream) {}
static inline const char *rt_event_create(rt_event *) { return NULL; }
static inline void rt_event_destroy(rt_event) {}
static inline void rt_event_record(rt_event, rt_stream) {}
static inline void rt_event_wait(rt_event) {}
static inline void rt_to_device(void *to, const void *from, size_t bytes, rt_stream) { memcpy(to, from, bytes); }
static inline void rt_to_host(void *to, const void *from, size_t bytes, rt_stream) { memcpy(to, from, bytes); }
static inline void rt_zero(void *p, size_t bytes, rt_stream) { memset(p, 0, bytes); }
static inline const char *rt_wait(rt_stream) { return rt_error(); }
static inline int rt_count() { return 1; }
static inline size_t rt_free_memory() { return 0; }

static inline void rt_describe(int device, char *text, size_t size)
{
    snprintf(text, size, "emulated GPU, %d lanes a warp", device);
}


/* Kernel arguments are copied once a launch; a lambda carries them through the emulator's untyped call. */
template <class K, class... A> static inline void rt_launch(rt_stream stream, const rt_launch_spec &s, K kernel, A... a)
{
    auto call = [=]() { kernel(a...); };
    rf_emu_launch launch = {s.name, {s.grid.x, s.grid.y, s.grid.z}, s.n_threads, s.dynamic_bytes, s.together};

    rf_emu_set(stream.width, stream.order);
    rf_emu_run(&launch, [](const void *context) { (*static_cast<const decltype(call) *>(context))(); }, &call);
}

} /* namespace */

#else

/* ================================================================ CUDA and HIP: the same calls under two names */

#if defined(__HIPCC__)
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>
#define RT_SPACE rf_gpu_hip
#define RT_NAME "hip"
#define RT_VENDOR_FUNCTION rf_gpu_vendor_hip
#define RT_VENDOR(name) hip##name
#define RT_HOST_FLAGS hipHostMallocDefault
#define RT_HOST_ALLOC hipHostMalloc
#define RT_HOST_FREE hipHostFree
#else
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define RT_SPACE rf_gpu_cuda
#define RT_NAME "cuda"
#define RT_VENDOR_FUNCTION rf_gpu_vendor_cuda
#define RT_VENDOR(name) cuda##name
#define RT_HOST_FLAGS cudaHostAllocDefault
#define RT_HOST_ALLOC cudaHostAlloc
#define RT_HOST_FREE cudaFreeHost
#endif

#define RT_KERNEL static __global__ void
#define RT_DEVICE static __device__ __forceinline__
#define RT_UNROLL _Pragma("unroll")

typedef RT_VENDOR(Stream_t) rt_stream;
typedef RT_VENDOR(Event_t) rt_event;

namespace RT_SPACE {

RT_DEVICE unsigned rt_thread() { return threadIdx.x; }
RT_DEVICE unsigned rt_n_threads() { return blockDim.x; }
RT_DEVICE unsigned rt_block() { return blockIdx.x; }
RT_DEVICE unsigned rt_block_y() { return blockIdx.y; }
RT_DEVICE unsigned rt_block_z() { return blockIdx.z; }
RT_DEVICE unsigned rt_n_blocks() { return gridDim.x; }
RT_DEVICE unsigned rt_n_blocks_y() { return gridDim.y; }
RT_DEVICE void rt_sync() { __syncthreads(); }

template <class T> RT_DEVICE T rt_shuffle_xor(T v, unsigned mask)
{
#if defined(__HIPCC__)
    return __shfl_xor(v, (int)mask);
#else
    return __shfl_xor_sync(0xffffffffu, v, (int)mask);
#endif
}

template <class T> using rt_shared = T *;

#define RT_SHARED(type, name, count) __shared__ type name[count]
#define RT_SHARED_DYNAMIC(type, name)                                  \
    extern __shared__ __align__(16) unsigned char rt_dynamic_memory[]; \
    type *name = reinterpret_cast<type *>(rt_dynamic_memory)

RT_DEVICE uint32_t rt_atomic_add(uint32_t &e, uint32_t v) { return atomicAdd(&e, v); }
RT_DEVICE void rt_atomic_add(uint64_t *p, uint64_t v)
{
    atomicAdd(reinterpret_cast<unsigned long long *>(p), static_cast<unsigned long long>(v));
}

RT_DEVICE int32_t rt_dot4(int32_t a, int32_t b, int32_t acc)
{
#if defined(__CUDA_ARCH__)
    return __dp4a(a, b, acc);
#elif defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1200__) || defined(__gfx1201__)
    return __builtin_amdgcn_sudot4(true, a, true, b, acc, false);
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx942__) || \
    defined(__gfx1011__) || defined(__gfx1012__) || defined(__gfx1030__) || defined(__gfx1031__) || defined(__gfx1032__)
    return __builtin_amdgcn_sdot4(a, b, acc, false);
#else
    for (int i = 0; i < 32; i += 8)
        acc += (int32_t)(int8_t)(a >> i) * (int32_t)(int8_t)(b >> i);
    return acc;
#endif
}

RT_DEVICE float rt_f16_to_f32(uint16_t h) { return __half2float(__ushort_as_half(h)); }
RT_DEVICE uint16_t rt_f32_to_f16(float f) { return __half_as_ushort(__float2half_rn(f)); }
RT_DEVICE float rt_bits_to_f32(uint32_t bits) { return __uint_as_float(bits); }
RT_DEVICE uint32_t rt_f32_to_bits(float f) { return __float_as_uint(f); }
RT_DEVICE int rt_leading_zeros(uint32_t v) { return __clz((int)v); }

/* ---- host side: NULL or a sentence */

static inline const char *rt_said(RT_VENDOR(Error_t) code)
{
    return code == RT_VENDOR(Success) ? NULL : RT_VENDOR(GetErrorString)(code);
}

static inline const char *rt_error() { return rt_said(RT_VENDOR(GetLastError)()); }
static inline const char *rt_malloc(void **p, size_t bytes)
{
    const char *error = rt_said(RT_VENDOR(Malloc)(p, bytes));

    (void)RT_VENDOR(GetLastError)(); /* refused memory is not a fault of the device */
    return error;
}
static inline void rt_free(void *p, size_t) { (void)RT_VENDOR(Free)(p); }
static inline const char *rt_pinned(void **p, size_t bytes)
{
    const char *error = rt_said(RT_HOST_ALLOC(p, bytes, RT_HOST_FLAGS));

    (void)RT_VENDOR(GetLastError)();
    return error;
}
static inline void rt_pinned_free(void *p) { (void)RT_HOST_FREE(p); }
static inline const char *rt_open(int device, rt_stream *stream)
{
    const char *error = rt_said(RT_VENDOR(SetDevice)(device));

    return error ? error : rt_said(RT_VENDOR(StreamCreateWithFlags)(stream, RT_VENDOR(StreamNonBlocking)));
}
static inline void rt_close(rt_stream stream) { (void)RT_VENDOR(StreamDestroy)(stream); }
static inline const char *rt_event_create(rt_event *event)
{
    return rt_said(RT_VENDOR(EventCreateWithFlags)(event, RT_VENDOR(EventDisableTiming)));
}
static inline void rt_event_destroy(rt_event event) { (void)RT_VENDOR(EventDestroy)(event); }
static inline void rt_event_record(rt_event event, rt_stream stream) { (void)RT_VENDOR(EventRecord)(event, stream); }
static inline void rt_event_wait(rt_event event) { (void)RT_VENDOR(EventSynchronize)(event); }
static inline void rt_to_device(void *to, const void *from, size_t bytes, rt_stream stream)
{
    (void)RT_VENDOR(MemcpyAsync)(to, from, bytes, RT_VENDOR(MemcpyHostToDevice), stream);
}
static inline void rt_to_host(void *to, const void *from, size_t bytes, rt_stream stream)
{
    (void)RT_VENDOR(MemcpyAsync)(to, from, bytes, RT_VENDOR(MemcpyDeviceToHost), stream);
}
static inline void rt_zero(void *p, size_t bytes, rt_stream stream)
{
    (void)RT_VENDOR(MemsetAsync)(p, 0, bytes, stream);
}
static inline const char *rt_wait(rt_stream stream)
{
    const char *error = rt_said(RT_VENDOR(StreamSynchronize)(stream)), *launch = rt_error();

    return launch ? launch : error; /* a refused launch (no image for this card) comes first */
}
static inline int rt_count()
{
    int n = 0;

    if (RT_VENDOR(GetDeviceCount)(&n) != RT_VENDOR(Success)) {
        (void)RT_VENDOR(GetLastError)();
        return 0;
    }
    return n;
}
static inline size_t rt_free_memory()
{
    size_t left = 0, all = 0;

    return RT_VENDOR(MemGetInfo)(&left, &all) == RT_VENDOR(Success) ? left : 0;
}
static inline void rt_describe(int device, char *text, size_t size)
{
#if defined(__HIPCC__)
    hipDeviceProp_t p;
#else
    cudaDeviceProp p;
#endif

    if (RT_VENDOR(GetDeviceProperties)(&p, device) != RT_VENDOR(Success)) {
        snprintf(text, size, "GPU %d", device);
        return;
    }
    snprintf(text, size, "%.90s, %zu MiB, PCI %04x:%02x:%02x", p.name, p.totalGlobalMem >> 20, (unsigned)p.pciDomainID,
             (unsigned)p.pciBusID, (unsigned)p.pciDeviceID);
}

template <class K, class... A> static inline void rt_launch(rt_stream stream, const rt_launch_spec &s, K kernel, A... a)
{
    kernel<<<dim3(s.grid.x, s.grid.y, s.grid.z), dim3(s.n_threads), s.dynamic_bytes, stream>>>(a...);
}

} /* namespace */

#endif

#endif
