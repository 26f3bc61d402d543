"""Model a GPU behind as much of CuPy's interface as the cuda device uses: virtual time, streams, a blocked queue.

The emulated card (tests/emulated_card) shows what the device does with real CuPy. This is for what that cannot show, in
milliseconds and wherever Python runs: kernels and hosts that take just so long, limits to the microsecond, NVML that
says something else each time, clocks that fall between two samples, memory that the driver gives only while nothing
runs, events that cannot be destroyed, and CuPy's HIP build. It knows CUDA's ordering rules: work on a stream runs in
order and not before it was queued, streams run beside each other, the host runs ahead until it waits, and a kernel that
spins on a flag keeps its stream back. It computes nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_bandwidth.devices.cuda.context import Opened
from pytest_bandwidth.devices.cuda.health import Ownership
from pytest_bandwidth.devices.cuda.identity import CudaFacts
from pytest_bandwidth.devices.cuda.management import GpuIdentity, GpuReading
from pytest_bandwidth.devices.cuda.runtime import ContextGuard, CupyRuntime
from pytest_bandwidth.domain.device import Conditions

LAUNCH_SECONDS = 5e-6
EVENT_SECONDS = 1e-6
L2_BYTES = 1 << 20


class CudaError(RuntimeError):
    def __init__(self, status: int, text: str = "as modelled") -> None:
        super().__init__(text)
        self.status = status


class ModelOutOfMemory(MemoryError):
    pass


class CompileException(Exception):
    pass


class Stream:
    """Model a CuPy stream: a queue with a time at which it will be idle."""

    gpu: Gpu

    def __init__(self, ptr: int = 0) -> None:
        self.ptr = ptr

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.ptr == self.ptr

    def __hash__(self) -> int:
        return self.ptr

    def __enter__(self) -> Stream:
        self.gpu.stream_stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.gpu.stream_stack.pop()


@dataclass
class Op:
    queued: float
    seconds: float = 0.0
    event: Any = None
    ticket: int | None = None
    limit: float = 0.0
    gave_up_at: int = 0
    start: float | None = None


@dataclass
class Gpu:
    """Model the machine: a host clock, a queue for each stream pointer, and what a test may set.

    log: what was asked for, in order. filled: (share of lines written, bytes) of each flush.
    memory: bytes that may be allocated at once by one array.
    sticky: raised by the next wait, and by every one after it. destroying_fails: events raise where they are destroyed.
    loaded: names of kernels. pooled: whether the pool has memory for a result. gave_up: blocking kernels that did.
    """

    now: float = 0.0
    clock_mhz: float = 1500.0
    memory: int = 1 << 40
    sticky: CudaError | None = None
    hip: bool = False
    flags: Any = None
    queues: dict[int, list[Op]] = field(default_factory=dict)
    done_at: dict[int, float] = field(default_factory=dict)
    stream_stack: list[Stream] = field(default_factory=list)
    releases: dict[int, float] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    arrays: int = 0
    filled: list[tuple[float, int]] = field(default_factory=list)
    loaded: set[str] = field(default_factory=set)
    pooled: bool = False
    gave_up: int = 0
    destroying_fails: bool = False

    # What user code does

    def launch(self, seconds: float, stream: Stream | None = None, host_seconds: float = LAUNCH_SECONDS) -> None:
        """Launch a kernel that runs for so long, on the current stream unless named."""
        self.queue(Op(self.now, seconds), stream)
        self.log.append("kernel")
        self.now += host_seconds

    def launch_into_new_memory(self, seconds: float) -> None:
        """Launch a kernel whose result comes from the pool, or from the driver, which waits for the device."""
        if not self.pooled:
            self.wait_all()
            self.pooled = True
        self.launch(seconds)

    def give_back_pool(self) -> None:
        self.log.append("free")
        self.pooled = False

    def synchronize(self, stream: Stream | None = None) -> None:
        """Wait as a callable that waits for its own work would."""
        self.log.append("user waits")
        self.wait((stream or self.current).ptr)

    # The machinery

    @property
    def current(self) -> Stream:
        return self.stream_stack[-1] if self.stream_stack else Stream(0)

    def queue(self, op: Op, stream: Stream | None = None) -> Op:
        self.see_flags()
        self.queues.setdefault((stream or self.current).ptr, []).append(op)
        return op

    def see_flags(self) -> None:
        """Note when a release, a plain store by the host, is first seen."""
        if self.flags is not None:
            released = int(self.flags[0])
            if released:
                self.releases.setdefault(released, self.now)

    def wait(self, pointer: int) -> None:
        """Let the host wait for a stream; a blocking kernel that is not released by now runs into its limit."""
        self.see_flags()
        if self.sticky is not None:
            raise self.sticky
        at = self.done_at.get(pointer, 0.0)
        for op in self.queues.pop(pointer, []):
            op.start = max(at, op.queued)
            at = op.start + op.seconds
            if op.ticket is not None:
                at = self.end_of_block(op)
        self.done_at[pointer] = at
        self.now = max(self.now, at)

    def end_of_block(self, op: Op) -> float:
        assert op.start is not None
        released = op.start if op.ticket == 0 else self.releases.get(op.ticket or 0)
        if released is not None and released <= op.start + op.limit:
            return max(op.start, released)
        ctypes.c_int.from_address(op.gave_up_at).value = op.ticket or 0
        self.gave_up += 1
        return op.start + op.limit

    def wait_all(self) -> None:
        for pointer in list(self.queues):
            self.wait(pointer)
        if self.sticky is not None:
            raise self.sticky
        self.now = max([self.now, *self.done_at.values()])


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.op: Op | None = None
        self.pointer = 0

    def record(self, stream: Stream) -> None:
        self.op = self.gpu.queue(Op(self.gpu.now, EVENT_SECONDS), stream)
        self.pointer = stream.ptr
        self.gpu.log.append("event")

    def synchronize(self) -> None:
        self.gpu.wait(self.pointer)

    def __del__(self) -> None:
        if self.gpu.destroying_fails:
            raise CudaError(700)


class Array:
    """Model a cupy.ndarray as far as it is needed; not a NumPy array, as the real one is none.

    content: what it holds; or, as CuPy has it, a shape, with the dtype in the place of `device`, and memory.
    """

    def __init__(self, content: Any, device: Any = 0, memory: Any = None) -> None:
        if not isinstance(content, np.ndarray):
            made = np.empty(content, device)
            content = made if memory is None else memory[: made.nbytes].view(device).reshape(content)
            device = 0
        self.content = content
        self.device = SimpleNamespace(id=device)
        self.data = SimpleNamespace(ptr=content.ctypes.data)
        for name in ("shape", "strides", "dtype", "itemsize", "nbytes", "size"):
            setattr(self, name, getattr(content, name))
        self.flags = SimpleNamespace(c_contiguous=content.flags.c_contiguous, f_contiguous=content.flags.f_contiguous)

    def view(self, dtype: Any) -> Array:
        return Array(self.content.view(dtype), self.device.id)

    def reshape(self, shape: Any) -> Array:
        return Array(self.content.reshape(shape), self.device.id)

    def __getitem__(self, key: Any) -> Array:
        return Array(self.content[key], self.device.id)

    def get(self) -> Any:
        return self.content.copy()


class RawKernel:
    """Model a kernel by its name; `_effects` says how it moves the model's time."""

    def __init__(self, code: str, name: str, options: tuple[str, ...] = (), gpu: Gpu | None = None) -> None:
        self.code, self.name, self.options, self.gpu = code, name, options, gpu
        self.calls: list[tuple[Any, ...]] = []
        self.num_regs, self.local_size_bytes, self.shared_size_bytes = 32, 0, 0
        self.max_threads_per_block, self.max_dynamic_shared_size_bytes = 1024, 48 * 1024
        self.kernel = SimpleNamespace(ptr=1)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def __call__(self, grid: Any, block: Any, args: Any, shared_mem: int = 0) -> None:
        self.calls.append((grid, block, args, shared_mem))
        assert self.gpu is not None
        if self.name not in self.gpu.loaded:
            self.gpu.wait_all()  # as CUDA may, to load it
            self.gpu.loaded.add(self.name)
        effect = _EFFECTS.get(self.name)
        if effect is None:
            self.gpu.launch(1e-5)
        else:
            effect(self.gpu, args)
            self.gpu.now += LAUNCH_SECONDS


def _blocking_kernel(gpu: Gpu, args: Any) -> None:
    gpu.log.append("block")
    released_at, gave_up_at, ticket, nanoseconds = (int(argument) for argument in args)
    assert released_at == gpu.flags.ctypes.data
    gpu.queue(Op(gpu.now, ticket=ticket, limit=nanoseconds / 1e9, gave_up_at=gave_up_at))


def _stamp(gpu: Gpu, args: Any) -> None:
    gpu.log.append("stamp")
    slots = args[0].content
    # As though taken at once: the tests that care for its value set the clock, not the moment.
    first = slots.ctypes.data == slots.base.ctypes.data if slots.base is not None else True
    nanoseconds = 1_000_000 if first else 2_000_000
    slots[:4, 0] = nanoseconds
    slots[:4, 1] = np.uint64(nanoseconds * gpu.clock_mhz / 1e3)


def _clock_step(gpu: Gpu, args: Any) -> None:
    args[0].content[0] = 32
    gpu.queue(Op(gpu.now, 1e-6))


def _fill_cache(gpu: Gpu, args: Any) -> None:
    array, _, _, _, dirty_of_64, count = args
    size, share = 16 * int(count), int(dirty_of_64) / 64
    assert size <= array.nbytes
    if size == 0:
        return
    gpu.log.append("fill_cache")
    gpu.filled.append((share, size))
    gpu.queue(Op(gpu.now, 1e-5))


_EFFECTS = {
    "blocking_kernel": _blocking_kernel,
    "stamp_clocks": _stamp,
    "clock_step": _clock_step,
    "fill_cache": _fill_cache,
}


class Device(AbstractContextManager[Any]):
    """Model a cupy.cuda.Device: both ends of its block call cudaSetDevice, which fails on a lost context."""

    gpu: Gpu

    def __init__(self, index: int) -> None:
        self.id = index

    def use(self) -> None:
        if self.gpu.sticky is not None:
            raise self.gpu.sticky

    def __enter__(self) -> Device:
        self.use()
        return self

    def __exit__(self, *_: object) -> None:
        self.use()


def model_cupy(gpu: Gpu) -> Any:
    """Return a module-like object."""
    stream_class: Any = type("Stream", (Stream,), {"gpu": gpu})
    stream_class.from_external = classmethod(lambda cls, owner: cls(owner.__cuda_stream__()[1]))

    class RawModule:
        def __init__(self, code: str, options: Any = (), name_expressions: Any = None) -> None:
            self.code, self.options, self.expressions = code, options, name_expressions

        def get_function(self, name: str) -> RawKernel:
            return RawKernel(self.code, name, self.options, gpu)

    def pinned(size: int, flags: int = 0) -> Any:
        assert flags & 2, "HIP shows a running kernel nothing of what the host stores into memory that is not mapped"
        buffer = type("Pinned", (ctypes.c_char * size,), {"ptr": property(ctypes.addressof)})()
        gpu.flags = np.frombuffer(buffer, np.int32, 2)
        return buffer

    def empty(shape: Any, dtype: Any = np.float64) -> Array:
        content = np.empty(shape, dtype)
        if content.nbytes > gpu.memory:
            raise ModelOutOfMemory(f"out of memory allocating {content.nbytes} bytes")
        gpu.arrays += 1
        return Array(content)

    def memset(_address: int, _value: int, _size: int, stream: int) -> None:
        gpu.log.append("memset")
        gpu.queue(Op(gpu.now, 1e-6), stream_class(stream))

    runtime = SimpleNamespace(
        is_hip=gpu.hip,
        deviceSynchronize=gpu.wait_all,
        memsetAsync=memset,
        getDeviceCount=lambda: 1,
        pointerGetAttributes=lambda _: SimpleNamespace(device=0),
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13020,
    )
    cuda = SimpleNamespace(
        runtime=runtime,
        Device=type("Device", (Device,), {"gpu": gpu}),
        Stream=stream_class,
        get_current_stream=lambda: gpu.current,
        Event=lambda: Event(gpu),
        get_elapsed_time=lambda start, end: (end.op.start - start.op.start) * 1e3,
        MemoryPointer=lambda memory, offset: memory[offset:],
        UnownedMemory=lambda _address, _size, owner, _device: owner.raw.content,
        PinnedMemory=pinned,
        PinnedMemoryPointer=lambda memory, _: memory,
        memory=SimpleNamespace(OutOfMemoryError=ModelOutOfMemory),
        compiler=SimpleNamespace(CompileException=CompileException),
        nvrtc=SimpleNamespace(getVersion=lambda: (13, 2)),
        driver=SimpleNamespace(CUDADriverError=CudaError, occupancyMaxActiveBlocksPerMultiprocessor=lambda *_: 4),
    )
    stream_class.null = stream_class(0)
    return SimpleNamespace(
        __version__="14.2.0",
        cuda=cuda,
        ndarray=Array,
        empty=empty,
        zeros=lambda shape, dtype=np.float64: Array(np.zeros(shape, dtype)),
        RawModule=RawModule,
        RawKernel=RawKernel,
        get_default_memory_pool=lambda: SimpleNamespace(free_all_blocks=gpu.give_back_pool),
    )


class ModelRuntime(CupyRuntime):
    """Run the real runtime with the model's clock instead of the host's."""

    def __init__(self, gpu: Gpu, cupy: Any, module: Any, guard: ContextGuard) -> None:
        self.gpu = gpu
        super().__init__(cupy, module, 0, L2_BYTES, 4, guard)

    def now(self) -> float:
        self.gpu.see_flags()
        return self.gpu.now

    def pause(self, seconds: float) -> None:
        self.gpu.log.append(f"pause {seconds}")
        self.gpu.now += seconds


MODEL_FACTS = CudaFacts(
    name="NVIDIA Model",
    memory_bytes=8 << 30,
    major=9,
    minor=0,
    sm_count=4,
    l2_bytes=L2_BYTES,
    threads_per_sm=2048,
    integrated=False,
    pci_bus_id="0000:01:00.0",
    driver_version=13000,
    runtime_version=13020,
    cupy_version="14.2.0",
    nvrtc_version="13.5",
)


class Nvml:
    """Answer as NVML does.

    readings: given one after the other; the last one is given again. uses: which processes used the GPU. since: the
    times from which `uses` was asked for.
    """

    def __init__(
        self, *readings: GpuReading, uses: Mapping[int, int] | None = MappingProxyType({}), **identity: Any
    ) -> None:
        self.readings = list(readings) or [GpuReading(Conditions(1500.0, 2619.0, 50.0, 300.0, ()), 0)]
        self.uses, self.since = uses, list[int]()
        self.known = GpuIdentity(**{"mig": "disabled", "ecc": "on", "max_sm_clock_mhz": 1600, **identity})

    def identity(self) -> GpuIdentity:
        return self.known

    def reading(self) -> GpuReading:
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]

    def activity(self, since_us: int) -> Mapping[int, int] | None:
        self.since.append(since_us)
        return self.uses

    def process_name(self, pid: int) -> str:
        return f"/usr/bin/program{pid}"


def opened_model(gpu: Gpu, nvml: Any = None, facts: CudaFacts = MODEL_FACTS) -> Opened:
    """Return what `open_context` would give on the model."""
    cupy = model_cupy(gpu)
    guard = ContextGuard(cupy.cuda.runtime.deviceSynchronize, (ModelOutOfMemory,))
    module = cupy.RawModule(code=Path(__file__).name)
    runtime = ModelRuntime(gpu, cupy, module, guard)
    return Opened(cupy, 0, facts, nvml, {"nvml": "not asked"}, runtime, module, guard, Ownership())


def skip_beside_a_gpu() -> None:
    """Skip tests of a machine without a GPU where there is one (tests/gpu/ has the others), and without CuPy."""
    cupy = pytest.importorskip("cupy")
    with suppress(cupy.cuda.runtime.CUDARuntimeError):  # what CuPy says where there is no driver
        if cupy.cuda.runtime.getDeviceCount() > 0:
            pytest.skip("a GPU is here, and this is about machines without one: tests/gpu/ tests those with one")
