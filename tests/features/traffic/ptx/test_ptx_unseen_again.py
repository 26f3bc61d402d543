"""More programs that the interpreter was not written for, of other kinds: random numbers, searching, hashing, 8-bit
floats, graphs, cryptography, wide integers; against NumPy or Python, some with counts worked out by hand.
"""

from __future__ import annotations

import hashlib
from fractions import Fraction

import numpy as np
import pytest
from ptx_sources import run

OLD_AND_NEW = pytest.mark.parametrize("arch", ["sm_75", "sm_120"])


def generator() -> np.random.Generator:
    return np.random.default_rng(11)


@OLD_AND_NEW
def test_counter_based_random_numbers(arch: str) -> None:
    """Philox4x32-10 (Salmon et al. 2011), against the same rounds on NumPy's 64-bit integers."""
    text = r"""
    struct Words { unsigned x, y, z, w; };
    __device__ Words round_of(Words c, unsigned k0, unsigned k1) {
        unsigned long long a = 0xD2511F53ull * c.x;
        unsigned hi = __umulhi(0xCD9E8D57u, c.z), lo = 0xCD9E8D57u * c.z;
        return {hi ^ c.y ^ k0, lo, (unsigned)(a >> 32) ^ c.w ^ k1, (unsigned)a};
    }
    extern "C" __global__ void philox(uint4* out, float* uniform, unsigned k0, unsigned k1) {
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
        Words c = {i, 0x12345678u, ~i, 7u};
        #pragma unroll 1
        for (int r = 0; r < 10; r++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) c = round_of(c, k0, k1);
        out[i] = make_uint4(c.x, c.y, c.z, c.w);
        uniform[i] = c.x * 2.3283064e-10f + 1.1641532e-10f;
    }"""
    n, word = 96, np.uint64(0xFFFFFFFF)
    i = np.arange(n, dtype=np.uint64)
    c = [i, np.full(n, 0x12345678, np.uint64), ~i & word, np.full(n, 7, np.uint64)]
    k = [0xDEADBEEF, 0x0BADF00D]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        high = [product >> np.uint64(32) for product in (a, b)]
        c = [high[1] ^ c[1] ^ np.uint64(k[0]), b & word, high[0] ^ c[3] ^ np.uint64(k[1]), a & word]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    out, uniform = np.zeros((n, 4), np.uint32), np.zeros(n, np.float32)
    execution = run(text, "philox", (3,), (32,), out, uniform, np.uint32(0xDEADBEEF), np.uint32(0x0BADF00D), arch=arch)
    np.testing.assert_array_equal(out, np.stack(c, axis=1))
    steps = c[0].astype(np.float32).astype(np.float64)
    fused = steps * np.float64(np.float32(2.3283064e-10)) + np.float64(np.float32(1.1641532e-10))
    np.testing.assert_array_equal(uniform, fused.astype(np.float32))
    # uint4: 16 sectors a warp, float: 4.
    assert (execution.counts.stores.requests, execution.counts.stores.sectors) == (6, 3 * (16 + 4))


@OLD_AND_NEW
def test_string_search_on_unaligned_bytes(arch: str) -> None:
    text = r"""
    extern "C" __global__ void search(const unsigned char* text, int n, const char* needle, int m, int* found,
                                      int* count) {
        extern __shared__ unsigned char box[];
        int first = blockIdx.x * blockDim.x;
        for (int j = threadIdx.x; j < blockDim.x + m - 1; j += blockDim.x)
            box[j] = first + j < n ? text[first + j] : 0;
        __syncthreads();
        int i = first + threadIdx.x, k = 0;
        while (k < m && box[threadIdx.x + k] == (unsigned char)needle[k]) k++;
        if (k == m && i + m <= n) found[atomicAdd(count, 1)] = i;
    }"""
    haystack = generator().integers(ord("a"), ord("c"), 1000).astype(np.uint8)
    needle = np.frombuffer(b"abaab", np.uint8)
    found, count = np.full(200, -1, np.int32), np.zeros(1, np.int32)
    run(
        *(text, "search", (8,), (128,), haystack, np.int32(1000), needle.copy(), np.int32(5), found, count),
        shared_bytes=132,
        arch=arch,
    )
    whole = haystack.tobytes()
    expected = [i for i in range(996) if whole[i : i + 5] == b"abaab"]
    assert len(expected) > 10
    assert sorted(found[: count[0]].tolist()) == expected


@OLD_AND_NEW
def test_hash_table_with_open_addressing(arch: str) -> None:
    """64-bit compare-and-swap claims a slot; equal keys meet in one and count there."""
    text = r"""
    extern "C" __global__ void insert(unsigned long long* keys, unsigned* counts, const unsigned long long* in, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        unsigned long long key = in[i];
        for (unsigned slot = (unsigned)((key * 0x9E3779B97F4A7C15ull) >> 57); ; slot = (slot + 1) & 127) {
            unsigned long long before = atomicCAS(&keys[slot], ~0ull, key);
            if (before == ~0ull || before == key) { atomicInc(&counts[slot], 0xffffffffu); return; }
        }
    }"""
    pool = generator().integers(0, 2**63, 90, np.uint64)
    data = generator().choice(pool, 777)
    keys, counts = np.full(128, 2**64 - 1, np.uint64), np.zeros(128, np.uint32)
    run(text, "insert", (7,), (128,), keys, counts, data, np.int32(777), arch=arch)
    held = {int(k): int(c) for k, c in zip(keys, counts, strict=True) if c}
    assert held == {int(k): int(c) for k, c in zip(*np.unique(data, return_counts=True), strict=True)}


@OLD_AND_NEW
def test_eight_bit_floats(arch: str) -> None:
    """Every e4m3 and e5m2 value to half and back, and floats to the nearest with saturation, by cuda_fp8.h."""
    text = r"""
    #include <cuda_fp8.h>
    extern "C" __global__ void convert(float* wide4, float* wide5, unsigned char* back4, unsigned char* back5,
                                       const float* in) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        __nv_fp8_e4m3 a; a.__x = (unsigned char)i;
        __nv_fp8_e5m2 b; b.__x = (unsigned char)i;
        wide4[i] = float(a);
        wide5[i] = float(b);
        back4[i] = __nv_fp8_e4m3(in[i]).__x;
        back5[i] = __nv_cvt_float_to_fp8(in[i], __NV_NOSAT, __NV_E5M2);
    }"""

    def value(bits: int, exponent_bits: int, mantissa_bits: int, bias: int) -> float:
        sign = -1.0 if bits >> 7 else 1.0
        exponent = bits >> mantissa_bits & (1 << exponent_bits) - 1
        mantissa = bits & (1 << mantissa_bits) - 1
        if exponent_bits == 5 and exponent == 31:
            return sign * np.inf if mantissa == 0 else np.nan
        if exponent_bits == 4 and bits & 0x7F == 0x7F:
            return np.nan
        if exponent == 0:
            return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
        return sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)

    four, five = ([value(bits, *form) for bits in range(256)] for form in ((4, 3, 7), (5, 2, 15)))
    x = np.concatenate(
        [np.array(four[:128], np.float32) * np.float32(1.03), generator().normal(0, 20, 128).astype(np.float32)]
    )
    x = np.nan_to_num(x).astype(np.float32)
    wide4, wide5 = np.zeros(256, np.float32), np.zeros(256, np.float32)
    back4, back5 = np.zeros(256, np.uint8), np.zeros(256, np.uint8)
    run(text, "convert", (4,), (64,), wide4, wide5, back4, back5, x, arch=arch)
    np.testing.assert_array_equal(wide4, np.array(four, np.float32))
    np.testing.assert_array_equal(wide5, np.array(five, np.float32))
    for found, table, most in ((back4, four, 448.0), (back5, five, np.inf)):
        finite = {bits: Fraction(v) for bits, v in enumerate(table) if np.isfinite(v)}
        for number, bits in zip(x.tolist(), found.tolist(), strict=True):
            if abs(number) > 448:
                assert abs(table[bits]) == most or most == np.inf
                continue
            gap = {b: abs(v - Fraction(number)) for b, v in finite.items()}
            least = min(gap.values())
            nearest = [b for b, g in gap.items() if g == least and (b >> 7) == (np.signbit(np.float32(number)))]
            assert bits in nearest
            assert len(nearest) == 1 or bits % 2 == 0, "ties to even"


@OLD_AND_NEW
def test_connected_components_of_a_graph(arch: str) -> None:
    """Labels go down along edges until none does: launches by the host, atomicMin between blocks."""
    text = r"""
    extern "C" __global__ void lower(int* label, const int2* edges, int m, int* changed) {
        int e = blockIdx.x * blockDim.x + threadIdx.x;
        if (e >= m) return;
        int2 uv = edges[e];
        int a = atomicMin(&label[uv.x], 0x7fffffff), b = atomicMin(&label[uv.y], 0x7fffffff);
        if (a == b) return;
        int least = min(a, b);
        if (atomicMin(&label[a < b ? uv.y : uv.x], least) > least && atomicExch(changed, 1) == 0) __threadfence();
    }"""
    n, m = 60, 50
    edges = generator().integers(0, n, (m, 2)).astype(np.int32)
    label = np.arange(n, dtype=np.int32)
    for _ in range(n):
        changed = np.zeros(1, np.int32)
        run(text, "lower", (2,), (32,), label, edges, np.int32(m), changed, arch=arch)
        if not changed[0]:
            break
    parent = list(range(n))

    def root(v: int) -> int:
        return v if parent[v] == v else root(parent[v])

    for u, v in edges.tolist():
        a, b = sorted((root(u), root(v)))
        parent[b] = a
    assert label.tolist() == [root(v) for v in range(n)]


@OLD_AND_NEW
def test_sha256_of_messages(arch: str) -> None:
    text = r"""
    __device__ __forceinline__ unsigned rotr(unsigned x, int n) { return __funnelshift_r(x, x, n); }
    extern "C" __global__ void sha256(unsigned char* out, const unsigned char* in, const unsigned* keys) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        unsigned w[16], h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
        unsigned s[8];
        for (int t = 0; t < 16; t++) w[t] = __byte_perm(((const unsigned*)in)[i * 16 + t], 0, 0x0123);
        for (int j = 0; j < 8; j++) s[j] = h[j];
        #pragma unroll 1
        for (int t = 0; t < 64; t++) {
            if (t >= 16) {
                unsigned a = w[(t - 15) & 15], b = w[(t - 2) & 15];
                w[t & 15] += (rotr(a, 7) ^ rotr(a, 18) ^ a >> 3) + w[(t - 7) & 15];
                w[t & 15] += rotr(b, 17) ^ rotr(b, 19) ^ b >> 10;
            }
            unsigned one = s[7] + (rotr(s[4], 6) ^ rotr(s[4], 11) ^ rotr(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6]));
            one += keys[t] + w[t & 15];
            unsigned two = rotr(s[0], 2) ^ rotr(s[0], 13) ^ rotr(s[0], 22);
            two += (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
            for (int j = 7; j > 0; j--) s[j] = s[j - 1];
            s[4] += one; s[0] = one + two;
        }
        for (int j = 0; j < 8; j++) {
            unsigned word = h[j] + s[j];
            for (int b = 0; b < 4; b++) out[i * 32 + j * 4 + b] = word >> (24 - 8 * b);
        }
    }"""
    primes = [p for p in range(2, 320) if all(p % q for q in range(2, p))][:64]
    # Fractional parts of cube roots, 32 bits of them.
    keys = np.array([_cube_root(p << 96) & 0xFFFFFFFF for p in primes], np.uint32)
    messages = [bytes(generator().integers(0, 256, 20 + i, np.uint8)) for i in range(32)]
    padded = b"".join(m + b"\x80" + bytes(55 - len(m)) + (8 * len(m)).to_bytes(8, "big") for m in messages)
    out = np.zeros((32, 32), np.uint8)
    execution = run(text, "sha256", (1,), (32,), out, np.frombuffer(padded, np.uint8).copy(), keys, arch=arch)
    assert [bytes(row) for row in out] == [hashlib.sha256(m).digest() for m in messages]
    # Bytes of rows 32 apart: each of a warp's 32 lanes in a sector of its own, 32 times.
    assert (execution.counts.stores.requests, execution.counts.stores.sectors) == (32, 32 * 32)


def _cube_root(n: int) -> int:
    low, high = 0, 1 << (n.bit_length() // 3 + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**3 <= n else (low, middle - 1)
    return low


@OLD_AND_NEW
def test_radix_sort_of_a_block(arch: str) -> None:
    """Four bits a pass: ranks by ballots within warps, a scan over the warps' counts in shared memory."""
    text = r"""
    extern "C" __global__ void sort(unsigned* keys) {
        __shared__ unsigned box[256], counts[16][8], starts[16][8];
        int t = threadIdx.x, lane = t & 31, warp = t >> 5;
        unsigned key = keys[blockIdx.x * 256 + t], below = (1u << lane) - 1;
        for (int shift = 0; shift < 32; shift += 4) {
            unsigned digit = key >> shift & 15, mine = 0;
            for (unsigned d = 0; d < 16; d++) {
                unsigned same = __ballot_sync(~0u, digit == d);
                if (digit == d) mine = same;
                if (lane == 0) counts[d][warp] = __popc(same);
            }
            __syncthreads();
            if (t == 0) {
                unsigned total = 0;
                for (int d = 0; d < 16; d++)
                    for (int w = 0; w < 8; w++) { starts[d][w] = total; total += counts[d][w]; }
            }
            __syncthreads();
            box[starts[digit][warp] + __popc(mine & below)] = key;
            __syncthreads();
            key = box[t];
            __syncthreads();
        }
        keys[blockIdx.x * 256 + t] = key;
    }"""
    keys = generator().integers(0, 2**32, (3, 256), np.uint32)
    expected = np.sort(keys, axis=1)
    run(text, "sort", (3,), (256,), keys, arch=arch)
    np.testing.assert_array_equal(keys, expected)


@OLD_AND_NEW
def test_products_of_128_bits(arch: str) -> None:
    """Modulo 2¹²⁷ − 1: NVRTC's division adds after it subtracts, and so sees how a difference keeps its carry."""
    text = r"""
    typedef unsigned __int128 wide;
    extern "C" __global__ void power(ulonglong2* out, const unsigned long long* base, int exponent) {
        int i = threadIdx.x;
        const wide p = ((wide)1 << 127) - 1;
        wide result = 1, x = base[i];
        for (int e = exponent; e; e >>= 1) {
            if (e & 1) {
                wide sum = 0;
                for (wide y = result, z = x; z; z >>= 1) { if (z & 1) sum = (sum + y) % p; y = (y + y) % p; }
                result = sum;
            }
            wide sum = 0;
            for (wide y = x, z = x; z; z >>= 1) { if (z & 1) sum = (sum + y) % p; y = (y + y) % p; }
            x = sum;
        }
        out[i] = make_ulonglong2((unsigned long long)result, (unsigned long long)(result >> 64));
    }"""
    base = generator().integers(1, 2**63, 8, np.uint64)
    out = np.zeros((8, 2), np.uint64)
    run(text, "power", (1,), (8,), out, base, np.int32(13), arch=arch, compile_options=("--device-int128",))
    found = [int(low) | int(high) << 64 for low, high in out]
    assert found == [pow(int(b), 13, 2**127 - 1) for b in base]


@OLD_AND_NEW
def test_bodies_that_attract_each_other(arch: str) -> None:
    text = r"""
    extern "C" __global__ void forces(float3* out, const float4* bodies, int n) {
        __shared__ float4 box[64];
        int i = blockIdx.x * 64 + threadIdx.x;
        float4 me = i < n ? bodies[i] : make_float4(0, 0, 0, 0);
        float3 sum = make_float3(0, 0, 0);
        for (int first = 0; first < n; first += 64) {
            int j = first + threadIdx.x;
            box[threadIdx.x] = j < n ? bodies[j] : make_float4(0, 0, 0, 0);
            __syncthreads();
            #pragma unroll 8
            for (int k = 0; k < 64; k++) {
                float4 other = box[k];
                float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
                float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
                float s = other.w * inverse * inverse * inverse;
                sum.x += dx * s; sum.y += dy * s; sum.z += dz * s;
            }
            __syncthreads();
        }
        if (i < n) out[i] = sum;
    }"""
    bodies, out = generator().normal(0, 1, (150, 4)).astype(np.float32), np.zeros((150, 3), np.float32)
    execution = run(text, "forces", (3,), (64,), out, bodies, np.int32(150), arch=arch)
    wide = bodies.astype(np.float64)
    apart = wide[None, :, :3] - wide[:, None, :3]
    weight = wide[None, :, 3] / ((apart**2).sum(axis=2) + np.float64(np.float32(0.01))) ** 1.5
    np.testing.assert_allclose(out, (apart * weight[..., None]).sum(axis=1), rtol=2e-4, atol=2e-4)
    # float3 is stored a float at a time, 12 bytes apart: 32 lanes in 12 sectors. 150 = 4 full warps and one of 22.
    assert execution.counts.stores.requests == 3 * 5
    assert execution.counts.stores.sectors == 3 * 4 * 12 + sum(
        len({(12 * i + 4 * c) // 32 for i in range(128, 150)}) for c in range(3)
    )
    # One address for a warp, so no conflict; 64 times three tiles for six warps.
    assert execution.counts.shared_loads.requests == 6 * 3 * 64
    assert execution.counts.shared_loads.bank_conflicts == 0


@OLD_AND_NEW
def test_scan_that_looks_back_at_other_blocks(arch: str) -> None:
    """A single pass over the grid: each block publishes its sum and adds up those before it, warp by warp."""
    text = r"""
    extern "C" __global__ void scan(int* out, const int* in, volatile int* sums, int* ready, int n) {
        __shared__ int box[128], before;
        int t = threadIdx.x, i = blockIdx.x * 128 + t;
        int x = i < n ? in[i] : 0;
        box[t] = x;
        __syncthreads();
        for (int step = 1; step < 128; step *= 2) {
            int y = t >= step ? box[t - step] : 0;
            __syncthreads();
            box[t] += y;
            __syncthreads();
        }
        if (t == 0) {
            sums[blockIdx.x] = box[127];
            __threadfence();
            atomicExch(&ready[blockIdx.x], 1);
            int total = 0;
            for (int b = (int)blockIdx.x - 1; b >= 0; b--) {
                while (atomicAdd(&ready[b], 0) == 0) {}
                __threadfence();
                total += sums[b];
            }
            before = total;
        }
        __syncthreads();
        if (i < n) out[i] = before + box[t];
    }"""
    data = generator().integers(-9, 99, 1000).astype(np.int32)
    out, sums, ready = np.zeros(1000, np.int32), np.zeros(8, np.int32), np.zeros(8, np.int32)
    run(text, "scan", (8,), (128,), out, data, sums, ready, np.int32(1000), arch=arch)
    np.testing.assert_array_equal(out, np.cumsum(data))


@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
def test_polynomials_in_packed_brain_floats(arch: str) -> None:
    """__nv_bfloat162 by fused steps, against exact products rounded once."""
    text = r"""
    #include <cuda_bf16.h>
    extern "C" __global__ void horner(__nv_bfloat162* out, const __nv_bfloat162* in, const float* c, int degree) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        __nv_bfloat162 x = in[i], y = __float2bfloat162_rn(c[degree]);
        for (int k = degree - 1; k >= 0; k--) y = __hfma2(y, x, __float2bfloat162_rn(c[k]));
        out[i] = __hmin2(__hneg2(y), __hmul2(x, x));
    }"""
    c = np.array([0.5, -1.25, 3.0, 0.375, -2.0], np.float32)
    values = (generator().normal(0, 1.5, (64, 2)).astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    out = np.zeros((64, 2), np.uint16)
    run(text, "horner", (2,), (32,), out, values, c, np.int32(4), arch=arch)

    def rounded(x: np.ndarray) -> np.ndarray:
        """binary64 to bf16's values: eight significant bits, ties to even; sums of two products are exact in it."""
        mantissa, exponent = np.frexp(x)
        return np.ldexp(np.rint(np.ldexp(mantissa, 8)), exponent - 8)

    x = (values.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    y = np.full_like(x, c[4])
    for k in range(3, -1, -1):
        y = rounded(y * x + c[k])
    expected = np.minimum(-y, rounded(x * x))
    np.testing.assert_array_equal((out.astype(np.uint32) << np.uint32(16)).view(np.float32), expected)


@OLD_AND_NEW
def test_tiles_of_a_warp_that_decide_for_themselves(arch: str) -> None:
    """Rows of eight, four to a warp: each votes and elects by its own mask, in one instruction with the others."""
    text = r"""
    extern "C" __global__ void rows(int* first, int* any, unsigned* same, const int* in, int n) {
        int row = (blockIdx.x * blockDim.x + threadIdx.x) / 8, rank = threadIdx.x & 7;
        if (row >= n) return;
        unsigned mask = 0xffu << (threadIdx.x & 24);
        int x = in[row * 8 + rank];
        unsigned large = __ballot_sync(mask, x > 90);
        any[row * 8 + rank] = __any_sync(mask, x > 95) - __all_sync(mask, x > 10);
        same[row * 8 + rank] = __match_any_sync(mask, x / 25) >> (threadIdx.x & 24);
        if (rank == 0) first[row] = large ? __ffs(large) - 1 - (threadIdx.x & 24) : -1;
    }"""
    data = generator().integers(0, 100, (21, 8)).astype(np.int32)
    first, any_, same = np.zeros(21, np.int32), np.zeros((21, 8), np.int32), np.zeros((21, 8), np.uint32)
    run(text, "rows", (3,), (64,), first, any_, same, data, np.int32(21), arch=arch)
    large = data > 90
    np.testing.assert_array_equal(first, np.where(large.any(1), large.argmax(1), -1))
    decided = (data > 95).any(1).astype(int) - (data > 10).all(1)
    np.testing.assert_array_equal(any_, np.repeat(decided[:, None], 8, axis=1))
    alike = data[:, :, None] // 25 == data[:, None, :] // 25
    np.testing.assert_array_equal(same, (alike << np.arange(8)).sum(axis=2))
