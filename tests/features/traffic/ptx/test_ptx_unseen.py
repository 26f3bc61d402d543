"""Programs the interpreter was not written for: small kernels of many kinds, added after it was done, against NumPy."""

from __future__ import annotations

import itertools
import zlib

import numpy as np
import pytest
from ptx_sources import run

ARCHITECTURES = pytest.mark.parametrize("arch", ["sm_75", "sm_120"])
pytestmark = ARCHITECTURES


def generator() -> np.random.Generator:
    return np.random.default_rng(7)


def test_histogram_in_shared_memory(arch: str) -> None:
    text = r"""
    extern "C" __global__ void histogram(unsigned* out, const unsigned char* in, int n) {
        __shared__ unsigned bins[64];
        if (threadIdx.x < 64) bins[threadIdx.x] = 0;
        __syncthreads();
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
            atomicAdd(&bins[in[i] >> 2], 1u);
        __syncthreads();
        if (threadIdx.x < 64) atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
    }"""
    data, out = generator().integers(0, 256, 10_001).astype(np.uint8), np.zeros(64, np.uint32)
    run(text, "histogram", (5,), (128,), out, data, data.size, arch=arch)
    np.testing.assert_array_equal(out, np.bincount(data >> 2, minlength=64))


def test_inclusive_scan_by_doubling(arch: str) -> None:
    text = r"""
    extern "C" __global__ void scan(int* data) {
        __shared__ int box[2][256];
        int t = threadIdx.x, from = 0;
        box[0][t] = data[blockIdx.x * 256 + t];
        __syncthreads();
        for (int step = 1; step < 256; step *= 2) {
            box[1 - from][t] = t >= step ? box[from][t] + box[from][t - step] : box[from][t];
            from = 1 - from;
            __syncthreads();
        }
        data[blockIdx.x * 256 + t] = box[from][t];
    }"""
    data = generator().integers(-50, 50, (4, 256)).astype(np.int32)
    expected = np.cumsum(data, axis=1)
    run(text, "scan", (4,), (256,), data, arch=arch)
    np.testing.assert_array_equal(data, expected)


def test_scan_by_shuffles(arch: str) -> None:
    text = r"""
    extern "C" __global__ void scan(float* data) {
        int lane = threadIdx.x % 32;
        float x = data[blockIdx.x * blockDim.x + threadIdx.x];
        #pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            float y = __shfl_up_sync(0xffffffffu, x, step);
            if (lane >= step) x += y;
        }
        data[blockIdx.x * blockDim.x + threadIdx.x] = x;
    }"""
    data = generator().integers(0, 9, (12, 32)).astype(np.float32)
    expected = np.cumsum(data, axis=1)
    run(text, "scan", (3,), (128,), data, arch=arch)
    np.testing.assert_array_equal(data, expected)


def test_bitonic_sort(arch: str) -> None:
    text = r"""
    extern "C" __global__ void sort(float* data) {
        extern __shared__ float box[];
        unsigned t = threadIdx.x;
        box[t] = data[blockIdx.x * blockDim.x + t];
        for (unsigned k = 2; k <= blockDim.x; k <<= 1)
            for (unsigned j = k >> 1; j > 0; j >>= 1) {
                __syncthreads();
                unsigned other = t ^ j;
                if (other > t) {
                    bool up = (t & k) == 0;
                    float a = box[t], b = box[other];
                    if ((a > b) == up) { box[t] = b; box[other] = a; }
                }
            }
        __syncthreads();
        data[blockIdx.x * blockDim.x + t] = box[t];
    }"""
    data = generator().standard_normal((3, 256)).astype(np.float32)
    expected = np.sort(data, axis=1)
    run(text, "sort", (3,), (256,), data, shared_bytes=1024, arch=arch)
    np.testing.assert_array_equal(data, expected)


def test_convolution_with_a_halo(arch: str) -> None:
    text = r"""
    __constant__ float weight[9] = {1, 2, 1, 2, 4, 2, 1, 2, 1};
    extern "C" __global__ void blur(float* out, const float* in, int w, int h) {
        __shared__ float tile[18][18];
        int x0 = blockIdx.x * 16 - 1, y0 = blockIdx.y * 16 - 1;
        for (int i = threadIdx.y * 16 + threadIdx.x; i < 18 * 18; i += 256) {
            int x = min(max(x0 + i % 18, 0), w - 1), y = min(max(y0 + i / 18, 0), h - 1);
            tile[i / 18][i % 18] = in[y * w + x];
        }
        __syncthreads();
        int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
        if (x >= w || y >= h) return;
        float sum = 0;
        for (int dy = 0; dy < 3; dy++)
            for (int dx = 0; dx < 3; dx++) sum += weight[dy * 3 + dx] * tile[threadIdx.y + dy][threadIdx.x + dx];
        out[y * w + x] = sum / 16;
    }"""
    image = generator().integers(0, 255, (45, 70)).astype(np.float32)
    out = np.zeros_like(image)
    run(text, "blur", (5, 3), (16, 16), out, image, 70, 45, arch=arch)
    padded = np.pad(image, 1, mode="edge")
    weight = np.outer([1, 2, 1], [1, 2, 1])
    expected = sum(weight[dy, dx] * padded[dy : dy + 45, dx : dx + 70] for dy in range(3) for dx in range(3)) / 16
    np.testing.assert_array_equal(out, expected)


def test_layer_norm_of_rows(arch: str) -> None:
    text = r"""
    __device__ float over_block(float x) {
        __shared__ float part[4];
        for (int k = 16; k; k >>= 1) x += __shfl_xor_sync(~0u, x, k);
        __syncthreads();
        if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = x;
        __syncthreads();
        return part[0] + part[1] + part[2] + part[3];
    }
    extern "C" __global__ void layer_norm(float* out, const float* in, const float* gain, int n) {
        const float* row = in + blockIdx.x * n;
        float sum = 0, square = 0;
        for (int i = threadIdx.x; i < n; i += 128) sum += row[i];
        float mean = over_block(sum) / n;
        for (int i = threadIdx.x; i < n; i += 128) square += (row[i] - mean) * (row[i] - mean);
        float scale = rsqrtf(over_block(square) / n + 1e-5f);
        for (int i = threadIdx.x; i < n; i += 128) out[blockIdx.x * n + i] = (row[i] - mean) * scale * gain[i];
    }"""
    x, gain = generator().standard_normal((6, 500)).astype(np.float32), generator().random(500).astype(np.float32)
    out = np.zeros_like(x)
    run(text, "layer_norm", (6,), (128,), out, x, gain, 500, arch=arch)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * gain
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


def test_argmax_packed_into_an_atomic(arch: str) -> None:
    text = r"""
    extern "C" __global__ void argmax(unsigned long long* best, const float* in, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        unsigned bits = __float_as_uint(in[i]);
        bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
        atomicMax(best, (unsigned long long)bits << 32 | (unsigned)i);
    }"""
    x, best = generator().standard_normal(3000).astype(np.float32), np.zeros(1, np.uint64)
    run(text, "argmax", (12,), (256,), best, x, 3000, arch=arch)
    assert int(best[0]) & 0xFFFFFFFF == int(x.argmax())


def test_sparse_matrix_times_vector(arch: str) -> None:
    text = r"""
    extern "C" __global__ void csr(
        float* y, const int* start, const int* column, const float* value, const float* x, int rows) {
        int row = blockIdx.x * blockDim.x + threadIdx.x;
        if (row >= rows) return;
        float sum = 0;
        for (int k = start[row]; k < start[row + 1]; k++) sum += value[k] * x[column[k]];
        y[row] = sum;
    }"""
    lengths = generator().integers(0, 40, 333)
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    column = generator().integers(0, 500, start[-1]).astype(np.int32)
    value, x = (
        generator().standard_normal(start[-1]).astype(np.float32),
        generator().standard_normal(500).astype(np.float32),
    )
    y = np.zeros(333, np.float32)
    execution = run(text, "csr", (3,), (128,), y, start, column, value, x, 333, arch=arch)
    expected = [value[a:b].astype(np.float64) @ x[column[a:b]] for a, b in itertools.pairwise(start)]
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
    assert execution.counts.divergent_branches > 0


def test_mandelbrot(arch: str) -> None:
    text = r"""
    extern "C" __global__ void mandelbrot(int* out, double left, double top, double step, int limit) {
        int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
        double cx = left + px * step, cy = top + py * step, x = 0, y = 0;
        int n = 0;
        while (n < limit && x * x + y * y <= 4.0) {
            double t = x * x - y * y + cx;
            y = 2 * x * y + cy;
            x = t;
            n++;
        }
        out[py * gridDim.x * blockDim.x + px] = n;
    }"""
    out = np.zeros((32, 64), np.int32)
    run(
        text,
        "mandelbrot",
        (8, 4),
        (8, 8),
        out,
        np.float64(-2),
        np.float64(-1),
        np.float64(0.05),
        60,
        arch=arch,
        compile_options=("--fmad=false",),
    )
    expected = np.zeros_like(out)
    for py in range(32):
        for px in range(64):
            cx, cy, x, y, n = -2 + px * 0.05, -1 + py * 0.05, 0.0, 0.0, 0
            while n < 60 and x * x + y * y <= 4:
                x, y, n = x * x - y * y + cx, 2 * x * y + cy, n + 1
            expected[py, px] = n
    np.testing.assert_array_equal(out, expected)


def test_xorshift_generators(arch: str) -> None:
    text = r"""
    extern "C" __global__ void draw(unsigned long long* state, unsigned* out, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        unsigned long long s = state[i];
        for (int k = 0; k < n; k++) {
            s ^= s >> 12; s ^= s << 25; s ^= s >> 27;
            out[k * gridDim.x * blockDim.x + i] = (unsigned)((s * 2685821657736338717ull) >> 32);
        }
        state[i] = s;
    }"""
    state, out = generator().integers(1, 2**63, 128, dtype=np.uint64), np.zeros((5, 128), np.uint32)
    s = state.copy()
    run(text, "draw", (4,), (32,), state, out, 5, arch=arch)
    for row in out:
        s ^= s >> np.uint64(12)
        s ^= s << np.uint64(25)
        s ^= s >> np.uint64(27)
        np.testing.assert_array_equal(row, (s * np.uint64(2685821657736338717)) >> np.uint64(32))
    np.testing.assert_array_equal(state, s)


def test_matrix_times_vector_in_float4(arch: str) -> None:
    text = r"""
    extern "C" __global__ void gemv(float* y, const float4* a, const float4* x, int quads) {
        float sum = 0;
        for (int k = threadIdx.x; k < quads; k += 32) {
            float4 p = a[blockIdx.x * quads + k], q = x[k];
            sum += p.x * q.x + p.y * q.y + p.z * q.z + p.w * q.w;
        }
        for (int k = 16; k; k /= 2) sum += __shfl_down_sync(~0u, sum, k);
        if (threadIdx.x == 0) y[blockIdx.x] = sum;
    }"""
    a, x = (
        generator().standard_normal((50, 320)).astype(np.float32),
        generator().standard_normal(320).astype(np.float32),
    )
    y = np.zeros(50, np.float32)
    execution = run(text, "gemv", (50,), (32,), y, a, x, 80, arch=arch)
    np.testing.assert_allclose(y, a.astype(np.float64) @ x, rtol=1e-4, atol=1e-4)
    assert execution.arrays[1].bytes_read == a.nbytes


def test_colour_to_grey(arch: str) -> None:
    text = r"""
    struct Pixel { unsigned char r, g, b; };
    extern "C" __global__ void grey(unsigned char* out, const Pixel* in, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) out[i] = (77 * in[i].r + 150 * in[i].g + 29 * in[i].b) >> 8;
    }"""
    image, out = generator().integers(0, 256, (1000, 3)).astype(np.uint8), np.zeros(1000, np.uint8)
    execution = run(text, "grey", (8,), (128,), out, image, 1000, arch=arch)
    np.testing.assert_array_equal(out, image.astype(np.int64) @ [77, 150, 29] >> 8)
    assert execution.bytes_read == 3000


def test_quantisation_and_byte_dot_products(arch: str) -> None:
    text = r"""
    __device__ int quantised(float x, float scale) { return max(-127, min(127, __float2int_rn(x * scale))); }
    extern "C" __global__ void dots(int* out, signed char* q, const float* a, const int* b, float scale, int quads) {
        int row = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
        for (int k = 0; k < quads; k++) {
            char4 v;
            const float* p = a + (row * quads + k) * 4;
            v.x = quantised(p[0], scale); v.y = quantised(p[1], scale);
            v.z = quantised(p[2], scale); v.w = quantised(p[3], scale);
            ((char4*)q)[row * quads + k] = v;
            sum = __dp4a(*(int*)&v, b[k], sum);
        }
        out[row] = sum;
    }"""
    a = (generator().standard_normal((64, 20)) * 2).astype(np.float32)
    b = generator().integers(-128, 128, 20).astype(np.int8)
    out, q = np.zeros(64, np.int32), np.zeros((64, 20), np.int8)
    run(text, "dots", (2,), (32,), out, q, a, b.view(np.int32), np.float32(50), 5, arch=arch)
    expected = np.clip(np.rint(a * np.float32(50)), -127, 127).astype(np.int64)
    np.testing.assert_array_equal(q, expected)
    np.testing.assert_array_equal(out, expected @ b.astype(np.int64))


def test_complex_products(arch: str) -> None:
    text = r"""
    extern "C" __global__ void multiply(float2* out, const float2* a, const float2* b) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        float2 p = a[i], q = b[i];
        out[i] = make_float2(p.x * q.x - p.y * q.y, p.x * q.y + p.y * q.x);
    }"""
    a, b = (generator().standard_normal((2, 256, 2)).astype(np.float32).view(np.complex64)[..., 0]).copy()
    out = np.zeros(256, np.complex64)
    execution = run(text, "multiply", (2,), (128,), out, a, b, arch=arch)
    np.testing.assert_allclose(out, a * b, rtol=1e-5, atol=1e-6)
    assert execution.counts.loads.sectors_per_request == 8


def test_game_of_life(arch: str) -> None:
    text = r"""
    extern "C" __global__ void step(bool* out, const bool* in, int w, int h) {
        int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, near = 0;
        for (int dy = -1; dy <= 1; dy++)
            for (int dx = -1; dx <= 1; dx++)
                if (dx || dy) near += in[(y + dy + h) % h * w + (x + dx + w) % w];
        out[y * w + x] = near == 3 || (near == 2 && in[y * w + x]);
    }"""
    cells = generator().random((32, 48)) < 0.3
    out = np.zeros_like(cells)
    run(text, "step", (6, 4), (8, 8), out, cells, 48, 32, arch=arch)
    near = sum(np.roll(cells, (dy, dx), (0, 1)).astype(int) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dx or dy)
    np.testing.assert_array_equal(out, (near == 3) | ((near == 2) & cells))


def test_fourier_transform_in_shared_memory(arch: str) -> None:
    text = r"""
    extern "C" __global__ void fft(float2* data) {
        __shared__ float2 box[128];
        int t = threadIdx.x;
        for (int k = t; k < 128; k += 64) box[__brev(k) >> 25] = data[blockIdx.x * 128 + k];
        __syncthreads();
        for (int half = 1; half < 128; half *= 2) {
            int low = t / half * 2 * half + t % half;
            float s, c;
            sincospif(-(float)(t % half) / half, &s, &c);
            float2 a = box[low], b = box[low + half];
            float2 r = make_float2(b.x * c - b.y * s, b.x * s + b.y * c);
            box[low] = make_float2(a.x + r.x, a.y + r.y);
            box[low + half] = make_float2(a.x - r.x, a.y - r.y);
            __syncthreads();
        }
        for (int k = t; k < 128; k += 64) data[blockIdx.x * 128 + k] = box[k];
    }"""
    data = generator().standard_normal((4, 128, 2)).astype(np.float32).view(np.complex64)[..., 0].copy()
    expected = np.fft.fft(data.astype(np.complex128), axis=1)
    run(text, "fft", (4,), (64,), data, arch=arch)
    np.testing.assert_allclose(data, expected, rtol=1e-4, atol=1e-4)


def test_compaction_by_ballots(arch: str) -> None:
    text = r"""
    extern "C" __global__ void keep(int* out, int* count, const int* in, int n, int above) {
        int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, base = 0;
        bool chosen = i < n && in[i] > above;
        unsigned ballot = __ballot_sync(~0u, chosen);
        if (lane == 0) base = atomicAdd(count, __popc(ballot));
        base = __shfl_sync(~0u, base, 0);
        if (chosen) out[base + __popc(ballot & ((1u << lane) - 1))] = in[i];
    }"""
    data = generator().integers(0, 100, 999).astype(np.int32)
    out, count = np.zeros(999, np.int32), np.zeros(1, np.int32)
    run(text, "keep", (8,), (128,), out, count, data, 999, 70, arch=arch)
    np.testing.assert_array_equal(out[: count[0]], data[data > 70])


def test_rotary_embedding_of_halves(arch: str) -> None:
    text = r"""
    #include <cuda_fp16.h>
    extern "C" __global__ void rope(__half2* x, int pairs, float base) {
        int p = threadIdx.x, position = blockIdx.x;
        float angle = position * powf(base, -2.0f * p / (2 * pairs)), s, c;
        sincosf(angle, &s, &c);
        float2 v = __half22float2(x[position * pairs + p]);
        x[position * pairs + p] = __floats2half2_rn(v.x * c - v.y * s, v.x * s + v.y * c);
    }"""
    x = generator().standard_normal((40, 32, 2)).astype(np.float16)
    angle = np.arange(40)[:, None] * 10000.0 ** (-np.arange(32) / 32)
    wide = x.astype(np.float64)
    expected = np.stack(
        [
            wide[..., 0] * np.cos(angle) - wide[..., 1] * np.sin(angle),
            wide[..., 0] * np.sin(angle) + wide[..., 1] * np.cos(angle),
        ],
        axis=-1,
    )
    run(text, "rope", (40,), (32,), x, 32, np.float32(10000), arch=arch)
    np.testing.assert_allclose(x.astype(np.float64), expected, rtol=2e-3, atol=2e-3)


def test_checksums_by_table(arch: str) -> None:
    text = r"""
    extern "C" __global__ void crc(unsigned* out, const unsigned char* in, int length) {
        __shared__ unsigned table[256];
        unsigned c = threadIdx.x;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        table[threadIdx.x] = c;
        __syncthreads();
        const unsigned char* mine = in + (blockIdx.x * blockDim.x + threadIdx.x) * length;
        unsigned sum = ~0u;
        for (int k = 0; k < length; k++) sum = table[(sum ^ mine[k]) & 255] ^ (sum >> 8);
        out[blockIdx.x * blockDim.x + threadIdx.x] = ~sum;
    }"""
    data, out = generator().integers(0, 256, (512, 19)).astype(np.uint8), np.zeros(512, np.uint32)
    run(text, "crc", (2,), (256,), out, data, 19, arch=arch)
    np.testing.assert_array_equal(out, [zlib.crc32(row.tobytes()) for row in data])


def test_binary_search(arch: str) -> None:
    text = r"""
    extern "C" __global__ void find(int* out, const double* sorted, const double* wanted, int n) {
        double w = wanted[blockIdx.x * blockDim.x + threadIdx.x];
        int low = 0, high = n;
        while (low < high) {
            int middle = (low + high) >> 1;
            if (sorted[middle] < w) low = middle + 1; else high = middle;
        }
        out[blockIdx.x * blockDim.x + threadIdx.x] = low;
    }"""
    table, wanted = np.sort(generator().random(777)), generator().random(256)
    out = np.zeros(256, np.int32)
    run(text, "find", (2,), (128,), out, table, wanted, 777, arch=arch)
    np.testing.assert_array_equal(out, np.searchsorted(table, wanted))


def test_determinants_with_pivoting_in_local_memory(arch: str) -> None:
    text = r"""
    extern "C" __global__ void determinant(double* out, const double* in, int n) {
        double m[6][6], sign = 1;
        const double* mine = in + (blockIdx.x * blockDim.x + threadIdx.x) * n * n;
        for (int r = 0; r < n; r++) for (int c = 0; c < n; c++) m[r][c] = mine[r * n + c];
        for (int k = 0; k < n; k++) {
            int p = k;
            for (int r = k + 1; r < n; r++) if (fabs(m[r][k]) > fabs(m[p][k])) p = r;
            if (p != k) sign = -sign;
            for (int c = 0; c < n; c++) { double t = m[k][c]; m[k][c] = m[p][c]; m[p][c] = t; }
            for (int r = k + 1; r < n; r++) {
                double f = m[r][k] / m[k][k];
                for (int c = k; c < n; c++) m[r][c] -= f * m[k][c];
            }
        }
        for (int k = 0; k < n; k++) sign *= m[k][k];
        out[blockIdx.x * blockDim.x + threadIdx.x] = sign;
    }"""
    matrices, out = generator().standard_normal((64, 5, 5)), np.zeros(64)
    run(text, "determinant", (2,), (32,), out, matrices, 5, arch=arch)
    np.testing.assert_allclose(out, np.linalg.det(matrices), rtol=1e-10)


def test_compensated_sums(arch: str) -> None:
    text = r"""
    extern "C" __global__ void kahan(float* out, const float* in, int each) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        float sum = 0, lost = 0;
        for (int k = 0; k < each; k++) {
            float y = __fsub_rn(in[k * gridDim.x * blockDim.x + i], lost), t = __fadd_rn(sum, y);
            lost = __fsub_rn(__fsub_rn(t, sum), y);
            sum = t;
        }
        out[i] = sum;
    }"""
    data, out = (generator().random((3000, 64)) * 1000).astype(np.float32), np.zeros(64, np.float32)
    run(text, "kahan", (2,), (32,), out, data, 3000, arch=arch)
    np.testing.assert_allclose(out, data.astype(np.float64).sum(axis=0), rtol=1.2e-7)


def test_edit_distance_by_diagonals(arch: str) -> None:
    text = r"""
    extern "C" __global__ void distance(int* out, const char* a, const char* b, int n) {
        __shared__ short before[65], last[65], now[65];
        const char *s = a + blockIdx.x * n, *t = b + blockIdx.x * n;
        int i = threadIdx.x;
        for (int d = 0; d <= 2 * n; d++) {
            int j = d - i;
            if (j >= 0 && j <= n && i <= n) {
                int best = i + j;
                if (i && j) best = min(min(last[i - 1], last[i]) + 1, before[i - 1] + (s[i - 1] != t[j - 1]));
                now[i] = best;
                if (d == 2 * n) out[blockIdx.x] = best;
            }
            __syncthreads();
            if (j >= 0 && j <= n + 1 && i <= n) {
                if (j > 0) before[i] = last[i];
                if (j <= n) last[i] = now[i];
            }
            __syncthreads();
        }
    }"""
    a, b = generator().integers(0, 3, (2, 6, 40)).astype(np.int8)
    b[0], b[1, 5:] = a[0], a[1, :-5]
    out = np.zeros(6, np.int32)
    run(text, "distance", (6,), (64,), out, a, b, 40, arch=arch)
    for row, (s, t) in enumerate(zip(a, b, strict=True)):
        line = list(range(41))
        for i in range(1, 41):
            diagonal, line[0] = line[0], i
            for j in range(1, 41):
                diagonal, line[j] = line[j], min(line[j] + 1, line[j - 1] + 1, diagonal + int(s[i - 1] != t[j - 1]))
        assert out[row] == line[40]


def test_tiles_of_cooperative_groups(arch: str) -> None:
    """CUDA's own header, and what it needs, are found; tiles of one warp sum each among itself."""
    text = r"""
    #include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    namespace cg = cooperative_groups;
    extern "C" __global__ void sums(int* out, const int* in) {
        auto block = cg::this_thread_block();
        auto tile = cg::tiled_partition<8>(block);
        int i = blockIdx.x * blockDim.x + block.thread_rank();
        int sum = cg::reduce(tile, in[i], cg::plus<int>());
        block.sync();
        if (tile.thread_rank() == 0) out[i / 8] = sum;
    }"""
    data, out = generator().integers(-1000, 1000, 256).astype(np.int32), np.zeros(32, np.int32)
    run(text, "sums", (2,), (128,), out, data, arch=arch)
    np.testing.assert_array_equal(out, data.reshape(-1, 8).sum(1))
