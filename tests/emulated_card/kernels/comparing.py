"""Run one launch by the interpreter and as a built kernel, and compare all that both know."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

from emulated_card.kernels import NoCompiler, build, variables_of
from emulated_card.kernels.build import compiler
from emulated_card.kernels.launching import Access, Account, Array, Shared, launch, placed
from pytest_bandwidth.features.traffic import ptx
from pytest_bandwidth.features.traffic.ptx.counts import Counts
from pytest_bandwidth.features.traffic.ptx.memory import flat_bytes

# Ten places of the largest float that is added up.
OF_THE_LARGEST = 1e-6


def run_both(
    module: ptx.PtxModule,
    kernel: str,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[Any],
    relative: float = 0.0,
) -> None:
    """Execute a launch both ways on the same data, `args` by the interpreter.

    Assert that neither finds an error, and that both count the same and leave equal bytes in each array and module
    variable, but for NaNs' payloads. relative: how much floats may differ where the kernel uses exp2, which two
    libraries compute differently.
    """
    program = ptx.Program(module)
    name = program.resolve(kernel)
    built = build(module.ptx, name, module.arch)
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
        assert_same(owner, array.data, f"{kernel}, {what}", relative if "ex2.approx" in module.ptx else 0.0)


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


def assert_same(expected: np.ndarray[Any, Any], found: np.ndarray[Any, Any], what: str, relative: float = 0.0) -> None:
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
    counts: Counts = execution.counts
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


def _has_compiler() -> bool:
    try:
        return bool(compiler())
    except NoCompiler:
        return False


needs_compiler = pytest.mark.skipif(not _has_compiler(), reason="building kernels needs a C compiler (gcc or cc)")
