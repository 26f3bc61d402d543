"""Support tinygrad: open and identify backends, handle tensors, and report the bytes that tinygrad counts."""

from __future__ import annotations

import gc
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Any

from pytest_bandwidth.devices.base import Call
from pytest_bandwidth.devices.host import memory_bytes, processor_name, serial
from pytest_bandwidth.domain.device import DeviceIdentity, Fact
from pytest_bandwidth.domain.errors import DeviceUnavailable, UsageError
from pytest_bandwidth.domain.measured.explanation import Explanation, Operator, Wording
from pytest_bandwidth.domain.measured.measurement import Finding
from pytest_bandwidth.domain.traffic import differ
from pytest_bandwidth.domain.units import counted, format_bytes
from pytest_bandwidth.frameworks.arrays import arrays_in, located
from pytest_bandwidth.frameworks.base import Extent, Framework, distinct_bytes

OLDEST = (0, 13)
EXPECTED = "expected tinygrad:BACKEND or tinygrad:BACKEND:N with a backend such as METAL, AMD, NV, CUDA, CPU or PYTHON"
# It schedules kernels and runs none.
COUNTS_ALONE = "NULL"
# It runs kernels in Python, some microseconds for each number: neither caches nor large probes matter.
INTERPRETER = "PYTHON"
# Backends that compute in the host's memory.
ON_HOST = frozenset({"CPU", INTERPRETER})
LONGEST_REASON = 200


@dataclass(frozen=True, slots=True)
class Backend:
    """Hold an open backend. name: tinygrad's own, such as ``AMD`` or ``AMD:1``; opened: its ``Device[name]``."""

    name: str
    tinygrad: Any
    opened: Any

    @property
    def kind(self) -> str:
        """Return the name without the card's number."""
        return self.name.partition(":")[0]

    @property
    def is_interpreter(self) -> bool:
        return self.kind == INTERPRETER

    def tensor(self, data: Any, dtype: Any = None) -> Any:
        """Return a copy of a NumPy array or of bytes in the backend's memory. Raises tinygrad's errors."""
        return self.tinygrad.Tensor(data, dtype=dtype, device=self.name).realize()

    def synchronize(self) -> None:
        """Wait until the backend has finished all work."""
        self.opened.synchronize()

    def free(self) -> None:
        """Release the freed buffers that tinygrad caches for reuse."""
        # A captured function is part of a reference cycle: a garbage collection frees its buffers.
        gc.collect()
        keeps = getattr(self.opened.allocator, "free_cache", None)
        if keeps is not None:
            keeps()


def open_backend(name: str | None) -> Backend:
    """Open a backend by tinygrad's name, ``METAL`` or ``AMD:1``; None = tinygrad's default.

    Without a default in the variable DEV, this backend becomes tinygrad's default.
    Raises DeviceUnavailable where tinygrad is missing or too old, and where the backend does not compute.
    """
    tinygrad = _library()
    default = import_module("tinygrad.helpers").DEV
    before = default.value
    try:
        # Else any operation makes tinygrad search for a default device: that opens all devices and may find none.
        if name is not None and not default.device:
            default.value = name.partition(":")[0].upper()
        named = str(tinygrad.Device.canonicalize(name))
        if named.partition(":")[0] == COUNTS_ALONE:
            raise DeviceUnavailable(f"found tinygrad:{named}, which runs no kernel and so takes no time; {EXPECTED}")
        backend = Backend(named, tinygrad, tinygrad.Device[named])
        computed = (backend.tensor([1, 2, 3]) + 1).tolist()
    except Exception as error:
        default.value = before
        if isinstance(error, DeviceUnavailable):
            raise
        # Any exception of a driver or a compiler, or of their absence.
        asked = "tinygrad" if name is None else f"tinygrad:{name}"
        if isinstance(error, ModuleNotFoundError) and ".ops_" in str(error.name):
            raise DeviceUnavailable(f"found {asked}, which is not a backend of tinygrad's; {EXPECTED}") from None
        message = (str(error).splitlines() or [""])[0][:LONGEST_REASON]
        reason = f"{type(error).__name__}: {message}" if message else type(error).__name__
        raise DeviceUnavailable(
            f"{asked} does not compute here ({reason}): python -m tinygrad.device lists the backends that do"
        ) from None
    if computed != [2, 3, 4]:
        raise DeviceUnavailable(f"tinygrad:{named} computed {computed}, expected [2, 3, 4]: check its driver")
    return backend


def _library() -> Any:
    try:
        found = metadata.version("tinygrad")
        library = import_module("tinygrad")
    except (ImportError, metadata.PackageNotFoundError):
        raise DeviceUnavailable(
            "the tinygrad device needs tinygrad: pip install 'pytest-bandwidth[tinygrad]'"
        ) from None
    if tuple(int(number) for number in found.split(".")[: len(OLDEST)] if number.isdecimal()) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise DeviceUnavailable(f"found tinygrad {found}, expected {oldest} or newer: pip install -U tinygrad")
    return library


LONGEST_NAME = 100
# tinygrad's settings that change the kernels of a computation, or their dispatch.
_SETTINGS = ("BEAM", "NOOPT", "JIT")


def identify(backend: Backend) -> DeviceIdentity:
    """Identify a backend by the card's name, else by its architecture; on the host by the processor's name."""
    opened = backend.opened
    renderer = type(opened.renderer).__name__.removesuffix("Renderer")
    helpers = import_module("tinygrad.helpers")
    settings = {
        "backend": backend.kind,
        "renderer": renderer,
        **{name: str(getattr(getattr(helpers, name, None), "value", "unknown")) for name in _SETTINGS},
    }
    number = backend.name.partition(":")[2]
    facts: dict[str, Fact] = {
        "index": int(number) if number.isdecimal() else 0,
        "tinygrad": metadata.version("tinygrad"),
        "arch": _architecture(opened),
        "processors": os.cpu_count(),
    }
    # An Apple GPU has the host's memory.
    memory = memory_bytes() if backend.kind in (*ON_HOST, "METAL") else None
    name = f"{_card(backend)} (tinygrad {backend.kind})"
    return DeviceIdentity("tinygrad", name, memory, f"{serial()}-{backend.name}", settings, facts, variant=backend.name)


def _card(backend: Backend) -> str:
    """Return the name of the hardware that a backend computes on, else its architecture."""
    if backend.kind in ON_HOST:
        return processor_name()
    found = None
    # METAL has the system's device object, CL the driver's device name; neither attribute is documented.
    with suppress(Exception):
        if backend.kind == "METAL":
            found = str(import_module("tinygrad.runtime.ops_metal").from_ns_str(backend.opened.sysdevice.name()))
        else:
            found = getattr(backend.opened, "device_name", None)
    if isinstance(found, str) and found.strip():
        return " ".join(found.split())[:LONGEST_NAME]
    return _architecture(backend.opened) or backend.kind


def _architecture(opened: Any) -> str | None:
    found = getattr(opened, "arch", None)
    return found[:LONGEST_NAME] if isinstance(found, str) and found else None


# ---- tensors ---------------------------------------------------------------------------------------------------------


class Tinygrad(Framework):
    """Support tinygrad's tensors, which are unevaluated expressions until they are realized."""

    name = "tinygrad"
    computes_later = True
    known_to_devices = False
    is_lazy = True
    own_device = "--bandwidth-device=tinygrad:BACKEND with its backend"

    def __init__(self, tinygrad: Any) -> None:
        self._tinygrad = tinygrad

    def owns(self, value: object) -> bool:
        return isinstance(value, getattr(self._tinygrad, "Tensor", ()))

    def extent(self, array: Any, path: str) -> Extent:
        if not self.is_made(array):
            raise UsageError(f"{path} is not realized: each run would compute it again; call {path}.realize() before")
        if isinstance(array.device, tuple):
            raise UsageError(
                f"{path} lies on {len(array.device)} devices, expected a tensor on one, or its bytes as an int"
            )
        if not array.uop.has_buffer_identity():
            raise UsageError(
                f"{path} is a view, and tinygrad does not give its address: expected contiguous().realize() of it, or "
                "its bytes as an int"
            )
        return Extent(("tinygrad", id(array.uop.base)), 0, (int(array.nbytes()),), (1,), 1)

    def is_on_host(self, array: Any) -> bool:
        devices = array.device if isinstance(array.device, tuple) else (array.device,)
        # The NULL backend (COUNTS_ALONE) has no memory of its own.
        return all(str(device).partition(":")[0] in ON_HOST | {COUNTS_ALONE} for device in devices)

    def is_made(self, array: Any) -> bool:
        return bool(array.uop.is_realized)

    def wait(self, arrays: Sequence[Any]) -> None:
        self._tinygrad.Tensor.realize(*arrays)
        for device in {one for a in arrays for one in (a.device if isinstance(a.device, tuple) else (a.device,))}:
            self._tinygrad.Device[device].synchronize()

    def kernels_run(self) -> int | None:
        return int(self._tinygrad.GlobalCounters.kernel_count)


# ---- the bytes of kernels by tinygrad's own count: in total, and of each kernel --------------------------------------

# The key in a measurement's `detail`.
KERNELS = "tinygrad"
# Code of the finding that a call's kernels move other bytes than declared.
KERNELS_MOVE = "kernels-move"


class Counts:
    """Record how much the last run of a callable added to ``GlobalCounters``.

    They count a buffer at most once for each kernel, however often the kernel reads it. They count the kernels of a
    graph, which `TinyJit` replays on some backends, as one. They are not reset here.
    """

    def __init__(self, tinygrad: Any) -> None:
        self._counters = tinygrad.GlobalCounters
        self.kernels = 0
        self.total_bytes = 0

    def around(self, call: Call) -> Call:
        """Return a call that also records what it adds to the counters."""

        def run() -> object:
            counters = self._counters
            kernels, moved = counters.kernel_count, counters.global_mem
            value = call()
            self.kernels = int(counters.kernel_count - kernels)
            self.total_bytes = int(counters.global_mem - moved)
            return value

        return run

    def finding(self, declared_bytes: int) -> Finding | None:
        """Return the finding that the kernels move other bytes than declared; None where they do not."""
        total = self.total_bytes
        # No kernels are counted where the callable resets the counters itself.
        if self.kernels <= 0 or not differ(total, declared_bytes):
            return None
        verb = "moves" if self.kernels == 1 else "move"
        return Finding(
            KERNELS_MOVE,
            f"declared {format_bytes(declared_bytes)}; tinygrad's {counted(self.kernels, 'kernel')} {verb} "
            f"{format_bytes(total)} by its own count (a graph is one kernel; each buffer counts at most once)",
        )


# With DEBUG=2 tinygrad prints a line for each kernel that has run: *** CPU   1 r_64_32   arg  2 mem …
_LINE = re.compile(r"\*\*\* +\S+ +\d+ +(.+?) +arg +\d+ ")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def explained_tinygrad(call: Callable[[], Any], given: object) -> Explanation:
    """Run the call once, realize its results, and return the bytes of its kernels by tinygrad's GlobalCounters.

    given: the call's arguments. Raises UsageError where no kernel ran.
    """
    tinygrad = sys.modules["tinygrad"]
    context = import_module("tinygrad.helpers").Context
    known, watch = Tinygrad(tinygrad), _Watch(tinygrad.GlobalCounters)
    with redirect_stdout(watch), redirect_stderr(io.StringIO()), context(DEBUG=2):
        value = call()
        returned = _tensors(known, value)
        for tensor in returned:
            known.wait([tensor])
    operators = watch.kernels()
    if not operators:
        raise UsageError(
            "explain: no kernel of tinygrad ran in the call: its result was computed before, or is not a tensor"
        )
    places = [located("an array of the call", one).extent for one in (*_tensors(known, given), *returned)]
    wording = Wording("tinygrad", "kernel", " by its own count (each buffer at most once)")
    return Explanation(wording, operators, distinct_bytes(places), None)


class _Watch(io.TextIOBase):
    """Replace the output stream: tinygrad prints a kernel's line after it has counted that kernel."""

    def __init__(self, counters: Any) -> None:
        self._counters = counters
        self._found: list[Operator] = []
        self._before = self._now()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        match = _LINE.search(_COLOUR.sub("", text))
        if match is not None:
            self._note(match.group(1))
        return len(text)

    def kernels(self) -> tuple[Operator, ...]:
        """Return one operator for each line, and one for all kernels without a line."""
        count = self._now()[2] - self._before[2]
        if count:
            self._note(f"{count} kernels" if count > 1 else "a kernel")
        return tuple(self._found)

    def _note(self, name: str) -> None:
        now = self._now()
        moved, ops = now[0] - self._before[0], now[1] - self._before[1]
        self._before = now
        self._found.append(Operator(name, moved, flop=ops))

    def _now(self) -> tuple[int, int, int]:
        c = self._counters
        return int(c.global_mem), int(c.global_ops), int(c.kernel_count)


def _tensors(known: Tinygrad, value: object) -> list[Any]:
    return [array for _, array in arrays_in(value, "an array of the call") if known.owns(array)]
