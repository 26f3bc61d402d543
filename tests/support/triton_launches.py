"""Small launches of the kernels in triton_kernels.py, and what NumPy computes of the same. Needs no Triton.

Run as a script, where Triton is installed, it writes the kernels' PTX into `FOLDER`: do so after a change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pytest_bandwidth.domain.code.ptx_normal_form import normal_form

# PTX of these launches' kernels for each architecture, in its normal form. Softmax's keep Triton's own, with its lines.
FOLDER = Path(__file__).parents[1] / "features" / "traffic" / "ptx" / "made_by_triton"
ARCHITECTURES = ("sm_80", "sm_90")
# Of one operation that PTX calls approximate.
APPROXIMATE = 2.0**-22

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Launch:
    """Hold a launch. expected: arguments afterwards; each may be off by `tolerance` times the largest of the array.

    load_sectors: what all loads ask for, by hand; None where that is not simple.
    """

    grid: tuple[int, ...]
    args: Mapping[str, Any]
    constants: Mapping[str, int]
    expected: Mapping[str, Array]
    tolerance: float = 0.0
    warps: int = 1
    shared_bytes: int = 0
    load_sectors: int | None = None

    def check(self) -> None:
        """Compare results with NumPy's."""
        for name, value in self.expected.items():
            atol = self.tolerance * float(np.abs(value).max())
            np.testing.assert_allclose(self.args[name], value, rtol=0, atol=atol, err_msg=name)


def add() -> Launch:
    n, (x, y) = 1008, _normal((2, 1008))
    args = {"x": x, "y": y, "out": np.zeros_like(x), "n": n}
    return Launch((4,), args, {"block": 256}, {"out": x + y}, load_sectors=2 * n * 4 // 32)


def softmax() -> Launch:
    rows, columns = 5, 1008
    x = _normal((rows, columns))
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    args = {"out": np.zeros_like(x), "x": x, "stride": columns, "columns": columns}
    return Launch(
        (rows,),
        args,
        {"block": 1024},
        {"out": powers / powers.sum(axis=1, keepdims=True)},
        tolerance=8 * APPROXIMATE,
        warps=4,
        shared_bytes=16,
        load_sectors=rows * columns * 4 // 32,
    )


def dropout() -> Launch:
    n, p, seed = 160, 0.25, 123
    x = _normal(n)
    out = np.where(_philox(seed, n) > p, x / np.float32(1 - p), 0)
    args = {"out": np.zeros_like(x), "x": x, "n": n, "p": p, "seed": seed}
    return Launch((3,), args, {"block": 64}, {"out": out}, tolerance=APPROXIMATE, load_sectors=n * 4 // 32)


def _philox(seed: int, n: int) -> Array:
    """Return the first `n` of tl.rand(seed, …): ten rounds of Philox, the first word of four."""
    c0 = np.arange(n, dtype=np.uint64)
    c1 = c2 = c3 = np.zeros_like(c0)
    for turn in range(10):
        a, b = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        keys = (seed + turn * 0x9E3779B9) % 2**32, turn * 0xBB67AE85 % 2**32
        c0, c2 = b >> 32 ^ c1 ^ np.uint64(keys[0]), a >> 32 ^ c3 ^ np.uint64(keys[1])
        c1, c3 = b % 2**32, a % 2**32
    word = c0.astype(np.uint32).view(np.int32)
    uniform: Array = np.where(word < 0, ~word, word).astype(np.float32) * np.float32(4.6566127342e-10)
    return uniform


def layer_norm() -> Launch:
    rows, columns, eps = 3, 400, 1e-5
    x, (weight, bias) = _normal((rows, columns)), _normal((2, columns))
    mean, rstd = x.mean(axis=1), 1 / np.sqrt(x.var(axis=1) + eps)
    args = {"out": np.zeros_like(x), "x": x, "weight": weight, "bias": bias}
    args |= {"mean_out": np.zeros_like(mean), "rstd_out": np.zeros_like(rstd)}
    out = (x - mean[:, None]) * rstd[:, None] * weight + bias
    return Launch(
        (rows,),
        {**args, "stride": columns, "columns": columns, "eps": eps},
        {"block": 256},
        {"out": out, "mean_out": mean, "rstd_out": rstd},
        tolerance=8 * APPROXIMATE,
        warps=2,
        shared_bytes=8,
        load_sectors=rows * (3 + 2) * columns * 4 // 32,  # each row three times, and weights and biases
    )


def layer_norm_backward() -> Launch:
    rows, columns, groups = 5, 208, 2
    (x, dy), w = _normal((2, rows, columns)), _normal(columns)
    mean, rstd = x.mean(axis=1), 1 / np.sqrt(x.var(axis=1) + 1e-5)
    hat, weighted = (x - mean[:, None]) * rstd[:, None], w * dy
    c1, c2 = (hat * weighted).mean(axis=1, keepdims=True), weighted.mean(axis=1, keepdims=True)
    sums_w, sums_b = np.zeros((2, groups, columns), np.float32)
    args = {"dx": np.zeros_like(x), "dy": dy, "sums_w": sums_w, "sums_b": sums_b, "x": x, "w": w}
    args |= {"mean": mean, "rstd": rstd, "lock": np.zeros(2 * groups, np.int32), "columns": columns}
    expected = {
        "dx": (weighted - hat * c1 - c2) * rstd[:, None],
        "sums_w": np.array([(dy * hat)[group::groups].sum(axis=0) for group in range(groups)]),
        "sums_b": np.array([dy[group::groups].sum(axis=0) for group in range(groups)]),
        "lock": np.repeat([0, 1], groups),  # all are free, and of each group there is a sum
    }
    constants = {"groups": groups, "block": 256}
    return Launch((rows,), args, constants, expected, tolerance=8 * APPROXIMATE, warps=2, shared_bytes=8)


def layer_norm_sums() -> Launch:
    groups, columns = 12, 80
    sums_w, sums_b = _normal((2, groups, columns))
    dw, db = np.zeros((2, columns), np.float32)
    args = {"sums_w": sums_w, "sums_b": sums_b, "dw": dw, "db": db, "groups": groups, "columns": columns}
    expected = {"dw": sums_w.sum(axis=0), "db": sums_b.sum(axis=0)}
    constants = {"rows_of_tile": 8, "columns_of_tile": 32}
    sectors = 2 * groups * columns * 4 // 32
    return Launch((3,), args, constants, expected, 2 * APPROXIMATE, shared_bytes=128, load_sectors=sectors)


def matmul() -> Launch:
    """Copies to shared memory and mma for sm_80, the product of a warp group for sm_90; tiles by twos of rows."""
    m, n, k = 96, 48, 80
    a, b, c = _whole((m, k)), _whole((k, n)), np.zeros((m, n), np.float16)
    constants = {"rows_of_tile": 64, "columns_of_tile": 32, "step": 32, "together": 2}
    args = {"a": a, "b": b, "c": c, "m": m, "n": n, "k": k}
    # Each of four tiles asks for its row of A and its column of B, once.
    sectors = 4 * (64 + 32) * k * 2 // 32
    return Launch((4,), args, constants, {"c": a @ b}, warps=4, shared_bytes=1 << 14, load_sectors=sectors)


def grouped_matmul() -> Launch:
    sizes = (32, 48, 16), (16, 16, 48), (48, 32, 32)
    pairs = [(_whole((m, k)), _whole((k, n))) for m, n, k in sizes]
    a, b, c = (
        np.concatenate([array.ravel() for array in arrays])
        for arrays in zip(*((one, other, one @ other) for one, other in pairs), strict=True)
    )
    ends = np.cumsum([(m * k, k * n, m * n) for m, n, k in sizes], axis=0)
    problems = np.hstack([sizes, [(0, 0, 0), *ends[:-1]]]).astype(np.int32)
    args = {"a": a, "b": b, "c": np.zeros_like(c), "problems": problems, "count": len(sizes)}
    return Launch((4,), args, {"programs": 4, "tile": 16}, {"c": c}, shared_bytes=1 << 14)


def attention() -> Launch:
    """Powers are rounded to half precision, and the result: each by 2⁻¹¹ at most, no value being negative."""
    heads, tokens, width, scale = 2, 128, 16, 0.25
    q, k = _normal((2, heads, tokens, width)).astype(np.float16)
    v = np.abs(_normal((heads, tokens, width))).astype(np.float16)
    scores = q.astype(np.float32) @ k.astype(np.float32).transpose(0, 2, 1) * np.float32(scale)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    out = powers / powers.sum(axis=-1, keepdims=True) @ v.astype(np.float32)
    args = {"q": q, "k": k, "v": v, "out": np.zeros_like(q), "scale": scale, "tokens": tokens}
    constants = {"width": width, "rows_of_tile": 64, "columns_of_tile": 32}
    # Each of four programs asks for its tile of Q, and for all of its head's K and V.
    sectors = 4 * (64 + 2 * tokens) * width * 2 // 32
    return Launch((2, heads), args, constants, {"out": out}, 2.0**-10, 4, shared_bytes=1 << 14, load_sectors=sectors)


LAUNCHES = {
    launch.__name__: launch
    for launch in (
        add,
        softmax,
        dropout,
        layer_norm,
        layer_norm_backward,
        layer_norm_sums,
        matmul,
        grouped_matmul,
        attention,
    )
}


def _normal(shape: int | tuple[int, ...]) -> Array:
    """Return the same numbers each time, others for each shape."""
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def _whole(shape: tuple[int, ...]) -> Array:
    """Return whole numbers, so small that their products are exact in half precision."""
    return np.random.default_rng(shape).integers(-4, 5, shape).astype(np.float16)


def ptx_of(device: Any, name: str, launch: Launch) -> str:
    """Launch on a traffic device that has begun a test; return the kernel's PTX as it is kept."""
    import triton_kernels

    kind = type(device.empty(1, "int32"))
    args = (value.view(kind) if hasattr(value, "view") else value for value in launch.args.values())
    options = {"num_warps": launch.warps, "num_stages": 2, "enable_fp_fusion": True}
    compiled = getattr(triton_kernels, name)[launch.grid](*args, **launch.constants, **options)
    assert compiled.metadata.shared <= launch.shared_bytes, (name, compiled.metadata.shared)
    text: str = compiled.asm["ptx"]
    if name == "softmax":
        text = re.sub(r"//(?! begin| end).*", "", text.partition("\t.section")[0])
        text = re.sub(r'(\.file\t\d+ ").*/', r"\1", text)
        return "".join(f"{line.rstrip()}\n" for line in text.splitlines() if line.strip())
    form = normal_form(text, name)
    assert form is not None
    return form.text


if __name__ == "__main__":
    from pytest_bandwidth.features.traffic.device import open_traffic

    for arch in ARCHITECTURES:
        opened = open_traffic(arch)
        opened.begin_test()
        for kernel, made in LAUNCHES.items():
            (FOLDER / f"{kernel}.{arch}.ptx").write_text(ptx_of(opened, kernel, made()), encoding="utf-8")
        opened.end_test()
