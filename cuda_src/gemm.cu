// Matrix product: C (m x n) = A (m x k) * B (k x n), all row-major.
//
//   bytes read (mk + kn)*s, bytes written mn*s, 2mnk FLOP
//
// What bounds it: arithmetic, from a few hundred rows and columns on. The versions compute the same, and differ in how
// often they ask for an element, and in how many multiply-adds an instruction does:
//
//   kernel           bytes asked for by loads              how
//   gemm_naive       2mnk*s                                one thread per element of C, operands straight from memory
//   gemm_tiled       (mk*ceil(n/32) + kn*ceil(m/32))*s     a block computes 32x32 of C from tiles in shared memory
//   gemm_blocked     (mk*ceil(n/64) + kn*ceil(m/64))*s     64x64 of C, a thread computes 4x4 in registers, so that each
//                                                          value read from shared memory serves four multiply-adds
//   gemm_pipelined   (mk*ceil(n/128) + kn*ceil(m/128))*s   128x128 of C; the next tiles load while these are multiplied
//   gemm_split_k     as pipelined, and 4*splits*mn by      as pipelined, but a block takes a part of k, and leaves
//   + _combine       _combine                              sums in float, which a second launch adds
//
// gemm_int8_plain and _pipelined multiply eight-bit codes, as quantize_int8 makes them: C = A (m x k) * W (n x k)
// transposed, each row of A and of W with a float as its scale. Half the bytes of halves, and twice their rate.
//
//   bytes read mk + nk + 4(m + n), bytes written mn*s, 2mnk operations on whole numbers
//
// Copy gemm_pipelined; copy gemm_split_k where C has fewer tiles than the GPU multiprocessors, as those of one token or
// a short prompt. There pipelined leaves most of the GPU idle while a few blocks walk all of k. Give split_k as many
// splits as make a block for each multiprocessor, multiprocessors / tiles, but each at least 64 columns of A: of less,
// no step of its pipeline hides another. Sums are added in order, not by atomics: the result is the same in every run.
// One token still computes 128 rows of a tile: gemv.cu is for that. int8 has no split version: few tiles leave most of
// the GPU idle.
//
// What the others do wrong: naive waits for two loads per multiply-add. Tiled and blocked wait for each tile before
// they multiply it, and for all warps twice a tile; they read single elements, and convert halves to float, for which a
// multiprocessor does one multiply-add a lane and clock, where tensor cores do many.
//   _f32   8x8 of C in a thread's registers: 64 multiply-adds for four 16-byte reads of shared memory.
//   _f16, _bf16   tensor cores (mma.sync), operands by cp.async and ldmatrix. bf16 needs sm_80; before it, and on AMD,
//          these compute as gemm_blocked does. Hopper's full rate needs wgmma, which no other GPU has.
//   gemm_int8_pipelined   tensor cores, sums exact in 32 bits up to k = 131,000. W lies as a layer keeps it: its rows
//          are columns of C, and what a lane multiplies by is four neighbours in a row. So W is loaded as A is.
//          gemm_int8_plain multiplies four bytes an instruction (dp4a), but each lane reads a row of W of its own.
//
// Any two-dimensional grid; of split_k the third dimension is the split; of combine any one-dimensional grid and block.
// Blocks of (32, 8) threads for naive, tiled and int8_plain, (16, 16) for the others; any shape: parts of a tile
// outside the matrices count as zeros, and are neither read nor written. Where rows are no multiple of 16 bytes,
// pipelined and split_k read single elements: pad them. Halves: sums in float, one rounding at the end.
//
// Reference: CUDA C++ Programming Guide, "Shared Memory"; Boehm, How to Optimize a CUDA Matmul Kernel,
// https://siboehm.com/articles/22/CUDA-MMM; PTX ISA, "Matrix fragments for mma.m16n8k16"; CUTLASS, docs/efficient_gemm.

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has halves built in
#include <hip/hip_fp16.h>
#endif
#else
#include <cuda_fp16.h>
#endif

// bfloat16 is the upper half of a float, which needs no header.
struct bf16 {
    unsigned short bits;
    bf16() = default;
    __device__ explicit bf16(float value) {  // to the nearest, ties to even; NaN stays one
        unsigned int all = __float_as_uint(value);
        bits = value == value ? (all + 0x7fff + (all >> 16 & 1)) >> 16 : 0x7fff;
    }
    __device__ operator float() const { return __uint_as_float(static_cast<unsigned int>(bits) << 16); }
};

template <typename T>
__device__ __forceinline__ void gemm_naive(T* c, const T* a, const T* b, long long m, long long n, long long k) {
    long long row_step = gridDim.y * (long long)blockDim.y, col_step = gridDim.x * (long long)blockDim.x;
    for (long long row = blockIdx.y * (long long)blockDim.y + threadIdx.y; row < m; row += row_step) {
        for (long long col = blockIdx.x * (long long)blockDim.x + threadIdx.x; col < n; col += col_step) {
            float sum = 0.0f;
            for (long long i = 0; i < k; ++i)
                sum += static_cast<float>(a[row * k + i]) * static_cast<float>(b[i * n + col]);
            c[row * n + col] = static_cast<T>(sum);
        }
    }
}

static constexpr int TILE = 32;
static constexpr int BLOCK_ROWS = 8;                       // threads along y
static constexpr int ROWS_PER_THREAD = TILE / BLOCK_ROWS;  // rows y, y + 8, y + 16, y + 24 of the tile

template <typename T>
__device__ __forceinline__ void gemm_tiled(T* c, const T* a, const T* b, long long m, long long n, long long k) {
    __shared__ float a_tile[TILE][TILE], b_tile[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y;
    for (long long row0 = blockIdx.y * (long long)TILE; row0 < m; row0 += gridDim.y * (long long)TILE) {
        for (long long col0 = blockIdx.x * (long long)TILE; col0 < n; col0 += gridDim.x * (long long)TILE) {
            float sum[ROWS_PER_THREAD] = {};
            for (long long k0 = 0; k0 < k; k0 += TILE) {
#pragma unroll
                for (int r = y; r < TILE; r += BLOCK_ROWS) {
                    bool a_inside = row0 + r < m && k0 + x < k, b_inside = k0 + r < k && col0 + x < n;
                    a_tile[r][x] = a_inside ? static_cast<float>(a[(row0 + r) * k + k0 + x]) : 0.0f;
                    b_tile[r][x] = b_inside ? static_cast<float>(b[(k0 + r) * n + col0 + x]) : 0.0f;
                }
                __syncthreads();
#pragma unroll
                for (int i = 0; i < TILE; ++i) {
#pragma unroll
                    for (int j = 0; j < ROWS_PER_THREAD; ++j) sum[j] += a_tile[y + j * BLOCK_ROWS][i] * b_tile[i][x];
                }
                __syncthreads();  // before the next tiles overwrite these
            }
#pragma unroll
            for (int j = 0; j < ROWS_PER_THREAD; ++j) {
                long long row = row0 + y + j * BLOCK_ROWS;
                if (row < m && col0 + x < n) c[row * n + col0 + x] = static_cast<T>(sum[j]);
            }
        }
    }
}

static constexpr int BLOCKED_TILE = 64;   // rows and columns of C per block
static constexpr int BLOCKED_DEPTH = 16;  // columns of A and rows of B per step
static constexpr int PER_THREAD = 4;      // rows and columns of C per thread
static constexpr int THREADS = (BLOCKED_TILE / PER_THREAD) * (BLOCKED_TILE / PER_THREAD);

// Columns begin to end - 1 of A, and as many rows of B: all of them, or a part of what is summed.
template <typename Out, typename T>
__device__ __forceinline__ void gemm_blocked(Out* c, const T* a, const T* b, long long m, long long n, long long k,
                                             long long begin, long long end) {
    // A's tile lies transposed, so that a thread's four rows are neighbours; the padding spreads its stores over banks.
    __shared__ __align__(16) float a_tile[BLOCKED_DEPTH][BLOCKED_TILE + PER_THREAD];
    __shared__ __align__(16) float b_tile[BLOCKED_DEPTH][BLOCKED_TILE];
    const int thread = threadIdx.y * (BLOCKED_TILE / PER_THREAD) + threadIdx.x;
    const int row_in_tile = threadIdx.y * PER_THREAD, col_in_tile = threadIdx.x * PER_THREAD;
    for (long long row0 = blockIdx.y * (long long)BLOCKED_TILE; row0 < m; row0 += gridDim.y * (long long)BLOCKED_TILE) {
        for (long long col0 = blockIdx.x * (long long)BLOCKED_TILE; col0 < n;
             col0 += gridDim.x * (long long)BLOCKED_TILE) {
            float sum[PER_THREAD][PER_THREAD] = {};
            for (long long k0 = begin; k0 < end; k0 += BLOCKED_DEPTH) {
#pragma unroll
                for (int e = thread; e < BLOCKED_TILE * BLOCKED_DEPTH; e += THREADS) {
                    int a_row = e / BLOCKED_DEPTH, a_col = e % BLOCKED_DEPTH;
                    int b_row = e / BLOCKED_TILE, b_col = e % BLOCKED_TILE;
                    bool a_inside = row0 + a_row < m && k0 + a_col < end;
                    bool b_inside = k0 + b_row < end && col0 + b_col < n;
                    a_tile[a_col][a_row] = a_inside ? static_cast<float>(a[(row0 + a_row) * k + k0 + a_col]) : 0.0f;
                    b_tile[b_row][b_col] = b_inside ? static_cast<float>(b[(k0 + b_row) * n + col0 + b_col]) : 0.0f;
                }
                __syncthreads();
#pragma unroll
                for (int i = 0; i < BLOCKED_DEPTH; ++i) {
                    float4 a4 = *reinterpret_cast<const float4*>(&a_tile[i][row_in_tile]);
                    float4 b4 = *reinterpret_cast<const float4*>(&b_tile[i][col_in_tile]);
                    const float rows[PER_THREAD] = {a4.x, a4.y, a4.z, a4.w};
                    const float cols[PER_THREAD] = {b4.x, b4.y, b4.z, b4.w};
#pragma unroll
                    for (int r = 0; r < PER_THREAD; ++r) {
#pragma unroll
                        for (int s = 0; s < PER_THREAD; ++s) sum[r][s] += rows[r] * cols[s];
                    }
                }
                __syncthreads();
            }
#pragma unroll
            for (int r = 0; r < PER_THREAD; ++r) {
#pragma unroll
                for (int s = 0; s < PER_THREAD; ++s) {
                    long long row = row0 + row_in_tile + r, col = col0 + col_in_tile + s;
                    if (row < m && col < n) c[row * n + col] = static_cast<Out>(sum[r][s]);
                }
            }
        }
    }
}

// ---- pipelined ------------------------------------------------------------------------------------------------------

static constexpr int WIDE_TILE = 128;  // rows and columns of C per block
static constexpr int WIDE_THREADS = 256;

__device__ __forceinline__ int within(long long left, int most) {
    return static_cast<int>(left < most ? left : most);
}

// Whether 16 bytes can be read at once: at the start of every row.
template <typename T>
__device__ __forceinline__ bool aligned(const void* c, const T* a, const T* b, long long n, long long k) {
    unsigned long long all = reinterpret_cast<unsigned long long>(c) | reinterpret_cast<unsigned long long>(a) |
                             reinterpret_cast<unsigned long long>(b);
    return (all | n * sizeof(T) | k * sizeof(T)) % 16 == 0;
}

#if defined(__CUDA_ARCH__)
#if __CUDA_ARCH__ >= 800
#define COPIES_ASYNCHRONOUSLY
#endif
__device__ __forceinline__ unsigned int shared_address(const void* at) {
    return static_cast<unsigned int>(__cvta_generic_to_shared(at));
}
#endif

// Trick: the copy goes past the registers, and runs on while the warp multiplies. Turing and AMD have none, and wait.
template <typename V>
__device__ __forceinline__ void copy(V* to, const void* from) {
#if defined(COPIES_ASYNCHRONOUSLY)
    if (sizeof(V) == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
#else
    *to = *static_cast<const V*>(from);
#endif
}
__device__ __forceinline__ void end_of_stage() {
#if defined(COPIES_ASYNCHRONOUSLY)
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int STAGES_UNDER_WAY>
__device__ __forceinline__ void wait_for_stage() {
#if defined(COPIES_ASYNCHRONOUSLY)
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES_UNDER_WAY) : "memory");
#endif
}

// What lies outside the matrix counts as zeros.
template <typename V>
__device__ __forceinline__ void copy_if(bool inside, V* to, const void* from) {
    if (inside)
        copy(to, from);
    else
        *to = V{};
}

static constexpr int F32_DEPTH = 16;  // columns of A and rows of B per step

struct F32Tiles {
    // A's lies transposed, so that a thread's four rows are neighbours; the padding spreads four rows of eight columns,
    // which a warp copies at once, over all banks.
    float a[2][F32_DEPTH][WIDE_TILE + 4], b[2][F32_DEPTH][WIDE_TILE];
};

template <bool ALIGNED>
__device__ __forceinline__ void pipelined(F32Tiles& tiles, float* c, const float* a, const float* b, long long m,
                                          long long n, long long k, long long begin, long long end) {
    const int x = threadIdx.x, y = threadIdx.y, thread = y * 16 + x, lane = thread % 32, warp = thread / 32;
    for (long long row0 = blockIdx.y * (long long)WIDE_TILE; row0 < m; row0 += gridDim.y * (long long)WIDE_TILE) {
        for (long long col0 = blockIdx.x * (long long)WIDE_TILE; col0 < n; col0 += gridDim.x * (long long)WIDE_TILE) {
            const int rows = within(m - row0, WIDE_TILE), cols = within(n - col0, WIDE_TILE);
            auto load = [&](long long k0, int buffer) {
                const int depth = within(end - k0, F32_DEPTH);
                const int a_row = 16 * warp + lane / 8, a_col = lane % 8;
                const float* a_from = a + (row0 + a_row) * k + k0 + a_col;
#pragma unroll 1
                for (int i = 0; i < 16; i += 4, a_from += 4 * k) {
                    copy_if(a_row + i < rows && a_col < depth, &tiles.a[buffer][a_col][a_row + i], a_from);
                    copy_if(a_row + i < rows && a_col + 8 < depth, &tiles.a[buffer][a_col + 8][a_row + i], a_from + 8);
                }
#pragma unroll 1
                for (int row = 2 * warp; row < 2 * warp + 2; ++row) {
                    const float* from = b + (k0 + row) * n + col0;
                    float* to = tiles.b[buffer][row];
                    if (ALIGNED)
                        copy_if(row < depth && 4 * lane < cols, reinterpret_cast<float4*>(to) + lane, from + 4 * lane);
                    for (int col = lane; !ALIGNED && col < WIDE_TILE; col += 32)
                        copy_if(row < depth && col < cols, to + col, from + col);
                }
                end_of_stage();
            };
            // A thread's 8x8 are four squares of 4x4, half a tile apart: neighbours then read neighbouring 16 bytes.
            float sum[8][8] = {};
            load(begin, 0);
            int buffer = 0;
            for (long long k0 = begin; k0 < end; k0 += F32_DEPTH, buffer ^= 1) {
                // Trick: the next tiles are on their way while these are multiplied. With two buffers one barrier a
                // step is enough, since nobody reads the one that is written.
                wait_for_stage<0>();
                __syncthreads();
                if (k0 + F32_DEPTH < end) load(k0 + F32_DEPTH, buffer ^ 1);
#pragma unroll
                for (int i = 0; i < F32_DEPTH; ++i) {
                    float of_a[8], of_b[8];
#pragma unroll
                    for (int s = 0; s < 8; s += 4) {
                        *reinterpret_cast<float4*>(of_a + s) =
                            *reinterpret_cast<const float4*>(&tiles.a[buffer][i][4 * y + 16 * s]);
                        *reinterpret_cast<float4*>(of_b + s) =
                            *reinterpret_cast<const float4*>(&tiles.b[buffer][i][4 * x + 16 * s]);
                    }
#pragma unroll
                    for (int r = 0; r < 8; ++r) {
#pragma unroll
                        for (int s = 0; s < 8; ++s) sum[r][s] += of_a[r] * of_b[s];
                    }
                }
            }
            wait_for_stage<0>();
            __syncthreads();  // before the next tiles overwrite these
#pragma unroll
            for (int r = 0; r < 8; ++r) {
                const int row = 4 * y + r % 4 + 64 * (r / 4);
                if (row >= rows) continue;
#pragma unroll
                for (int s = 0; s < 8; s += 4) {
                    const int col = 4 * x + 16 * s;
                    const long long at = (row0 + row) * n + col0 + col;
                    if (ALIGNED && col < cols)
                        reinterpret_cast<float4*>(c)[at / 4] =
                            make_float4(sum[r][s], sum[r][s + 1], sum[r][s + 2], sum[r][s + 3]);
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        if (!ALIGNED && col + i < cols) c[at + i] = sum[r][s + i];
                }
            }
        }
    }
}

#if defined(__CUDA_ARCH__)  // AMD's matrix instructions are others

// The instructions: D += A*B of 16x8x16 elements, four or eight of each in a lane (PTX ISA has a figure).
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned int (&a)[4], const unsigned int (&b)[2],
                                         const __half*) {
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
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned int (&a)[4], const unsigned int (&b)[2],
                                         const bf16*) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same of 16x8x32 eight-bit numbers, whose lanes lie as those of 16x8x16 halves do: four bytes for two halves.
__device__ __forceinline__ void multiply(int (&d)[4], const unsigned int (&a)[4], const unsigned int (&b)[2],
                                         const signed char*) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
#pragma unroll
    for (int part = 0; part < 4; ++part)  // Turing's is half as deep, and of eight rows
        asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(d[part % 2 * 2]), "+r"(d[part % 2 * 2 + 1])
            : "r"(a[part]), "r"(b[part / 2]));
#endif
}

// Four 8x8 matrices of halves, whose rows are 16 bytes each; lane i gives the address of row i of them all.
__device__ __forceinline__ void load_matrices(unsigned int (&to)[4], const uint4* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ __forceinline__ void load_transposed(unsigned int (&to)[4], const uint4* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

static constexpr int HALF_DEPTH = 32;  // columns of A and rows of B per stage
static constexpr int STAGES = 3;       // that many make the 48 KiB of shared memory that every block may have
static constexpr int CHUNK = 8;        // halves in 16 bytes
static constexpr int A_CHUNKS = HALF_DEPTH / CHUNK, B_CHUNKS = WIDE_TILE / CHUNK;  // in a row of a tile
static constexpr int A_STAGE = WIDE_TILE * A_CHUNKS, STAGE = A_STAGE + HALF_DEPTH * B_CHUNKS;
static constexpr int A_ROWS = WIDE_THREADS / A_CHUNKS, B_ROWS = WIDE_THREADS / B_CHUNKS;  // that all threads fill once
static constexpr int C_PITCH = B_CHUNKS + 1;  // one more keeps the rows of C in different banks

// Trick: where a chunk lies in its row depends on the row (a swizzle). The eight rows that one matrix load reads then
// lie in different banks, without padding.
__device__ __forceinline__ int a_place(int row, int chunk) { return row * A_CHUNKS + (chunk ^ (row / 2 % A_CHUNKS)); }
__device__ __forceinline__ int b_place(int row, int chunk) { return A_STAGE + row * B_CHUNKS + (chunk ^ (row % 8)); }

// A chunk of a tile: its first `inside` elements lie in the matrix, the others count as zeros.
template <bool ALIGNED, typename T>
__device__ __forceinline__ void fill(uint4* to, const T* from, int inside) {
    if (ALIGNED)
        copy_if(inside > 0, to, from);
    else
        for (int i = 0; i < CHUNK; ++i)
            reinterpret_cast<unsigned short*>(to)[i] =
                i < inside ? reinterpret_cast<const unsigned short*>(from)[i] : 0;
}
template <bool ALIGNED>
__device__ __forceinline__ void fill(uint4* to, const signed char* from, int inside) {
    if (ALIGNED)
        copy_if(inside > 0, to, from);
    else
#pragma unroll 1
        for (int i = 0; i < 16; ++i) reinterpret_cast<signed char*>(to)[i] = i < inside ? from[i] : 0;
}

// The block's 128x128 of C, of which a warp has 64x32 in registers. Trick: they go through shared memory, so that 16
// lanes write 256 bytes of a row.
template <bool ALIGNED, typename T>
__device__ __forceinline__ void store(uint4* tiles, T* c, const float (&sum)[4][4][4], int warp_row, int warp_col,
                                      long long row0, long long col0, long long m, long long n) {
    const int thread = threadIdx.y * 16 + threadIdx.x, lane = thread % 32;
    T* staged = reinterpret_cast<T*>(tiles);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                int row = warp_row + 16 * i + 8 * half + lane / 4, col = warp_col + 8 * j + lane % 4 * 2;
                struct alignas(4) {
                    T first, second;
                } pair = {static_cast<T>(sum[i][j][2 * half]), static_cast<T>(sum[i][j][2 * half + 1])};
                *reinterpret_cast<decltype(pair)*>(staged + row * C_PITCH * CHUNK + col) = pair;
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = thread; i < WIDE_TILE * B_CHUNKS; i += WIDE_THREADS) {
        long long row = row0 + i / B_CHUNKS, col = col0 + i % B_CHUNKS * CHUNK;
        int place = i / B_CHUNKS * C_PITCH + i % B_CHUNKS;
        if (ALIGNED && row < m && col < n) *reinterpret_cast<uint4*>(c + row * n + col) = tiles[place];
        for (int s = 0; s < CHUNK; ++s)
            if (!ALIGNED && row < m && col + s < n) c[row * n + col + s] = staged[place * CHUNK + s];
    }
    __syncthreads();  // before the next tiles overwrite these
}

// Floats, for which shared memory has no room, go as they are: four lanes write 32 bytes, a whole sector.
template <bool ALIGNED>
__device__ __forceinline__ void store(uint4*, float* c, const float (&sum)[4][4][4], int warp_row, int warp_col,
                                      long long row0, long long col0, long long m, long long n) {
    const int lane = (threadIdx.y * 16 + threadIdx.x) % 32;
    c += (row0 + warp_row + lane / 4) * n + col0;
    const int rows = within(m - row0, WIDE_TILE) - warp_row - lane / 4, cols = within(n - col0, WIDE_TILE);
#pragma unroll
    for (int i = 0; i < 8; ++i, c += 8 * n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int col = warp_col + 8 * j + lane % 4 * 2;
            const float of_lane[2] = {sum[i / 2][j][i % 2 * 2], sum[i / 2][j][i % 2 * 2 + 1]};
            if (ALIGNED && 8 * i < rows && col < cols)
                reinterpret_cast<float2*>(c)[col / 2] = make_float2(of_lane[0], of_lane[1]);
#pragma unroll
            for (int s = 0; s < 2; ++s)
                if (!ALIGNED && 8 * i < rows && col + s < cols) c[col + s] = of_lane[s];
        }
    }
}

// A warp's 64x32 of C, from 64 rows of A and 32 columns of B, as deep as an instruction is.
template <typename Sum, typename T>
__device__ __forceinline__ void multiply_all(Sum (&sum)[4][4][4], const unsigned int (&of_a)[4][4],
                                             const unsigned int (&of_b)[2][4], const T* kind) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const unsigned int of_columns[2] = {of_b[j / 2][j % 2 * 2], of_b[j / 2][j % 2 * 2 + 1]};
            multiply(sum[i][j], of_a[i], of_columns, kind);
        }
    }
}

// Load stages ahead, and use one after the other.
template <typename Load, typename Use>
__device__ __forceinline__ void pipeline(uint4* tiles, int steps, Load load, Use use) {
#pragma unroll
    for (int step = 0; step < STAGES - 1; ++step) load(step, tiles + step * STAGE);
    uint4 *stage = tiles, *free_stage = tiles + (STAGES - 1) * STAGE;
    for (int step = 0; step < steps; ++step) {
        wait_for_stage<STAGES - 2>();
        __syncthreads();  // this stage is there, and that of the step before is read by nobody any more
        load(step + STAGES - 1, free_stage);
        free_stage = stage;
        use(stage);
        stage = stage == tiles + (STAGES - 1) * STAGE ? tiles : stage + STAGE;
    }
    wait_for_stage<0>();
    __syncthreads();
}

// tiles: of A and B, a stage after the other; at the end, of C.
template <bool ALIGNED, typename Out, typename T>
__device__ __forceinline__ void tensor(uint4* tiles, Out* c, const T* a, const T* b, long long m, long long n,
                                       long long k, long long begin, long long end) {
    const int thread = threadIdx.y * 16 + threadIdx.x, lane = thread % 32, warp = thread / 32;
    // Of 128x128, a warp computes 64x32: four by four of what an instruction does.
    const int warp_row = warp / 4 * 64, warp_col = warp % 4 * 32;
    const int a_from_row = thread / A_CHUNKS, a_from = thread % A_CHUNKS;
    const int b_from_row = thread / B_CHUNKS, b_from = thread % B_CHUNKS;
    const int steps = static_cast<int>((end - begin + HALF_DEPTH - 1) / HALF_DEPTH);
    for (long long row0 = blockIdx.y * (long long)WIDE_TILE; row0 < m; row0 += gridDim.y * (long long)WIDE_TILE) {
        for (long long col0 = blockIdx.x * (long long)WIDE_TILE; col0 < n; col0 += gridDim.x * (long long)WIDE_TILE) {
            const T* a_next = a + (row0 + a_from_row) * k + begin + a_from * CHUNK;
            const T* b_next = b + (begin + b_from_row) * n + col0 + b_from * CHUNK;
            const int rows = within(m - row0, WIDE_TILE) - a_from_row;
            const int cols = within(n - col0, WIDE_TILE) - b_from * CHUNK;
            auto load = [&](int step, uint4* stage) {
                const int depth = within(end - begin - static_cast<long long>(step) * HALF_DEPTH, HALF_DEPTH);
                if (depth > 0) {
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        fill<ALIGNED>(stage + a_place(a_from_row + i * A_ROWS, a_from), a_next + i * A_ROWS * k,
                                      i * A_ROWS < rows ? depth - a_from * CHUNK : 0);
                        fill<ALIGNED>(stage + b_place(b_from_row + i * B_ROWS, b_from), b_next + i * B_ROWS * n,
                                      b_from_row + i * B_ROWS < depth ? cols : 0);
                    }
                    a_next += HALF_DEPTH;
                    b_next += HALF_DEPTH * n;
                }
                end_of_stage();  // also of none, so that stages can be counted
            };
            float sum[4][4][4] = {};
            pipeline(tiles, steps, load, [&](const uint4* stage) {
#pragma unroll
                for (int deep = 0; deep < HALF_DEPTH / 16; ++deep) {
                    unsigned int of_a[4][4], of_b[2][4];
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        load_matrices(of_a[i], stage + a_place(warp_row + 16 * i + lane % 16, 2 * deep + lane / 16));
#pragma unroll
                    for (int j = 0; j < 2; ++j)
                        load_transposed(of_b[j], stage + b_place(16 * deep + lane % 16,
                                                                 warp_col / CHUNK + 2 * j + lane / 16));
                    multiply_all(sum, of_a, of_b, a);
                }
            });
            store<ALIGNED>(tiles, c, sum, warp_row, warp_col, row0, col0, m, n);
        }
    }
}

#endif

template <int LEAST_ARCH, typename Out, typename T>
__device__ __forceinline__ void product(Out* c, const T* a, const T* b, long long m, long long n, long long k,
                                        long long begin, long long end) {
#if defined(__CUDA_ARCH__)
    if (__CUDA_ARCH__ >= LEAST_ARCH) {
        __shared__ uint4 tiles[STAGES * STAGE];
        if (aligned(c, a, b, n, k))
            tensor<true>(tiles, c, a, b, m, n, k, begin, end);
        else
            tensor<false>(tiles, c, a, b, m, n, k, begin, end);
        return;
    }
#endif
    gemm_blocked(c, a, b, m, n, k, begin, end);
}
template <int>
__device__ __forceinline__ void product(float* c, const float* a, const float* b, long long m, long long n,
                                        long long k, long long begin, long long end) {
    __shared__ __align__(16) F32Tiles tiles;
    if (aligned(c, a, b, n, k))
        pipelined<true>(tiles, c, a, b, m, n, k, begin, end);
    else
        pipelined<false>(tiles, c, a, b, m, n, k, begin, end);
}

// ---- split_k --------------------------------------------------------------------------------------------------------

static constexpr int SPLIT_STEP = 32;  // a split has whole steps of a pipeline; rows of whole 16 bytes stay aligned

// sums (splits, m, n)
template <int LEAST_ARCH, typename T>
__device__ __forceinline__ void split_product(float* sums, const T* a, const T* b, long long m, long long n,
                                              long long k, long long splits) {
    const long long together = splits * SPLIT_STEP, per_split = (k + together - 1) / together * SPLIT_STEP;
    for (long long split = blockIdx.z; split < splits; split += gridDim.z) {
        const long long begin = split * per_split < k ? split * per_split : k;
        const long long end = begin + per_split < k ? begin + per_split : k;
        product<LEAST_ARCH>(sums + split * m * n, a, b, m, n, k, begin, end);
    }
}

template <int WIDTH, typename T>
struct alignas(WIDTH * sizeof(T)) Lanes {
    T lane[WIDTH];
};

template <int WIDTH, typename T>
__device__ __forceinline__ void add_splits(T* c, const float* sums, long long count, long long splits) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count / WIDTH;
         i += gridDim.x * (long long)blockDim.x) {
        const auto* next = reinterpret_cast<const Lanes<WIDTH, float>*>(sums) + i;
        float sum[WIDTH] = {};
#pragma unroll 4
        for (long long split = 0; split < splits; ++split, next += count / WIDTH) {
            const Lanes<WIDTH, float> part = *next;
#pragma unroll
            for (int e = 0; e < WIDTH; ++e) sum[e] += part.lane[e];
        }
        Lanes<WIDTH, T> all;
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) all.lane[e] = static_cast<T>(sum[e]);
        reinterpret_cast<Lanes<WIDTH, T>*>(c)[i] = all;
    }
}

template <typename T>
__device__ __forceinline__ void combine(T* c, const float* sums, long long m, long long n, long long splits) {
    const bool is_aligned = reinterpret_cast<unsigned long long>(c) % sizeof(Lanes<4, T>) == 0 &&
                            reinterpret_cast<unsigned long long>(sums) % 16 == 0 && m * n % 4 == 0;
    if (is_aligned)
        add_splits<4>(c, sums, m * n, splits);
    else
        add_splits<1>(c, sums, m * n, splits);
}

// ---- eight bits -----------------------------------------------------------------------------------------------------

// sum of products of two rows of k numbers
__device__ __forceinline__ int row_product(const signed char* x, const signed char* y, long long k) {
    int sum = 0;
    long long i = 0;
#if defined(__CUDA_ARCH__)
    if ((reinterpret_cast<unsigned long long>(x) | reinterpret_cast<unsigned long long>(y)) % 4 == 0)
        for (; i + 4 <= k; i += 4)  // an instruction multiplies four pairs of bytes, and adds them
            sum = __dp4a(*reinterpret_cast<const int*>(x + i), *reinterpret_cast<const int*>(y + i), sum);
#endif
    for (; i < k; ++i) sum += x[i] * y[i];
    return sum;
}

template <typename Out>
__device__ __forceinline__ void gemm_int8_plain(Out* c, const signed char* a, const signed char* w,
                                                const float* a_scales, const float* w_scales, long long m, long long n,
                                                long long k) {
    long long row_step = gridDim.y * (long long)blockDim.y, col_step = gridDim.x * (long long)blockDim.x;
    for (long long row = blockIdx.y * (long long)blockDim.y + threadIdx.y; row < m; row += row_step) {
        for (long long col = blockIdx.x * (long long)blockDim.x + threadIdx.x; col < n; col += col_step) {
            const float sum = static_cast<float>(row_product(a + row * k, w + col * k, k));
            c[row * n + col] = static_cast<Out>(sum * a_scales[row] * w_scales[col]);
        }
    }
}

#if defined(__CUDA_ARCH__)

static constexpr int INT8_DEPTH = 64;  // columns of A and W per stage: as many bytes of a row as of halves
static constexpr int INT8_CHUNK = 16;  // numbers in 16 bytes
static constexpr int SCALES = WIDE_TILE * C_PITCH;  // where they lie in shared memory: behind C
// A warp may still read them while others load the first stages of the next tile.
static_assert(SCALES >= (STAGES - 1) * STAGE && SCALES + WIDE_TILE / 2 <= STAGES * STAGE, "scales overlap a stage");

// tiles: of A and of W, which lies as A does; at the end, of C and its scales.
template <bool ALIGNED, typename Out>
__device__ __forceinline__ void tensor_int8(uint4* tiles, Out* c, const signed char* a, const signed char* w,
                                            const float* a_scales, const float* w_scales, long long m, long long n,
                                            long long k) {
    const int thread = threadIdx.y * 16 + threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int warp_row = warp / 4 * 64, warp_col = warp % 4 * 32;
    const int from_row = thread / A_CHUNKS, from = thread % A_CHUNKS;
    const int steps = static_cast<int>((k + INT8_DEPTH - 1) / INT8_DEPTH);
    float* scales = reinterpret_cast<float*>(tiles + SCALES);
    for (long long row0 = blockIdx.y * (long long)WIDE_TILE; row0 < m; row0 += gridDim.y * (long long)WIDE_TILE) {
        for (long long col0 = blockIdx.x * (long long)WIDE_TILE; col0 < n; col0 += gridDim.x * (long long)WIDE_TILE) {
            const signed char* of_a = a + (row0 + from_row) * k;
            const signed char* of_w = w + (col0 + from_row) * k;
            const int rows = within(m - row0, WIDE_TILE), cols = within(n - col0, WIDE_TILE);
            auto load = [&](int step, uint4* stage) {
                const long long at = static_cast<long long>(step) * INT8_DEPTH + from * INT8_CHUNK;
                const int inside = within(k - at, INT8_CHUNK);
#pragma unroll
                for (int i = 0; i < WIDE_TILE; i += A_ROWS) {
                    const int place = a_place(from_row + i, from);
                    fill<ALIGNED>(stage + place, of_a + i * k + at, from_row + i < rows ? inside : 0);
                    fill<ALIGNED>(stage + A_STAGE + place, of_w + i * k + at, from_row + i < cols ? inside : 0);
                }
                end_of_stage();
            };
            int sum[4][4][4] = {};
            pipeline(tiles, steps, load, [&](const uint4* stage) {
#pragma unroll
                for (int deep = 0; deep < INT8_DEPTH / 32; ++deep) {
                    unsigned int a_lanes[4][4], w_lanes[2][4];
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        load_matrices(a_lanes[i], stage + a_place(warp_row + 16 * i + lane % 16, 2 * deep + lane / 16));
                    // A row of W is a column of what the instruction multiplies by: it lies as that wants it.
#pragma unroll
                    for (int j = 0; j < 2; ++j)
                        load_matrices(w_lanes[j],
                                      stage + A_STAGE + a_place(warp_col + 16 * j + lane / 16 * 8 + lane % 8,
                                                                2 * deep + lane / 8 % 2));
                    multiply_all(sum, a_lanes, w_lanes, a);
                }
            });
            // Trick: a block asks for each scale once, not each thread for the 16 that it needs.
            const int at = thread % WIDE_TILE;
            if (thread < WIDE_TILE)
                scales[thread] = at < rows ? a_scales[row0 + at] : 0.0f;
            else
                scales[thread] = at < cols ? w_scales[col0 + at] : 0.0f;
            __syncthreads();
            float scaled[4][4][4];
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const float of_row = scales[warp_row + 8 * i + lane / 4];
#pragma unroll
                for (int j = 0; j < 8; ++j) {
                    const int e = i % 2 * 2 + j % 2;
                    scaled[i / 2][j / 2][e] = static_cast<float>(sum[i / 2][j / 2][e]) * of_row *
                                              scales[WIDE_TILE + warp_col + j / 2 * 8 + lane % 4 * 2 + j % 2];
                }
            }
            store<ALIGNED>(tiles, c, scaled, warp_row, warp_col, row0, col0, m, n);
        }
    }
}

#endif

template <typename Out>
__device__ __forceinline__ void gemm_int8_pipelined(Out* c, const signed char* a, const signed char* w,
                                                    const float* a_scales, const float* w_scales, long long m,
                                                    long long n, long long k) {
#if defined(__CUDA_ARCH__)
    __shared__ uint4 tiles[STAGES * STAGE];
    if (aligned(c, a, w, n * static_cast<long long>(sizeof(Out)), k))
        tensor_int8<true>(tiles, c, a, w, a_scales, w_scales, m, n, k);
    else
        tensor_int8<false>(tiles, c, a, w, a_scales, w_scales, m, n, k);
#else
    gemm_int8_plain(c, a, w, a_scales, w_scales, m, n, k);
#endif
}

extern "C" __global__ void gemm_naive_f32(float* __restrict__ c, const float* __restrict__ a,
                                          const float* __restrict__ b, long long m, long long n, long long k) {
    gemm_naive(c, a, b, m, n, k);
}
extern "C" __global__ void gemm_naive_f16(__half* __restrict__ c, const __half* __restrict__ a,
                                          const __half* __restrict__ b, long long m, long long n, long long k) {
    gemm_naive(c, a, b, m, n, k);
}
extern "C" __global__ void gemm_tiled_f32(float* __restrict__ c, const float* __restrict__ a,
                                          const float* __restrict__ b, long long m, long long n, long long k) {
    gemm_tiled(c, a, b, m, n, k);
}
extern "C" __global__ void gemm_tiled_f16(__half* __restrict__ c, const __half* __restrict__ a,
                                          const __half* __restrict__ b, long long m, long long n, long long k) {
    gemm_tiled(c, a, b, m, n, k);
}
extern "C" __global__ void gemm_blocked_f32(float* __restrict__ c, const float* __restrict__ a,
                                            const float* __restrict__ b, long long m, long long n, long long k) {
    gemm_blocked(c, a, b, m, n, k, 0, k);
}
extern "C" __global__ void gemm_blocked_f16(__half* __restrict__ c, const __half* __restrict__ a,
                                            const __half* __restrict__ b, long long m, long long n, long long k) {
    gemm_blocked(c, a, b, m, n, k, 0, k);
}
// Two blocks on a multiprocessor: one multiplies while the other waits. That leaves a thread 128 registers. Turing has
// shared memory for one.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define BLOCKS_AT_ONCE 1
#else
#define BLOCKS_AT_ONCE 2
#endif
extern "C" __global__ void __launch_bounds__(WIDE_THREADS, BLOCKS_AT_ONCE)
    gemm_pipelined_f32(float* __restrict__ c, const float* __restrict__ a, const float* __restrict__ b, long long m,
                       long long n, long long k) {
    product<0>(c, a, b, m, n, k, 0, k);
}
extern "C" __global__ void __launch_bounds__(WIDE_THREADS, BLOCKS_AT_ONCE)
    gemm_pipelined_f16(__half* __restrict__ c, const __half* __restrict__ a, const __half* __restrict__ b, long long m,
                       long long n, long long k) {
    product<750>(c, a, b, m, n, k, 0, k);
}
extern "C" __global__ void __launch_bounds__(WIDE_THREADS, BLOCKS_AT_ONCE)
    gemm_pipelined_bf16(bf16* __restrict__ c, const bf16* __restrict__ a, const bf16* __restrict__ b, long long m,
                        long long n, long long k) {
    product<800>(c, a, b, m, n, k, 0, k);
}
// Of these there is one block on a multiprocessor.
extern "C" __global__ void __launch_bounds__(WIDE_THREADS, 1)
    gemm_split_k_f32(float* __restrict__ sums, const float* __restrict__ a, const float* __restrict__ b, long long m,
                     long long n, long long k, long long splits) {
    split_product<0>(sums, a, b, m, n, k, splits);
}
extern "C" __global__ void __launch_bounds__(WIDE_THREADS, 1)
    gemm_split_k_f16(float* __restrict__ sums, const __half* __restrict__ a, const __half* __restrict__ b, long long m,
                     long long n, long long k, long long splits) {
    split_product<750>(sums, a, b, m, n, k, splits);
}
extern "C" __global__ void __launch_bounds__(WIDE_THREADS, 1)
    gemm_split_k_bf16(float* __restrict__ sums, const bf16* __restrict__ a, const bf16* __restrict__ b, long long m,
                     long long n, long long k, long long splits) {
    split_product<800>(sums, a, b, m, n, k, splits);
}
extern "C" __global__ void gemm_split_k_combine_f32(float* __restrict__ c, const float* __restrict__ sums, long long m,
                                                 long long n, long long splits) {
    combine(c, sums, m, n, splits);
}
extern "C" __global__ void gemm_split_k_combine_f16(__half* __restrict__ c, const float* __restrict__ sums, long long m,
                                                 long long n, long long splits) {
    combine(c, sums, m, n, splits);
}
extern "C" __global__ void gemm_split_k_combine_bf16(bf16* __restrict__ c, const float* __restrict__ sums, long long m,
                                                 long long n, long long splits) {
    combine(c, sums, m, n, splits);
}
extern "C" __global__ void gemm_int8_plain_f32(float* __restrict__ c, const signed char* __restrict__ a,
                                               const signed char* __restrict__ w, const float* __restrict__ a_scales,
                                               const float* __restrict__ w_scales, long long m, long long n,
                                               long long k) {
    gemm_int8_plain(c, a, w, a_scales, w_scales, m, n, k);
}
extern "C" __global__ void gemm_int8_plain_f16(__half* __restrict__ c, const signed char* __restrict__ a,
                                               const signed char* __restrict__ w, const float* __restrict__ a_scales,
                                               const float* __restrict__ w_scales, long long m, long long n,
                                               long long k) {
    gemm_int8_plain(c, a, w, a_scales, w_scales, m, n, k);
}
extern "C" __global__ void __launch_bounds__(WIDE_THREADS, BLOCKS_AT_ONCE)
    gemm_int8_pipelined_f32(float* __restrict__ c, const signed char* __restrict__ a,
                            const signed char* __restrict__ w, const float* __restrict__ a_scales,
                            const float* __restrict__ w_scales, long long m, long long n, long long k) {
    gemm_int8_pipelined(c, a, w, a_scales, w_scales, m, n, k);
}
extern "C" __global__ void __launch_bounds__(WIDE_THREADS, BLOCKS_AT_ONCE)
    gemm_int8_pipelined_f16(__half* __restrict__ c, const signed char* __restrict__ a,
                            const signed char* __restrict__ w, const float* __restrict__ a_scales,
                            const float* __restrict__ w_scales, long long m, long long n, long long k) {
    gemm_int8_pipelined(c, a, w, a_scales, w_scales, m, n, k);
}
extern "C" __global__ void __launch_bounds__(WIDE_THREADS, BLOCKS_AT_ONCE)
    gemm_int8_pipelined_bf16(bf16* __restrict__ c, const signed char* __restrict__ a,
                             const signed char* __restrict__ w, const float* __restrict__ a_scales,
                             const float* __restrict__ w_scales, long long m, long long n, long long k) {
    gemm_int8_pipelined(c, a, w, a_scales, w_scales, m, n, k);
}
