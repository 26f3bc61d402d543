"""Kernels of cuda_src/ by the interpreter and as built code: same bytes, same counts.

That all of them compute what NumPy does: tests/kernels/test_kernel_numerics.py; in one type each: card/test_suite.py.
"""

from __future__ import annotations

import ctypes as c
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

if not all(map(importlib.util.find_spec, ("cuda", "numba", "lark"))):
    pytest.skip("translating kernels needs: pip install 'pytest-bandwidth[traffic]'", allow_module_level=True)

import kernel_resources
from interpreted import FreshArrays

from emulated_card.kernels import Built, NoCompiler, build, variables_of
from emulated_card.kernels.build import RUN_ONCE, compiler
from pytest_bandwidth.features.traffic import ptx
from pytest_bandwidth.features.traffic.ptx.memory import flat_bytes
from pytest_bandwidth.suite.operations import OPERATIONS
from pytest_bandwidth.suite.operations.model import KernelStep

try:
    compiler()
except NoCompiler as reason:
    pytest.skip(str(reason), allow_module_level=True)

FIRST_ADDRESS = 0x7_0000_0000
# Arrays lie so far apart that an index past the end meets no other.
APART = 1 << 32


class _Window(c.Structure):
    _fields_ = (
        ("first", c.c_uint64),
        ("end", c.c_uint64),
        ("shift", c.c_int64),
        ("kind", c.c_uint32),
        ("read_only", c.c_uint32),
    )


class _Launch(c.Structure):
    _fields_ = (
        ("abi", c.c_uint32),
        ("grid", c.c_uint32 * 3),
        ("block", c.c_uint32 * 3),
        ("dynamic_shared_bytes", c.c_uint32),
        ("parameters", c.c_void_p),
        ("variables", c.POINTER(c.c_uint64)),
        ("windows", c.POINTER(_Window)),
        ("window_count", c.c_uint32),
        ("l2", c.c_void_p),
        ("start_ns", c.c_uint64),
        ("start_cycles", c.c_uint64),
        ("clock_mhz", c.c_double),
        ("timer_step_ns", c.c_uint32),
        ("sm_count", c.c_uint32),
        ("poll", c.c_void_p),
        ("context", c.c_void_p),
        ("max_warp_instructions", c.c_uint64),
    )


def _counters(*names: str) -> tuple[tuple[str, Any], ...]:
    return tuple((name, c.c_uint64) for name in names)


class Access(c.Structure):
    _fields_ = _counters("requests", "sectors", "least_sectors", "lanes", "bytes")


class Shared(c.Structure):
    _fields_ = _counters("requests", "passes", "least_passes", "lanes")


class Account(c.Structure):
    _fields_ = (
        *_counters("warp_instructions", "thread_instructions"),
        *((name, Access) for name in ("loads", "stores", "atomics")),
        *((name, Shared) for name in ("shared_loads", "shared_stores", "shared_atomics")),
        *_counters("local_load_bytes", "local_store_bytes", "l2_sectors"),
        *_counters("dram_sectors_read", "dram_sectors_written"),
        *_counters("bus_bytes_read", "bus_bytes_written"),
        *_counters("flop16", "flop32", "flop64", "special", "integer"),
        *_counters("barriers", "branches", "divergent_branches"),
        *_counters("polls", "poll_address", "waited_ns", "longest_warp_cycles", "error_address"),
        ("error_line", c.c_uint32),
    )


@dataclass
class Array:
    """Place an allocation: `data` holds its bytes, aligned as a card aligns."""

    data: np.ndarray[Any, Any]
    address: int


def placed(arrays: list[Array], array: np.ndarray[Any, Any]) -> Array:
    """Take a copy of an array's bytes behind the others; its whole allocation, if it is a view, is the caller's."""
    raw = np.zeros(array.nbytes + 512, np.uint8)
    start = -raw.ctypes.data % 512
    data = raw[start : start + array.nbytes]
    data[:] = array.reshape(-1).view(np.uint8)
    arrays.append(Array(data, FIRST_ADDRESS + len(arrays) * APART))
    return arrays[-1]


@cache
def _function(path: str) -> Any:
    function = c.CDLL(path).card_kernel
    function.argtypes = (c.POINTER(_Launch), c.POINTER(Account))
    function.restype = c.c_int
    return function


def launch(
    built: Built,
    grid: Sequence[int],
    block: Sequence[int],
    arrays: Sequence[Array],
    values: Sequence[Any],
    variables: Sequence[int],
) -> tuple[int, Account]:
    """Run a kernel; returns its status and its account. arrays: in the order of their addresses."""
    windows, parameters = (_Window * len(arrays))(), bytearray(max(built.parameter_bytes, 1))
    for (offset, size), value in zip(built.parameters, values, strict=True):
        raw = value.address.to_bytes(8, "little") if isinstance(value, Array) else np.asarray(value).tobytes()
        assert len(raw) == size
        parameters[offset : offset + size] = raw
    for window, array in zip(windows, arrays, strict=True):
        window.first, window.end = array.address, array.address + array.data.nbytes
        window.shift = array.data.ctypes.data - array.address
    asked = _Launch(
        abi=2,
        grid=(c.c_uint32 * 3)(*(*grid, 1, 1)[:3]),
        block=(c.c_uint32 * 3)(*(*block, 1, 1)[:3]),
        parameters=c.cast(c.c_char_p(bytes(parameters)), c.c_void_p),
        variables=(c.c_uint64 * max(len(variables), 1))(*variables),
        windows=windows,
        window_count=len(windows),
        clock_mhz=1000.0,
        timer_step_ns=1,
        sm_count=1,
    )
    account = Account()
    return _function(built.path)(c.byref(asked), c.byref(account)), account


# exp2 is an approximation: NumPy's and the C library's differ by a place or two, and what is computed of it with them.
APPROXIMATE = 1e-5
# Ten places of the largest float that is added up.
OF_THE_LARGEST = 1e-6


def run_both(
    module: ptx.PtxModule,
    kernel: str,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[Any],
) -> None:
    """Execute a launch both ways on the same data, `args` by the interpreter.

    Assert that neither finds an error, and that both count the same and leave equal bytes in each array and module
    variable, but for NaNs' payloads, and for what is computed of exp2.
    """
    program = ptx.Program(module)
    name = program.resolve(kernel)
    built = build(module.ptx, name, module.arch, RUN_ONCE)
    arrays: list[Array] = []
    given: dict[int, tuple[Any, Array]] = {}
    values = [_value(argument, arrays, given) for argument in args]
    variables = [placed(arrays, np.frombuffer(v.initial, np.uint8)) for v in variables_of(module.ptx)]
    execution = ptx.execute(program, name, grid, block, args)
    status, account = launch(built, grid, block, arrays, values, [v.address for v in variables])
    assert not execution.faults, [fault.text for fault in execution.faults]
    assert status == 0, f"status {status} at PTX line {account.error_line}, address {account.error_address:#x}"
    assert counted(account) == expected(execution)
    left = [(owner, array, f"array of {owner.dtype}") for owner, array in given.values()]
    left += [(r.data[0], v, f"variable {r.name}") for r, v in zip(program.variables.values(), variables, strict=True)]
    for owner, array, what in left:
        assert_same(owner, array.data, f"{kernel}, {what}", APPROXIMATE if "ex2.approx" in module.ptx else 0.0)


def _value(argument: Any, arrays: list[Array], given: dict[int, tuple[Any, Array]]) -> Any:
    """Return what the built kernel is given. given: by address, each array's allocation, and its copy."""
    if not isinstance(argument, np.ndarray):
        return argument if argument is not None else np.uint64(0)
    data, start = flat_bytes(argument)
    key = data.ctypes.data
    if key not in given:
        owner = argument
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        given[key] = (owner.ravel(order="K"), placed(arrays, data))
    base = given[key][1]
    return Array(base.data, base.address + start)


def assert_same(expected: np.ndarray[Any, Any], found: np.ndarray[Any, Any], what: str, relative: float) -> None:
    """Assert equal bits, NaNs of whatever payload being equal, and floats that differ by so little."""
    ours = found.view(expected.dtype)
    differs = expected.view(f"u{expected.dtype.itemsize}") != ours.view(f"u{expected.dtype.itemsize}")
    if expected.dtype.kind == "f":
        differs &= ~(np.isnan(expected) & np.isnan(ours))
        if relative:
            limit = max(relative, 2 * float(np.finfo(expected.dtype).eps))
            # Of sums whose terms nearly cancel, what is left of the terms' differences.
            largest = float(np.abs(expected[np.isfinite(expected)].astype("float64")).max(initial=0.0))
            differs &= ~np.isclose(expected, ours, rtol=limit, atol=OF_THE_LARGEST * largest)
    places = np.flatnonzero(differs)
    first = places[:4].tolist()
    assert not len(places), (
        f"{what}: {len(places)} of {len(ours)} differ, at {first}: interpreter {expected[first]}, built {ours[first]}"
    )


def expected(execution: ptx.Execution) -> dict[str, Any]:
    """Return the interpreter's counts by the account's names."""
    counts = execution.counts
    of_access = attrgetter("requests", "sectors", "ideal_sectors", "accesses", "bytes_requested")
    of_shared = attrgetter("requests", "passes", "least_passes", "accesses")
    return {
        "warp_instructions": execution.warp_instructions,
        "thread_instructions": execution.thread_instructions,
        "branches": (counts.branches, counts.divergent_branches),
        **{n: of_access(getattr(counts, n)) for n in ("loads", "stores", "atomics")},
        **{n: of_shared(getattr(counts, n)) for n in ("shared_loads", "shared_stores", "shared_atomics")},
        "local": (counts.local_loads.bytes_requested, counts.local_stores.bytes_requested),
    }


def counted(account: Account) -> dict[str, Any]:
    """Return the account in the same form."""

    def of(part: Access | Shared) -> tuple[int, ...]:
        return tuple(getattr(part, name) for name, _ in part._fields_)

    return {
        "warp_instructions": account.warp_instructions,
        "thread_instructions": account.thread_instructions,
        "branches": (account.branches, account.divergent_branches),
        **{n: of(getattr(account, n)) for n in ("loads", "stores", "atomics")},
        **{n: of(getattr(account, n)) for n in ("shared_loads", "shared_stores", "shared_atomics")},
        "local": (account.local_load_bytes, account.local_store_bytes),
    }


ARCH = "sm_90"
SMALL_BYTES = 1 << 14
# One of each kind: plain, strided, tiled, a tree of shuffles, halves, rows in registers, indices, packed
# weights, products, tensor cores.
KINDS = {
    ("triad-plain", "float32"),
    ("copy-wide", "float16"),
    ("strided_read-plain", "float32"),
    ("transpose-tiled", "float32"),
    ("nchw_to_nhwc-wide", "float16"),
    ("sum-wide", "float32"),
    ("softmax-naive", "float16"),
    ("softmax-registers", "float32"),
    ("rms_norm_residual-registers", "float16"),
    ("logsumexp-registers", "float32"),
    ("quantize_int8-registers", "float16"),
    ("quantize_fp8-registers", "float32"),
    ("quantize_fp8-plain", "float32"),
    ("quantize_mxfp8-registers", "float16"),
    ("dequantize_fp8-wide", "float16"),
    ("bias_relu_dropout-wide", "float32"),
    ("rope-wide", "float16"),
    ("scale-wide", "bfloat16"),
    ("layer_norm-staged", "float32"),
    ("gemm-tiled", "float32"),
    ("gather-int32", "float32"),
    ("embedding-wide", "float16"),
    ("topk-wide", "float32"),
    ("q4_0_gemv-fused", "float32"),
    ("q4_0_gemm-planar", "float16"),
    ("gemm-pipelined", "float16"),
    ("gemm-split-k", "float32"),
    ("gemm_int8-pipelined", "float16"),
    ("gemm_int8-plain", "float32"),
    ("kv_decode_paged-grouped", "float16"),
    ("kv_append_fp8-wide", "float16"),
    ("kv_decode_fp8-grouped", "float32"),
}
CASES = [
    (operation, dtype) for operation in OPERATIONS for dtype in operation.dtypes if (operation.title, dtype) in KINDS
]


@pytest.mark.parametrize(
    ("operation", "dtype"), [pytest.param(*case, id=f"{case[0].title}-{case[1]}") for case in CASES]
)
def test_an_operation_does_the_same_both_ways(operation: Any, dtype: str) -> None:
    case = operation.prepare(FreshArrays(1), dtype, next(iter(operation.shapes(SMALL_BYTES, dtype))))
    for step in case.steps:
        if isinstance(step, KernelStep):
            run_both(kernel_resources.ptx(step.file, ARCH), step.kernel, step.grid, step.block, step.args)


def test_every_kind_is_there() -> None:
    assert len(CASES) == len(KINDS)
