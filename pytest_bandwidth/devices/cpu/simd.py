"""Load and store cache lines as vectors in Numba code, with aligned stores that bypass the caches.

An ordinary store first reads the line that it overwrites, so a copy moves three bytes for every two that it has to.
A non-temporal store does not. Numba has no such store, and LLVM never joins scalar ones into vectors. So this module
gives Numba a vector type, `SimdVector`. Its intrinsics emit LLVM vector instructions with `nontemporal` metadata (LLVM
Language Reference, "store instruction").

Numba cannot compute with float16, so float16 arrays are passed as uint16 and become float32 when loaded: everywhere in
the host kernels, uint16 means half. These functions do not check bounds.

`write`, `copy`, `add` and `read`, as cuda_src/stream.cu has them, are the probes, and twins of those kernels. Each of
`parts` threads has one contiguous part of the output's whole lines; the elements before the first line and after the
last are done one by one. `parts` is an argument because a function that asks Numba for the number of threads cannot be
cached on disk. All arrays are 1-d.

Imports Numba; only the modules that hold Numba kernels import this one.
"""

from __future__ import annotations

import operator
import platform
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.core.extending import intrinsic, models, overload, register_model

LINE_BYTES = 64
PAGE_BYTES = 4096
# Arrays begin 64 bytes after a page, as malloc's large blocks do, and rows of them often do so as well. Scratch that
# begins with a page, and is read while the output is written, waits for those stores.
FAR_FROM_ARRAYS = 640
_X86 = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
INT32 = ir.IntType(32)


class SimdVector(types.Type):
    """Name the Numba type of a vector of one cache line: 16 float32, 8 float64, 64 uint8 and so on."""

    def __init__(self, element: Any) -> None:
        self.element = element
        self.lanes = LINE_BYTES * 8 // element.bitwidth
        super().__init__(name=f"SimdVector({element})")


class _SimdVectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: SimdVector) -> None:
        element = manager.lookup(vector.element).get_value_type()
        of_vector: Any = super().__init__  # Numba's models are not annotated
        of_vector(manager, vector, ir.VectorType(element, vector.lanes))


register_model(SimdVector)(_SimdVectorModel)


def parallel(function: Callable[..., Any]) -> Any:
    """Compile a function with `prange` loops at its first call; kept on disk where Numba finds a folder to write to.

    Numba checks only the function's own file for changes. After an edit of a module of helpers alone (this one,
    simd_math) delete the `__pycache__/*.nbi` of those that use it.
    """
    return _compiled(function, parallel=True)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a helper of such functions."""
    return _compiled(function)


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    # "contract" lets a*b + c become one FMA, as NVRTC does by default; nothing is reordered.
    options |= {"error_model": "numpy", "fastmath": {"contract"}}
    try:
        return numba.njit(cache=True, **options)(function)
    except (
        RuntimeError
    ):  # "cannot cache function …: no locator available": neither the package nor the home is writable
        return numba.njit(**options)(function)


def typed_intrinsic(function: Callable[..., Any]) -> Any:
    """Apply Numba's `intrinsic`, typed for a type checker."""
    return intrinsic(function)


def _vector_of(array: Any) -> SimdVector:
    """Return the type that one load from an array yields."""
    return SimdVector(types.float32 if array.dtype == types.uint16 else array.dtype)


def _stored(array: Any, value: Any) -> ir.Type:
    """Return the type that an element, or a line of them, has in the array's memory."""
    holds_floats = isinstance(array.dtype, types.Float) or array.dtype == types.uint16
    of_floats = {16: ir.HalfType(), 32: ir.FloatType(), 64: ir.DoubleType()} if holds_floats else {}
    element = of_floats.get(array.dtype.bitwidth, ir.IntType(array.dtype.bitwidth))
    return ir.VectorType(element, value.lanes) if isinstance(value, SimdVector) else element


def _pointer(context: Any, builder: Any, signature: Any, args: Any, pointee: ir.Type) -> Any:
    data = context.make_array(signature.args[0])(context, builder, args[0]).data
    return builder.bitcast(builder.gep(data, [args[1]]), pointee.as_pointer())


def _load(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Emit the load of an element or a line of args[0] at args[1], as float32 where that holds halves."""
    array = signature.args[0]
    loaded = builder.load(_pointer(context, builder, signature, args, _stored(array, signature.return_type)))
    loaded.align = array.dtype.bitwidth // 8
    is_half = array.dtype == types.uint16
    return builder.fpext(loaded, context.get_value_type(signature.return_type)) if is_half else loaded


def _store(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Emit the store of args[2], rounded to half where the array holds halves, and return that instruction."""
    array, _, value = signature.args
    stored = _stored(array, value)
    rounded = builder.fptrunc(args[2], stored) if array.dtype == types.uint16 else args[2]
    store = builder.store(rounded, _pointer(context, builder, signature, args, stored))
    store.align = array.dtype.bitwidth // 8
    return store


def _plain_store(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    _store(context, builder, signature, args)
    return context.get_dummy_value()


@typed_intrinsic
def address(_typing_context: Any, array: Any) -> Any:
    """Give address(array): where the array's data begins.

    (`array.ctypes.data` would keep Numba from caching on disk.)
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), generate


@typed_intrinsic
def lanes_of(_typing_context: Any, array: Any) -> Any:
    """Return lanes_of(array): how many elements one load from the array takes."""

    def generate(_context: Any, _builder: Any, signature: Any, _args: Any) -> Any:
        return ir.Constant(ir.IntType(64), _vector_of(signature.args[0]).lanes)

    return types.int64(array), generate


@typed_intrinsic
def load(_typing_context: Any, array: Any, index: Any) -> Any:
    """Return load(array, index): the line that begins at element `index` of a 1-d array, at any alignment."""
    return _vector_of(array)(array, index), _load


@typed_intrinsic
def stream(_typing_context: Any, array: Any, index: Any, line: Any) -> Any:
    """Return stream(array, index, line): stores the line past the caches, rounded to half where the array holds halves.

    Element `index` must lie on a boundary of the stored line: 64 bytes, 32 for halves.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        store = _store(context, builder, signature, args)
        store.align = signature.args[0].dtype.bitwidth // 8 * signature.args[2].lanes
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(INT32, 1)]))
        return context.get_dummy_value()

    return types.void(array, index, line), generate


@typed_intrinsic
def store(_typing_context: Any, array: Any, index: Any, line: Any) -> Any:
    """Return store(array, index, line): an ordinary store of the line, at any alignment."""
    return types.void(array, index, line), _plain_store


@typed_intrinsic
def get(_typing_context: Any, array: Any, index: Any) -> Any:
    """Return get(array, index): one element; a half as float32."""
    return _vector_of(array).element(array, index), _load


@typed_intrinsic
def put(_typing_context: Any, array: Any, index: Any, _value: Any) -> Any:
    """Make put(array, index, value), which stores one element of `get`'s type, rounded to half where need be."""
    return types.void(array, index, _vector_of(array).element), _plain_store


def repeated(builder: Any, value: Any, vector: ir.VectorType) -> Any:
    """Emit a vector that holds the value in every lane."""
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(INT32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(INT32, vector.count), [0] * vector.count))


@typed_intrinsic
def spread(_typing_context: Any, scalar: Any) -> Any:
    """Return spread(scalar): a line that holds the scalar in every lane."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return repeated(builder, args[0], context.get_value_type(signature.return_type))

    return SimdVector(scalar)(scalar), generate


@typed_intrinsic
def fence(_typing_context: Any) -> Any:
    """Make earlier streamed lines visible to other cores.

    Each thread calls it once, at its end.
    """

    def generate(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        if _X86:
            # Non-temporal stores are weakly ordered even on x86 (Intel SDM vol. 1, §10.4.6.2), where LLVM's own
            # fences may compile to nothing.
            sfence = builder.module.declare_intrinsic("llvm.x86.sse.sfence", (), ir.FunctionType(ir.VoidType(), ()))
            builder.call(sfence, ())
        else:
            builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@inlined
def scratch(count: int, dtype: Any, in_page: int = FAR_FROM_ARRAYS) -> Any:
    """Return an array of a thread's own that begins so many bytes after a page does, and shares no line with others.

    in_page: a multiple of LINE_BYTES. Numba's own allocations are aligned to 32 bytes, and lie where the process's
    other ones leave them. So in half of the processes lines would straddle two of the cache's; and a load waits for a
    store to another address whose last twelve bits are the same, which made one process in twenty 1.1 to 1.6 times as
    slow.
    """
    raw = np.empty(count + PAGE_BYTES + LINE_BYTES, dtype)
    begin = ((in_page - address(raw)) % PAGE_BYTES) // raw.itemsize
    return raw[begin : begin + count]


@inlined
def whole_lines(array: Any, start: int, n: int) -> tuple[int, int]:
    """Return how many of the n elements from `start` on come before the first line's boundary, and the lines after."""
    line_bytes = lanes_of(array) * array.itemsize
    head = min(n, (-(address(array) + start * array.itemsize) % line_bytes) // array.itemsize)
    return head, (n - head) // lanes_of(array)


@inlined
def outside(k: int, head: int, inside: int) -> int:
    """Return the index of the k-th element that no whole line covers."""
    return k if k < head else k + inside


def is_floating(value: Any) -> bool:
    return isinstance(value.element if isinstance(value, SimdVector) else value, types.Float)


def for_lines(operation: Callable[..., Any], floating: str, integer: str) -> None:
    """Define a Python operator for lines, element by element. floating, integer: llvmlite's names for it."""

    @typed_intrinsic
    def elementwise(_typing_context: Any, left: Any, _right: Any) -> Any:
        def generate(_context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if is_floating(signature.return_type):
                return getattr(builder, floating)(*args, flags=("contract",))
            return getattr(builder, integer)(*args)

        return left(left, left), generate

    def implementation(left: Any, right: Any) -> Any:
        is_for_lines = isinstance(left, SimdVector) and left == right
        return (lambda left, right: elementwise(left, right)) if is_for_lines else None

    # Numba requires the same signature of the implementation, with its annotations, and a lambda can have none.
    implementation.__annotations__ = {}
    overload(operation)(implementation)


for_lines(operator.add, "fadd", "add")
for_lines(operator.sub, "fsub", "sub")
for_lines(operator.mul, "fmul", "mul")
for_lines(operator.truediv, "fdiv", "sdiv")


def across(floating: Callable[[Any, Any, Any], Any], integer: Callable[[Any, Any, Any], Any]) -> Any:
    @typed_intrinsic
    def operation(_typing_context: Any, line: Any) -> Any:
        def generate(_context: Any, builder: Any, signature: Any, args: Any) -> Any:
            join = floating if is_floating(signature.return_type) else integer
            lanes = [builder.extract_element(args[0], ir.Constant(INT32, i)) for i in range(signature.args[0].lanes)]
            # As a tree: shorter chains, and smaller rounding errors, than one after the other.
            while len(lanes) > 1:
                lanes = [join(builder, x, y) for x, y in zip(lanes[::2], lanes[1::2], strict=True)]
            return lanes[0]

        return line.element(line), generate

    return operation


total = across(lambda builder, x, y: builder.fadd(x, y), lambda builder, x, y: builder.add(x, y))


Array = Any


@parallel
def write(parts: int, out: Array, value: Any, n: int) -> None:
    """Write out[i] = value."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    for part in prange(parts):
        filled = spread(value)
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            stream(out, head + line * lanes, filled)
        fence()
    for k in range(n - lines * lanes):
        put(out, outside(k, head, lines * lanes), value)


@parallel
def copy(parts: int, out: Array, x: Array, n: int) -> None:
    """Write out[i] = x[i]."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    for part in prange(parts):
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            i = head + line * lanes
            stream(out, i, load(x, i))
        fence()
    for k in range(n - lines * lanes):
        i = outside(k, head, lines * lanes)
        put(out, i, get(x, i))


@parallel
def add(parts: int, out: Array, x: Array, y: Array, n: int) -> None:
    """Write out[i] = x[i] + y[i]."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    for part in prange(parts):
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            i = head + line * lanes
            stream(out, i, load(x, i) + load(y, i))
        fence()
    for k in range(n - lines * lanes):
        i = outside(k, head, lines * lanes)
        put(out, i, get(x, i) + get(y, i))


@inlined
def sum_of(x: Array, start: int, stop: int, zero: Any) -> Any:
    """Return Σ x[i] from start up to stop."""
    lanes = lanes_of(x)
    # Four sums at once: a single one would wait for its own last addition instead of for memory.
    s0, s1, s2, s3 = spread(zero), spread(zero), spread(zero), spread(zero)
    i = start
    while i + 4 * lanes <= stop:
        s0 = s0 + load(x, i)
        s1 = s1 + load(x, i + lanes)
        s2 = s2 + load(x, i + 2 * lanes)
        s3 = s3 + load(x, i + 3 * lanes)
        i += 4 * lanes
    result = total((s0 + s1) + (s2 + s3))
    while i < stop:
        result += get(x, i)
        i += 1
    return result


@parallel
def read(parts: int, sink: Array, x: Array, never: Any, n: int) -> None:
    """Read every element; store the sum to sink[0] only if it equals `never`. NaN equals nothing."""
    partial = np.zeros(parts, sink.dtype)
    for part in prange(parts):
        partial[part] = sum_of(x, n * part // parts, n * (part + 1) // parts, sink.dtype.type(0))
    result = partial.sum()
    if result == never:
        sink[0] = result
