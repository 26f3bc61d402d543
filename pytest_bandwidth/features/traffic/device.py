"""Implement the traffic device: compile with NVRTC, execute the PTX on the CPU, count what it asks of memory.

Counts are deterministic requests of a functional model without caches: never DRAM bytes, never a measurement of time.
"""

from __future__ import annotations

import functools
import math
import platform
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pytest_bandwidth.devices.arguments import misread_arrays
from pytest_bandwidth.devices.base import Budget, Call, Device, KernelSource, Launch, Progress, Workload
from pytest_bandwidth.devices.code.cubin import kernel_code
from pytest_bandwidth.devices.code.launch import with_launch
from pytest_bandwidth.devices.host import memory_bytes
from pytest_bandwidth.devices.kernel_source import options_of
from pytest_bandwidth.devices.numpy_arrays import RandomSource, empty_array, host_nbytes
from pytest_bandwidth.domain.code.identity import MeasuredCode, digest
from pytest_bandwidth.domain.device import COMPILER_SETTING, DeviceIdentity
from pytest_bandwidth.domain.errors import DeviceUnavailable, KernelFault, NotOnThisDevice, UsageError
from pytest_bandwidth.domain.measured.measurement import MISREAD_ARRAY, NOTE, Finding, KernelResources, Measurement
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.features.traffic.findings import (
    declared_against_seen,
    floor_seconds,
    plain_counts,
    plain_lines,
)
from pytest_bandwidth.features.traffic.ptx import Program, execute, fill_untouched
from pytest_bandwidth.features.traffic.ptx.counts import Execution
from pytest_bandwidth.features.traffic.ptx.faults import AccessFault
from pytest_bandwidth.features.traffic.ptx.memory import flat_bytes
from pytest_bandwidth.features.traffic.ptx.nvrtc import (
    CubinModule,
    compile_cubin,
    compile_ptx,
    nvrtc_version,
    supported_architectures,
)

DEFAULT_ARCH = "sm_90"
NO_LAUNCH = "the traffic device looks into kernel launches (bandwidth.launch); it cannot look into a callable"
MOST_FAULTS_TOLD = 5
# Each is compiled, parsed and decoded once: a second or two, and some megabytes.
SOURCES_KEPT = 32
# Of all random numbers: counts that depend on the data are the same in every run.
SEED = 0


@dataclass(frozen=True, slots=True)
class TrafficKernel:
    """Hold a compiled kernel: its program, its name, the registers that the compiler gave it, and its identity."""

    program: Program
    name: str
    resources: KernelResources | None
    code: MeasuredCode


def open_traffic(arch: str | None = None) -> TrafficDevice:
    """Model an architecture (``sm_90`` unless said). Raises DeviceUnavailable without NVRTC or for another."""
    version, known = nvrtc_version(), supported_architectures()
    chosen = arch or DEFAULT_ARCH
    if chosen not in known:
        raise DeviceUnavailable(f"traffic:{chosen}: NVRTC {version} compiles for {', '.join(known)}")
    return TrafficDevice(chosen, version)


class TrafficDevice(Device):
    """Count what launches ask of memory. Arrays are NumPy's; those of `empty` are known to be unwritten."""

    xp = np

    def __init__(self, arch: str, version: str) -> None:
        self._arch = arch
        self._identity = DeviceIdentity(
            kind="traffic",
            name=f"traffic {arch}",
            memory_bytes=None,
            serial="model",
            settings={"arch": arch, COMPILER_SETTING: version},
            facts={"host": platform.machine(), "host_memory_bytes": memory_bytes(), "numpy": np.__version__},
            timed_on="nothing",
            variant=arch,
        )
        self._random = RandomSource(SEED)
        self._timeout = math.inf
        # Weak, so that a session does not keep the arrays of all its tests; a view keeps its base, and so the entry.
        self._unwritten: list[weakref.ref[Any]] = []

    @property
    def identity(self) -> DeviceIdentity:
        return self._identity

    def random(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Return values in [1, 2) with random mantissas (integers: all bits random), the same in every run from a
        test's beginning on. Raises UsageError, OutOfMemory.
        """
        # A copy of its own, exactly as large: whatever lies beyond it is out of bounds.
        return np.array(self._random.array(shape, dtype))

    def empty(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Return an array that a kernel must write before it reads it. Raises UsageError, OutOfMemory."""
        array = np.array(empty_array(shape, dtype))
        fill_untouched(array)
        self._unwritten.append(weakref.ref(array))
        return array

    def nbytes(self, array: Any) -> int:
        return host_nbytes(array)

    def kernel(self, source: KernelSource) -> Any:
        """Compile for the device's architecture. Raises KernelError with the log, or with the names that exist."""
        filename = source.file.name if source.file is not None else "kernel.cu"
        program, cubin = _compiled(
            source.text, self._arch, options_of(source), source.name_expressions, filename, self._timeout
        )
        name = program.resolve(source.name)
        code = kernel_code(program.compiled.ptx, cubin.data, name)
        return TrafficKernel(program.renewed(), name, cubin.resources.get(name), code)

    def launcher(self, launch: Launch, stream: Any) -> Call:
        """Return a call that executes the launch. It raises UsageError for what it would misread, KernelFault for what
        it did wrong.
        """
        del stream  # launches are executed one after the other
        if not isinstance(launch.kernel, TrafficKernel):
            raise UsageError(
                f"launch: found an object of type {type(launch.kernel).__name__}, "
                "expected a kernel from bandwidth.kernel(...)"
            )
        return lambda: self._execute(launch, None, lambda _: None)

    def resources(self, launch: Launch) -> KernelResources | None:
        """Return what the compiler gave the launch's kernel, and the launch's shape."""
        known = launch.kernel.resources if isinstance(launch.kernel, TrafficKernel) else None
        if known is None:
            return None
        return replace(known, grid=launch.grid, block=launch.block, dynamic_shared_bytes=launch.shared_bytes)

    def code(self, launch: Launch) -> MeasuredCode:
        """Identify the launch's kernel by its PTX, which is executed, and by what it would be on the GPU."""
        return with_launch(launch.kernel.code, launch) if isinstance(launch.kernel, TrafficKernel) else MeasuredCode()

    def measure(self, workload: Workload, budget: Budget, progress: Progress) -> Measurement:
        """Execute the launch once and count. Raises NotOnThisDevice for callables, KernelFault."""
        del budget  # one execution counts all there is
        launch = workload.launch
        if launch is None or not isinstance(launch.kernel, TrafficKernel):
            raise NotOnThisDevice(NO_LAUNCH)
        if workload.setup is not None:
            workload.setup()
        execution = self._execute(launch, workload.blocks, progress)
        resources = self.resources(launch)
        source = launch.kernel.program.compiled.source
        declared = declared_against_seen(workload.traffic, execution)
        misread = misread_arrays(source, launch.kernel.name, launch.args)
        return Measurement(
            label=workload.label,
            traffic=workload.traffic,
            device=self._identity,
            method="ptx" if execution.sample_spread is None else f"ptx, {execution.blocks_run} blocks",
            rounds=Rounds(stop="counted"),
            precision=workload.precision,
            resources=resources,
            findings=(*(Finding(MISREAD_ARRAY, text, NOTE) for text in misread), *declared),
            counts=plain_counts(execution),
            detail={**plain_lines(execution), "modelled_floor_seconds": floor_seconds(execution)},
        )

    def inputs_of(self, workload: Workload) -> str:
        """Run set-up; hash what the launch's arrays hold, where in it they begin, and the blocks to sample.

        Raises NotOnThisDevice for callables.
        """
        launch = workload.launch
        if launch is None:
            raise NotOnThisDevice(NO_LAUNCH)
        if workload.setup is not None:
            workload.setup()
        numbers: dict[int, int] = {}
        parts = [repr(workload.blocks)]
        for array in launch.args:
            if isinstance(array, np.ndarray):
                data, start = flat_bytes(array)
                number = numbers.setdefault(data.ctypes.data, len(numbers))
                parts += [f"{number} {start}", digest(data.tobytes())]
        return digest(*parts)

    def begin_test(self) -> None:
        """Start random numbers anew: a test's counts do not depend on which tests ran before it."""
        self._random = RandomSource(SEED)

    def bound(self, seconds: float) -> None:
        """Stop a launch that takes longer than that, with a UsageError."""
        self._timeout = seconds

    def _still_unwritten(self) -> list[Any]:
        """Return the arrays from `empty` that still exist."""
        alive = [(reference, array) for reference in self._unwritten if (array := reference()) is not None]
        self._unwritten = [reference for reference, _ in alive]
        return [array for _, array in alive]

    def _execute(self, launch: Launch, blocks: int | None, progress: Progress) -> Execution:
        execution = execute(
            launch.kernel.program,
            launch.kernel.name,
            launch.grid,
            launch.block,
            launch.args,
            shared_bytes=launch.shared_bytes,
            blocks=blocks,
            progress=progress,
            uninitialised=self._still_unwritten(),
            max_seconds=self._timeout,
        )
        if execution.faults:
            raise KernelFault(_faults_text(launch.kernel.name, execution.faults))
        return execution


@functools.lru_cache(SOURCES_KEPT)
def _compiled(
    text: str, arch: str, options: tuple[str, ...], names: tuple[str, ...], filename: str, seconds: float
) -> tuple[Program, CubinModule]:
    """Compile a source to PTX and to machine code; most tests take a kernel of a source that is known already."""
    given: Any = {"arch": arch, "options": options, "name_expressions": names, "filename": filename}
    module = compile_ptx(text, **given, max_seconds=seconds)
    return Program(module), compile_cubin(text, **given, max_seconds=seconds)


def _faults_text(kernel: str, faults: Sequence[AccessFault]) -> str:
    """Name the first faults, ``kernel k: race: …``, and how many more there are."""
    told = "; ".join(f"{fault.code}: {fault.text}" for fault in faults[:MOST_FAULTS_TOLD])
    more = f"; and {len(faults) - MOST_FAULTS_TOLD} more" if len(faults) > MOST_FAULTS_TOLD else ""
    return f"kernel {kernel}: {told}{more}"
