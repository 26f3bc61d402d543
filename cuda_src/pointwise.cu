// Pointwise chains: what fusing element-wise operations saves.
//
// Two chains, each operation a kernel of its own (unfused) or all in one kernel (fused):
//
//   chain                       unfused launches        bytes moved     fused               bytes moved     FLOP
//   bias -> relu -> dropout     bias, relu, dropout     6n*s            bias_relu_dropout   2n*s            3n
//   cos(cos(x))                 cos, cos                4n*s            cos_cos             2n*s            2n
//
// The first is the tail of a linear layer. Unfused, every intermediate goes to memory and comes back; fused, it stays
// in a register. The FLOP are the same, and nearly free: these kernels wait for memory.
//
// Dropout draws from a counter-based generator: element i is kept or dropped by a hash of (seed, i), so that the fused
// and the unfused chain drop the same elements, in any launch geometry, without a mask in memory.
//
// Any grid of one-dimensional blocks, any n, 0 included. Arrays must not overlap. 0 <= probability < 1.
// f16: float arithmetic; unfused rounds after every launch, fused once.
//
// Reference: He, Making Deep Learning Go Brrrr From First Principles, https://horace.io/brrr_intro.html;
// the hash is the finaliser of MurmurHash3 (Appleby, public domain).

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has halves built in
#include <hip/hip_fp16.h>
#endif
#else
#include <cuda_fp16.h>
#endif

__device__ __forceinline__ long long thread_index() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
__device__ __forceinline__ long long thread_count() { return gridDim.x * (long long)blockDim.x; }

// A number in [0, 1) that depends on (seed, i) only: 24 bits of a hash, as many as a float holds exactly.
__device__ __forceinline__ float uniform(unsigned int seed, long long i) {
    unsigned int h = static_cast<unsigned int>(i) ^ seed;
    h ^= static_cast<unsigned int>(i >> 32) * 0x9e3779b9u;
    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    h ^= h >> 16;
    return (h >> 8) * (1.0f / 16777216.0f);
}

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
        return x * (uniform(seed, i) >= probability ? 1.0f / (1.0f - probability) : 0.0f);
    }
};
// The hardware's cosine: absolute error up to 2^-20.9 for |x| <= pi, and no table look-ups to hide what is measured.
struct Cos {
    __device__ float operator()(float x, long long) const { return __cosf(x); }
};

template <typename T, typename Operation>
__device__ __forceinline__ void map(T* out, const T* in, Operation operation, long long n) {
#pragma unroll 4
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
