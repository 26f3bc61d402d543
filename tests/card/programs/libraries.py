"""What CuPy's users call of cuBLAS and thrust, against NumPy."""

import json

import cupy
import numpy as np

seen: dict[str, object] = {}
random = np.random.default_rng(1)


def error_of(found: cupy.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found.get() - expected).max())


for kind in ("float16", "float32", "float64"):
    a, b = random.random((33, 31)).astype(kind), random.random((31, 45)).astype(kind)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    on_card = cupy.asarray(a), cupy.asarray(b)
    into = cupy.empty(exact.shape, kind)
    cupy.matmul(*on_card, out=into)
    by_columns = cupy.asarray(a.T.copy()).T @ cupy.asarray(b.T.copy()).T
    seen[kind] = [error_of(into, exact), error_of(by_columns, exact)]
stacks = random.random((3, 8, 5)), random.random((3, 5, 4))
seen["stacked"] = error_of(cupy.matmul(*map(cupy.asarray, stacks)), np.matmul(*stacks))
numbers = random.integers(0, 50, (4, 100), dtype=np.uint32)
order = cupy.argsort(cupy.asarray(numbers)).get()
seen["sorted"] = bool((np.take_along_axis(numbers, order, -1) == np.sort(numbers)).all())
handle, stream = cupy.cuda.get_cublas_handle(), cupy.cuda.Stream()
with stream:
    held = cupy.asarray(a) @ cupy.asarray(b)
stream.synchronize()
seen["on a stream"] = error_of(held, exact)
try:
    cupy.asfortranarray(cupy.asarray(a, np.float32))
except cupy.cuda.cublas.CUBLASError as error:
    seen["not done"] = str(error)
print(json.dumps(seen))
