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


@program(LAYERS, K + r"""(T* o, const T* a, const float* bias, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; float x = (float)a[i] + bias[i % columns];
    o[i] = T(0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x))));
}""", 3, 128, "float", "__half")  # fmt: skip
def gelu_with_a_bias(r: Random) -> Made:
    a, bias, o = r.values(6, 50), r.values(50, dtype="f4"), r.zeros(6, 50)
    x = a.astype("f8") + bias
    return (o, a, bias, 300, 50), [(o, 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))))]


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


@program(QUANTISERS, K + r"""(float* y, const char4* w, const char4* x, const float* scale, float sx, int n) {
    int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32, v = 0;
    for (int i = lane; i < n; i += 32) v = __dp4a(*(const int*)&w[row * n + i], *(const int*)&x[i], v);
    v = __reduce_add_sync(~0u, v); if (lane == 0) y[row] = v * scale[row] * sx;
}""", 2, 128)  # fmt: skip
def product_of_bytes_by_dp4a(r: Random) -> Made:
    w, x, scale, y = r.values(8, 160, dtype="i1"), r.values(160, dtype="i1"), r.values(8), r.zeros(8)
    return (y, w, x, scale, np.float32(0.5), 40), [(y, w.astype("i4") @ x.astype("i4") * scale * 0.5)]


@program(QUANTISERS, r"""#include <cuda_fp8.h>
extern "C" __global__ void k(__nv_fp8_e4m3* q, float* back, const float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { q[i] = __nv_fp8_e4m3(a[i]); back[i] = float(q[i]); }
}""", 2, 64)  # fmt: skip
def eight_bit_floats_and_back(r: Random) -> Made:
    a, q, back = r.values(100), r.zeros(100, dtype="u1"), r.zeros(100)
    exponent = np.maximum(np.floor(np.log2(np.abs(a).astype("f8"))), -6)
    step = 2.0 ** (exponent - 3)
    return (q, back, a, 100), [(back, np.rint(a / step) * step)]


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


@program(LAYERS, K + r"""(T* o, const T* a, int h, int w) {
    int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y; if (x >= w / 2 || y >= h / 2) return;
    const T* p = a + (blockIdx.z * h + 2 * y) * w + 2 * x; T m = p[0]; if (p[1] > m) m = p[1];
        if (p[w] > m) m = p[w]; if (p[w + 1] > m) m = p[w + 1];
    o[(blockIdx.z * (h / 2) + y) * (w / 2) + x] = m;
}""", (2, 2, 3), (8, 8), "float", "__half", "int")  # fmt: skip
def largest_of_each_window(r: Random) -> Made:
    a, o = r.values(3, 20, 24), r.zeros(3, 10, 12)
    return (o, a, 20, 24), [(o, a.reshape(3, 10, 2, 12, 2).max(axis=(2, 4)))]


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
