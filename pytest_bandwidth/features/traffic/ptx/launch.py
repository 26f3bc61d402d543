"""Check a launch and its arguments, run the kernel over its grid, batch by batch, and collect counts and faults."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_bandwidth.devices.arguments import MOST_THREADS_PER_BLOCK, checked_shape
from pytest_bandwidth.devices.host import available_bytes
from pytest_bandwidth.domain.code.kernel_signature import source_parameters
from pytest_bandwidth.domain.errors import OutOfMemory, UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import format_bytes
from pytest_bandwidth.features.traffic.ptx.counts import Execution, TrafficCounter
from pytest_bandwidth.features.traffic.ptx.decode import Program
from pytest_bandwidth.features.traffic.ptx.faults import Checker, FaultLog, InitialisationChecker, untouched
from pytest_bandwidth.features.traffic.ptx.interpreter import BatchInterpreter, Tally
from pytest_bandwidth.features.traffic.ptx.lanes import WARP, Array, Geometry, three
from pytest_bandwidth.features.traffic.ptx.mbarriers import ClockRaces, Clocks, Mbarriers
from pytest_bandwidth.features.traffic.ptx.memory import (
    FIRST_ARRAY_REGION,
    GRID_REGION,
    LOCAL_REGION,
    PARAM_REGION,
    SHARED_REGION,
    Region,
    flat_bytes,
    is_sparse,
    region_base,
)
from pytest_bandwidth.features.traffic.ptx.memory_unit import ClusterMemory, MemoryUnit
from pytest_bandwidth.features.traffic.ptx.occupancy import most_shared_bytes
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES
from pytest_bandwidth.features.traffic.ptx.program import Kernel, Parameter, Symbol
from pytest_bandwidth.features.traffic.ptx.races import AsyncCopies, HappensBefore, RaceChecker

# Lanes of a batch: so many that the overhead of a NumPy call (about 1 µs) is small, so few that the registers in use
# stay in a core's caches. Measured by benchmarks/traffic.py.
BATCH_LANES = 1 << 16
BATCH_SHARED_BYTES = 1 << 23
BATCH_LOCAL_BYTES = 1 << 26
# Limits for a grid barrier, whose blocks are all resident at once, in threads (whole warps) and bytes of shared memory:
# more than today's GPUs have.
MAX_COOPERATIVE_THREADS = 1 << 19
MAX_COOPERATIVE_SHARED_BYTES = 1 << 26
# The limit for a batch, which holds whole clusters.
MAX_BATCH_LANES = 1 << 22
MAX_CLUSTER_BLOCKS = 16
GRID_WORKSPACE_BYTES = 64
# A touched page of a virtual array also needs pages of the race checker and of the count of distinct bytes.
SPARSE_BYTES_PER_LANE = 4 * mmap.PAGESIZE
DEFAULT_LIMIT = 2 * 10**10

# The shadows that find races hold a block's number, plus one, in 32 bits: one block less than GPUs take.
MAX_BLOCKS = 2**31 - 2
# The limit of every GPU since compute capability 5 (CUDA C++ Programming Guide, technical specifications).
MAX_LOCAL_BYTES = 512 * 1024


def execute(
    program: Program,
    kernel_name: str,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[Any],
    *,
    shared_bytes: int = 0,
    blocks: int | None = None,
    uninitialised: Sequence[Array] = (),
    max_thread_instructions: int = DEFAULT_LIMIT,
    max_seconds: float = math.inf,
) -> Execution:
    """Execute a launch and count its memory requests. Results are in the arrays of `args` afterwards.

    grid, block: one to three extents. args: NumPy arrays for pointers (views keep their offset), NumPy scalars of the
    parameter's type, None for a null pointer, Python ints only for integer parameters. shared_bytes: dynamic shared
    memory. blocks: run only so many blocks, evenly spread over the grid.
    uninitialised: arrays filled by `fill_untouched`, whose unwritten parts must not be read.
    Raises UsageError for a launch that CUDA would refuse, for arguments the kernel would misread, and for more than
    `max_thread_instructions` or `max_seconds`; OutOfMemory where the touched pages of virtual arrays may not fit;
    KernelError for unknown kernels; NotOnThisDevice for opcodes that are not modelled.
    """
    kernel = program.kernel(kernel_name)
    none = np.zeros(0, np.int64)
    launch = Geometry(three(grid), three(block), none, shared_bytes, kernel.static_shared_bytes, kernel.cluster)
    compiled = program.compiled
    _check(kernel, launch, compiled.arch, max_thread_instructions if blocks is None else None)
    names = compiled.parameters or tuple(
        one.name for one in source_parameters(compiled.source, kernel.name, len(kernel.parameters))
    )
    arguments = _place_arguments(kernel.name, kernel.parameters, names, args)
    tally = Tally(kernel, max_thread_instructions, max_seconds)
    run = _Run(program, kernel, launch, arguments, uninitialised, tally)
    return run.sample(blocks) if blocks is not None and blocks < launch.grid_blocks else run.whole()


class _Run:
    """Run one launch: its memory, its checkers, its batches."""

    def __init__(
        self,
        program: Program,
        kernel: Kernel,
        launch: Geometry,
        arguments: tuple[Region, ...],
        uninitialised: Sequence[Array],
        tally: Tally,
    ) -> None:
        self._program, self._kernel, self._launch = program, kernel, launch
        self._blocks, self._shared_bytes = launch.grid_blocks, launch.dynamic_shared_bytes
        self._uses_shared = bool(kernel.shared) or self._shared_bytes > 0
        self._regions = {region.number: region for region in (*program.variables.values(), *arguments)}
        if kernel.waits_for_grid:
            workspace = np.zeros((1, GRID_WORKSPACE_BYTES), np.uint8)
            self._regions[GRID_REGION] = Region("the grid's barrier", "global", GRID_REGION, workspace)
        parameters, *arrays = arguments
        self._arguments = {
            index: parameters.data[:, offset : offset + dtype.itemsize].view(dtype).copy()
            for index, (offset, dtype) in kernel.arguments.items()
        }
        self._arrays = tuple(arrays)
        self._faults = FaultLog(kernel.sites)
        self._traffic = TrafficCounter(kernel.granule_bytes.get("global", 1), kernel.sites)
        self._order = Clocks() if kernel.asynchronous else HappensBefore()
        checks_shared = ClockRaces if kernel.asynchronous else RaceChecker
        shared_races = checks_shared(
            "shared", self._faults, kernel.granule_bytes, self._order, program.compiled.for_blocks
        )
        unset = {
            region: np.zeros((1, region.nbytes), np.uint8) for region in program.variables.values() if not region.is_set
        }
        written = _written(self._arrays, uninitialised) | unset
        self._initialisation = InitialisationChecker(self._faults, kernel.granule_bytes, written)
        self._copies = AsyncCopies(self._faults, shared_races)
        self._bulk_stores = AsyncCopies(self._faults, shared_races, reads=True)
        self._checkers: tuple[Checker, ...] = (
            self._traffic,
            self._initialisation,
            shared_races,
            RaceChecker("global", self._faults, kernel.granule_bytes, self._order, program.compiled.for_blocks),
            self._copies,
        )
        if kernel.asynchronous:
            self._checkers += (self._bulk_stores,)
        self._tally = tally
        self._maps = any(site.opcode.startswith("mapa.") for site in kernel.sites)

    def whole(self) -> Execution:
        rows = self._rows_per_batch()
        for first in range(0, self._blocks, rows):
            self._batch(np.arange(first, min(first + rows, self._blocks)))
        return self._result(self._blocks, None)

    def sample(self, blocks: int) -> Execution:
        if blocks < 1:
            raise UsageError(f"blocks is {blocks}, expected at least 1")
        if self._kernel.waits_for_grid:
            raise UsageError(
                f"kernel {self._kernel.name} has a barrier of the grid: all blocks have to run, not {blocks}"
            )
        self._rows_per_batch()  # raises for clusters that are too large
        whole = self._blocks_of_whole_clusters
        parts = max(1, blocks // whole)
        chosen = np.unique(np.linspace(0, self._blocks // whole - 1, parts).astype(np.int64)) * whole
        totals = [np.zeros(10)]
        for number in chosen:
            self._batch(np.arange(number, number + whole))
            totals.append(np.append(self._traffic.figures(), self._tally.threads))
        each = np.diff(totals, axis=0)
        high, low = each.max(axis=0), each.min(axis=0)
        spread = float(np.max((high - low) / np.maximum(high, 1)))
        return self._result(len(chosen) * whole, spread)

    def _rows_per_batch(self) -> int:
        if self._kernel.waits_for_grid:
            return self._blocks
        lanes = self._launch.lanes
        rows = BATCH_LANES // lanes
        shared = self._kernel.dynamic_shared_offset + self._shared_bytes
        if self._uses_shared:
            rows = min(rows, BATCH_SHARED_BYTES // max(shared, 1))
        if self._kernel.asynchronous:  # shadows of shared memory have a word per warp
            rows = min(rows, BATCH_SHARED_BYTES * 8 // (max(shared, 1) * lanes // WARP))
        if self._kernel.local_bytes:
            rows = min(rows, BATCH_LOCAL_BYTES // (self._kernel.local_bytes * lanes))
        whole = self._blocks_of_whole_clusters
        if whole * lanes > MAX_BATCH_LANES:
            raise UsageError(
                f"kernel {self._kernel.name}: clusters along y or z let {whole * lanes} threads run together here; "
                f"use a grid of fewer blocks along x, expected at most {MAX_BATCH_LANES} threads"
            )
        return max(rows // whole, 1) * whole

    @property
    def _blocks_of_whole_clusters(self) -> int:
        """Return how many consecutive blocks hold whole clusters: lines of the grid for flat ones, else planes."""
        (x, y, z), grid = self._kernel.cluster, self._launch.grid
        return grid[0] * grid[1] * z if z > 1 else grid[0] * y if y > 1 else x

    def _batch(self, numbers: Array) -> None:
        kernel, geometry = self._kernel, replace(self._launch, blocks=numbers)
        needed = geometry.rows * geometry.lanes * SPARSE_BYTES_PER_LANE
        virtual = any(is_sparse(region.data) for region in self._arrays)
        if virtual and (available := available_bytes()) is not None and needed > available:
            # Raised before the system kills this process.
            raise OutOfMemory(
                f"kernel {kernel.name}: threads that touch a page each of a virtual array need "
                f"{format_bytes(needed)}, {format_bytes(available)} are free: launch fewer"
            )
        self._regions |= {region.number: region for region in self._windows(geometry)}
        self._faults.begin(geometry)
        self._order.begin(geometry)
        for checker in self._checkers:
            checker.begin(geometry)
        makes_unit = ClusterMemory if self._maps else MemoryUnit
        unit = makes_unit(self._regions, geometry, self._checkers, self._faults, self._copies)
        if isinstance(self._order, Clocks):
            unit.barriers = Mbarriers(self._order, self._copies, self._faults, geometry)
            unit.bulk_stores = self._bulk_stores
        BatchInterpreter(
            kernel,
            geometry,
            unit,
            self._order,
            self._initialisation,
            self._traffic,
            self._faults,
            self._tally,
            self._arguments,
        ).run()
        self._bulk_stores.end()

    def _windows(self, geometry: Geometry) -> list[Region]:
        """Make new shared and local memory."""
        kernel, windows = self._kernel, []
        if self._uses_shared:
            dynamic = Symbol("dynamic shared memory", kernel.dynamic_shared_offset, self._shared_bytes)
            external = next((s.name for s in kernel.shared if s.size == 0), dynamic.name)
            symbols = (*(s for s in kernel.shared if s.size), Symbol(external, dynamic.address, dynamic.size))
            size = -(-(dynamic.address + dynamic.size) // 16) * 16
            data = np.zeros((geometry.rows, size), np.uint8)
            windows.append(Region("shared memory", "shared", SHARED_REGION, data, block_step=1, symbols=symbols))
        if kernel.local_bytes:
            size = -(-kernel.local_bytes // 16) * 16
            data = np.zeros((geometry.rows * geometry.lanes, size), np.uint8)
            region = Region("local memory", "local", LOCAL_REGION, data, geometry.lanes, 1, symbols=kernel.local)
            windows.append(region)
        return windows

    def _result(self, blocks_run: int, spread: float | None) -> Execution:
        compiled = self._program.compiled
        touched = [
            v for v in self._program.variables.values() if v.kind == "global" and not v.name.startswith("__cudart")
        ]
        regions = (*self._arrays, *touched)
        return Execution(
            kernel=self._kernel.name,
            nvrtc_version=compiled.nvrtc_version,
            blocks=self._blocks,
            blocks_run=blocks_run,
            counts=self._traffic.total(),
            lines=self._traffic.lines(compiled.filename, compiled.source),
            arrays=self._traffic.arrays(regions),
            **self._traffic.distinct_bytes(regions),
            thread_instructions=self._tally.threads,
            warp_instructions=self._tally.warps,
            faults=self._faults.faults,
            sample_spread=spread,
            before_wait=self._places(self._kernel.before_wait),
            printed=self._places(sorted(self._tally.printed)),
        )

    def _places(self, sites: Iterable[int]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._kernel.sites[number].place for number in sites))


def _check(kernel: Kernel, launch: Geometry, arch: str, most_threads: int | None) -> None:
    """Raise UsageError for a launch that CUDA would refuse, and for a grid beyond the limit of instructions."""
    if kernel.exact_block not in (None, launch.block):
        exact = f"kernel {kernel.name} needs exactly {kernel.exact_block} threads (.reqntid)"
        raise UsageError(f"block {launch.block}: {exact}")
    checked_shape(launch.grid, launch.block, min(MOST_THREADS_PER_BLOCK, kernel.max_threads or MOST_THREADS_PER_BLOCK))
    name, blocks, threads = f"kernel {kernel.name}", launch.grid_blocks, launch.grid_blocks * launch.threads
    static, dynamic, most_shared = launch.static_shared_bytes, launch.dynamic_shared_bytes, most_shared_bytes(arch)
    together = (
        (blocks * launch.lanes, MAX_COOPERATIVE_THREADS, "threads"),
        (blocks * (static + max(dynamic, 0)), MAX_COOPERATIVE_SHARED_BYTES, "bytes of shared memory"),
    )
    for is_wrong, message in (
        (blocks > MAX_BLOCKS, f"grid {launch.grid} has {blocks} blocks, this device takes at most {MAX_BLOCKS}"),
        *(
            (
                kernel.waits_for_grid and asked > limit,
                f"{name} has a barrier of the grid, but no GPU has its {asked} {unit} at once; expected at most "
                f"{limit}",
            )
            for asked, limit, unit in together
        ),
        (
            min(kernel.cluster) < 1 or launch.cluster_blocks > MAX_CLUSTER_BLOCKS,
            f"{name} has clusters of {kernel.cluster} blocks, expected 1 to {MAX_CLUSTER_BLOCKS}",
        ),
        (
            any(one and whole % one for whole, one in zip(launch.grid, kernel.cluster, strict=True)),
            f"grid is {launch.grid}, expected multiples of {kernel.cluster}, the clusters of {name}",
        ),
        (
            kernel.local_bytes > MAX_LOCAL_BYTES,
            f"{name} needs {kernel.local_bytes} bytes of local memory a thread, CUDA allows {MAX_LOCAL_BYTES}; "
            "make its arrays smaller",
        ),
        (
            dynamic < 0 or static + dynamic > most_shared,
            f"{name} asks for {static} + {dynamic} bytes of shared memory, expected 0 to {most_shared} on {arch}",
        ),
        (
            most_threads is not None and threads > most_threads,
            f"{name} is launched with {threads:.3g} threads, more than the {most_threads or 0:.3g} "
            "thread-instructions that this device executes; use a smaller size there, or run a sample of its blocks",
        ),
    ):
        if is_wrong:
            raise UsageError(message)


def _written(arrays: Sequence[Region], uninitialised: Sequence[Array]) -> dict[Region, Array]:
    """Return flags of the bytes that were written in arrays that were declared empty."""
    found: dict[Region, Array] = {}
    at = {region.data.ctypes.data: region for region in arrays}
    for array in uninitialised:
        region = at.get(flat_bytes(array)[0].ctypes.data)
        if region is not None and (still := untouched(array)).any():
            found[region] = (~still).astype(np.uint8)[None, :]
    return found


# ---- arguments -------------------------------------------------------------------------------------------------------


def _place_arguments(
    kernel: str, parameters: Sequence[Parameter], names: Sequence[str], arguments: Sequence[Any]
) -> tuple[Region, ...]:
    """Lay arguments into the parameter buffer. Raises UsageError for arguments that the kernel would misread.

    Return that buffer and one region per allocation that an argument points into.
    """
    if len(arguments) != len(parameters):
        raise UsageError(
            f"kernel {kernel} takes {len(parameters)} arguments ({', '.join(names)}), found {len(arguments)}"
        )
    size = max((p.offset + p.size for p in parameters), default=0)
    buffer = np.zeros(-(-max(size, 1) // 16) * 16, np.uint8)
    regions: dict[int, Region] = {}
    for number, (parameter, name, argument) in enumerate(zip(parameters, names, arguments, strict=True)):
        label = f"argument {number + 1} ({name}) of kernel {kernel}"
        if not isinstance(argument, np.ndarray):
            value = _scalar(argument, label, parameter)
        elif not _is_pointer(parameter) and (argument.ndim == 0 or (argument.size == 1 and argument.dtype.names)):
            # CuPy passes one scalar or struct by value.
            value = _scalar(argument.reshape(())[()], label, parameter)
        else:
            value = _pointer(argument, number, name, label, parameter, regions)
        buffer[parameter.offset : parameter.offset + parameter.size] = value
    return Region("the parameters", "param", PARAM_REGION, buffer[None, :], writable=False), *regions.values()


def _is_pointer(parameter: Parameter) -> bool:
    return parameter.size == 8 and parameter.type in ("u64", "b64", "s64")


def _pointer(
    array: Array, number: int, name: str, label: str, parameter: Parameter, regions: dict[int, Region]
) -> Array:
    if not _is_pointer(parameter):
        raise UsageError(
            f"{label} is an array, but the parameter is not a pointer (.{parameter.type}, {parameter.size} bytes)"
        )
    if array.dtype.hasobject:
        raise UsageError(f"{label} is an array of Python objects, expected numbers; give it a numeric dtype")
    if array.size and (not array.flags.aligned or not array.dtype.isnative):
        raise UsageError(f"{label} is an unaligned or byte-swapped array, which no GPU can have; copy it first")
    data, start = flat_bytes(array)
    key = int(data.__array_interface__["data"][0])
    low, high = map(int, getattr(np.lib, "array_utils", np).byte_bounds(array))  # NumPy 2 has moved it
    view = Symbol(name, low - key, high - low, (number,))
    known = regions.get(key)
    if known is None:
        place = FIRST_ARRAY_REGION + len(regions)
        regions[key] = Region(name, "global", place, data[None, :], writable=array.flags.writeable, views=(view,))
    else:
        regions[key] = replace(known, views=_with(known.views, view), writable=known.writable or array.flags.writeable)
    return np.array([region_base(regions[key].number) + start], np.uint64).view(np.uint8)


def _with(views: tuple[Symbol, ...], view: Symbol) -> tuple[Symbol, ...]:
    """Add a view; an array that is passed twice stays one view with two arguments."""
    for place, known in enumerate(views):
        if (known.address, known.size) == (view.address, view.size):
            both = replace(known, arguments=(*known.arguments, *view.arguments))
            return (*views[:place], both, *views[place + 1 :])
    return (*views, view)


def _scalar(argument: Any, label: str, parameter: Parameter) -> Array:
    bits, is_bytes = parameter.size * 8, parameter.type == "b8"
    integer = DTYPES[parameter.type].kind in "iu" and not is_bytes
    found, remedy = f"a {type(argument).__name__}", "give a NumPy array or scalar"
    if argument is None:
        if integer and bits == 64:
            return np.zeros(8, np.uint8)
        found = "None"
    elif isinstance(argument, np.generic):
        kind = argument.dtype.kind
        if argument.nbytes == parameter.size and (is_bytes or ((kind in "iub") == integer and kind in "iubf")):
            return np.frombuffer(argument.tobytes(), np.uint8)
        found = f"a numpy.{argument.dtype.name} ({argument.nbytes} bytes)"
    elif isinstance(argument, int) and integer:
        if -(1 << (bits - 1)) <= argument < 1 << bits:
            return np.frombuffer((int(argument) & ((1 << bits) - 1)).to_bytes(parameter.size, "little"), np.uint8)
        raise UsageError(f"{label} is {argument}, which does not fit the parameter's {bits} bits")
    elif isinstance(argument, int | float):
        found = shown(argument)
        if not is_bytes:
            remedy = "give a whole number" if integer else f"give numpy.float{bits}({argument!r})"
    raise UsageError(f"{label} is {found}, but the parameter is .{parameter.type} ({parameter.size} bytes): {remedy}")
