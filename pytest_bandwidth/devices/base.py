"""Define the interface of devices, and the values that pass to and from a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from pytest_bandwidth.domain.code.identity import MeasuredCode
from pytest_bandwidth.domain.code.stored_kernel import LaunchShape
from pytest_bandwidth.domain.device import Conditions, DeviceIdentity, Peak
from pytest_bandwidth.domain.errors import KernelError, NotOnThisDevice, OutOfMemory
from pytest_bandwidth.domain.measured.measurement import Finding, KernelResources, Measurement
from pytest_bandwidth.domain.traffic import Traffic

Call = Callable[[], object]
# They mark the work for profilers: an NVTX range around it; where ranges do not filter, the kernel that runs before and
# after it.
COUNTED_RANGE, CLOSING_KERNEL = "pytest-bandwidth", "fill_cache"
Progress = Callable[[str], None]
Dim = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class CompiledCode:
    """Hold PTX or machine code. arch: the architecture that it was compiled for, such as 90; 0 where unknown.

    is_exact: whether it runs on that architecture alone, as code for sm_90a does.
    """

    data: bytes
    arch: int
    is_ptx: bool
    is_exact: bool = False


# The file name in messages and source lines for a kernel's text in a test.
TEXT_NAME = "kernel.cu"


@dataclass(frozen=True, slots=True)
class KernelSource:
    """Describe a kernel's source: `file` is None for text in the test; `shipped` marks files of cuda_src/.

    compiled: the code that holds the kernel, where it is compiled already; `text` is then empty.
    """

    text: str
    name: str
    file: Path | None = None
    shipped: bool = False
    options: tuple[str, ...] = ()
    name_expressions: tuple[str, ...] = ()
    compiled: tuple[CompiledCode, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """Describe one kernel launch as in CUDA; `args` in the kernel's parameter order.

    opaque: places of arguments, and names of fields, that do not identify the launch.
    """

    kernel: Any
    grid: Dim
    block: Dim
    args: tuple[Any, ...]
    shared_bytes: int = 0
    opaque: frozenset[int | str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class BoundLaunch:
    """Hold a launch as a callable without arguments. stream: the one that it was bound to; None = the current one."""

    launch: Launch
    stream: Any
    call: Call

    def __call__(self) -> object:
        """Launch, unmeasured."""
        return self.call()


@dataclass(frozen=True, slots=True)
class Workload:
    """Describe work to measure: a callable without arguments, and what it moves.

    launch: set where the callable is a kernel launch, for devices that inspect it.
    reads, writes: the declared arrays, where arrays were declared, for devices that check the declaration.
    stream: the work's stream, an object of the user's framework; None = the device's current one.
    interleaved: further callables to sample in the same rounds, for comparisons. setup_for_all: whether `setup` runs
    before each of those, too.
    tensor_precision: the precision for tensor cores, where `precision` is that of the arrays; else None.
    blocks: how many of the grid's blocks to sample (traffic device); None = the whole grid.
    flop_declared: whether the traffic's FLOP were declared or modelled; False where 0 means that neither was done.
    spoilt: called after each sample; returns why it does not count, or None. observer: observes each sample.
    graph: whether to time a CUDA graph, of several launches or of one run of a callable, where the device has graphs.
    cold: whether caches are cleared of its data before each sample; else they are left as they are.
    nothing: calls an empty function through the same frames as `call` the user's; both have more frames the first time.
    A host compares both times. A device that counts what Python runs subtracts this count, since the frames differ
    between versions of the plugin. None for a launch, and on a GPU.
    """

    call: Call
    traffic: Traffic
    label: str | None = None
    setup: Call | None = None
    stream: Any = None
    launch: Launch | None = None
    reads: tuple[Any, ...] = ()
    writes: tuple[Any, ...] = ()
    precision: str | None = None
    tensor_precision: str | None = None
    interleaved: tuple[Call, ...] = ()
    setup_for_all: bool = False
    blocks: int | None = None
    flop_declared: bool = True
    graph: bool = False
    cold: bool = True
    spoilt: Callable[[], Finding | None] | None = None
    nothing: Call | None = None
    observer: Watch | None = None

    @property
    def setup_of_interleaved(self) -> Call | None:
        """Return what runs, untimed, before each sample of a further callable."""
        return self.setup if self.setup_for_all else None

    def data_bytes(self, nbytes: Callable[[Any], int]) -> int:
        """Return the distinct bytes that the work touches: of declared arrays, else the larger of reads and writes."""
        arrays = {id(array): array for array in (*self.reads, *self.writes)}
        return sum(map(nbytes, arrays.values())) or max(self.traffic.bytes_read, self.traffic.bytes_written)

    def written_share(self, nbytes: Callable[[Any], int]) -> float:
        """Return the written share of the data that the work touches: 1 where it works entirely in place."""
        read = {id(array) for array in self.reads}
        in_place = sum(map(nbytes, {id(array): array for array in self.writes if id(array) in read}.values()))
        touched = max(self.traffic.bytes_moved - in_place, self.traffic.bytes_written)
        return self.traffic.bytes_written / touched if touched else 0.0


class Watch:
    """Observe a measurement while it is taken. Methods that are not overridden do nothing.

    The calls are not timed. place: the workload's number, from 0. Further samples of a device, such as `doubled`, have
    the next numbers.
    """

    def before(self, place: int) -> None:
        """Prepare for a sample, after `setup` and after the last sample's work."""

    def after(self, place: int, value: object) -> None:
        """Inspect the state after a sample. value: what its callable returned."""

    def recovers(self) -> bool:
        """Return whether to measure again after the work raised, because this observer had changed its inputs."""
        return False

    def finished(self, place: int, measurement: Measurement) -> Measurement:
        """Return the measurement with this observer's findings."""
        return measurement


class Turn(Protocol):
    """Represent this process's turn where two processes sample the same measurement: their rounds alternate."""

    def taken(self, seconds: float | None, *, stops: bool) -> bool:
        """Hand over after a round, wait for the next turn, and return whether to stop instead.

        seconds: the workload's; None where the round does not count. stops: whether this process has enough rounds.
        """


class Turns(Protocol):
    """Let the sampling loop take turns with another process."""

    def begin(self, run: Call, touched: Sequence[Any]) -> AbstractContextManager[Turn]:
        """Wait until the other process samples, too, and it is this one's turn; the context lasts for the rounds.

        run: runs the workload once more, untimed. touched: its known arguments, arrays and others.
        """


@dataclass(frozen=True, slots=True)
class Budget:
    """Limit how long one measurement may take and how exact it should be (see `domain.statistics.precision_of_median`).

    rounds_share: the rounds' share of the time. tolerates_run_delay: which rounds in which a thread waited for a
    processor count where too few others are left: none, those in which the probe alone waited, or all. turns: with
    another process, then without a probe; None = this process measures alone.
    """

    min_samples: int = 30
    max_seconds: float = 1.0
    precision: float = 0.005
    rounds_share: float = 1.0
    tolerates_run_delay: Literal["none", "probe", "all"] = "none"
    turns: Turns | None = None

    @property
    def rounds_seconds(self) -> float:
        """Return the longest time for rounds, after the warm-up."""
        return self.rounds_share * self.max_seconds


@dataclass(frozen=True, slots=True)
class Sample:
    """Hold one timed run: the device's seconds and the host's, from call to completion.

    run_delay_seconds: how long a thread was ready to run and waited for a processor, the longest of all threads; None
    where the system does not record it, and on a GPU.
    """

    seconds: float
    host_seconds: float
    drop: Finding | None = None
    run_delay_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """Hold a plain copy, read or write of a workload's size and read:write mix; it moves `bytes_moved` a call."""

    name: str
    call: Call
    bytes_moved: int


@dataclass(frozen=True, slots=True)
class OldCode:
    """Hold a kernel's old code, ready to launch instead of the new one.

    calls: further samples in the work's rounds: the old code. Where the driver compiled the old code alone, also the
    new code as the driver compiles it, so that one compiler made both. resources: the old code's. restore: restores
    the launch's arrays to their contents before the old code ran.
    """

    calls: tuple[Call, ...]
    resources: KernelResources | None
    restore: Call


def run_untimed(workload: Workload, synchronize: Call | None = None) -> object:
    """Run setup and the workload once, wait for both, and return the callable's value."""
    if workload.setup is not None:
        workload.setup()
    value = workload.call()
    if synchronize is not None:
        synchronize()
    return value


class Device(ABC):
    """Measure or count the work of tests; also the base of devices from `pytest_bandwidth_devices`.

    Every device sets `identity` and `xp`, and defines the abstract methods. The other methods are right for a device
    that compiles no CUDA kernels and counts the bytes of callables. A device that times them is a `TimedDevice`.

    xp: its array module: cupy on a GPU, numpy on the host. peak: the bandwidth that it cannot exceed; None where
    unknown. launches_old_code: whether it has `old_code`. times_any_stream: whether the work's stream may be unknown to
    it. check_array: raises UsageError for an array (its path, itself, the name of its framework) that callables may not
    take here; None = any array that the host or CUDA can time. zones: the `RedZones` of arrays that it makes.
    """

    identity: DeviceIdentity
    xp: Any
    peak: Peak | None = None
    launches_old_code = False
    times_any_stream = False
    check_array: Callable[[str, Any, str], None] | None = None
    zones: Any = None

    @abstractmethod
    def random(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Return finite values with random mantissas, fresh at every call."""

    @abstractmethod
    def empty(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Return an array to be written; its content is undefined (the traffic device reports reads of it)."""

    def virtual(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Return zeros. Raises UsageError, and NotOnThisDevice where they do not fit its memory, or are no arrays.

        A device that executes kernels itself needs memory only for what is touched.
        """
        try:
            array = self.empty(shape, dtype)
        except OutOfMemory as error:
            raise NotOnThisDevice(f"virtual: only the traffic device has arrays without memory: {error}") from None
        array[...] = 0
        return array

    def with_zones(self, array: Any) -> Any:
        """Return an array that this device made in this test, and detect writes beyond its ends, where it can."""
        if self.zones is not None:
            self.zones.lay(array)
        return array

    def written_out_of_bounds(self) -> str | None:
        """Describe this test's writes beyond the ends of such arrays; None where there were no such writes."""
        return None if self.zones is None else self.zones.written()

    @abstractmethod
    def nbytes(self, array: Any) -> int:
        """Return the bytes of an array that this device can reach. Raises UsageError for any other."""

    def kernel(self, source: KernelSource) -> Any:
        """Return the compiled kernel.

        Raises KernelError with the compiler's log, NotOnThisDevice where it cannot run here.
        """
        raise NotOnThisDevice(self._no_kernels)

    @property
    def _no_kernels(self) -> str:
        return f"CUDA kernels need a CUDA or traffic device: {self.identity.kind} measures callables"

    def launcher(self, launch: Launch, stream: Any) -> Call:
        """Return a callable that runs the launch. Raises UsageError for arguments that the kernel would misread."""
        raise NotOnThisDevice(self._no_kernels)

    def resources(self, launch: Launch) -> KernelResources | None:
        """Return the registers and memory of the launch's kernel; None where unknown."""
        return None

    def host_args(self, launch: Launch) -> tuple[Any, ...]:
        """Copy the launch's arguments, arrays as NumPy's.

        Raises KernelError where the test sets variables of its kernel, which are no arguments.
        """
        raise NotOnThisDevice(self._no_kernels)

    def code(self, launch: Launch) -> MeasuredCode:
        """Identify the code that the launch runs, as far as possible."""
        return MeasuredCode()

    def peak_flops(self, precision: str) -> float | None:
        """Return FLOP/s of a precision that it cannot exceed; None where unknown."""
        return None

    def run(self, workload: Workload) -> object:
        """Run setup and the workload once, untimed, to completion; return the callable's value."""
        return run_untimed(workload)

    @abstractmethod
    def measure(self, workload: Workload, budget: Budget, progress: Progress) -> Measurement:
        """Measure the workload. Raises what the workload raises."""

    def release(self) -> None:
        """Give back memory held between measurements (probe buffers), so that other processes can measure."""
        return

    def choose(self, variant: str | None) -> None:
        """Select the variant that the test is parametrized with; None for a test without that parameter.

        Raises UsageError for None where the device has several variants.
        """
        del variant

    @property
    def chosen(self) -> DeviceIdentity:
        """Return the chosen variant's identity."""
        return self.identity

    def begin_test(self) -> None:
        """Restart the random numbers, so that a test gets the same whole numbers in every run."""
        return

    def end_test(self) -> None:
        """Undo what this device changed in the process for the test."""
        if self.zones is not None:
            self.zones.end_test()

    def time_by(self, timer: str) -> None:
        """Use that timer, where the device has several. Raises UsageError where it is not available."""
        del timer

    def bound(self, seconds: float) -> None:
        """Stop work that takes longer, with an error of one line, on a device that executes kernels itself."""
        del seconds

    def make_ready(self) -> None:
        """Load what every measurement needs, before this process's turn, without use of the device's memory."""
        return

    def inputs_of(self, workload: Workload) -> str | None:
        """Run the workload's set-up and hash its arrays' contents, which decide its counts together with the launch.

        None where the device does not count, or where the contents are unknown.
        """
        return None

    def run_counted(self, workload: Workload) -> object:
        """Run the workload to completion, and once more with cold caches in the range that a profiler counts.

        Return the callable's last value.
        """
        raise NotOnThisDevice(f"no profiler counts DRAM traffic of the device {self.identity.kind}")

    def share(self, allocate: Callable[[int], Any], seed: int | None) -> bool:
        """Make arrays in the bytes that `allocate` returns, where it returns any; random numbers from the seed.

        Return whether two processes can share arrays on this device.
        """
        return False

    @property
    def libraries(self) -> Mapping[str, str]:
        """Return what identifies the functions of its array library, such as a version, by the module's name."""
        return {}

    def is_memory(self, address: int) -> bool:
        """Return whether an address lies in the device's own memory, and is allocated now."""
        return False

    def contents(self, array: Any) -> str:
        """Identify an array's contents, in any memory. Raises UsageError, OutOfMemory."""
        from pytest_bandwidth.devices.contents import host_contents  # NumPy, which commands do without

        return host_contents(array)

    def old_code(
        self, workload: Workload, old: str, new: str, shape: LaunchShape | None = None, cubin: bytes | None = None
    ) -> OldCode:
        """Load the old code of the workload's launch and run it once. old, new: PTX, each a module of one kernel.

        shape: the old code's launch shape, where it differs from the workload's. cubin: the old code's machine code,
        which is launched instead of its PTX.
        Raises KernelError where the driver rejects the code or the launch, OutOfMemory where the launch's arrays
        cannot be saved, DeviceLost where the code faults.
        """
        raise KernelError(f"the device {self.identity.kind} cannot run old code")


class TimedDevice(Device):
    """A device that measures time, by `sampling.measure_timed`."""

    @property
    @abstractmethod
    def method(self) -> str:
        """Return the timing method's name in baselines; a fallback may change it while measuring, so read it last."""

    @abstractmethod
    def now(self) -> float:
        """Return a monotonic clock in seconds, for budgets."""

    @abstractmethod
    def time(self, call: Call, stream: Any) -> Sample:
        """Make caches cold, unless the workload is `cold=False`; run `call` once and time it on its stream."""

    @abstractmethod
    def probe(self, traffic: Traffic, inputs: Sequence[Any] = ()) -> Probe:
        """Return a probe that matches the traffic's size and mix. Raises OutOfMemory.

        inputs: arrays that the workload reads, for devices where the place of the probe's memory matters.
        """

    @abstractmethod
    def conditions(self) -> Conditions:
        """Return the device's state now, and what else used it since the last call."""
