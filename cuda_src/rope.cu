// Rotary position embedding: turns the pairs (x[j], x[j + d/2]) of each head by an angle of the token and of j.
//
//   out[j] = x[j]*cos - x[j + d/2]*sin, out[j + d/2] = x[j + d/2]*cos + x[j]*sin, for j < d/2
//
//   bytes read tokens*heads*d*s + 2*tokens*(d/2)*4 (float cosines and sines, which all heads of a token share),
//   bytes written tokens*heads*d*s, 3 FLOP an element
//
// What bounds it: the memory, if enough is asked for before a thread waits and the angles are neither computed (sine
// and cosine of large numbers take long) nor asked for by each head again. x is tokens x heads x d, cosines and sines
// are tokens x d/2. d is even: of an odd d the last element is left alone.
//
// The plain version (_f32, _f16) takes one pair at a time. For each it divides numbers of 64 bits, to know its head. It
// asks for the angles once for every head. Those to copy are the wide ones (_f32x4, _f16x8, _bf16x8).
//
// One block walks one token at a time. Any one-dimensional grid and blocks, any sizes, 0 included. Halves: float
// arithmetic, one rounding at the end.
//
// Reference: Su et al., RoFormer, https://arxiv.org/abs/2104.09864; halves are paired as in GPT-NeoX and Llama.

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

// COUNT elements that are loaded and stored 16 bytes at a time.
template <typename T, int COUNT = 16 / sizeof(T)>
struct __align__(16) Pack {
    static constexpr int WIDTH = COUNT;
    T lane[COUNT];
};

template <typename T>
__device__ __forceinline__ void rope_wide(T* out, const T* x, const float* cosines, const float* sines,
                                          long long tokens, int heads, int packs) {
    constexpr int WIDTH = Pack<T>::WIDTH;
    // Trick 1: a thread keeps to its pairs and walks the heads, so that it loads their angles once a token, and divides
    // once.
    const int at_once = blockDim.x / packs, pack = threadIdx.x % packs, first_head = threadIdx.x / packs;
    if (first_head >= at_once || first_head >= heads) return;
#pragma unroll 1
    for (long long token = blockIdx.x; token < tokens; token += gridDim.x) {
        const Pack<T>* from = reinterpret_cast<const Pack<T>*>(x) + token * heads * 2 * packs;
        Pack<T>* to = reinterpret_cast<Pack<T>*>(out) + token * heads * 2 * packs;
        // Trick 2: both halves of the first head are asked for before the angles are waited for.
        int at = first_head * 2 * packs + pack;
        Pack<T> low = from[at], high = from[at + packs];
        const Pack<float, WIDTH> cosine = reinterpret_cast<const Pack<float, WIDTH>*>(cosines)[token * packs + pack];
        const Pack<float, WIDTH> sine = reinterpret_cast<const Pack<float, WIDTH>*>(sines)[token * packs + pack];
#pragma unroll 1
        for (int head = first_head;;) {
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) {
                const float a = static_cast<float>(low.lane[j]), b = static_cast<float>(high.lane[j]);
                low.lane[j] = static_cast<T>(a * cosine.lane[j] - b * sine.lane[j]);
                high.lane[j] = static_cast<T>(b * cosine.lane[j] + a * sine.lane[j]);
            }
            to[at] = low;
            to[at + packs] = high;
            head += at_once;
            if (head >= heads) break;
            at += at_once * 2 * packs;
            low = from[at];
            high = from[at + packs];
        }
    }
}

template <typename T>
__device__ __forceinline__ void rope_plain(T* out, const T* x, const float* cosines, const float* sines,
                                           long long tokens, long long heads, long long d) {
    const long long half = d / 2;
#pragma unroll 1
    for (long long token = blockIdx.x; token < tokens; token += gridDim.x)
#pragma unroll 1
        for (long long i = threadIdx.x; i < heads * half; i += blockDim.x) {
            const long long at = token * heads * d + i / half * d + i % half, angle = token * half + i % half;
            const float a = static_cast<float>(x[at]), b = static_cast<float>(x[at + half]);
            out[at] = static_cast<T>(a * cosines[angle] - b * sines[angle]);
            out[at + half] = static_cast<T>(b * cosines[angle] + a * sines[angle]);
        }
}

template <typename T>
__device__ __forceinline__ void rope(T* out, const T* x, const float* cosines, const float* sines, long long tokens,
                                     long long heads, long long d) {
    constexpr int WIDTH = Pack<T>::WIDTH;
    const long long half = d / 2;
    const unsigned long long bits = (unsigned long long)out | (unsigned long long)x | (unsigned long long)cosines |
                                    (unsigned long long)sines;
    // The heads of a token are counted in 32 bits.
    if (bits % 16 == 0 && d % (2 * WIDTH) == 0 && d > 0 && half / WIDTH <= blockDim.x && heads * d < 1ll << 31)
        return rope_wide(out, x, cosines, sines, tokens, static_cast<int>(heads), static_cast<int>(half / WIDTH));
    rope_plain(out, x, cosines, sines, tokens, heads, d);
}

extern "C" __global__ void rope_f32(float* __restrict__ out, const float* __restrict__ in,
                                    const float* __restrict__ cosines, const float* __restrict__ sines,
                                    long long tokens, long long heads, long long d) {
    rope_plain(out, in, cosines, sines, tokens, heads, d);
}
extern "C" __global__ void rope_f16(__half* __restrict__ out, const __half* __restrict__ in,
                                    const float* __restrict__ cosines, const float* __restrict__ sines,
                                    long long tokens, long long heads, long long d) {
    rope_plain(out, in, cosines, sines, tokens, heads, d);
}
extern "C" __global__ void rope_f32x4(float* __restrict__ out, const float* __restrict__ in,
                                      const float* __restrict__ cosines, const float* __restrict__ sines,
                                      long long tokens, long long heads, long long d) {
    rope(out, in, cosines, sines, tokens, heads, d);
}
extern "C" __global__ void rope_f16x8(__half* __restrict__ out, const __half* __restrict__ in,
                                      const float* __restrict__ cosines, const float* __restrict__ sines,
                                      long long tokens, long long heads, long long d) {
    rope(out, in, cosines, sines, tokens, heads, d);
}
extern "C" __global__ void rope_bf16x8(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ in,
                                       const float* __restrict__ cosines, const float* __restrict__ sines,
                                       long long tokens, long long heads, long long d) {
    rope(out, in, cosines, sines, tokens, heads, d);
}
