"""Implement the traffic device: compile with NVRTC, execute the PTX on the CPU, count its memory requests.

Counts are deterministic requests of a functional model without caches: never DRAM bytes, never a measurement of time.
"""

from __future__ import annotations

import functools
import math
import platform
import re
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pytest_bandwidth.devices import numpy_arrays
from pytest_bandwidth.devices.arguments import misread_arrays, refuse_gaps
from pytest_bandwidth.devices.base import TEXT_NAME, Budget, Call, Device, KernelSource, Launch, Progress, Workload
from pytest_bandwidth.devices.code.compiled import for_architecture
from pytest_bandwidth.devices.code.cubin import kernel_code, resources_in
from pytest_bandwidth.devices.code.launch import with_launch
from pytest_bandwidth.devices.code.variables import checked_contents, variable_settings
from pytest_bandwidth.devices.host import memory_bytes
from pytest_bandwidth.devices.kernel_source import options_of
from pytest_bandwidth.devices.triton import Array
from pytest_bandwidth.domain.code.identity import CodeIdentity, MeasuredCode, digest
from pytest_bandwidth.domain.device import COMPILER_SETTING, DeviceIdentity
from pytest_bandwidth.domain.errors import DeviceUnavailable, KernelFault, NotOnThisDevice, UsageError
from pytest_bandwidth.domain.measured.measurement import (
    MISREAD_ARRAY,
    NOT_EXECUTED,
    NOTE,
    Finding,
    KernelResources,
    Measurement,
    Rounds,
)
from pytest_bandwidth.domain.units import format_bytes
from pytest_bandwidth.features.traffic.findings import (
    by_line,
    declared_against_seen,
    floor_seconds,
    plain_counts,
    plain_launches,
    plain_lines,
    untouched_arrays,
)
from pytest_bandwidth.features.traffic.foreign_launches import ForeignLaunch, NumbaDriver, TritonDriver, is_dispatcher
from pytest_bandwidth.features.traffic.ptx import Program, execute, fill_untouched, nvrtc
from pytest_bandwidth.features.traffic.ptx.counts import Execution, together
from pytest_bandwidth.features.traffic.ptx.memory import (
    ORIGIN,
    digest_of,
    flat_bytes,
    is_sparse,
    sparse_zeros,
)
from pytest_bandwidth.features.traffic.ptx.occupancy import Occupancy, number_of, occupancy_of

DEFAULT_ARCH = "sm_90"
NO_LAUNCH = (
    "this callable launched no kernel that the traffic device can count: expected bandwidth.launch(...), or a callable "
    "that calls a kernel of Triton or numba-cuda, or a launch from bandwidth.bind(...)"
)
MOST_FAULTS_SHOWN = 5
# Each source is compiled, parsed and decoded once, which takes a second or two and some megabytes.
SOURCES_KEPT = 32
# The first .file of PTX is the source that it was compiled from.
_FIRST_FILE = re.compile(r'^\s*\.file\s+\d+\s+"(?:[^"\n]*/)?([^"/\n]+)"', re.MULTILINE | re.ASCII)
# The seed of all random numbers: counts that depend on the data are the same in every run.
SEED = 0
_OF_LLVM = "LLVM NVPTX"
# NVRTC lists only sm_90, but compiles for sm_90a as well.
_SUFFIXES_SINCE = {"a": 90, "f": 100}


@dataclass(frozen=True, eq=False)
class TrafficKernel:
    """Hold a compiled kernel: its program, its name, the registers that the compiler gave it, and its identity.

    All kernels of a source share the program. not_executed: the reason, where only its machine code is known; it has
    no program then.
    """

    _program: Program | None
    name: str
    resources: KernelResources | None
    code: MeasuredCode
    source: KernelSource
    not_executed: str = ""

    @property
    def program(self) -> Program:
        """Return the program to execute. Raises NotOnThisDevice for a kernel without PTX."""
        if self._program is None:
            raise NotOnThisDevice(self.not_executed)
        return self._program

    def set(self, variable: str, value: Any) -> None:
        """Write a __constant__ or __device__ variable, by its symbol, until the test ends. Raises UsageError."""
        variables = self.program.variables
        sizes = {name: region.nbytes for name, region in variables.items()}
        contents = checked_contents(variable, value, sizes, self.source)
        variables[variable].data[0, :] = np.frombuffer(contents, np.uint8)
        variables[variable].is_set = True
        self.program.digests[variable] = digest(contents)


def open_traffic(archs: str = DEFAULT_ARCH) -> TrafficDevice:
    """Open the device for an architecture, or for several with commas between; each test chooses one of them.

    Raises DeviceUnavailable without NVRTC, and for architectures that it does not compile for.
    """
    version, known = nvrtc.nvrtc_version(), nvrtc.supported_architectures()
    chosen = archs.split(",")
    for arch in chosen:
        if chosen.count(arch) > 1 or not arch:
            found = f"{arch} twice" if arch else "an empty name"
            raise DeviceUnavailable(f"traffic:{archs}: found {found}, expected architectures such as sm_80,sm_90")
        since = _SUFFIXES_SINCE.get(arch[-1])
        if (arch if since is None else arch[:-1]) not in known or number_of(arch) < (since or 0):
            raise DeviceUnavailable(f"traffic:{arch}: NVRTC {version} compiles for {', '.join(known)}")
    return TrafficDevice(chosen, version)


class TrafficDevice(Device):
    """Count the memory requests of launches. Arrays are NumPy's; those of `empty` are marked as unwritten."""

    xp = np

    def __init__(self, archs: Sequence[str], version: str) -> None:
        self._archs = tuple(archs)
        several = len(archs) > 1
        # The identity names no list of architectures: each baseline entry names its own in its key.
        self.identity = DeviceIdentity(
            kind="traffic",
            name="traffic" if several else f"traffic {archs[0]}",
            memory_bytes=None,
            serial="model",
            settings={**({} if several else {"arch": archs[0]}), COMPILER_SETTING: version},
            facts={"host": platform.machine(), "host_memory_bytes": memory_bytes(), "numpy": np.__version__},
            timed_on="nothing",
            variant=",".join(archs),
        )
        self._random = numpy_arrays.RandomSource(SEED)
        self._timeout = math.inf
        # Weak references, so that a session does not keep the arrays of all its tests. A view keeps its base alive.
        self._unwritten: list[weakref.ref[Any]] = []
        self._kernels: weakref.WeakSet[TrafficKernel] = weakref.WeakSet()
        # The launches of a callable while it is measured, and the compilers of their makers. Launches keep their arrays
        # alive: a new array must not get the address of a freed one.
        self._launched: list[tuple[Execution, MeasuredCode, Launch]] | None = None
        self._makers: dict[str, str] = {}
        # So many blocks are executed of kernels that Triton or numba-cuda launches.
        self._blocks: int | None = None
        self._model(archs[0])

    def _model(self, arch: str) -> None:
        self._arch = arch
        self._triton = TritonDriver(arch, lambda launch: self._execute_foreign(launch, self._triton))
        self._numba = NumbaDriver(arch, lambda launch: self._execute_foreign(launch, self._numba))

    @property
    def chosen(self) -> DeviceIdentity:
        settings = {"arch": self._arch, **self.identity.settings}
        return replace(self.identity, name=f"traffic {self._arch}", settings=settings, variant=self._arch)

    def choose(self, variant: str | None) -> None:
        if len(self._archs) == 1:
            return
        if variant not in self._archs:
            listed = ", ".join(self._archs)
            found = "a test that takes the fixture `bandwidth` in its body"
            raise UsageError(f"found {found}, expected it as an argument: the run counts for each of {listed}")
        self._model(variant)

    def random(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Return values in [1, 2) with random mantissas (integers: all bits random), the same in each run of a test.

        Raises UsageError, OutOfMemory.
        """
        # A copy of exactly its size: all addresses beyond it are out of bounds.
        return np.array(self._random.array(shape, dtype)).view(Array)

    def empty(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Return an array that a kernel must write before it reads it. Raises UsageError, OutOfMemory."""
        array = np.array(numpy_arrays.empty_array(shape, dtype))
        fill_untouched(array)
        self._unwritten.append(weakref.ref(array))
        return array.view(Array)

    def virtual(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Return zeros that take memory only where they are touched. Raises UsageError, OutOfMemory."""
        sizes, kind = numpy_arrays.checked_array_shape(shape), numpy_arrays.resolve_dtype(dtype)
        if kind.hasobject:
            raise UsageError(f"virtual: dtype is {kind.name}, expected one of numbers, such as float32")
        nbytes = math.prod(sizes) * kind.itemsize
        if nbytes > ORIGIN:
            raise UsageError(
                f"virtual: an array of {sizes} {kind.name} has {format_bytes(nbytes)}, expected at most "
                f"{format_bytes(ORIGIN)}: use a smaller shape"
            )
        return sparse_zeros(nbytes).view(kind).reshape(sizes).view(Array)

    def nbytes(self, array: Any) -> int:
        return numpy_arrays.host_nbytes(array)

    def contents(self, array: Any) -> str:
        """Return a digest of an array's contents; of a virtual array only the touched pages are read."""
        if not isinstance(array, np.ndarray) or not is_sparse(array):
            return super().contents(array)
        data, start = flat_bytes(array)
        return f"{array.dtype} {array.shape} {array.strides} {start} {digest_of(data)}"

    def kernel(self, source: KernelSource) -> Any:
        """Compile for the device's architecture, or take the PTX that is compiled already.

        Raises KernelError with the log, or with the names that exist; NotOnThisDevice where there is only machine code
        for another architecture.
        """
        if source.compiled:
            return self._of_compiled(source)
        filename = source.file.name if source.file is not None else TEXT_NAME
        program, cubin = _compiled(
            source.text, self._arch, options_of(source), source.name_expressions, filename, self._timeout
        )
        name = program.resolve(source.name)
        code = kernel_code(program.compiled.ptx, cubin.data, name)
        return self._kernel_of(program, name, cubin.resources.get(name), code, source)

    def _of_compiled(self, source: KernelSource) -> TrafficKernel:
        number = number_of(self._arch)
        codes = for_architecture(source.compiled, number)
        resources = next((resources_in(code.data, source.name) for code in codes if not code.is_ptx), None)
        of_ptx = [code for code in (*codes, *source.compiled) if code.is_ptx]
        if not of_ptx:
            alone = (
                f"{source.file} holds only machine code of {source.name}, and the traffic device executes PTX: "
                f"build it with -gencode arch=compute_{number},code=compute_{number}"
            )
            if resources is None:
                raise NotOnThisDevice(alone)
            return TrafficKernel(None, source.name, resources, MeasuredCode(), source, alone)
        ptx = of_ptx[0].data.decode("utf-8", "replace")
        file = _FIRST_FILE.search(ptx)
        filename = file[1] if file is not None else source.file.name if source.file is not None else "the PTX"
        program = _loaded(ptx, self._arch, filename, str(source.file or ""))
        name = program.resolve(source.name)
        return self._kernel_of(program, name, resources, kernel_code(ptx, b"", name), source)

    def _kernel_of(self, program: Program, *details: Any) -> TrafficKernel:
        """Return a kernel; the program has its variables as when loaded, unless another of its kernels exists."""
        if all(one.program is not program for one in self._kernels):
            program.reset()
        kernel = TrafficKernel(program, *details)
        self._kernels.add(kernel)
        return kernel

    def launcher(self, launch: Launch, stream: Any) -> Call:
        """Return a call that executes the launch. It raises UsageError for arguments that the kernel would misread, and
        KernelFault for faults of the kernel.
        """
        del stream  # launches are executed one after the other
        if is_dispatcher(launch.kernel):
            self._numba.drive()
            configured = launch.kernel[launch.grid, launch.block, 0, launch.shared_bytes]
            return lambda: configured(*launch.args)
        if not isinstance(launch.kernel, TrafficKernel):
            found = type(launch.kernel).__name__
            expected = "a kernel from bandwidth.kernel(...)"
            if found == "_LaunchConfiguration":
                expected = "numba-cuda's kernel without its brackets: launch(kernel, 16, 256, args)"
            raise UsageError(f"launch: found an object of type {found}, expected {expected}")
        for number, argument in enumerate(launch.args, start=1):
            if isinstance(argument, np.ndarray):
                refuse_gaps(argument, f"argument {number}")
        return lambda: self._execute(launch, None)

    def resources(self, launch: Launch) -> KernelResources | None:
        """Return the resources of the launch's kernel, and the launch's shape and occupancy."""
        known, occupancy = self._given(launch)
        if known is None:
            return None
        return replace(
            known,
            occupancy=None if occupancy is None else occupancy.share,
            occupancy_limit=None if occupancy is None else occupancy.limited_by,
            grid=launch.grid,
            block=launch.block,
            dynamic_shared_bytes=launch.shared_bytes,
        )

    def code(self, launch: Launch) -> MeasuredCode:
        """Identify the launch's kernel by its PTX, which is executed, and by its machine code."""
        kernel = launch.kernel
        if not isinstance(kernel, TrafficKernel) or kernel.not_executed:
            return MeasuredCode()
        return with_launch(kernel.code, launch, *variable_settings(kernel.program.digests))

    def measure(self, workload: Workload, budget: Budget, progress: Progress) -> Measurement:
        """Execute the launch once, or call the callable once and count its launches. For a kernel without PTX return
        only the resources that its compiler reported.

        Raises KernelFault, and NotOnThisDevice for a callable that launches nothing.
        """
        del budget, progress  # one execution is enough
        launch, value, code = workload.launch, None, MeasuredCode()
        if launch is not None and isinstance(launch.kernel, TrafficKernel) and launch.kernel.not_executed:
            return self._of_machine_code(workload, launch)
        makers: dict[str, str] = {}
        misread: Sequence[str] = ()
        launches = [] if launch is None else [launch]
        if workload.setup is not None:
            workload.setup()
        if launch is not None and isinstance(launch.kernel, TrafficKernel):
            executions = [self._execute(launch, workload.blocks)]
            misread = misread_arrays(launch.kernel.program.compiled.source, launch.kernel.name, launch.args)
        else:
            self._triton.drive()
            self._numba.drive()
            self._triton.refuse_interpreter()
            launched: list[tuple[Execution, MeasuredCode, Launch]] = []
            self._launched, self._makers, self._blocks = launched, {}, workload.blocks
            try:
                value = workload.call()
            finally:
                self._launched, self._blocks = None, None
            if not launched:
                raise NotOnThisDevice(NO_LAUNCH)
            executions, code = [execution for execution, *_ in launched], _of_all([code for _, code, _ in launched])
            launches = [launch for *_, launch in launched]
            makers = dict(self._makers)
            if makers and any(one.nvrtc_version for one in executions):
                makers[COMPILER_SETTING] = self.identity.settings[COMPILER_SETTING]
        execution = together(executions)
        # Baselines compare the method: counts of a sample of blocks differ from counts of all blocks.
        sampled = any(one.sample_spread is not None for one in executions)
        method = f"ptx, {execution.blocks_run} blocks" if sampled else "ptx"
        identity = self.chosen
        if makers:
            identity = replace(identity, settings={"arch": self._arch, **makers})
        resources = _most([self.resources(one) for one in launches])
        compiled = self._compiled_counts(launches[0]) if len(launches) == 1 else {}
        declared = declared_against_seen(workload.traffic, execution) if len(executions) == 1 else ()
        declared += untouched_arrays(workload, execution)
        return replace(
            self._counted(workload, method, {**plain_counts(execution), **compiled}),
            device=identity,
            resources=resources,
            findings=(*(Finding(MISREAD_ARRAY, text, NOTE) for text in misread), *declared, *by_line(execution)),
            detail={
                **plain_lines(execution),
                **plain_launches(executions),
                "modelled_floor_seconds": floor_seconds(execution),
            },
            code=code.identity,
            ptx=code.ptx,
            value=value,
        )

    def _of_machine_code(self, workload: Workload, launch: Launch) -> Measurement:
        """Return the measurement of a kernel that is not executed: its resources alone."""
        text = f"its resources alone were measured: {launch.kernel.not_executed}"
        measurement = self._counted(workload, "machine code", self._compiled_counts(launch))
        findings = (Finding(NOT_EXECUTED, text, NOTE),)
        return replace(measurement, resources=self.resources(launch), findings=findings)

    def _counted(self, workload: Workload, method: str, counts: dict[str, int]) -> Measurement:
        return Measurement(
            label=workload.label,
            traffic=workload.traffic,
            device=self.chosen,
            method=method,
            rounds=Rounds(stop="counted"),
            precision=workload.precision,
            counts=counts,
        )

    def inputs_of(self, workload: Workload) -> str | None:
        """Run set-up; hash the contents of the launch's arrays, their offsets, and the number of blocks to sample.

        None for callables.
        """
        launch = workload.launch
        if launch is None:
            return None
        if workload.setup is not None:
            workload.setup()
        numbers: dict[int, int] = {}
        parts = [repr(workload.blocks)]
        for array in launch.args:
            if isinstance(array, np.ndarray):
                data, start = flat_bytes(array)
                number = numbers.setdefault(data.ctypes.data, len(numbers))
                parts += [f"{number} {start}", digest_of(data)]
        return digest(*parts)

    def begin_test(self) -> None:
        """Reset random numbers and variables: a test's counts do not depend on the tests before it."""
        self._random = numpy_arrays.RandomSource(SEED)
        for program in {one.program for one in self._kernels}:
            program.reset()
        self._triton.drive()
        self._numba.drive()

    def end_test(self) -> None:
        """Restore the launches of Triton and numba-cuda: other tests may use a GPU."""
        self._triton.restore()
        self._numba.restore()

    def bound(self, seconds: float) -> None:
        """Stop launches that take longer than `seconds`, with a UsageError."""
        self._timeout = seconds

    def _given(self, launch: Launch) -> tuple[KernelResources | None, Occupancy | None]:
        """Return the resources of the launch's kernel, and its occupancy; None where unknown."""
        resources = launch.kernel.resources if isinstance(launch.kernel, TrafficKernel) else None
        if resources is None:
            return None, None
        return resources, occupancy_of(self._arch, resources, math.prod(launch.block), launch.shared_bytes)

    def _compiled_counts(self, launch: Launch) -> dict[str, int]:
        """Return the counts that a baseline keeps: the kernel's stack and the launch's resident warps."""
        resources, occupancy = self._given(launch)
        counts = {} if resources is None else {"local_bytes_per_thread": resources.local_bytes}
        return counts if occupancy is None else {**counts, "resident_warps": occupancy.warps}

    def _execute(self, launch: Launch, blocks: int | None, name: str | None = None) -> Execution:
        """Execute a launch, and record it while a callable is measured. name: of the kernel, in reports."""
        resources, occupancy = self._given(launch)
        if resources and occupancy and not occupancy.warps and occupancy.limited_by == "registers":
            threads = math.prod(launch.block)
            raise UsageError(
                f"kernel {launch.kernel.name}: a block of {threads} threads with {resources.registers} registers each "
                f"does not fit on an SM of {self._arch}: launch fewer threads, or add __launch_bounds__({threads})"
            )
        alive = [(reference, array) for reference in self._unwritten if (array := reference()) is not None]
        self._unwritten = [reference for reference, _ in alive]
        execution = execute(
            launch.kernel.program,
            launch.kernel.name,
            launch.grid,
            launch.block,
            launch.args,
            shared_bytes=launch.shared_bytes,
            blocks=blocks,
            uninitialised=[array for _, array in alive],
            max_seconds=self._timeout,
        )
        if faults := execution.faults:
            texts = "; ".join(f"{fault.code}: {fault.text}" for fault in faults[:MOST_FAULTS_SHOWN])
            more = f"; and {len(faults) - MOST_FAULTS_SHOWN} more" if len(faults) > MOST_FAULTS_SHOWN else ""
            raise KernelFault(f"kernel {launch.kernel.name}: {texts}{more}")
        if self._launched is not None:
            named = replace(execution, kernel=name or execution.kernel)
            self._launched.append((named, self.code(launch), launch))
        return execution

    def _execute_foreign(self, launch: ForeignLaunch, driver: TritonDriver | NumbaDriver) -> None:
        source = KernelSource("", launch.kernel)
        kernel = TrafficKernel(launch.program, launch.kernel, launch.resources, launch.code, source)
        described = Launch(kernel, launch.grid, launch.block, launch.args, launch.shared_bytes)
        self._execute(described, self._blocks, launch.name)
        self._makers[driver.maker] = str(getattr(sys.modules.get(driver.module), "__version__", ""))


def _of_all(codes: Sequence[MeasuredCode]) -> MeasuredCode:
    """Return one identity for several launches in order; unknown where that of one launch is unknown."""
    if len(codes) == 1:
        return codes[0]
    ptx, sass, launch = zip(*((one.identity.ptx, one.identity.sass, one.identity.launch) for one in codes), strict=True)
    if None in (*ptx, *sass, *launch):
        return MeasuredCode()
    return MeasuredCode(CodeIdentity(*(digest(*map(str, part)) for part in (ptx, sass, launch))))


def _most(resources: Sequence[KernelResources | None]) -> KernelResources | None:
    """Return the largest resources of the launches; None where those of one launch are unknown."""
    known = [one for one in resources if one is not None]
    if len(known) < len(resources) or not known:
        return None
    if len(known) == 1:
        return known[0]
    names = ("registers", "local_bytes", "shared_bytes")
    return KernelResources(**{name: max(getattr(one, name) for one in known) for name in names})


@functools.lru_cache(SOURCES_KEPT)
def _compiled(
    text: str, arch: str, options: tuple[str, ...], names: tuple[str, ...], filename: str, seconds: float
) -> tuple[Program, nvrtc.CubinModule]:
    """Compile a source to PTX and to machine code. Cached: most tests take a kernel of a source that others took."""
    given: Any = {"arch": arch, "options": options, "name_expressions": names, "filename": filename}
    made = nvrtc.compile_cubin(text, **given, max_seconds=seconds)
    return Program(made.ptx), made


@functools.lru_cache(SOURCES_KEPT)
def _loaded(ptx: str, arch: str, filename: str, file: str) -> Program:
    """Parse PTX that a test gives. filename: the source that its line numbers refer to. file: the PTX file."""
    # PTX of LLVM comes from Triton, most often.
    is_blocks = _OF_LLVM in ptx[:1000]
    return Program(
        nvrtc.PtxModule(ptx, nvrtc.nvrtc_version(), arch, filename=filename, for_blocks=is_blocks, file=file)
    )
