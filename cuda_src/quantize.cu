// Rows in 8 bits with a scale each, as int8 or FP8 (e4m3), and back; and blocks of 32 in FP8 (MXFP8).
//
//   kernel            result                                               bytes moved         FLOP
//   quantize_int8_    scale = max|x|/127, code = x*(127/max|x|), rounded   n*s + n + 4*rows    3n    (n elements)
//   quantize_fp8_     the same with 448, the largest number of e4m3        n*s + n + 4*rows    3n
//   quantize_mxfp8_   scale = 2^(floor(log2(max|x|)) - 8) of a block    n*s + n + n/32      3n
//                     of 32 elements, code = x/scale, rounded
//   dequantize_       out = code*scale                                     n*s + n + 4*rows    n
//
// What bounds it: memory, as long as a conversion takes a few instructions. Versions of quantize:
//   plain       reads the row twice, an element at a time, and converts one by one.
//   registers   copy this one: the row stays in registers, as in softmax.cu; two are converted at a time, for which Ada
//               and later GPUs have an instruction.
// The plain version of MXFP8 gives each thread a block: neighbours are 128 or 64 bytes apart, 32 sectors a request.
// The plain version of dequantize (_f32, _f16) loads one byte a thread; copy the wide ones (_f32x4, _f16x8, _bf16x8).
//
// e4m3 is a sign, 4 bits of exponent (127 becomes 7) and 3 of mantissa; 0x7f is NaN, and there is no infinity. A row of
// zeros has scale 0. A NaN is NaN in FP8, 0 in int8, and counts for no maximum; of a row with an infinity nothing is
// left. MXFP8's scales are the exponent of a float, 0 to 254, and 255 is NaN, which a block with an infinity has; what
// is larger than 448 after scaling becomes 448, as the specification has it.
//
// Any one-dimensional grid, blocks of whole warps, any sizes, 0 included.
//
// Reference: Micikevicius et al., FP8 Formats for Deep Learning, https://arxiv.org/abs/2209.05433;
// OCP Microscaling Formats (MX) Specification 1.0, section 6.3.

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has both kinds of halves built in
#include <hip/hip_bfloat16.h>
#include <hip/hip_fp16.h>
#endif
typedef hip_bfloat16 __nv_bfloat16;
#define SHUFFLE_XOR(value, lanes) __shfl_xor(value, lanes, 32)
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define SHUFFLE_XOR(value, lanes) __shfl_xor_sync(0xffffffffu, value, lanes)
#endif

struct Int8 {
    typedef signed char Code;
    static constexpr float LARGEST = 127.0f;
    static __device__ unsigned int code(float x) { return __float2int_rn(x) & 0xff; }
    static __device__ unsigned int codes(float low, float high) { return code(low) | code(high) << 8; }
    static __device__ float value(unsigned int code) { return static_cast<Code>(code); }
};

struct Fp8 {
    typedef unsigned char Code;
    static constexpr float LARGEST = 448.0f;
    static __device__ unsigned int code(float x) {
        const float size = fminf(fabsf(x), LARGEST);
        const unsigned int sign = __float_as_uint(x) >> 24 & 0x80, bits = __float_as_uint(size);
        // Trick: below 2^-6 the numbers are 2^-9 apart, as floats from 2^14 on are, so that an addition rounds to them.
        const unsigned int small = __float_as_uint(size + 16384.0f) - __float_as_uint(16384.0f);
        // Of other mantissas 20 bits go, to the nearest, ties to even; what is carried goes to the exponent.
        const unsigned int large = (bits + 0x7ffff + (bits >> 20 & 1) - (120u << 23)) >> 20;
        return x == x ? sign | (size < 0.015625f ? small : large) : 0x7f;
    }
    static __device__ unsigned int codes(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
        unsigned short both;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
        return both;
#else
        return code(low) | code(high) << 8;
#endif
    }
    // Trick: its bits in the places of a half's are 2^8 times too small, the smallest ones (subnormal) as well. Of a
    // float's they would be, too, but many a compiler is told to take subnormal floats for zeros (-ftz=true).
    static __device__ float value(unsigned int code) {
        const unsigned short bits = (code & 0x80) << 8 | (code & 0x7f) << 7;
        return (code & 0x7f) == 0x7f ? __uint_as_float(0x7fffffff) : 256.0f * __half2float(__ushort_as_half(bits));
    }
};

// The threads of a row: a warp where its lanes hold it, `held` bytes each, otherwise the block.
struct Share {
    int lane, lanes;
    long long row, at_once;  // the first row of this thread, and how many the grid has at a time
};
__device__ __forceinline__ Share share_of(long long row_bytes, int held) {
    if (row_bytes > 32 * held) return {(int)threadIdx.x, (int)blockDim.x, blockIdx.x, gridDim.x};
    const long long warps = blockDim.x / 32;
    return {(int)threadIdx.x % 32, 32, blockIdx.x * warps + threadIdx.x / 32, gridDim.x * warps};
}

// One barrier is enough where the next row has other words: behind its barrier all have read these.
__device__ __forceinline__ float largest_of_row(float mine, int lanes, float* of_warp) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) mine = fmaxf(mine, SHUFFLE_XOR(mine, apart));
    if (lanes == 32) return mine;
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
    __syncthreads();
#pragma unroll 1
    for (int warp = 0; warp < lanes / 32; ++warp) mine = fmaxf(mine, of_warp[warp]);
    return mine;
}

// Bounded, so that a row of zeros stays one.
template <typename To>
__device__ __forceinline__ float factor_of(float largest) {
    return fminf(To::LARGEST / largest, 3.402823466e38f);
}

template <typename To, typename T>
__device__ __forceinline__ void quantize_plain(typename To::Code* codes, float* scales, const T* in, long long rows,
                                               long long cols) {
    __shared__ float of_warp[2][32];
    int turn = 0;
#pragma unroll 1
    for (long long row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
        const T* x = in + row * cols;
        float largest = 0.0f;
#pragma unroll 1
        for (long long c = threadIdx.x; c < cols; c += blockDim.x) largest = fmaxf(largest, fabsf(x[c]));
        largest = largest_of_row(largest, blockDim.x, of_warp[turn]);
        const float factor = factor_of<To>(largest);
        if (threadIdx.x == 0) scales[row] = largest / To::LARGEST;
#pragma unroll 1
        for (long long c = threadIdx.x; c < cols; c += blockDim.x)
            codes[row * cols + c] = static_cast<typename To::Code>(To::code(static_cast<float>(x[c]) * factor));
    }
}

static constexpr int PACKS = 4;  // of 16 bytes, that a thread has of a row at a time

// 16 bytes of elements, and what as many take in codes.
template <typename T>
struct __align__(16) Pack {
    static constexpr int WIDTH = 16 / sizeof(T);
    T lane[WIDTH];
};
template <typename T>
struct __align__(Pack<T>::WIDTH) Codes {
    unsigned int four[Pack<T>::WIDTH / 4];
};

__device__ __forceinline__ bool aligned(const void* a, const void* b, long long row_bytes) {
    return ((unsigned long long)a | (unsigned long long)b | row_bytes) % 16 == 0;
}

template <typename To, typename T>
__device__ __forceinline__ Codes<T> codes_of(const Pack<T>& from, float factor) {
    Codes<T> result;
    auto codes_at = [&](int j) {
        return To::codes(static_cast<float>(from.lane[j]) * factor, static_cast<float>(from.lane[j + 1]) * factor);
    };
#pragma unroll
    for (int j = 0; j < Pack<T>::WIDTH; j += 4) result.four[j / 4] = codes_at(j) | codes_at(j + 2) << 16;
    return result;
}

template <typename To, typename T>
__device__ __forceinline__ void quantize_registers(typename To::Code* codes, float* scales, const T* in,
                                                   long long rows, long long cols) {
    constexpr int WIDTH = Pack<T>::WIDTH;
    const long long row_bytes = cols * sizeof(T);
    const Share my = share_of(row_bytes, 16 * PACKS);
    if (!aligned(in, codes, row_bytes) || row_bytes > my.lanes * 16 * PACKS)
        return quantize_plain<To>(codes, scales, in, rows, cols);
    __shared__ float of_warp[2][32];
    const int count = cols / WIDTH;
    int turn = 0;
#pragma unroll 1
    for (long long row = my.row; row < rows; row += my.at_once, turn ^= 1) {
        Pack<T> packs[PACKS] = {};
#pragma unroll
        for (int k = 0; k < PACKS; ++k)  // all loads before the first use
            if (my.lane + k * my.lanes < count)
                reinterpret_cast<uint4&>(packs[k]) =
                    reinterpret_cast<const uint4*>(in + row * cols)[my.lane + k * my.lanes];
        float largest = 0.0f;
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) largest = fmaxf(largest, fabsf(packs[k].lane[j]));
        largest = largest_of_row(largest, my.lanes, of_warp[turn]);
        const float factor = factor_of<To>(largest);
        if (my.lane == 0) scales[row] = largest / To::LARGEST;
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            const Codes<T> result = codes_of<To>(packs[k], factor);
            if (my.lane + k * my.lanes < count)
                reinterpret_cast<Codes<T>*>(codes + row * cols)[my.lane + k * my.lanes] = result;
        }
    }
}

template <typename From, typename T>
__device__ __forceinline__ void dequantize_plain(T* out, const typename From::Code* codes, const float* scales,
                                                 long long rows, long long cols) {
#pragma unroll 1
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        const float scale = scales[row];
#pragma unroll 1
        for (long long c = threadIdx.x; c < cols; c += blockDim.x)
            out[row * cols + c] = static_cast<T>(From::value(codes[row * cols + c]) * scale);
    }
}

template <typename From, typename T>
__device__ __forceinline__ void dequantize(T* out, const typename From::Code* codes, const float* scales,
                                           long long rows, long long cols) {
    constexpr int WIDTH = Pack<T>::WIDTH;
    const Share my = share_of(cols * sizeof(T), 16 * PACKS);
    // Packs of a row are counted in 32 bits.
    if (!aligned(out, codes, cols * sizeof(T)) || cols >= 1ll << 31)
        return dequantize_plain<From>(out, codes, scales, rows, cols);
    const int count = static_cast<int>(cols) / WIDTH;
#pragma unroll 1
    for (long long row = my.row; row < rows; row += my.at_once) {
        const float scale = scales[row];
#pragma unroll 1
        for (int first = my.lane; first < count; first += PACKS * my.lanes) {
            Codes<T> from[PACKS];
#pragma unroll
            for (int k = 0; k < PACKS; ++k)
                if (first + k * my.lanes < count)
                    from[k] = reinterpret_cast<const Codes<T>*>(codes + row * cols)[first + k * my.lanes];
#pragma unroll
            for (int k = 0; k < PACKS; ++k) {
                Pack<T> result;
#pragma unroll
                for (int j = 0; j < WIDTH; ++j)
                    result.lane[j] =
                        static_cast<T>(From::value(from[k].four[j / 4] >> 8 * (j % 4) & 0xff) * scale);
                if (first + k * my.lanes < count)
                    reinterpret_cast<Pack<T>*>(out + row * cols)[first + k * my.lanes] = result;
            }
        }
    }
}

// ---- MXFP8: blocks of 32 with a scale each ----

static constexpr int BLOCK = 32;

// Trick: the exponent of a float is a field of its bits, and so is a power of two; no logarithm is taken. The scale
// brings 2^e, the largest power of two that is in the block, to 2^8, that of e4m3. An infinity has the field 255.
__device__ __forceinline__ unsigned int scale_of_block(float largest) {
    const int field = __float_as_uint(largest) >> 23;
    return field == 255 ? 255 : field > 8 ? field - 8 : 0;
}
__device__ __forceinline__ float factor_of_block(unsigned int scale) {  // 2^(127 - scale), NaN of scale 255
    return scale == 255 ? __uint_as_float(0x7fffffff) : __uint_as_float((254 - scale) << 23);
}

template <typename T>
__device__ __forceinline__ void quantize_mxfp8_plain(unsigned char* codes, unsigned char* scales, const T* in,
                                                     long long blocks) {
    for (long long block = blockIdx.x * (long long)blockDim.x + threadIdx.x; block < blocks;
         block += gridDim.x * (long long)blockDim.x) {
        const T* x = in + block * BLOCK;
        float largest = 0.0f;
#pragma unroll 1
        for (int j = 0; j < BLOCK; ++j) largest = fmaxf(largest, fabsf(x[j]));
        const unsigned int scale = scale_of_block(largest);
        const float factor = factor_of_block(scale);
        scales[block] = scale;
#pragma unroll 1
        for (int j = 0; j < BLOCK; ++j) codes[block * BLOCK + j] = Fp8::code(static_cast<float>(x[j]) * factor);
    }
}

template <typename T>
__device__ __forceinline__ void quantize_mxfp8_registers(unsigned char* codes, unsigned char* scales, const T* in,
                                                         long long blocks) {
    constexpr int WIDTH = Pack<T>::WIDTH, LANES_A_BLOCK = BLOCK / WIDTH;
    if (!aligned(in, codes, 0)) return quantize_mxfp8_plain(codes, scales, in, blocks);
    const long long count = blocks * LANES_A_BLOCK, at_once = gridDim.x * (long long)blockDim.x;
    // Whole warps stay in the loop, whose shuffles need every lane.
    for (long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x; first - threadIdx.x % 32 < count;
         first += PACKS * at_once) {
        Pack<T> packs[PACKS] = {};
#pragma unroll
        for (int k = 0; k < PACKS; ++k)  // all loads before the first use
            if (first + k * at_once < count)
                reinterpret_cast<uint4&>(packs[k]) = reinterpret_cast<const uint4*>(in)[first + k * at_once];
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            const long long at = first + k * at_once;
            float largest = 0.0f;
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) largest = fmaxf(largest, fabsf(packs[k].lane[j]));
            // Trick: a block lies in neighbouring lanes, 4 of halves or 8 of floats: two or three shuffles, no barrier.
#pragma unroll
            for (int apart = LANES_A_BLOCK / 2; apart > 0; apart /= 2)
                largest = fmaxf(largest, SHUFFLE_XOR(largest, apart));
            const unsigned int scale = scale_of_block(largest);
            const Codes<T> result = codes_of<Fp8>(packs[k], factor_of_block(scale));
            if (at < count) reinterpret_cast<Codes<T>*>(codes)[at] = result;
            if (at < count && at % LANES_A_BLOCK == 0) scales[at / LANES_A_BLOCK] = scale;
        }
    }
}

extern "C" __global__ void quantize_int8_plain_f32(signed char* __restrict__ codes, float* __restrict__ scales,
                                                   const float* __restrict__ in, long long rows, long long cols) {
    quantize_plain<Int8>(codes, scales, in, rows, cols);
}
extern "C" __global__ void quantize_int8_plain_f16(signed char* __restrict__ codes, float* __restrict__ scales,
                                                   const __half* __restrict__ in, long long rows, long long cols) {
    quantize_plain<Int8>(codes, scales, in, rows, cols);
}
extern "C" __global__ void quantize_int8_registers_f32(signed char* __restrict__ codes, float* __restrict__ scales,
                                                       const float* __restrict__ in, long long rows, long long cols) {
    quantize_registers<Int8>(codes, scales, in, rows, cols);
}
extern "C" __global__ void quantize_int8_registers_f16(signed char* __restrict__ codes, float* __restrict__ scales,
                                                       const __half* __restrict__ in, long long rows, long long cols) {
    quantize_registers<Int8>(codes, scales, in, rows, cols);
}
extern "C" __global__ void quantize_int8_registers_bf16(signed char* __restrict__ codes, float* __restrict__ scales,
                                                        const __nv_bfloat16* __restrict__ in, long long rows,
                                                        long long cols) {
    quantize_registers<Int8>(codes, scales, in, rows, cols);
}
extern "C" __global__ void dequantize_int8_f32(float* __restrict__ out, const signed char* __restrict__ codes,
                                               const float* __restrict__ scales, long long rows, long long cols) {
    dequantize_plain<Int8>(out, codes, scales, rows, cols);
}
extern "C" __global__ void dequantize_int8_f16(__half* __restrict__ out, const signed char* __restrict__ codes,
                                               const float* __restrict__ scales, long long rows, long long cols) {
    dequantize_plain<Int8>(out, codes, scales, rows, cols);
}
extern "C" __global__ void dequantize_int8_f32x4(float* __restrict__ out, const signed char* __restrict__ codes,
                                                 const float* __restrict__ scales, long long rows, long long cols) {
    dequantize<Int8>(out, codes, scales, rows, cols);
}
extern "C" __global__ void dequantize_int8_f16x8(__half* __restrict__ out, const signed char* __restrict__ codes,
                                                 const float* __restrict__ scales, long long rows, long long cols) {
    dequantize<Int8>(out, codes, scales, rows, cols);
}
extern "C" __global__ void dequantize_int8_bf16x8(__nv_bfloat16* __restrict__ out,
                                                  const signed char* __restrict__ codes,
                                                  const float* __restrict__ scales, long long rows, long long cols) {
    dequantize<Int8>(out, codes, scales, rows, cols);
}
extern "C" __global__ void quantize_fp8_plain_f32(unsigned char* __restrict__ codes, float* __restrict__ scales,
                                                  const float* __restrict__ in, long long rows, long long cols) {
    quantize_plain<Fp8>(codes, scales, in, rows, cols);
}
extern "C" __global__ void quantize_fp8_plain_f16(unsigned char* __restrict__ codes, float* __restrict__ scales,
                                                  const __half* __restrict__ in, long long rows, long long cols) {
    quantize_plain<Fp8>(codes, scales, in, rows, cols);
}
extern "C" __global__ void quantize_fp8_registers_f32(unsigned char* __restrict__ codes, float* __restrict__ scales,
                                                      const float* __restrict__ in, long long rows, long long cols) {
    quantize_registers<Fp8>(codes, scales, in, rows, cols);
}
extern "C" __global__ void quantize_fp8_registers_f16(unsigned char* __restrict__ codes, float* __restrict__ scales,
                                                      const __half* __restrict__ in, long long rows, long long cols) {
    quantize_registers<Fp8>(codes, scales, in, rows, cols);
}
extern "C" __global__ void quantize_fp8_registers_bf16(unsigned char* __restrict__ codes, float* __restrict__ scales,
                                                       const __nv_bfloat16* __restrict__ in, long long rows,
                                                       long long cols) {
    quantize_registers<Fp8>(codes, scales, in, rows, cols);
}
extern "C" __global__ void dequantize_fp8_f32(float* __restrict__ out, const unsigned char* __restrict__ codes,
                                              const float* __restrict__ scales, long long rows, long long cols) {
    dequantize_plain<Fp8>(out, codes, scales, rows, cols);
}
extern "C" __global__ void dequantize_fp8_f16(__half* __restrict__ out, const unsigned char* __restrict__ codes,
                                              const float* __restrict__ scales, long long rows, long long cols) {
    dequantize_plain<Fp8>(out, codes, scales, rows, cols);
}
extern "C" __global__ void dequantize_fp8_f32x4(float* __restrict__ out, const unsigned char* __restrict__ codes,
                                                const float* __restrict__ scales, long long rows, long long cols) {
    dequantize<Fp8>(out, codes, scales, rows, cols);
}
extern "C" __global__ void dequantize_fp8_f16x8(__half* __restrict__ out, const unsigned char* __restrict__ codes,
                                                const float* __restrict__ scales, long long rows, long long cols) {
    dequantize<Fp8>(out, codes, scales, rows, cols);
}
extern "C" __global__ void dequantize_fp8_bf16x8(__nv_bfloat16* __restrict__ out,
                                                 const unsigned char* __restrict__ codes,
                                                 const float* __restrict__ scales, long long rows, long long cols) {
    dequantize<Fp8>(out, codes, scales, rows, cols);
}
extern "C" __global__ void quantize_mxfp8_plain_f32(unsigned char* __restrict__ codes,
                                                    unsigned char* __restrict__ scales,
                                                    const float* __restrict__ in, long long blocks) {
    quantize_mxfp8_plain(codes, scales, in, blocks);
}
extern "C" __global__ void quantize_mxfp8_plain_f16(unsigned char* __restrict__ codes,
                                                    unsigned char* __restrict__ scales,
                                                    const __half* __restrict__ in, long long blocks) {
    quantize_mxfp8_plain(codes, scales, in, blocks);
}
extern "C" __global__ void quantize_mxfp8_registers_f32(unsigned char* __restrict__ codes,
                                                        unsigned char* __restrict__ scales,
                                                        const float* __restrict__ in, long long blocks) {
    quantize_mxfp8_registers(codes, scales, in, blocks);
}
extern "C" __global__ void quantize_mxfp8_registers_f16(unsigned char* __restrict__ codes,
                                                        unsigned char* __restrict__ scales,
                                                        const __half* __restrict__ in, long long blocks) {
    quantize_mxfp8_registers(codes, scales, in, blocks);
}
extern "C" __global__ void quantize_mxfp8_registers_bf16(unsigned char* __restrict__ codes,
                                                         unsigned char* __restrict__ scales,
                                                         const __nv_bfloat16* __restrict__ in, long long blocks) {
    quantize_mxfp8_registers(codes, scales, in, blocks);
}
