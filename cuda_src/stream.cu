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
// Versions: _f32, _f16 and _f64 access one element at a time; _f32x4 and _f16x8 access 16 bytes at a time, the widest
// load there is before Blackwell, which asks for the same bytes with a quarter or an eighth of the instructions; and
// they have 64 bytes of loads under way in each thread. By Little's law that is what fills a fast memory: CUB wants
// 16 KiB in flight on each multiprocessor of an A100, 48 on an H200 and 64 on a B200 (cub/device/dispatch/tuning,
// transform), and one load of 4 bytes in each of 2048 threads is 8.
//
// Every kernel takes any grid of one-dimensional blocks and any n, 0 included. Arrays must not overlap. Scalars of the
// f16 kernels are float: half is a storage format here, the arithmetic is done in float and rounded once.
//
// Reference: McCalpin, STREAM, https://www.cs.virginia.edu/stream/ref.html (copy, scale, add, triad);
// Deakin et al., BabelStream, https://github.com/UoB-HPC/BabelStream.

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has halves built in
#include <hip/hip_fp16.h>
#endif
#else
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
__device__ __forceinline__ long long thread_index() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
__device__ __forceinline__ long long thread_count() { return gridDim.x * (long long)blockDim.x; }

// ---- one element at a time ------------------------------------------------------------------------------------------

// A kernel that only reads has no result, so the compiler would remove it. The sum is therefore stored if it equals
// `never`. Pass NaN, which equals nothing: the store never happens, and the compiler cannot know that.
template <typename T, typename W>
__device__ __forceinline__ void read(W* sink, const T* in, W never, long long n) {
    W sum = 0;
    for (long long i = thread_index(); i < n; i += thread_count()) sum += static_cast<W>(in[i]);
    if (sum == never) *sink = sum;
}

template <typename T, typename W>
__device__ __forceinline__ void write(T* out, W value, long long n) {
    for (long long i = thread_index(); i < n; i += thread_count()) out[i] = static_cast<T>(value);
}

template <typename T>
__device__ __forceinline__ void copy(T* out, const T* in, long long n) {
    for (long long i = thread_index(); i < n; i += thread_count()) out[i] = in[i];
}

template <typename T, typename W>
__device__ __forceinline__ void scale(T* out, const T* in, W scalar, long long n) {
    for (long long i = thread_index(); i < n; i += thread_count())
        out[i] = static_cast<T>(scalar * static_cast<W>(in[i]));
}

template <typename T>
__device__ __forceinline__ void add(T* out, const T* a, const T* b, long long n) {
    typedef ArithmeticOf<T> W;
    for (long long i = thread_index(); i < n; i += thread_count())
        out[i] = static_cast<T>(static_cast<W>(a[i]) + static_cast<W>(b[i]));
}

template <typename T, typename W>
__device__ __forceinline__ void triad(T* a, const T* b, const T* c, W scalar, long long n) {
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

// ---- 16 bytes at a time ---------------------------------------------------------------------------------------------

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
// such an access would fault. The elements that no pack covers are left to the one-at-a-time loops above.
template <typename T>
__device__ __forceinline__ long long packs_in(long long n, const T* a, const T* b = nullptr, const T* c = nullptr) {
    unsigned long long bits = reinterpret_cast<unsigned long long>(a) | reinterpret_cast<unsigned long long>(b) |
                              reinterpret_cast<unsigned long long>(c);
    return bits % sizeof(Pack<T>) == 0 ? n / Pack<T>::WIDTH : 0;
}

// Packs that a thread loads before it uses the first, of one array or of two: 64 bytes.
constexpr int AHEAD = 4, AHEAD_OF_TWO = 2;

template <int COUNT, typename T>
__device__ __forceinline__ void load_ahead(Pack<T> (&packs)[COUNT], const T* in, long long first, long long step) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k) packs[k] = load(in, first + k * step);
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
    float sum = 0;
    long long packs = packs_in(n, in), i = thread_index(), step = thread_count();
    for (; i + (AHEAD - 1) * step < packs; i += AHEAD * step) {
        Pack<T> x[AHEAD];
        load_ahead(x, in, i, step);
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) sum += sum_of(x[k]);
    }
    for (; i < packs; i += step) sum += sum_of(load(in, i));
    for (long long i = packs * Pack<T>::WIDTH + thread_index(); i < n; i += thread_count())
        sum += static_cast<float>(in[i]);
    if (sum == never) *sink = sum;
}

template <typename T>
__device__ __forceinline__ void write_wide(T* out, float value, long long n) {
    long long packs = packs_in(n, out), done = packs * Pack<T>::WIDTH;
    Pack<T> filled;
#pragma unroll
    for (int j = 0; j < filled.WIDTH; ++j) filled.lane[j] = static_cast<T>(value);
    for (long long i = thread_index(); i < packs; i += thread_count()) store(out, i, filled);
    write(out + done, value, n - done);
}

template <typename T>
__device__ __forceinline__ void copy_wide(T* out, const T* in, long long n) {
    long long packs = packs_in(n, out, in), done = packs * Pack<T>::WIDTH, i = thread_index(), step = thread_count();
    for (; i + (AHEAD - 1) * step < packs; i += AHEAD * step) {
        Pack<T> x[AHEAD];
        load_ahead(x, in, i, step);
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) store(out, i + k * step, x[k]);
    }
    for (; i < packs; i += step) store(out, i, load(in, i));
    copy(out + done, in + done, n - done);
}

template <typename T>
__device__ __forceinline__ Pack<T> scaled(Pack<T> x, float scalar) {
#pragma unroll
    for (int j = 0; j < x.WIDTH; ++j) x.lane[j] = static_cast<T>(scalar * static_cast<float>(x.lane[j]));
    return x;
}

template <typename T>
__device__ __forceinline__ void scale_wide(T* out, const T* in, float scalar, long long n) {
    long long packs = packs_in(n, out, in), done = packs * Pack<T>::WIDTH, i = thread_index(), step = thread_count();
    for (; i + (AHEAD - 1) * step < packs; i += AHEAD * step) {
        Pack<T> x[AHEAD];
        load_ahead(x, in, i, step);
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) store(out, i + k * step, scaled(x[k], scalar));
    }
    for (; i < packs; i += step) store(out, i, scaled(load(in, i), scalar));
    scale(out + done, in + done, scalar, n - done);
}

template <typename T>
__device__ __forceinline__ Pack<T> added(Pack<T> x, const Pack<T>& y) {
#pragma unroll
    for (int j = 0; j < x.WIDTH; ++j)
        x.lane[j] = static_cast<T>(static_cast<float>(x.lane[j]) + static_cast<float>(y.lane[j]));
    return x;
}

template <typename T>
__device__ __forceinline__ void add_wide(T* out, const T* a, const T* b, long long n) {
    long long packs = packs_in(n, out, a, b), done = packs * Pack<T>::WIDTH, i = thread_index(), step = thread_count();
    for (; i + (AHEAD_OF_TWO - 1) * step < packs; i += AHEAD_OF_TWO * step) {
        Pack<T> x[AHEAD_OF_TWO], y[AHEAD_OF_TWO];
        load_ahead(x, a, i, step);
        load_ahead(y, b, i, step);
#pragma unroll
        for (int k = 0; k < AHEAD_OF_TWO; ++k) store(out, i + k * step, added(x[k], y[k]));
    }
    for (; i < packs; i += step) store(out, i, added(load(a, i), load(b, i)));
    add(out + done, a + done, b + done, n - done);
}

template <typename T>
__device__ __forceinline__ Pack<T> added_scaled(Pack<T> x, const Pack<T>& y, float scalar) {
#pragma unroll
    for (int j = 0; j < x.WIDTH; ++j)
        x.lane[j] = static_cast<T>(static_cast<float>(x.lane[j]) + scalar * static_cast<float>(y.lane[j]));
    return x;
}

template <typename T>
__device__ __forceinline__ void triad_wide(T* a, const T* b, const T* c, float scalar, long long n) {
    long long packs = packs_in(n, a, b, c), done = packs * Pack<T>::WIDTH, i = thread_index(), step = thread_count();
    for (; i + (AHEAD_OF_TWO - 1) * step < packs; i += AHEAD_OF_TWO * step) {
        Pack<T> x[AHEAD_OF_TWO], y[AHEAD_OF_TWO];
        load_ahead(x, b, i, step);
        load_ahead(y, c, i, step);
#pragma unroll
        for (int k = 0; k < AHEAD_OF_TWO; ++k) store(a, i + k * step, added_scaled(x[k], y[k], scalar));
    }
    for (; i < packs; i += step) store(a, i, added_scaled(load(b, i), load(c, i), scalar));
    triad(a + done, b + done, c + done, scalar, n - done);
}

extern "C" __global__ void read_f32x4(float* __restrict__ sink, const float* __restrict__ in, float never,
                                      long long n) {
    read_wide(sink, in, never, n);
}
extern "C" __global__ void read_f16x8(float* __restrict__ sink, const __half* __restrict__ in, float never,
                                      long long n) {
    read_wide(sink, in, never, n);
}
extern "C" __global__ void write_f32x4(float* __restrict__ out, float value, long long n) { write_wide(out, value, n); }
extern "C" __global__ void write_f16x8(__half* __restrict__ out, float value, long long n) {
    write_wide(out, value, n);
}

extern "C" __global__ void copy_f32x4(float* __restrict__ out, const float* __restrict__ in, long long n) {
    copy_wide(out, in, n);
}
extern "C" __global__ void copy_f16x8(__half* __restrict__ out, const __half* __restrict__ in, long long n) {
    copy_wide(out, in, n);
}

extern "C" __global__ void scale_f32x4(float* __restrict__ out, const float* __restrict__ in, float scalar,
                                       long long n) {
    scale_wide(out, in, scalar, n);
}
extern "C" __global__ void scale_f16x8(__half* __restrict__ out, const __half* __restrict__ in, float scalar,
                                       long long n) {
    scale_wide(out, in, scalar, n);
}
extern "C" __global__ void add_f32x4(float* __restrict__ out, const float* __restrict__ a, const float* __restrict__ b,
                                     long long n) {
    add_wide(out, a, b, n);
}
extern "C" __global__ void add_f16x8(__half* __restrict__ out, const __half* __restrict__ a,
                                     const __half* __restrict__ b, long long n) {
    add_wide(out, a, b, n);
}
extern "C" __global__ void triad_f32x4(float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
                                       float scalar, long long n) {
    triad_wide(a, b, c, scalar, n);
}
extern "C" __global__ void triad_f16x8(__half* __restrict__ a, const __half* __restrict__ b,
                                       const __half* __restrict__ c, float scalar, long long n) {
    triad_wide(a, b, c, scalar, n);
}
