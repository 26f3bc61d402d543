"""Programs in the shape of kernels of neural networks: norms, quantisers, attention, caches."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np

from compat.registry import Made, Random, program

NORMS, ATTENTION, QUANTISERS, LAYERS, TRAINING = "norms", "attention", "quantisers", "layers", "training"
K = 'extern "C" __global__ void k'
SUM = r"""
template <int N> __device__ float block_sum(float v) {
    __shared__ float s[N / 32 + 1]; int lane = threadIdx.x & 31, w = threadIdx.x / 32; __syncthreads();
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);
    if (lane == 0) s[w] = v;
    __syncthreads(); v = lane < N / 32 ? s[lane] : 0.0f;
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);
    return v;
}
"""


@program(NORMS, SUM + K + r"""(T* o, const T* a, const float* g, const float* b, int n) {
    const T* row = a + blockIdx.x * n; float s = 0, q = 0;
    for (int i = threadIdx.x; i < n; i += 128) { float v = row[i]; s += v; q += v * v; }
    s = block_sum<128>(s) / n; q = rsqrtf(block_sum<128>(q) / n - s * s + 1e-5f);
    for (int i = threadIdx.x; i < n; i += 128) o[blockIdx.x * n + i] = T(((float)row[i] - s) * q * g[i] + b[i]);
}""", 4, 128, "float", "__half")  # fmt: skip
def layer_norm(r: Random) -> Made:
    a, g, b, o = r.values(4, 300), r.values(300, dtype="f4"), r.values(300, dtype="f4"), r.zeros(4, 300)
    x = a.astype("f8")
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * g + b
    return (o, a, g, b, 300), [(o, expected)]


@program(NORMS, K + r"""(float* o, const float* a, int n) {
    const float* row = a + blockIdx.x * n; float mean = 0, m2 = 0, count = 0;
    for (int i = threadIdx.x; i < n; i += 32) { count++; float d = row[i] - mean; mean += d / count;
        m2 += d * (row[i] - mean); }
    for (int s = 16; s > 0; s /= 2) {
        float om = __shfl_xor_sync(~0u, mean, s), o2 = __shfl_xor_sync(~0u, m2, s), oc = __shfl_xor_sync(~0u, count,
        s);
        float all = count + oc, d = om - mean; if (all > 0) { mean += d * oc / all;
        m2 += o2 + d * d * count * oc / all; count = all; }
    }
    if (threadIdx.x == 0) { o[2 * blockIdx.x] = mean; o[2 * blockIdx.x + 1] = m2 / n; }
}""", 5, 32)  # fmt: skip
def mean_and_variance_of_welford(r: Random) -> Made:
    a, o = r.values(5, 100), r.zeros(5, 2)
    return (o, a, 100), [(o, np.stack([a.mean(1), a.var(1)], axis=1))]


@program(NORMS, SUM + r"""#include <cuda_fp16.h>
extern "C" __global__ void k(__half2* o, const __half2* a, const __half2* g, int n) {
    float q = 0; const __half2* row = a + blockIdx.x * n;
    for (int i = threadIdx.x; i < n; i += 64) { float2 v = __half22float2(row[i]); q += v.x * v.x + v.y * v.y; }
    q = rsqrtf(block_sum<64>(q) / (2 * n) + 1e-6f);
    for (int i = threadIdx.x; i < n; i += 64) {
        float2 v = __half22float2(row[i]), w = __half22float2(g[i]);
        o[blockIdx.x * n + i] = __floats2half2_rn(v.x * q * w.x, v.y * q * w.y);
    }
}""", 3, 64)  # fmt: skip
def rms_norm_of_pairs_of_halves(r: Random) -> Made:
    a, g, o = r.values(3, 200, dtype="f2"), r.values(200, dtype="f2"), r.zeros(3, 200, dtype="f2")
    x = a.astype("f8")
    return (o, a, g, 100), [(o, x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6) * g)]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype("f8") - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@program(NORMS, "#include <cmath>\n" + K + r"""(T* o, const T* a, int n) {
    int row = blockIdx.x * 4 + threadIdx.y, t = threadIdx.x; float most = -INFINITY, sum = 0;
    for (int i = t; i < n; i += 32) most = std::fmax(most, (float)a[row * n + i]);
    for (int d = 16; d > 0; d /= 2) most = std::fmax(most, __shfl_xor_sync(~0u, most, d));
    for (int i = t; i < n; i += 32) sum += std::exp((float)a[row * n + i] - most);
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    for (int i = t; i < n; i += 32) o[row * n + i] = T(std::exp((float)a[row * n + i] - most) / sum);
}""", 2, (32, 4), "float", "__half")  # fmt: skip
def softmax_a_warp_a_row(r: Random) -> Made:
    a, o = r.values(8, 77), r.zeros(8, 77)
    return (o, a, 77), [(o, softmax(a))]


@program(NORMS, K + r"""(float* o, const float* a, int n) {
    __shared__ float ms[64], ss[64]; int t = threadIdx.x; const float* row = a + blockIdx.x * n;
        float m = -1e30f, s = 0;
    for (int i = t; i < n; i += 64) { float v = row[i], to = fmaxf(m, v); s = s * expf(m - to) + expf(v - to);
        m = to; }
    ms[t] = m; ss[t] = s; __syncthreads();
    for (int d = 32; d > 0; d /= 2) {
        if (t < d) { float to = fmaxf(ms[t], ms[t + d]);
        ss[t] = ss[t] * expf(ms[t] - to) + ss[t + d] * expf(ms[t + d] - to); ms[t] = to; }
        __syncthreads();
    }
    for (int i = t; i < n; i += 64) o[blockIdx.x * n + i] = expf(row[i] - ms[0]) / ss[0];
}""", 3, 64)  # fmt: skip
def online_softmax(r: Random) -> Made:
    a, o = 20 * r.values(3, 150), r.zeros(3, 150)
    a = a.astype("f4")
    return (o, a, 150), [(o, softmax(a))]


@program(LAYERS, K + r"""(T* o, const T* a, const float* bias, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; float x = (float)a[i] + bias[i % columns];
    o[i] = T(0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x))));
}""", 3, 128, "float", "__half")  # fmt: skip
def gelu_with_a_bias(r: Random) -> Made:
    a, bias, o = r.values(6, 50), r.values(50, dtype="f4"), r.zeros(6, 50)
    x = a.astype("f8") + bias
    return (o, a, bias, 300, 50), [(o, 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))))]


@program(LAYERS, K + r"""(float4* o, const float4* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = i / n, c = i % n;
        float4 x = a[2 * row * n + c], g = a[(2 * row + 1) * n + c];
    auto f = [](float x, float g) { return x / (1 + __expf(-x)) * g; };
    o[i] = make_float4(f(x.x, g.x), f(x.y, g.y), f(x.z, g.z), f(x.w, g.w));
}""", 2, 64)  # fmt: skip
def swiglu_of_four_at_a_time(r: Random) -> Made:
    a, o = r.values(8, 2, 64), r.zeros(8, 64)
    x = a.astype("f8")
    return (o, a, 16), [(o, x[:, 0] / (1 + np.exp(-x[:, 0])) * x[:, 1])]


@program(ATTENTION, K + r"""(T* q, int heads, int d) {
    int token = blockIdx.x, h = threadIdx.y, i = threadIdx.x; T* p = q + (token * heads + h) * d;
    float angle = token * powf(10000.0f, -2.0f * i / d), s, c; sincosf(angle, &s, &c);
    float x = p[i], y = p[i + d / 2]; p[i] = T(x * c - y * s); p[i + d / 2] = T(x * s + y * c);
}""", 6, (16, 2), "float", "__half")  # fmt: skip
def rotary_embedding(r: Random) -> Made:
    q = r.values(6, 2, 32)
    angle = np.arange(6)[:, None, None] * 10000.0 ** (-2 * np.arange(16) / 32)
    x, y = q[..., :16].astype("f8"), q[..., 16:].astype("f8")
    expected = np.concatenate([x * np.cos(angle) - y * np.sin(angle), x * np.sin(angle) + y * np.cos(angle)], axis=2)
    return (q, 2, 32), [(q, expected)]


@program(LAYERS, K + r"""(float4* o, const float4* table, const int* ids, int width) {
    for (int i = threadIdx.x; i < width;
        i += blockDim.x) o[blockIdx.x * width + i] = __ldg(table + (long long)ids[blockIdx.x] * width + i);
}""", 10, 32)  # fmt: skip
def embedding_of_tokens(r: Random) -> Made:
    table, ids, o = r.values(50, 160), r.below(50, 10), r.zeros(10, 160)
    return (o, table, ids, 40), [(o, table[ids])]


@program(TRAINING, SUM + K + r"""(float* loss, float* grad, const float* a, const int* target, int n) {
    const float* row = a + blockIdx.x * n; float sum = 0; for (int i = threadIdx.x; i < n;
        i += 64) sum += expf(row[i]);
    sum = block_sum<64>(sum);
    for (int i = threadIdx.x; i < n; i += 64) grad[blockIdx.x * n
        + i] = expf(row[i]) / sum - (i == target[blockIdx.x]);
    if (threadIdx.x == 0) loss[blockIdx.x] = logf(sum) - row[target[blockIdx.x]];
}""", 4, 64)  # fmt: skip
def cross_entropy_with_its_gradient(r: Random) -> Made:
    a, target, loss, grad = r.values(4, 130), r.below(130, 4), r.zeros(4), r.zeros(4, 130)
    p = softmax(a)
    rows = np.arange(4)
    return (loss, grad, a, target, 130), [(loss, -np.log(p[rows, target])), (grad, p - np.eye(130)[target])]


@program(TRAINING, r"""
__device__ uint4 philox(uint4 c, uint2 key) {
    for (int i = 0; i < 10; i++) {
        unsigned h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x, h1 = __umulhi(0xCD9E8D57u, c.z),
        l1 = 0xCD9E8D57u * c.z;
        c = make_uint4(h1 ^ c.y ^ key.x, l1, h0 ^ c.w ^ key.y, l0); key.x += 0x9E3779B9u; key.y += 0xBB67AE85u;
    }
    return c;
}
extern "C" __global__ void k(float* o, const float* a, unsigned seed, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (4 * i >= n) return;
        uint4 r = philox(make_uint4(i, 0, 0, 0), make_uint2(seed, 0));
    unsigned u[4] = {r.x, r.y, r.z, r.w}; for (int j = 0; j < 4;
        j++) o[4 * i + j] = u[j] < 0x80000000u ? 2 * a[4 * i + j] : 0;
}""", 2, 32)  # fmt: skip
def dropout_by_philox(r: Random) -> Made:
    a, o = r.values(200), r.zeros(200)
    words, mask = [], 0xFFFFFFFF
    for i in range(50):
        x, y, z, w, k0, k1 = i, 0, 0, 0, 7, 0
        for _ in range(10):
            p0, p1 = 0xD2511F53 * x, 0xCD9E8D57 * z
            x, y, z, w = p1 >> 32 ^ y ^ k0, p1 & mask, p0 >> 32 ^ w ^ k1, p0 & mask
            k0, k1 = k0 + 0x9E3779B9 & mask, k1 + 0xBB67AE85 & mask
        words += [x, y, z, w]
    return (o, a, np.uint32(7), 200), [(o, np.where(np.array(words) < 1 << 31, 2 * a, 0))]


@program(TRAINING, K + r"""(float* p, const float* g, float* m, float* v, float rate, float b1, float b2,
        float decay, int t, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
    m[i] = b1 * m[i] + (1 - b1) * g[i]; v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
    float mh = m[i] / (1 - powf(b1, t)), vh = v[i] / (1 - powf(b2, t));
        p[i] -= rate * (mh / (sqrtf(vh) + 1e-8f) + decay * p[i]);
}""", 2, 64)  # fmt: skip
def adam_with_decay(r: Random) -> Made:
    p, g, m, v = r.values(100), r.values(100), r.values(100), np.abs(r.values(100))
    nm, nv = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    np_ = p - 0.01 * (nm / (1 - 0.9**3) / (np.sqrt(nv / (1 - 0.99**3)) + 1e-8) + 0.1 * p)
    given = (np.float32(0.01), np.float32(0.9), np.float32(0.99), np.float32(0.1), 3, 100)
    return (p, g, m, v, *given), [(m, nm), (v, nv), (p, np_)]


@program(QUANTISERS, K + r"""(signed char* q, float* scale, const float* a, int n) {
    const float* row = a + blockIdx.x * n; float most = 0; __shared__ float s[4];
    for (int i = threadIdx.x; i < n; i += 128) most = fmaxf(most, fabsf(row[i]));
    for (int d = 16; d > 0; d /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = most;
    __syncthreads(); most = fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3])); float f = 127 / most;
    for (int i = threadIdx.x; i < n; i += 128) q[blockIdx.x * n + i] = (signed char)__float2int_rn(row[i] * f);
    if (threadIdx.x == 0) scale[blockIdx.x] = most / 127;
}""", 3, 128)  # fmt: skip
def quantise_rows_to_bytes(r: Random) -> Made:
    a, q, scale = r.values(3, 200), r.zeros(3, 200, dtype="i1"), r.zeros(3)
    most = np.abs(a).max(axis=1, keepdims=True)
    return (q, scale, a, 200), [(q, np.rint(a * (np.float32(127) / most))), (scale, most[:, 0] / 127)]


@program(QUANTISERS, K + r"""(float* y, const char4* w, const char4* x, const float* scale, float sx, int n) {
    int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32, v = 0;
    for (int i = lane; i < n; i += 32) v = __dp4a(*(const int*)&w[row * n + i], *(const int*)&x[i], v);
    v = __reduce_add_sync(~0u, v); if (lane == 0) y[row] = v * scale[row] * sx;
}""", 2, 128)  # fmt: skip
def product_of_bytes_by_dp4a(r: Random) -> Made:
    w, x, scale, y = r.values(8, 160, dtype="i1"), r.values(160, dtype="i1"), r.values(8), r.zeros(8)
    return (y, w, x, scale, np.float32(0.5), 40), [(y, w.astype("i4") @ x.astype("i4") * scale * 0.5)]


@program(QUANTISERS, r"""#include <cuda_fp16.h>
struct Block { __half d; unsigned char q[16]; };
extern "C" __global__ void k(float* o, const Block* a, int n) {
    int b = blockIdx.x * 4 + threadIdx.y, i = threadIdx.x; if (b >= n) return; float d = a[b].d; int q = a[b].q[i];
    o[b * 32 + i] = d * ((q & 15) - 8); o[b * 32 + i + 16] = d * ((q >> 4) - 8);
}""", 3, (16, 4))  # fmt: skip
def unpack_blocks_of_four_bits(r: Random) -> Made:
    blocks, o = np.zeros(10, [("d", "f2"), ("q", "u1", 16)]), r.zeros(10, 32)
    blocks["d"], blocks["q"] = r.values(10, dtype="f2"), r.below(256, 10, 16, dtype="u1")
    low, high = (blocks["q"] & 15).astype("i4") - 8, (blocks["q"] >> 4).astype("i4") - 8
    expected = blocks["d"].astype("f4")[:, None] * np.concatenate([low, high], axis=1)
    return (o, blocks.view("u1"), 10), [(o, expected)]


@program(QUANTISERS, r"""#include <cuda_fp8.h>
extern "C" __global__ void k(__nv_fp8_e4m3* q, float* back, const float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { q[i] = __nv_fp8_e4m3(a[i]); back[i] = float(q[i]); }
}""", 2, 64)  # fmt: skip
def eight_bit_floats_and_back(r: Random) -> Made:
    a, q, back = r.values(100), r.zeros(100, dtype="u1"), r.zeros(100)
    exponent = np.maximum(np.floor(np.log2(np.abs(a).astype("f8"))), -6)
    step = 2.0 ** (exponent - 3)
    return (q, back, a, 100), [(back, np.rint(a / step) * step)]


@program(LAYERS, r"""#include <cuda_bf16.h>
extern "C" __global__ void k(__nv_bfloat162* o, const __nv_bfloat162* a, const __nv_bfloat162* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = __hfma2(a[i], b[i], a[i]);
}""", 2, 64)  # fmt: skip
def pairs_of_bfloat16(r: Random) -> Made:
    whole = [(r.below(64, 200).astype("f4") - 32) / 8 for _ in range(2)]
    a, b = ((one.view("u4") >> 16).astype("u2") for one in whole)
    o = r.zeros(200, dtype="u2")
    exact = (whole[0] * whole[1] + whole[0]).astype("f4").view("u4")
    rounded = (exact + 0x7FFF + (exact >> 16 & 1)) >> 16
    return (o, a, b, 100), [(o, rounded)]


@program(ATTENTION, K + r"""(T* keys, T* values, const T* k_new, const T* v_new, const int* length, int most, int d) {
    int b = blockIdx.x, i = threadIdx.x, at = (b * most + length[b]) * d + i; keys[at] = k_new[b * d + i];
        values[at] = v_new[b * d + i];
}""", 3, 64, "float", "__half")  # fmt: skip
def append_to_a_cache(r: Random) -> Made:
    keys, values, new = r.values(3, 8, 64), r.values(3, 8, 64), r.values(2, 3, 64)
    length = np.array([0, 5, 7], "i4")
    expected = [keys.copy(), values.copy()]
    for cache, one in zip(expected, new, strict=True):
        cache[np.arange(3), length] = one
    return (keys, values, new[0], new[1], length, 8, 64), [(keys, expected[0]), (values, expected[1])]


@program(ATTENTION, K + r"""(float* o, const float* q, const float* keys, const float* values,
        const int* pages, const int* length, int most, int d) {
    extern __shared__ float p[]; int b = blockIdx.x, t = threadIdx.x, n = length[b]; float m = -1e30f, s = 0;
    for (int i = t / 32; i < n; i += 2) {
        const float* key = keys + (pages[b * most + i / 4] * 4 + i % 4) * d; float v = 0;
        for (int j = t % 32; j < d; j += 32) v += q[b * d + j] * key[j];
        for (int h = 16; h > 0; h /= 2) v += __shfl_xor_sync(~0u, v, h);
        if (t % 32 == 0) p[i] = v * rsqrtf(d);
    }
    __syncthreads(); for (int i = 0; i < n; i++) m = fmaxf(m, p[i]);
    for (int i = 0; i < n; i++) s += expf(p[i] - m);
    float v = 0; for (int i = 0; i < n; i++) v += expf(p[i] - m) / s * values[(pages[b * most + i / 4] * 4
        + i % 4) * d + t];
    o[b * d + t] = v;
}""", 3, 64, shared_bytes=16 * 4)  # fmt: skip
def attention_over_a_paged_cache(r: Random) -> Made:
    q, keys, values, o = r.values(3, 64), r.values(12, 4, 64), r.values(12, 4, 64), r.zeros(3, 64)
    pages, length, expected = np.arange(12, dtype="i4").reshape(3, 4)[:, ::-1].copy(), np.array([3, 16, 9], "i4"), []
    for b in range(3):
        key, value = (cache[pages[b]].reshape(16, 64)[: length[b]].astype("f8") for cache in (keys, values))
        expected.append(softmax((key @ q[b] / 8)[None])[0] @ value)
    return (o, q, keys, values, pages, length, 4, 64), [(o, expected)]


@program(ATTENTION, K + r"""(float* o, const float* q, const float* k_, const float* v_, int n) {
    const int D = 32, TILE = 16; __shared__ float ks[TILE][D], vs[TILE][D];
        int t = threadIdx.x, row = blockIdx.x * 32 + t;
    float x[D], acc[D], m = -1e30f, s = 0; for (int i = 0; i < D; i++) { x[i] = row < n ? q[row * D + i] : 0;
        acc[i] = 0; }
    for (int first = 0; first < n; first += TILE) {
        __syncthreads();
        for (int i = t; i < TILE * D; i += 32) { bool in = first + i / D < n;
        ks[i / D][i % D] = in ? k_[first * D + i] : 0; vs[i / D][i % D] = in ? v_[first * D + i] : 0; }
        __syncthreads();
        for (int j = 0; j < TILE && first + j < n; j++) {
            if (first + j > row) break;
            float d = 0; for (int i = 0; i < D; i++) d += x[i] * ks[j][i];
            d *= 0.17677669f; float to = fmaxf(m, d), f = expf(m - to), e = expf(d - to); m = to; s = s * f + e;
            for (int i = 0; i < D; i++) acc[i] = acc[i] * f + e * vs[j][i];
        }
    }
    if (row < n) for (int i = 0; i < D; i++) o[row * D + i] = acc[i] / s;
}""", 2, 32)  # fmt: skip
def causal_attention_in_tiles(r: Random) -> Made:
    q, key, value, o = r.values(50, 32), r.values(50, 32), r.values(50, 32), r.zeros(50, 32)
    scores = np.where(np.tri(50, dtype=bool), q.astype("f8") @ key.T / sqrt(32), -np.inf)
    return (o, q, key, value, 50), [(o, softmax(scores) @ value)]


@program(LAYERS, K + r"""(int* at, float* top, const float* a, int n) {
    int t = threadIdx.x; float v[4]; for (int i = 0; i < 4;
        i++) v[i] = t + 32 * i < n ? a[blockIdx.x * n + t + 32 * i] : -1e30f;
    for (int turn = 0; turn < 3; turn++) {
        float best = v[0]; int where = t; for (int i = 1; i < 4; i++) if (v[i] > best) { best = v[i];
        where = t + 32 * i; }
        for (int d = 16; d > 0; d /= 2) {
            float ov = __shfl_xor_sync(~0u, best, d); int ow = __shfl_xor_sync(~0u, where, d);
            if (ov > best || (ov == best && ow < where)) { best = ov; where = ow; }
        }
        if (where % 32 == t) v[where / 32] = -1e30f;
        if (t == 0) { at[blockIdx.x * 3 + turn] = where; top[blockIdx.x * 3 + turn] = best; }
    }
}""", 4, 32)  # fmt: skip
def largest_three_of_each_row(r: Random) -> Made:
    a, at, top = r.values(4, 120), r.zeros(4, 3, dtype="i4"), r.zeros(4, 3)
    order = np.argsort(-a, axis=1, kind="stable")[:, :3]
    return (at, top, a, 120), [(at, order), (top, np.take_along_axis(a, order, axis=1))]


@program(LAYERS, K + r"""(int* counts, int* place, const int* expert, int n, int experts) {
    extern __shared__ int s[]; for (int i = threadIdx.x; i < experts; i += blockDim.x) s[i] = 0;
    __syncthreads(); for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&s[expert[i]], 1);
    __syncthreads(); for (int i = threadIdx.x; i < experts; i += blockDim.x) counts[i] = s[i];
    __syncthreads(); if (threadIdx.x == 0) { int sum = 0; for (int i = 0; i < experts; i++) { int c = s[i];
        s[i] = sum; sum += c; } }
    __syncthreads(); if (threadIdx.x == 0) for (int i = 0; i < n; i++) place[i] = s[expert[i]]++;
}""", 1, 64, shared_bytes=8 * 4)  # fmt: skip
def routing_to_experts(r: Random) -> Made:
    expert, counts, place = r.below(8, 90), r.zeros(8, dtype="i4"), r.zeros(90, dtype="i4")
    expected = np.empty(90, int)
    expected[np.argsort(expert, kind="stable")] = np.arange(90)
    return (counts, place, expert, 90, 8), [(counts, np.bincount(expert, minlength=8)), (place, expected)]


@program(LAYERS, K + r"""(T* o, const T* a, int c, int hw) {
    __shared__ T s[16][17]; int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y,
        image = blockIdx.z * c * hw;
    if (x < hw && y < c) s[threadIdx.y][threadIdx.x] = a[image + y * hw + x];
    __syncthreads(); x = blockIdx.x * 16 + threadIdx.y; y = blockIdx.y * 16 + threadIdx.x;
    if (x < hw && y < c) o[image + x * c + y] = s[threadIdx.x][threadIdx.y];
}""", (3, 2, 2), (16, 16), "float", "__half")  # fmt: skip
def channels_to_the_last_place(r: Random) -> Made:
    a, o = r.values(2, 20, 6, 7), r.zeros(2, 6, 7, 20)
    return (o, a, 20, 42), [(o, a.transpose(0, 2, 3, 1).copy())]


@program(LAYERS, K + r"""(float* o, const float* a, int c, int h, int w) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = h * w; if (i >= c * 9 * n) return;
    int at = i % n, tap = i / n % 9, channel = i / n / 9, y = at / w + tap / 3 - 1, x = at % w + tap % 3 - 1;
    o[i] = x >= 0 && y >= 0 && x < w && y < h ? a[(channel * h + y) * w + x] : 0;
}""", 9, 128)  # fmt: skip
def windows_to_columns(r: Random) -> Made:
    a, o = r.values(2, 8, 7), r.zeros(2, 9, 56)
    p = np.pad(a, ((0, 0), (1, 1), (1, 1)))
    expected = np.stack([p[:, j : j + 8, i : i + 7].reshape(2, 56) for j in range(3) for i in range(3)], axis=1)
    return (o, a, 2, 8, 7), [(o, expected)]


@program(LAYERS, K + r"""(T* o, const T* a, int h, int w) {
    int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y; if (x >= w / 2 || y >= h / 2) return;
    const T* p = a + (blockIdx.z * h + 2 * y) * w + 2 * x; T m = p[0]; if (p[1] > m) m = p[1];
        if (p[w] > m) m = p[w]; if (p[w + 1] > m) m = p[w + 1];
    o[(blockIdx.z * (h / 2) + y) * (w / 2) + x] = m;
}""", (2, 2, 3), (8, 8), "float", "__half", "int")  # fmt: skip
def largest_of_each_window(r: Random) -> Made:
    a, o = r.values(3, 20, 24), r.zeros(3, 10, 12)
    return (o, a, 20, 24), [(o, a.reshape(3, 10, 2, 12, 2).max(axis=(2, 4)))]


@program(LAYERS, K + r"""(float* o, const float* a, const float* w, int c, int h, int width) {
    int x = threadIdx.x, y = threadIdx.y, channel = blockIdx.x; if (x >= width || y >= h) return; float v = 0;
    #pragma unroll
    for (int j = -1; j <= 1; j++)
        #pragma unroll
        for (int i = -1; i <= 1; i++)
            if (x + i >= 0 && x + i < width && y + j >= 0 && y + j < h) v = fmaf(a[(channel * h + y + j) * width
            + x + i], w[channel * 9 + (j + 1) * 3 + i + 1], v);
    o[(channel * h + y) * width + x] = v > 0 ? v : 0;
}""", 3, (16, 8))  # fmt: skip
def convolution_of_each_channel(r: Random) -> Made:
    a, w, o = r.values(3, 7, 12), r.values(3, 3, 3), r.zeros(3, 7, 12)
    p = np.pad(a, ((0, 0), (1, 1), (1, 1))).astype("f8")
    sums = sum(p[:, j : j + 7, i : i + 12] * w[:, j, i, None, None] for j in range(3) for i in range(3))
    return (o, a, w, 3, 7, 12), [(o, np.maximum(sums, 0))]


@program(LAYERS, K + r"""(float* c, const __half* a, const __half* b) {
    int lane = threadIdx.x, g = lane >> 2, t = lane & 3; unsigned x[4], y[2]; float d[4] = {0, 0, 0, 0};
    auto two = [](const __half* p) { return *(const unsigned*)p; };
    x[0] = two(a + g * 16 + 2 * t); x[1] = two(a + (g + 8) * 16 + 2 * t); x[2] = two(a + g * 16 + 2 * t + 8);
        x[3] = two(a + (g + 8) * 16 + 2 * t + 8);
    y[0] = two(b + g * 16 + 2 * t); y[1] = two(b + g * 16 + 2 * t + 8);
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]),
                 "r"(y[0]), "r"(y[1]));
    c[g * 8 + 2 * t] = d[0]; c[g * 8 + 2 * t + 1] = d[1]; c[(g + 8) * 8 + 2 * t] = d[2];
        c[(g + 8) * 8 + 2 * t + 1] = d[3];
}""".replace("__half", "unsigned short"), 1, 32)  # fmt: skip
def product_on_tensor_cores(r: Random) -> Made:
    a, b, c = r.values(16, 16, dtype="f2"), r.values(8, 16, dtype="f2"), r.zeros(16, 8)
    return (c, a.view("u2"), b.view("u2")), [(c, a.astype("f8") @ b.astype("f8").T)]


@program(LAYERS, K + r"""(float* y, const T* w, const T* x, int n) {
    int row = blockIdx.x, t = threadIdx.x; float v = 0; const float4* p = (const float4*)(w + row * n);
        const float4* q = (const float4*)x;
    const int each = 16 / sizeof(T);
    for (int i = t; i < n / each; i += 32) {
        float4 a = p[i], b = q[i]; const T* e = (const T*)&a; const T* f = (const T*)&b; for (int j = 0; j < each;
        j++) v += (float)e[j] * (float)f[j];
    }
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(~0u, v, d);
    if (t == 0) y[row] = v;
}""", 10, 32, "float", "__half")  # fmt: skip
def matrix_vector_product_by_sixteen_bytes(r: Random) -> Made:
    w, x, y = r.values(10, 256), r.values(256), r.zeros(10, dtype="f4")
    return (y, w, x, 256), [(y, w.astype("f8") @ x)]
