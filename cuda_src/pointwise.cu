// Pointwise chains: what fusing element-wise operations saves.
//
// Two chains, each operation a kernel of its own (unfused) or all in one kernel (fused), and a gate:
//
//   chain                       unfused launches        bytes moved     fused               bytes moved     FLOP
//   bias -> relu -> dropout     bias, relu, dropout     6n*s            bias_relu_dropout   2n*s            3n
//   cos(cos(x))                 cos, cos                4n*s            cos_cos             2n*s            2n
//   silu(gate)*up               (none here)                             swiglu              3n*s            5n
//
// The first is the tail of a linear layer, SwiGLU the middle of a transformer's feed-forward layer. Unfused, every
// intermediate goes to memory and comes back; fused, it stays in a register. The FLOP are the same, and nearly free.
//
// What bounds them: the memory, if enough is asked for before a thread waits. The plain versions (_f32, _f16) ask for 4
// or 2 bytes a thread, and have an index of 64 bits and a hash for each element. So fused is no faster by the byte than
// one of its stages. The wide ones (_f32x4, _f16x8, _bf16x8), those to copy, ask for 64 bytes a thread. For halves, and
// for dropout on sm_80, the assembler puts off one or two of the four loads, so that more threads have registers: 32 to
// 64 bytes a thread are under way, and never less than 48 KiB on a multiprocessor.
//
// Dropout draws from a counter-based generator: element i is kept or dropped by a hash of (seed, i), so that the fused
// and the unfused chain drop the same elements, in any launch geometry, without a mask in memory. The wide version has
// one hash for four elements, and so drops others than the plain ones.
//
// Any grid of one-dimensional blocks, any n, 0 included. Arrays must not overlap. 0 <= probability < 1.
// Halves: float arithmetic; unfused rounds after every launch, fused once.
//
// Reference: He, Making Deep Learning Go Brrrr From First Principles, https://horace.io/brrr_intro.html;
// Shazeer, GLU Variants Improve Transformer, https://arxiv.org/abs/2002.05202;
// the hash is the finaliser of MurmurHash3 (Appleby, public domain).

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

__device__ __forceinline__ long long thread_index() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
__device__ __forceinline__ long long thread_count() { return gridDim.x * (long long)blockDim.x; }

// 32 bits that depend on (seed, i) only.
__device__ __forceinline__ unsigned int hash(unsigned int seed, long long i) {
    unsigned int h = static_cast<unsigned int>(i) ^ seed;
    h ^= static_cast<unsigned int>(i >> 32) * 0x9e3779b9u;
    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    return h ^ (h >> 16);
}

// A number in [0, 1) of 24 bits, as many as a float holds exactly.
__device__ __forceinline__ float uniform(unsigned int h) { return (h >> 8) * (1.0f / 16777216.0f); }

// The operations, on values. A struct with operator() is what C++ makes of a lambda; here it carries the scalars.
struct Bias {
    float bias;
    __device__ float operator()(float x, long long) const { return x + bias; }
};
struct Relu {
    __device__ float operator()(float x, long long) const { return x > 0.0f ? x : 0.0f; }
};
struct Dropout {
    float probability;
    unsigned int seed;
    __device__ float operator()(float x, long long i) const {
        // A product rather than a choice, or the compiler would not even load what is dropped.
        return x * (uniform(hash(seed, i)) >= probability ? 1.0f / (1.0f - probability) : 0.0f);
    }
};
// The hardware's cosine: absolute error up to 2^-20.9 for |x| <= pi, and no table look-ups to hide what is measured.
struct Cos {
    __device__ float operator()(float x, long long) const { return __cosf(x); }
};

// ---- one element at a time ------------------------------------------------------------------------------------------

template <typename T, typename Operation>
__device__ __forceinline__ void map(T* out, const T* in, Operation operation, long long n) {
#pragma unroll 1  // unrolled, each thread would divide 64-bit numbers first: see stream.cu
    for (long long i = thread_index(); i < n; i += thread_count())
        out[i] = static_cast<T>(operation(static_cast<float>(in[i]), i));
}

// Two operations one after the other, the value between them in a register: this is all that fusion is.
template <typename First, typename Second>
struct Then {
    First first;
    Second second;
    __device__ float operator()(float x, long long i) const { return second(first(x, i), i); }
};
template <typename First, typename Second>
__device__ __forceinline__ Then<First, Second> then(First f, Second s) {
    return Then<First, Second>{f, s};
}

extern "C" __global__ void bias_f32(float* __restrict__ out, const float* __restrict__ in, float bias, long long n) {
    map(out, in, Bias{bias}, n);
}
extern "C" __global__ void bias_f16(__half* __restrict__ out, const __half* __restrict__ in, float bias, long long n) {
    map(out, in, Bias{bias}, n);
}
extern "C" __global__ void relu_f32(float* __restrict__ out, const float* __restrict__ in, long long n) {
    map(out, in, Relu{}, n);
}
extern "C" __global__ void relu_f16(__half* __restrict__ out, const __half* __restrict__ in, long long n) {
    map(out, in, Relu{}, n);
}

extern "C" __global__ void dropout_f32(float* __restrict__ out, const float* __restrict__ in, float probability,
                                       unsigned int seed, long long n) {
    map(out, in, Dropout{probability, seed}, n);
}
extern "C" __global__ void dropout_f16(__half* __restrict__ out, const __half* __restrict__ in, float probability,
                                       unsigned int seed, long long n) {
    map(out, in, Dropout{probability, seed}, n);
}
extern "C" __global__ void bias_relu_dropout_f32(float* __restrict__ out, const float* __restrict__ in, float bias,
                                                 float probability, unsigned int seed, long long n) {
    map(out, in, then(then(Bias{bias}, Relu{}), Dropout{probability, seed}), n);
}
extern "C" __global__ void bias_relu_dropout_f16(__half* __restrict__ out, const __half* __restrict__ in, float bias,
                                                 float probability, unsigned int seed, long long n) {
    map(out, in, then(then(Bias{bias}, Relu{}), Dropout{probability, seed}), n);
}
extern "C" __global__ void cos_f32(float* __restrict__ out, const float* __restrict__ in, long long n) {
    map(out, in, Cos{}, n);
}
extern "C" __global__ void cos_f16(__half* __restrict__ out, const __half* __restrict__ in, long long n) {
    map(out, in, Cos{}, n);
}
extern "C" __global__ void cos_cos_f32(float* __restrict__ out, const float* __restrict__ in, long long n) {
    map(out, in, then(Cos{}, Cos{}), n);
}
extern "C" __global__ void cos_cos_f16(__half* __restrict__ out, const __half* __restrict__ in, long long n) {
    map(out, in, then(Cos{}, Cos{}), n);
}

// SwiGLU as it is written in a paper: one division and one exponential an element, and two loads before it waits.
template <typename T>
__device__ __forceinline__ void swiglu(T* out, const T* gate, const T* up, long long n) {
#pragma unroll 1
    for (long long i = thread_index(); i < n; i += thread_count()) {
        const float x = static_cast<float>(gate[i]);
        out[i] = static_cast<T>(x / (1.0f + expf(-x)) * static_cast<float>(up[i]));
    }
}

extern "C" __global__ void swiglu_f32(float* __restrict__ out, const float* __restrict__ gate,
                                      const float* __restrict__ up, long long n) {
    swiglu(out, gate, up, n);
}
extern "C" __global__ void swiglu_f16(__half* __restrict__ out, const __half* __restrict__ gate,
                                      const __half* __restrict__ up, long long n) {
    swiglu(out, gate, up, n);
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

// Trick 1, one hash for four neighbours: each takes a product of its own of it, one multiplication where a hash has two
// and five more instructions. The first is the hash itself.
__device__ __forceinline__ float uniform_of_four(unsigned int h, int neighbour) {
    constexpr unsigned int MULTIPLIERS[4] = {1u, 0x9e3779b1u, 0x85ebca77u, 0xc2b2ae3du};
    return uniform(h * MULTIPLIERS[neighbour]);
}

// The operations: what four neighbours share, of which element i is one, and an element of each input.
struct WideBiasReluDropout {
    float bias, probability, scale;
    unsigned int seed;
    __device__ unsigned int shared_by_four(long long i) const { return hash(seed, i / 4); }
    __device__ float operator()(float x, float, unsigned int h, int neighbour) const {
        return Relu{}(x + bias, 0) * (uniform_of_four(h, neighbour) >= probability ? scale : 0.0f);
    }
};
struct WideCosCos {
    __device__ unsigned int shared_by_four(long long) const { return 0; }
    __device__ float operator()(float x, float, unsigned int, int) const { return __cosf(__cosf(x)); }
};
// silu(x) = x / (1 + exp(-x)). Trick 2: the hardware has exp2 and an approximate division, and log2(e) goes into the
// constant. Where exp2 overflows, the quotient is -0.
struct SwiGlu {
    __device__ unsigned int shared_by_four(long long) const { return 0; }
    __device__ float operator()(float gate, float up, unsigned int, int) const {
        return __fdividef(gate, 1.0f + exp2f(-1.4426950408889634f * gate)) * up;
    }
};

// out = operation(a, b), as in stream.cu: tiles, all loads of one before its first store, 32-bit indices inside of it.
template <int INPUTS, typename T, typename Operation>
__device__ __forceinline__ void map_wide(T* out, const T* a, const T* b, Operation operation, long long n) {
    constexpr int COUNT = INPUTS == 2 ? 2 : 4, WIDTH = Pack<T>::WIDTH;
    unsigned long long addresses = reinterpret_cast<unsigned long long>(out) | reinterpret_cast<unsigned long long>(a) |
                                   reinterpret_cast<unsigned long long>(b);
    // A view that does not begin on a 16-byte boundary has no packs: its elements are taken one at a time.
    const long long packs = addresses % sizeof(Pack<T>) == 0 ? n / WIDTH : 0;
    const unsigned int tile = COUNT * blockDim.x;
#pragma unroll 1
    for (long long first = blockIdx.x * (long long)tile; first < packs; first += gridDim.x * (long long)tile) {
        const unsigned int count = packs - first < tile ? static_cast<unsigned int>(packs - first) : tile;
        const T *a_tile = a + first * WIDTH, *b_tile = b + first * WIDTH;
        auto write = [&](unsigned int i, const Pack<T>& x, const Pack<T>& y) {
            Pack<T> result;
#pragma unroll
            for (int four = 0; four < WIDTH; four += 4) {
                unsigned int shared = operation.shared_by_four((first + i) * WIDTH + four);
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    result.lane[four + j] = static_cast<T>(operation(
                        static_cast<float>(x.lane[four + j]), static_cast<float>(y.lane[four + j]), shared, j));
            }
            reinterpret_cast<Pack<T>*>(out + first * WIDTH)[i] = result;
        };
        Pack<T> x[COUNT], y[COUNT];
        if (count == tile) {
#pragma unroll
            for (int k = 0; k < COUNT; ++k) {
                x[k] = load(a_tile, threadIdx.x + k * blockDim.x);
                if (INPUTS == 2) y[k] = load(b_tile, threadIdx.x + k * blockDim.x);
            }
#pragma unroll
            for (int k = 0; k < COUNT; ++k) write(threadIdx.x + k * blockDim.x, x[k], INPUTS == 2 ? y[k] : x[k]);
        } else {
#pragma unroll 1
            for (unsigned int i = threadIdx.x; i < count; i += blockDim.x) {
                x[0] = load(a_tile, i);
                if (INPUTS == 2) y[0] = load(b_tile, i);
                write(i, x[0], INPUTS == 2 ? y[0] : x[0]);
            }
        }
    }
#pragma unroll 1
    for (long long i = packs * WIDTH + thread_index(); i < n; i += thread_count())
        out[i] = static_cast<T>(operation(static_cast<float>(a[i]), static_cast<float>(b[i]),
                                          operation.shared_by_four(i), static_cast<int>(i % 4)));
}

extern "C" __global__ void bias_relu_dropout_f32x4(float* __restrict__ out, const float* __restrict__ in, float bias,
                                                   float probability, unsigned int seed, long long n) {
    map_wide<1>(out, in, in, WideBiasReluDropout{bias, probability, 1.0f / (1.0f - probability), seed}, n);
}
extern "C" __global__ void cos_cos_f32x4(float* __restrict__ out, const float* __restrict__ in, long long n) {
    map_wide<1>(out, in, in, WideCosCos{}, n);
}
extern "C" __global__ void swiglu_f32x4(float* __restrict__ out, const float* __restrict__ gate,
                                        const float* __restrict__ up, long long n) {
    map_wide<2>(out, gate, up, SwiGlu{}, n);
}
extern "C" __global__ void bias_relu_dropout_f16x8(__half* __restrict__ out, const __half* __restrict__ in, float bias,
                                                   float probability, unsigned int seed, long long n) {
    map_wide<1>(out, in, in, WideBiasReluDropout{bias, probability, 1.0f / (1.0f - probability), seed}, n);
}
extern "C" __global__ void cos_cos_f16x8(__half* __restrict__ out, const __half* __restrict__ in, long long n) {
    map_wide<1>(out, in, in, WideCosCos{}, n);
}
extern "C" __global__ void swiglu_f16x8(__half* __restrict__ out, const __half* __restrict__ gate,
                                        const __half* __restrict__ up, long long n) {
    map_wide<2>(out, gate, up, SwiGlu{}, n);
}
extern "C" __global__ void bias_relu_dropout_bf16x8(__nv_bfloat16* __restrict__ out,
                                                    const __nv_bfloat16* __restrict__ in, float bias, float probability,
                                                    unsigned int seed, long long n) {
    map_wide<1>(out, in, in, WideBiasReluDropout{bias, probability, 1.0f / (1.0f - probability), seed}, n);
}
extern "C" __global__ void cos_cos_bf16x8(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ in,
                                          long long n) {
    map_wide<1>(out, in, in, WideCosCos{}, n);
}
extern "C" __global__ void swiglu_bf16x8(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ gate,
                                         const __nv_bfloat16* __restrict__ up, long long n) {
    map_wide<2>(out, gate, up, SwiGlu{}, n);
}
