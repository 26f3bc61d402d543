// Streams: the plainest kernels there are, and so the ceilings that all others are held against.
//
//   kernel   result                 bytes read   bytes written   FLOP      n elements of s bytes
//   read     (nothing, see below)   n*s          0               0
//   write    out = value            0            n*s             0
//   copy     out = in               n*s          n*s             0
//   scale    out = scalar*in        n*s          n*s             n
//   add      out = a + b            2n*s         n*s             n
//   triad    out = b + scalar*c     2n*s         n*s             2n
//
// What bounds them: the memory, if a thread asks for enough before it waits. By Little's law that is what fills a fast
// memory: CUB wants 16 KiB in flight on each multiprocessor of an A100, 48 on an H200 and 64 on a B200
// (cub/device/dispatch/tuning, transform).
//
//   _f32, _f16, _f64            plain: one element at a time. Each of 2048 threads has one load of 4 bytes under way,
//                               which is 8 KiB on a multiprocessor, and executes as many instructions for it as for
//                               16 bytes. A half takes as many as a float.
//   _f32x4, _f16x8, _bf16x8     wide, those to copy: 16 bytes an access, the widest there is before Blackwell, and 64
//                               bytes of loads under way in each thread. To a copy, bfloat16 are as good as halves.
//
// Every kernel takes any grid of one-dimensional blocks and any n, 0 included. Arrays must not overlap. Scalars of the
// kernels for halves are float: a storage format here, the arithmetic is done in float and rounded once.
//
// Reference: McCalpin, STREAM, https://www.cs.virginia.edu/stream/ref.html (copy, scale, add, triad);
// Deakin et al., BabelStream, https://github.com/UoB-HPC/BabelStream.

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has both kinds of halves built in
#include <hip/hip_bfloat16.h>
#include <hip/hip_fp16.h>
#endif
typedef hip_bfloat16 __nv_bfloat16;
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

// What a type is computed in.
template <typename T>
struct Arithmetic {
    typedef T type;
};
template <>
struct Arithmetic<__half> {
    typedef float type;
};
template <typename T>
using ArithmeticOf = typename Arithmetic<T>::type;

// A grid-stride loop lets any grid cover any n: thread i takes elements i, i + threads, i + 2*threads ... Neighbouring
// threads take neighbouring elements, so that a warp's accesses fall into as few 32-byte sectors as can be.
//
// `unroll 1`: before a loop unrolled by four each thread divides 64-bit numbers, to know how many rounds it has: forty
// instructions, where it mostly has one round.
__device__ __forceinline__ long long thread_index() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
__device__ __forceinline__ long long thread_count() { return gridDim.x * (long long)blockDim.x; }

// ---- one element at a time ------------------------------------------------------------------------------------------

// A kernel that only reads has no result, so the compiler would remove it. The sum is therefore stored if it equals
// `never`. Pass NaN, which equals nothing: the store never happens, and the compiler cannot know that.
template <typename T, typename W>
__device__ __forceinline__ void read(W* sink, const T* in, W never, long long n) {
    W sum = 0;
#pragma unroll 1
    for (long long i = thread_index(); i < n; i += thread_count()) sum += static_cast<W>(in[i]);
    if (sum == never) *sink = sum;
}

template <typename T, typename W>
__device__ __forceinline__ void write(T* out, W value, long long n) {
#pragma unroll 1
    for (long long i = thread_index(); i < n; i += thread_count()) out[i] = static_cast<T>(value);
}

template <typename T>
__device__ __forceinline__ void copy(T* out, const T* in, long long n) {
#pragma unroll 1
    for (long long i = thread_index(); i < n; i += thread_count()) out[i] = in[i];
}

template <typename T, typename W>
__device__ __forceinline__ void scale(T* out, const T* in, W scalar, long long n) {
#pragma unroll 1
    for (long long i = thread_index(); i < n; i += thread_count())
        out[i] = static_cast<T>(scalar * static_cast<W>(in[i]));
}

template <typename T>
__device__ __forceinline__ void add(T* out, const T* a, const T* b, long long n) {
    typedef ArithmeticOf<T> W;
#pragma unroll 1
    for (long long i = thread_index(); i < n; i += thread_count())
        out[i] = static_cast<T>(static_cast<W>(a[i]) + static_cast<W>(b[i]));
}

template <typename T, typename W>
__device__ __forceinline__ void triad(T* a, const T* b, const T* c, W scalar, long long n) {
#pragma unroll 1
    for (long long i = thread_index(); i < n; i += thread_count())
        a[i] = static_cast<T>(static_cast<W>(b[i]) + scalar * static_cast<W>(c[i]));
}

extern "C" __global__ void read_f32(float* __restrict__ sink, const float* __restrict__ in, float never, long long n) {
    read(sink, in, never, n);
}
extern "C" __global__ void read_f16(float* __restrict__ sink, const __half* __restrict__ in, float never, long long n) {
    read(sink, in, never, n);
}
extern "C" __global__ void read_f64(double* __restrict__ sink, const double* __restrict__ in, double never,
                                    long long n) {
    read(sink, in, never, n);
}
extern "C" __global__ void write_f32(float* __restrict__ out, float value, long long n) { write(out, value, n); }
extern "C" __global__ void write_f16(__half* __restrict__ out, float value, long long n) { write(out, value, n); }
extern "C" __global__ void write_f64(double* __restrict__ out, double value, long long n) { write(out, value, n); }

extern "C" __global__ void copy_f32(float* __restrict__ out, const float* __restrict__ in, long long n) {
    copy(out, in, n);
}
extern "C" __global__ void copy_f16(__half* __restrict__ out, const __half* __restrict__ in, long long n) {
    copy(out, in, n);
}
extern "C" __global__ void copy_f64(double* __restrict__ out, const double* __restrict__ in, long long n) {
    copy(out, in, n);
}

extern "C" __global__ void scale_f32(float* __restrict__ out, const float* __restrict__ in, float scalar, long long n) {
    scale(out, in, scalar, n);
}
extern "C" __global__ void scale_f16(__half* __restrict__ out, const __half* __restrict__ in, float scalar,
                                     long long n) {
    scale(out, in, scalar, n);
}
extern "C" __global__ void scale_f64(double* __restrict__ out, const double* __restrict__ in, double scalar,
                                     long long n) {
    scale(out, in, scalar, n);
}
extern "C" __global__ void add_f32(float* __restrict__ out, const float* __restrict__ a, const float* __restrict__ b,
                                   long long n) {
    add(out, a, b, n);
}
extern "C" __global__ void add_f16(__half* __restrict__ out, const __half* __restrict__ a, const __half* __restrict__ b,
                                   long long n) {
    add(out, a, b, n);
}
extern "C" __global__ void add_f64(double* __restrict__ out, const double* __restrict__ a, const double* __restrict__ b,
                                   long long n) {
    add(out, a, b, n);
}
extern "C" __global__ void triad_f32(float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
                                     float scalar, long long n) {
    triad(a, b, c, scalar, n);
}
extern "C" __global__ void triad_f16(__half* __restrict__ a, const __half* __restrict__ b, const __half* __restrict__ c,
                                     float scalar, long long n) {
    triad(a, b, c, scalar, n);
}
extern "C" __global__ void triad_f64(double* __restrict__ a, const double* __restrict__ b, const double* __restrict__ c,
                                     double scalar, long long n) {
    triad(a, b, c, scalar, n);
}

// ---- 16 bytes at a time: copy these ---------------------------------------------------------------------------------

// 16 bytes that are loaded and stored with one instruction each: float4, or eight halves.
template <typename T>
struct __align__(16) Pack {
    static constexpr int WIDTH = 16 / sizeof(T);
    T lane[WIDTH];
};

template <typename T>
__device__ __forceinline__ Pack<T> load(const T* in, long long pack) {
    return reinterpret_cast<const Pack<T>*>(in)[pack];
}
template <typename T>
__device__ __forceinline__ void store(T* out, long long pack, const Pack<T>& value) {
    reinterpret_cast<Pack<T>*>(out)[pack] = value;
}

// Packs in n elements. None where an array does not begin on a 16-byte boundary (a view with an odd offset), because
// such an access would fault. The elements that no pack covers are taken one at a time.
template <typename T>
__device__ __forceinline__ long long packs_in(long long n, const T* a, const T* b = nullptr, const T* c = nullptr) {
    unsigned long long bits = reinterpret_cast<unsigned long long>(a) | reinterpret_cast<unsigned long long>(b) |
                              reinterpret_cast<unsigned long long>(c);
    return bits % sizeof(Pack<T>) == 0 ? n / Pack<T>::WIDTH : 0;
}

// Trick 1, bytes in flight. A thread loads 64 bytes, of one array or of two, before it uses the first of them. The
// loads are in a loop of their own: a store between them would hold back the loads behind it.
template <int COUNT, typename T>
__device__ __forceinline__ void load_all(Pack<T> (&packs)[COUNT], const T* in, unsigned int stride) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k) packs[k] = load(in, threadIdx.x + k * stride);
}

// Trick 2, indices. Blocks take turns at tiles of COUNT packs a thread. Where a tile begins takes 64 bits, but is the
// same for all threads, which costs one instruction a warp and none a thread; inside of a tile 32 bits do.
template <int COUNT, typename T, typename OfTile>
__device__ __forceinline__ void for_tiles(long long packs, OfTile of_tile) {
    const unsigned int tile = COUNT * blockDim.x;
#pragma unroll 1
    for (long long first = blockIdx.x * (long long)tile; first < packs; first += gridDim.x * (long long)tile) {
        const long long left = packs - first;
        of_tile(first * Pack<T>::WIDTH, left < tile ? static_cast<unsigned int>(left) : tile);
    }
}

template <typename T>
__device__ __forceinline__ float sum_of(const Pack<T>& x) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < x.WIDTH; ++j) sum += static_cast<float>(x.lane[j]);
    return sum;
}

template <typename T>
__device__ __forceinline__ void read_wide(float* sink, const T* in, float never, long long n) {
    constexpr int COUNT = 4;
    float sum = 0;
    const long long packs = packs_in(n, in);
    for_tiles<COUNT, T>(packs, [&](long long first, unsigned int count) {
        if (count == COUNT * blockDim.x) {
            Pack<T> x[COUNT];
            load_all(x, in + first, blockDim.x);
#pragma unroll
            for (int k = 0; k < COUNT; ++k) sum += sum_of(x[k]);
        } else {
#pragma unroll 1
            for (unsigned int i = threadIdx.x; i < count; i += blockDim.x) sum += sum_of(load(in + first, i));
        }
    });
#pragma unroll 1
    for (long long i = packs * Pack<T>::WIDTH + thread_index(); i < n; i += thread_count())
        sum += static_cast<float>(in[i]);
    if (sum == never) *sink = sum;
}

// out = operation(a, b), element by element, of so many inputs: none, a, or a and b.
template <int INPUTS, typename T, typename Operation>
__device__ __forceinline__ void map_wide(T* out, const T* a, const T* b, Operation operation, long long n) {
    constexpr int COUNT = INPUTS == 2 ? 2 : 4;
    const long long packs = packs_in(n, out, a, b);
    auto of_pack = [&](Pack<T> x, const Pack<T>& y) {
#pragma unroll
        for (int j = 0; j < x.WIDTH; ++j) x.lane[j] = operation(x.lane[j], y.lane[j]);
        return x;
    };
    for_tiles<COUNT, T>(packs, [&](long long first, unsigned int count) {
        Pack<T> x[COUNT] = {}, y[COUNT] = {};
        if (count == COUNT * blockDim.x) {
            if (INPUTS > 0) load_all(x, a + first, blockDim.x);
            if (INPUTS > 1) load_all(y, b + first, blockDim.x);
#pragma unroll
            for (int k = 0; k < COUNT; ++k) store(out + first, threadIdx.x + k * blockDim.x, of_pack(x[k], y[k]));
        } else {
#pragma unroll 1
            for (unsigned int i = threadIdx.x; i < count; i += blockDim.x) {
                if (INPUTS > 0) x[0] = load(a + first, i);
                if (INPUTS > 1) y[0] = load(b + first, i);
                store(out + first, i, of_pack(x[0], y[0]));
            }
        }
    });
#pragma unroll 1
    for (long long i = packs * Pack<T>::WIDTH + thread_index(); i < n; i += thread_count())
        out[i] = operation(INPUTS > 0 ? a[i] : T(), INPUTS > 1 ? b[i] : T());
}

// What each kernel does with an element of each input.
template <typename T>
struct Fill {
    T value;
    __device__ T operator()(T, T) const { return value; }
};
template <typename T>
struct Copy {
    __device__ T operator()(T x, T) const { return x; }
};
template <typename T>
struct Scale {
    float scalar;
    __device__ T operator()(T x, T) const { return static_cast<T>(scalar * static_cast<float>(x)); }
};
template <typename T>
struct Add {
    __device__ T operator()(T x, T y) const { return static_cast<T>(static_cast<float>(x) + static_cast<float>(y)); }
};
template <typename T>
struct Triad {
    float scalar;
    __device__ T operator()(T x, T y) const {
        return static_cast<T>(static_cast<float>(x) + scalar * static_cast<float>(y));
    }
};

extern "C" __global__ void read_f32x4(float* __restrict__ sink, const float* __restrict__ in, float never,
                                      long long n) {
    read_wide(sink, in, never, n);
}
extern "C" __global__ void read_f16x8(float* __restrict__ sink, const __half* __restrict__ in, float never,
                                      long long n) {
    read_wide(sink, in, never, n);
}
extern "C" __global__ void read_bf16x8(float* __restrict__ sink, const __nv_bfloat16* __restrict__ in, float never,
                                       long long n) {
    read_wide(sink, in, never, n);
}
extern "C" __global__ void write_f32x4(float* __restrict__ out, float value, long long n) {
    map_wide<0>(out, out, out, Fill<float>{value}, n);
}
extern "C" __global__ void write_f16x8(__half* __restrict__ out, float value, long long n) {
    map_wide<0>(out, out, out, Fill<__half>{static_cast<__half>(value)}, n);
}
extern "C" __global__ void write_bf16x8(__nv_bfloat16* __restrict__ out, float value, long long n) {
    map_wide<0>(out, out, out, Fill<__nv_bfloat16>{static_cast<__nv_bfloat16>(value)}, n);
}
extern "C" __global__ void copy_f32x4(float* __restrict__ out, const float* __restrict__ in, long long n) {
    map_wide<1>(out, in, in, Copy<float>{}, n);
}
extern "C" __global__ void copy_f16x8(__half* __restrict__ out, const __half* __restrict__ in, long long n) {
    map_wide<1>(out, in, in, Copy<__half>{}, n);
}
extern "C" __global__ void scale_f32x4(float* __restrict__ out, const float* __restrict__ in, float scalar,
                                       long long n) {
    map_wide<1>(out, in, in, Scale<float>{scalar}, n);
}
extern "C" __global__ void scale_f16x8(__half* __restrict__ out, const __half* __restrict__ in, float scalar,
                                       long long n) {
    map_wide<1>(out, in, in, Scale<__half>{scalar}, n);
}
extern "C" __global__ void scale_bf16x8(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ in,
                                        float scalar, long long n) {
    map_wide<1>(out, in, in, Scale<__nv_bfloat16>{scalar}, n);
}
extern "C" __global__ void add_f32x4(float* __restrict__ out, const float* __restrict__ a, const float* __restrict__ b,
                                     long long n) {
    map_wide<2>(out, a, b, Add<float>{}, n);
}
extern "C" __global__ void add_f16x8(__half* __restrict__ out, const __half* __restrict__ a,
                                     const __half* __restrict__ b, long long n) {
    map_wide<2>(out, a, b, Add<__half>{}, n);
}
extern "C" __global__ void add_bf16x8(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ a,
                                      const __nv_bfloat16* __restrict__ b, long long n) {
    map_wide<2>(out, a, b, Add<__nv_bfloat16>{}, n);
}
extern "C" __global__ void triad_f32x4(float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
                                       float scalar, long long n) {
    map_wide<2>(a, b, c, Triad<float>{scalar}, n);
}
extern "C" __global__ void triad_f16x8(__half* __restrict__ a, const __half* __restrict__ b,
                                       const __half* __restrict__ c, float scalar, long long n) {
    map_wide<2>(a, b, c, Triad<__half>{scalar}, n);
}
extern "C" __global__ void triad_bf16x8(__nv_bfloat16* __restrict__ a, const __nv_bfloat16* __restrict__ b,
                                        const __nv_bfloat16* __restrict__ c, float scalar, long long n) {
    map_wide<2>(a, b, c, Triad<__nv_bfloat16>{scalar}, n);
}
