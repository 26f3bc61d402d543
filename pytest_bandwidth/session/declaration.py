"""What a test declares that one run of its workload moves and computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_bandwidth.devices.base import Workload
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.traffic import Traffic

# No device moves or computes as much in one run: 2⁶⁰ bytes would take an hour at 300 TB/s.
LARGEST_COUNT = 2**60
_PRECISIONS = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True, slots=True)
class Declaration:
    """reads=, writes= and flop= of a measurement, checked and added up.

    reads, writes: the arrays among them. precision: as the peak tables name it, None where nothing tells it.
    flop_declared: whether the traffic's FLOP were said, by number or by a model.
    """

    traffic: Traffic
    reads: tuple[Any, ...]
    writes: tuple[Any, ...]
    precision: str | None
    flop_declared: bool

    def workload(self, call: Callable[[], object], label: str | None) -> Workload:
        """`call` as a workload that moves and computes what is declared."""
        return Workload(
            call,
            self.traffic,
            label=label,
            reads=self.reads,
            writes=self.writes,
            precision=self.precision,
            flop_declared=self.flop_declared,
        )


def declared(
    reads: Any, writes: Any, flop: int | None, precision: str | None, nbytes: Callable[[Any], int]
) -> Declaration:
    """The declaration of one run.

    reads, writes: arrays, whole numbers of bytes, Traffic models, or tuples and lists of them; flop: floating-point
    operations. nbytes: the size in bytes of one of the device's arrays. Raises UsageError.
    """
    if reads is None and writes is None:
        raise UsageError(
            "neither reads= nor writes= is declared: name the arrays, bytes or Traffic that one run has to move"
        )
    if flop is not None and (isinstance(flop, bool) or not isinstance(flop, int) or flop < 0):
        raise UsageError(f"flop={shown(flop)}, expected a whole number that is not negative")
    read_parts, written_parts = _parts(reads), _parts(writes)
    traffic = _added_up("reads", read_parts, nbytes) + _added_up("writes", written_parts, nbytes)
    if flop is not None:
        traffic = replace(traffic, flop=flop)
    if traffic.bytes_moved == 0:
        raise UsageError("reads= and writes= add up to 0 bytes: a bandwidth needs at least one byte moved")
    if traffic.bytes_moved > LARGEST_COUNT:
        raise UsageError("reads= and writes= add up to more than 2^60 bytes: expected what one run moves")
    if traffic.flop > LARGEST_COUNT:
        raise UsageError("flop= is more than 2^60: expected the floating-point operations of one run")
    read_arrays, written_arrays = _arrays(read_parts), _arrays(written_parts)
    return Declaration(
        traffic,
        read_arrays,
        written_arrays,
        precision or _precision((*read_arrays, *written_arrays)),
        flop is not None or any(isinstance(part, Traffic) for part in (*read_parts, *written_parts)),
    )


def _parts(side: Any) -> tuple[Any, ...]:
    return () if side is None else tuple(side) if isinstance(side, (tuple, list)) else (side,)


def _arrays(parts: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(part for part in parts if not isinstance(part, (Traffic, int)))


def _added_up(name: str, parts: Sequence[Any], nbytes: Callable[[Any], int]) -> Traffic:
    models = [part if isinstance(part, Traffic) else _traffic_of(name, part, nbytes) for part in parts]
    return models[0] if len(models) == 1 else sum(models, Traffic(0, 0))


def _traffic_of(name: str, part: Any, nbytes: Callable[[Any], int]) -> Traffic:
    if isinstance(part, (bool, float, str, bytes)):
        raise UsageError(f"{name}={shown(part)}, expected arrays, whole numbers of bytes, or a Traffic model")
    if isinstance(part, int) and part < 0:
        raise UsageError(f"{name}={shown(part)}, expected a number of bytes that is not negative")
    count = part if isinstance(part, int) else nbytes(part)
    return Traffic(count, 0) if name == "reads" else Traffic(0, count)


def _precision(arrays: Sequence[Any]) -> str | None:
    """Precision of the first array whose dtype is floating point, as the peak tables name it."""
    for array in arrays:
        name = str(getattr(array, "dtype", "")).rsplit(".", 1)[-1]  # torch says torch.float32
        if name in _PRECISIONS:
            return _PRECISIONS[name]
    return None
