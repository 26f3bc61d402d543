"""Run a backend's probes: the plainest read, write, copy and add that tinygrad makes there, as captured kernels.

They read random bits: GPUs compress others. What each moves is what ``GlobalCounters`` says of it, to a hundredth: a
reduction may take several kernels, whose partial results are small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_bandwidth.devices.base import Call, Probe
from pytest_bandwidth.devices.numpy_arrays import RandomSource
from pytest_bandwidth.domain.errors import OutOfMemory
from pytest_bandwidth.domain.traffic import Traffic, nearest_mix
from pytest_bandwidth.domain.units import format_bytes
from pytest_bandwidth.features.tinygrad.backend import Backend

# Whole numbers: every backend has them.
ELEMENT, ELEMENT_BYTES = "int32", 4
# A probe of fewer bytes shows the cost of a call, one of more shows nothing new: 1 GiB leaves every cache.
SMALLEST_BYTES = 4096
LARGEST_BYTES = 1 << 30
# An interpreter is as fast at any size: so much takes it a tenth of a second.
LARGEST_INTERPRETED_BYTES = 1 << 16
WRITTEN = 7
# tinygrad runs a function once as it is and captures the second run; the third replays that.
RUNS_TO_CAPTURE = 2


class BackendProbes:
    """Make probes; keep the buffers of the last one, which the next may use as well."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._source = RandomSource()
        self._kept: list[Any] = []

    @property
    def largest_bytes(self) -> int:
        return LARGEST_INTERPRETED_BYTES if self._backend.is_interpreter else LARGEST_BYTES

    def probe(self, traffic: Traffic) -> Probe:
        """Return a probe that moves as many bytes as the traffic, within 4 KiB and 1 GiB. Raises OutOfMemory."""
        mix = nearest_mix(traffic)
        wanted = min(max(traffic.bytes_moved, SMALLEST_BYTES), self.largest_bytes)
        elements = wanted // (mix.arrays * ELEMENT_BYTES)
        buffers = self.buffers(mix.arrays, elements)
        call = self.captured(OPERATIONS[mix.name], buffers)
        return Probe(f"tinygrad {mix.name}", call, elements * ELEMENT_BYTES * mix.arrays)

    def reader(self, size: int) -> Call:
        """Make a buffer of so many bytes and return what reads it through, to the end. Raises OutOfMemory."""
        read = self.captured(OPERATIONS["read"], (self._buffer(size // ELEMENT_BYTES),))

        def run() -> None:
            read()
            self._backend.synchronize()

        return run

    def captured(self, operation: Callable[..., Any], buffers: tuple[Any, ...]) -> Call:
        """Return a call that replays an operation's kernels on those buffers; it is done when synchronized."""
        jitted = self._backend.tinygrad.TinyJit(operation)
        for _ in range(RUNS_TO_CAPTURE):
            jitted(*buffers)
        return lambda: jitted(*buffers)

    def buffers(self, count: int, elements: int) -> tuple[Any, ...]:
        """Return so many buffers of random bits, of those kept where they fit. Raises OutOfMemory."""
        self._kept = [buffer for buffer in self._kept if buffer.shape == (elements,)]
        while len(self._kept) < count:
            self._kept.append(self._buffer(elements))
        return tuple(self._kept[:count])

    def release(self) -> None:
        """Give the buffers back; probes made before must not run any more."""
        self._kept = []

    def _buffer(self, elements: int) -> Any:
        try:
            return self._backend.tensor(self._source.array(elements, ELEMENT))
        except MemoryError as error:
            size = format_bytes(elements * ELEMENT_BYTES)
            raise OutOfMemory(f"a probe's buffer of {size} on tinygrad's {self._backend.name}: {error}") from None


def _read(x: Any) -> Any:
    return x.max().realize()


def _write(out: Any) -> Any:
    # Of its own shape and type: any other constant is made in a buffer first, and then copied.
    return out.assign(out.const_like(WRITTEN)).realize()


def _copy(out: Any, x: Any) -> Any:
    return out.assign(x).realize()


def _add(out: Any, x: Any, y: Any) -> Any:
    return out.assign(x + y).realize()


# By the names of the mixes (`probe_mix`); the output comes first, a read has none.
OPERATIONS: dict[str, Callable[..., Any]] = {"read": _read, "write": _write, "copy": _copy, "add": _add}
