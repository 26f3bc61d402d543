// Q4_0: weights of four bits, in blocks of 32 that share one float16 scale.
//
// A block is 18 bytes: the scale, then 16 bytes of nibbles. Byte j holds element j in its low nibble and element j + 16
// in its high nibble; value = (nibble - 8)*scale. W is n x k, quantised along k: every row begins a block.
//
//   kernel              result                       bytes moved                             FLOP
//   q4_0_dequantize     out = W                      n*18/32 + n*s                           n      (n elements)
//   q4_0_gemv, _gemm    Y (m x n) = X (m x k) * W^T  kn*18/32 + (mk + mn)*s                  2mnk
//   linear_gemv, _gemm  the same, W unpacked         (kn + mk + mn)*s                        2mnk
//
// What bounds it: memory, as long as unpacking takes few instructions. A weight is 9/16 of a byte, so that a
// multiprocessor has time for a handful of instructions for each.
//
// Versions of dequantize: plain (_f32, _f16) loads a byte and stores single elements, 16 apart. Copy the wide one
// (_f32x4, _f16x8): it stores 16 bytes at a time.
//
// Versions of the product:
//   fused      q4_0_gemv or q4_0_gemm unpacks in registers: weights cost kn*18/32 bytes. A warp computes one column of
//              Y: its lanes share a row of W, two bytes each, and add up at the end. It takes 49 instructions for four
//              weights. gemv goes over that row once per row of X; gemm once per eight.
//   planar     q4_0_gemv_planar: copy this one. Nibbles and scales lie in arrays of their own, so that a lane loads the
//              nibbles of a block at once, of four rows; what they meet of X comes from shared memory. For several rows
//              of X copy q4_0_gemm_planar: weights and X become halves, which tensor cores multiply; sums are floats. A
//              block computes 32x64 of Y. On AMD it computes as q4_0_gemv_planar does.
//   separate   q4_0_dequantize, then linear_gemv or linear_gemm: kn*18/32 + 2*kn*s, 15 times as many at float.
//
// One-dimensional blocks of whole warps for the products, of 256 threads for planar, of any size for dequantize; any
// grid; any sizes, 0 included. Where k is no multiple of 32 the last block of a row is stored whole. f16: sums in
// float, one rounding at the end.
//
// Reference: llama.cpp, ggml/src/ggml-common.h (block_q4_0) and ggml-quants.c (dequantize_row_q4_0),
// https://github.com/ggml-org/llama.cpp.

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has halves built in
#include <hip/hip_fp16.h>
#endif
#define SHUFFLE_XOR(value, lanes) __shfl_xor(value, lanes, 32)
#else
#include <cuda_fp16.h>
#define SHUFFLE_XOR(value, lanes) __shfl_xor_sync(0xffffffffu, value, lanes)
#endif

static constexpr int BLOCK_ELEMENTS = 32;
static constexpr int BLOCK_BYTES = 18;
static constexpr int SCALE_BYTES = 2;

__device__ __forceinline__ long long thread_index() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
__device__ __forceinline__ long long thread_count() { return gridDim.x * (long long)blockDim.x; }

// A block begins on an even address only, so the scale is the widest thing that can be loaded from it.
__device__ __forceinline__ float scale_of(const void* block) {
    return __half2float(*reinterpret_cast<const __half*>(block));
}
__device__ __forceinline__ float low_nibble(unsigned int byte) { return static_cast<int>(byte & 15) - 8; }
__device__ __forceinline__ float high_nibble(unsigned int byte) { return static_cast<int>(byte >> 4 & 15) - 8; }

// One thread per byte of nibbles, which makes two elements.
template <typename T>
__device__ __forceinline__ void dequantize(T* out, const unsigned char* blocks, long long n) {
    long long bytes = (n + BLOCK_ELEMENTS - 1) / BLOCK_ELEMENTS * (BLOCK_ELEMENTS / 2);
#pragma unroll 1  // unrolled, each thread would divide 64-bit numbers first: see stream.cu
    for (long long i = thread_index(); i < bytes; i += thread_count()) {
        const unsigned char* block = blocks + i / (BLOCK_ELEMENTS / 2) * BLOCK_BYTES;
        int j = i % (BLOCK_ELEMENTS / 2);
        float scale = scale_of(block);
        unsigned int byte = block[SCALE_BYTES + j];
        long long low = i / (BLOCK_ELEMENTS / 2) * BLOCK_ELEMENTS + j, high = low + BLOCK_ELEMENTS / 2;
        if (low < n) out[low] = static_cast<T>(low_nibble(byte) * scale);
        if (high < n) out[high] = static_cast<T>(high_nibble(byte) * scale);
    }
}

__device__ __forceinline__ float warp_sum(float value) {
    for (int lanes = 16; lanes > 0; lanes /= 2) value += SHUFFLE_XOR(value, lanes);
    return value;
}

// Y = X*W^T, W in blocks. A lane takes two bytes of nibbles at a time, so eight lanes a block and four blocks a step.
template <int ROWS, typename T>
__device__ __forceinline__ void q4_0_product(T* y, const T* x, const unsigned char* blocks, long long m, long long n,
                                             long long k) {
    const int lane = threadIdx.x % 32, byte = lane % 8 * 2;  // byte: of the two, the first, within its block
    long long blocks_per_row = (k + BLOCK_ELEMENTS - 1) / BLOCK_ELEMENTS;
    for (long long col = thread_index() / 32; col < n; col += thread_count() / 32) {
        for (long long row0 = 0; row0 < m; row0 += ROWS) {
            float sum[ROWS] = {};
            for (long long b = lane / 8; b < blocks_per_row; b += 4) {
                const unsigned char* block = blocks + (col * blocks_per_row + b) * BLOCK_BYTES;
                float scale = scale_of(block);
                unsigned int nibbles = *reinterpret_cast<const unsigned short*>(block + SCALE_BYTES + byte);
                float weight[4] = {low_nibble(nibbles), low_nibble(nibbles >> 8), high_nibble(nibbles),
                                   high_nibble(nibbles >> 8)};
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    float products = 0.0f;
#pragma unroll
                    for (int w = 0; w < 4; ++w) {
                        long long i = b * BLOCK_ELEMENTS + byte + w % 2 + w / 2 * (BLOCK_ELEMENTS / 2);
                        if (row0 + r < m && i < k) products += weight[w] * static_cast<float>(x[(row0 + r) * k + i]);
                    }
                    sum[r] += scale * products;
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                float total = warp_sum(sum[r]);
                if (lane == 0 && row0 + r < m) y[(row0 + r) * n + col] = static_cast<T>(total);
            }
        }
    }
}

// Y = X*W^T, W unpacked.
template <int ROWS, typename T>
__device__ __forceinline__ void linear_product(T* y, const T* x, const T* w, long long m, long long n, long long k) {
    const int lane = threadIdx.x % 32;
    for (long long col = thread_index() / 32; col < n; col += thread_count() / 32) {
        for (long long row0 = 0; row0 < m; row0 += ROWS) {
            float sum[ROWS] = {};
            for (long long i = lane; i < k; i += 32) {
                float weight = static_cast<float>(w[col * k + i]);
#pragma unroll
                for (int r = 0; r < ROWS; ++r)
                    if (row0 + r < m) sum[r] += weight * static_cast<float>(x[(row0 + r) * k + i]);
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                float total = warp_sum(sum[r]);
                if (lane == 0 && row0 + r < m) y[(row0 + r) * n + col] = static_cast<T>(total);
            }
        }
    }
}

// ---- wide, planar ---------------------------------------------------------------------------------------------------

// 16 bytes as elements. A store of it is one instruction.
template <typename T>
struct __align__(16) Pack {
    T elements[16 / sizeof(T)];
};

template <typename T>
struct __align__(4 * sizeof(T)) Four {
    T elements[4];
};

// One thread per nibbles of two times 16 bytes of elements: their low ones, and their high ones.
template <typename T>
__device__ __forceinline__ void dequantize_wide(T* out, const unsigned char* blocks, long long n) {
    constexpr int WIDTH = 16 / sizeof(T), THREADS_A_BLOCK = BLOCK_ELEMENTS / 2 / WIDTH;
    const bool is_aligned = reinterpret_cast<unsigned long long>(out) % 16 == 0;
    const long long all = (n + BLOCK_ELEMENTS - 1) / BLOCK_ELEMENTS * THREADS_A_BLOCK;
#pragma unroll 1  // unrolled, each thread would divide 64-bit numbers for the trip count
    for (long long i = thread_index(); i < all; i += thread_count()) {
        const long long first = i / THREADS_A_BLOCK * BLOCK_ELEMENTS;
        const int j = i % THREADS_A_BLOCK * WIDTH;
        const unsigned char* block = blocks + i / THREADS_A_BLOCK * BLOCK_BYTES;
        const float scale = scale_of(block);
        Pack<T> low, high;
#pragma unroll
        for (int pair = 0; pair < WIDTH; pair += 2) {
            const unsigned int nibbles = *reinterpret_cast<const unsigned short*>(block + SCALE_BYTES + j + pair);
            low.elements[pair] = static_cast<T>(low_nibble(nibbles) * scale);
            low.elements[pair + 1] = static_cast<T>(low_nibble(nibbles >> 8) * scale);
            high.elements[pair] = static_cast<T>(high_nibble(nibbles) * scale);
            high.elements[pair + 1] = static_cast<T>(high_nibble(nibbles >> 8) * scale);
        }
        if (is_aligned && first + BLOCK_ELEMENTS <= n) {
            reinterpret_cast<Pack<T>*>(out)[(first + j) / WIDTH] = low;
            reinterpret_cast<Pack<T>*>(out)[(first + j + BLOCK_ELEMENTS / 2) / WIDTH] = high;
            continue;
        }
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) {
            if (first + j + e < n) out[first + j + e] = low.elements[e];
            if (first + j + BLOCK_ELEMENTS / 2 + e < n) out[first + j + BLOCK_ELEMENTS / 2 + e] = high.elements[e];
        }
    }
}

static constexpr int WARPS = 8, COLS = 4;                // of Y, and rows of W, that a warp computes together
static constexpr int STAGED = 128;                       // blocks of X that lie in shared memory, of 32 elements
static constexpr int PITCH = BLOCK_ELEMENTS + 4;         // four more keep the blocks of eight lanes in different banks

__device__ __forceinline__ uint4 nibbles_at(const unsigned char* at, bool is_aligned) {
    if (is_aligned) return *reinterpret_cast<const uint4*>(at);
    unsigned int words[4] = {};
    for (int i = 0; i < 16; ++i) words[i / 4] |= static_cast<unsigned int>(at[i]) << 8 * (i % 4);
    return {words[0], words[1], words[2], words[3]};
}

// Trick: a nibble in the highest four bits of the mantissa of 16.0f makes it 16 + nibble, without a conversion.
template <int NIBBLE>
__device__ __forceinline__ float sixteen_and(unsigned int word) {
    constexpr int SHIFT = 19 - 4 * NIBBLE;
    return __uint_as_float(0x41800000u | ((SHIFT >= 0 ? word << (SHIFT & 31) : word >> (-SHIFT & 31)) & 0x780000u));
}

// Y = X*W^T. A lane has a block of 32 weights of each of four rows of W, which meet one reading of X.
template <typename T>
__device__ __forceinline__ void planar_product(T* y, const T* x, const unsigned char* nibbles,
                                               const unsigned char* scales, long long m, long long n, long long k) {
    __shared__ __align__(16) float staged[STAGED * PITCH];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long blocks_per_row = (k + BLOCK_ELEMENTS - 1) / BLOCK_ELEMENTS;
    const bool is_aligned = reinterpret_cast<unsigned long long>(nibbles) % 16 == 0;
    const bool x_is_aligned = reinterpret_cast<unsigned long long>(x) % sizeof(Four<T>) == 0 && k % 4 == 0;
    const long long step = gridDim.x * (long long)(WARPS * COLS);
    for (long long col0 = blockIdx.x * (long long)(WARPS * COLS); col0 < n; col0 += step) {
        const long long col = col0 + warp * COLS;
        for (long long row = 0; row < m; ++row) {
            float sum[COLS] = {};
            for (long long first = 0; first < blocks_per_row; first += STAGED) {
                const int count = static_cast<int>(blocks_per_row - first < STAGED ? blocks_per_row - first : STAGED);
                __syncthreads();  // before this X overwrites the one before
                for (int i = 4 * threadIdx.x; i < count * BLOCK_ELEMENTS; i += 4 * WARPS * 32) {
                    const T* from = x + row * k + first * BLOCK_ELEMENTS + i;
                    const long long inside = k - first * BLOCK_ELEMENTS - i;
                    Four<T> of_x = {};
                    if (x_is_aligned && inside > 0)
                        of_x = *reinterpret_cast<const Four<T>*>(from);
                    else
                        for (int e = 0; e < 4; ++e) of_x.elements[e] = e < inside ? from[e] : static_cast<T>(0.0f);
                    *reinterpret_cast<float4*>(staged + i / BLOCK_ELEMENTS * PITCH + i % BLOCK_ELEMENTS) = make_float4(
                        static_cast<float>(of_x.elements[0]), static_cast<float>(of_x.elements[1]),
                        static_cast<float>(of_x.elements[2]), static_cast<float>(of_x.elements[3]));
                }
                __syncthreads();
                for (int b = lane; b < count; b += 32) {
                    uint4 packed[COLS];
                    unsigned short scale[COLS];  // a half would be converted, and so waited for, where it is loaded
#pragma unroll
                    for (int c = 0; c < COLS; ++c) {  // all loads before the first use
                        const long long at = (col + c) * blocks_per_row + first + b;
                        packed[c] = col + c < n ? nibbles_at(nibbles + at * 16, is_aligned) : uint4{};
                        scale[c] = 0;
                        if (col + c < n) scale[c] = *reinterpret_cast<const unsigned short*>(scales + at * SCALE_BYTES);
                    }
                    float products[COLS] = {}, of_x = 0.0f;
#pragma unroll
                    for (int w = 0; w < 4; ++w) {
                        const float4 low = *reinterpret_cast<const float4*>(staged + b * PITCH + 4 * w);
                        const float4 high = *reinterpret_cast<const float4*>(staged + b * PITCH + 4 * w + 16);
                        of_x += low.x + low.y + low.z + low.w + high.x + high.y + high.z + high.w;
#pragma unroll
                        for (int c = 0; c < COLS; ++c) {
                            const unsigned int word = w == 0   ? packed[c].x
                                                      : w == 1 ? packed[c].y
                                                      : w == 2 ? packed[c].z
                                                               : packed[c].w;
                            products[c] += sixteen_and<0>(word) * low.x;
                            products[c] += sixteen_and<1>(word) * high.x;
                            products[c] += sixteen_and<2>(word) * low.y;
                            products[c] += sixteen_and<3>(word) * high.y;
                            products[c] += sixteen_and<4>(word) * low.z;
                            products[c] += sixteen_and<5>(word) * high.z;
                            products[c] += sixteen_and<6>(word) * low.w;
                            products[c] += sixteen_and<7>(word) * high.w;
                        }
                    }
#pragma unroll
                    for (int c = 0; c < COLS; ++c)
                        sum[c] += scale_of(&scale[c]) * (products[c] - 24.0f * of_x);  // each is 16 + 8 too large
                }
            }
#pragma unroll
            for (int c = 0; c < COLS; ++c) {
                float total = warp_sum(sum[c]);
                if (lane == 0 && col + c < n) y[row * n + col + c] = static_cast<T>(total);
            }
        }
    }
}

// ---- several tokens: tensor cores -----------------------------------------------------------------------------------

#if defined(__CUDA_ARCH__)  // AMD's matrix instructions are others

// D += A*B of 16x8x16 elements (PTX ISA has a figure).
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned int (&a)[4], const unsigned int (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
#pragma unroll
    for (int half = 0; half < 2; ++half)  // Turing's is half as deep
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
#endif
}

__device__ __forceinline__ unsigned int two_halves(float first, float second) {
    const __half2 both = __floats2half2_rn(first, second);
    return reinterpret_cast<const unsigned int&>(both);
}

static constexpr int TILE_ROWS = 32, TILE_COLS = 64;  // of Y, that a block computes
static constexpr int STEP = 16;                       // blocks of 32 weights, of each row of W, at a time
static constexpr int ROW_PITCH = STEP * PITCH + 16;   // halves; 16 more keep the rows of four lanes in different banks

// Y = X*W^T. Four warps have 16 columns each, and four more the same ones with the other half of each step.
template <typename T>
__device__ __forceinline__ void tensor_product(T* y, const T* x, const unsigned char* nibbles,
                                               const unsigned char* scales, long long m, long long n, long long k) {
    __shared__ __align__(16) __half staged[TILE_ROWS * ROW_PITCH];
    const int thread = threadIdx.x, group = thread % 32 / 4, member = thread % 4;  // of a warp, as mma has them
    const int warp_col = thread / 32 % 4 * 16, warp_block = thread / 128 * (STEP / 2);
    const long long blocks_per_row = (k + BLOCK_ELEMENTS - 1) / BLOCK_ELEMENTS;
    const long long row_tiles = (m + TILE_ROWS - 1) / TILE_ROWS, tiles = row_tiles * ((n + TILE_COLS - 1) / TILE_COLS);
    const bool is_aligned = reinterpret_cast<unsigned long long>(nibbles) % 16 == 0;
    const bool x_is_aligned = reinterpret_cast<unsigned long long>(x) % sizeof(Four<T>) == 0 && k % 4 == 0;
    for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {  // neighbours have the same weights
        const long long row0 = tile % row_tiles * TILE_ROWS, col0 = tile / row_tiles * TILE_COLS + warp_col + group;
        Four<T> of_x[STEP];
        uint4 packed[2][2];
        float scale[2][2];
        auto fetch = [&](long long first) {
#pragma unroll
            for (int part = 0; part < 2; ++part)
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                    const long long col = col0 + 8 * c, block = first + warp_block + 4 * part + member;
                    const bool inside = col < n && block < blocks_per_row;
                    const long long at = col * blocks_per_row + block;
                    packed[part][c] = inside ? nibbles_at(nibbles + at * 16, is_aligned) : uint4{};
                    scale[part][c] = inside ? scale_of(scales + at * SCALE_BYTES) : 0.0f;
                }
#pragma unroll
            for (int i = 0; i < STEP; ++i) {
                const long long row = row0 + thread / 128 + 2 * i, at = first * BLOCK_ELEMENTS + thread % 128 * 4;
                of_x[i] = {};
                if (x_is_aligned && row < m && at < k)
                    of_x[i] = *reinterpret_cast<const Four<T>*>(x + row * k + at);
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    if (!x_is_aligned && row < m && at + e < k) of_x[i].elements[e] = x[row * k + at + e];
            }
        };
        float sum[2][2][4] = {};
        fetch(0);
        for (long long first = 0; first < blocks_per_row; first += STEP) {
            __syncthreads();  // before this X overwrites the one before
#pragma unroll
            for (int i = 0; i < STEP; ++i) {
                const T(&four)[4] = of_x[i].elements;
                const int place = thread % 128 / 8 * PITCH + thread % 8 * 4;
                *reinterpret_cast<uint2*>(staged + (thread / 128 + 2 * i) * ROW_PITCH + place) =
                    make_uint2(two_halves(static_cast<float>(four[0]), static_cast<float>(four[1])),
                               two_halves(static_cast<float>(four[2]), static_cast<float>(four[3])));
            }
            uint4 weights[2][2];
            float scale_of_these[2][2];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                weights[i / 2][i % 2] = packed[i / 2][i % 2];
                scale_of_these[i / 2][i % 2] = scale[i / 2][i % 2];
            }
            __syncthreads();
            if (first + STEP < blocks_per_row) fetch(first + STEP);  // on its way while these are multiplied
            // Trick: a sum may run over k in any order. So the lanes of a group have a block of 32 weights each, 16
            // bytes of one load, in the places of mma's B; A is read in that order, and W needs no shared memory.
#pragma unroll
            for (int step = 0; step < 16; ++step) {
                const int part = step / 8, w = step / 2 % 4, high = step % 2;
                const __half* from = staged + group * ROW_PITCH + (warp_block + 4 * part + member) * PITCH;
                unsigned int of_columns[2][2];
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                    const uint4 all = weights[part][c];
                    const unsigned int word = (w == 0 ? all.x : w == 1 ? all.y : w == 2 ? all.z : all.w) >> 4 * high;
                    const float factor = scale_of_these[part][c];
                    of_columns[c][0] = two_halves((sixteen_and<0>(word) - 24.0f) * factor,  // each is 16 + 8 too large
                                                  (sixteen_and<2>(word) - 24.0f) * factor);
                    of_columns[c][1] = two_halves((sixteen_and<4>(word) - 24.0f) * factor,
                                                  (sixteen_and<6>(word) - 24.0f) * factor);
                }
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const __half* row = from + 16 * r * ROW_PITCH + BLOCK_ELEMENTS / 2 * high + 4 * w;
                    const uint2 upper = *reinterpret_cast<const uint2*>(row);
                    const uint2 lower = *reinterpret_cast<const uint2*>(row + 8 * ROW_PITCH);
                    const unsigned int of_rows[4] = {upper.x, lower.x, upper.y, lower.y};
#pragma unroll
                    for (int c = 0; c < 2; ++c) multiply(sum[r][c], of_rows, of_columns[c]);
                }
            }
        }
        // The halves of all steps are added through shared memory.
        float* others = reinterpret_cast<float*>(staged) + thread % 128;
#pragma unroll
        for (int half = 1; half >= 0; --half) {
            __syncthreads();
            if (thread / 128 != half) continue;
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                const int r = i / 8, c = i / 4 % 2, e = i % 4;
                const long long row = row0 + 16 * r + 8 * (e / 2) + group;
                const long long col = col0 - group + 8 * c + 2 * member + e % 2;
                if (half)
                    others[i * 128] = sum[r][c][e];
                else if (row < m && col < n)
                    y[row * n + col] = static_cast<T>(sum[r][c][e] + others[i * 128]);
            }
        }
    }
}
#endif

template <typename T>
__device__ __forceinline__ void tensor_or_planar(T* y, const T* x, const unsigned char* nibbles,
                                                 const unsigned char* scales, long long m, long long n, long long k) {
#if defined(__CUDA_ARCH__)
    tensor_product(y, x, nibbles, scales, m, n, k);
#else
    planar_product(y, x, nibbles, scales, m, n, k);
#endif
}

static constexpr int GEMM_ROWS = 8;  // rows of X that one pass over a row of W serves

extern "C" __global__ void q4_0_dequantize_f32(float* __restrict__ out, const unsigned char* __restrict__ blocks,
                                               long long n) {
    dequantize(out, blocks, n);
}
extern "C" __global__ void q4_0_dequantize_f16(__half* __restrict__ out, const unsigned char* __restrict__ blocks,
                                               long long n) {
    dequantize(out, blocks, n);
}
extern "C" __global__ void q4_0_dequantize_f32x4(float* __restrict__ out, const unsigned char* __restrict__ blocks,
                                                 long long n) {
    dequantize_wide(out, blocks, n);
}
extern "C" __global__ void q4_0_dequantize_f16x8(__half* __restrict__ out, const unsigned char* __restrict__ blocks,
                                                 long long n) {
    dequantize_wide(out, blocks, n);
}
extern "C" __global__ void q4_0_gemv_planar_f32(float* __restrict__ y, const float* __restrict__ x,
                                                const unsigned char* __restrict__ nibbles,
                                                const unsigned char* __restrict__ scales, long long m, long long n,
                                                long long k) {
    planar_product(y, x, nibbles, scales, m, n, k);
}
extern "C" __global__ void q4_0_gemv_planar_f16(__half* __restrict__ y, const __half* __restrict__ x,
                                                const unsigned char* __restrict__ nibbles,
                                                const unsigned char* __restrict__ scales, long long m, long long n,
                                                long long k) {
    planar_product(y, x, nibbles, scales, m, n, k);
}
// One block on a multiprocessor: a thread has registers for all that is on its way.
extern "C" __global__ void __launch_bounds__(256, 1)
    q4_0_gemm_planar_f32(float* __restrict__ y, const float* __restrict__ x, const unsigned char* __restrict__ nibbles,
                         const unsigned char* __restrict__ scales, long long m, long long n, long long k) {
    tensor_or_planar(y, x, nibbles, scales, m, n, k);
}
extern "C" __global__ void __launch_bounds__(256, 1)
    q4_0_gemm_planar_f16(__half* __restrict__ y, const __half* __restrict__ x,
                         const unsigned char* __restrict__ nibbles, const unsigned char* __restrict__ scales,
                         long long m, long long n, long long k) {
    tensor_or_planar(y, x, nibbles, scales, m, n, k);
}
extern "C" __global__ void q4_0_gemv_f32(float* __restrict__ y, const float* __restrict__ x,
                                         const unsigned char* __restrict__ blocks, long long m, long long n,
                                         long long k) {
    q4_0_product<1>(y, x, blocks, m, n, k);
}
extern "C" __global__ void q4_0_gemv_f16(__half* __restrict__ y, const __half* __restrict__ x,
                                         const unsigned char* __restrict__ blocks, long long m, long long n,
                                         long long k) {
    q4_0_product<1>(y, x, blocks, m, n, k);
}
extern "C" __global__ void q4_0_gemm_f32(float* __restrict__ y, const float* __restrict__ x,
                                         const unsigned char* __restrict__ blocks, long long m, long long n,
                                         long long k) {
    q4_0_product<GEMM_ROWS>(y, x, blocks, m, n, k);
}
extern "C" __global__ void q4_0_gemm_f16(__half* __restrict__ y, const __half* __restrict__ x,
                                         const unsigned char* __restrict__ blocks, long long m, long long n,
                                         long long k) {
    q4_0_product<GEMM_ROWS>(y, x, blocks, m, n, k);
}
extern "C" __global__ void linear_gemv_f32(float* __restrict__ y, const float* __restrict__ x,
                                           const float* __restrict__ w, long long m, long long n, long long k) {
    linear_product<1>(y, x, w, m, n, k);
}
extern "C" __global__ void linear_gemv_f16(__half* __restrict__ y, const __half* __restrict__ x,
                                           const __half* __restrict__ w, long long m, long long n, long long k) {
    linear_product<1>(y, x, w, m, n, k);
}
extern "C" __global__ void linear_gemm_f32(float* __restrict__ y, const float* __restrict__ x,
                                           const float* __restrict__ w, long long m, long long n, long long k) {
    linear_product<GEMM_ROWS>(y, x, w, m, n, k);
}
extern "C" __global__ void linear_gemm_f16(__half* __restrict__ y, const __half* __restrict__ x,
                                           const __half* __restrict__ w, long long m, long long n, long long k) {
    linear_product<GEMM_ROWS>(y, x, w, m, n, k);
}
