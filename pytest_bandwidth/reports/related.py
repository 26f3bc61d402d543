"""Find results that belong together: one operation in two precisions, and one operation over many sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pytest_bandwidth.outcomes.outcome import Outcome, whole

# How precisions are written in tags, in `precision=` and in parametrised test ids.
_SPELLINGS = {
    **dict.fromkeys(("fp16-tensor", "fp16", "float16", "f16", "half"), "fp16"),
    **dict.fromkeys(("fp32", "float32", "f32", "single"), "fp32"),
}
_TOKEN = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(_SPELLINGS)})(?![A-Za-z0-9])")
SWEEP_SIZES_AT_LEAST = 3
# Two results move equally many bytes if these differ by no more than this share.
BYTES_ALIKE = 0.01


@dataclass(frozen=True, slots=True)
class PrecisionPair:
    """Hold the same operation in FP32 and in FP16; ratios are FP16 ÷ FP32, None without the figures.

    same_shape: if false, only the bytes are alike; times are then of different amounts of work and have no ratio.
    """

    name: str
    fp32: Outcome
    fp16: Outcome
    same_shape: bool = True

    @property
    def bandwidth_ratio(self) -> float | None:
        return self.fp16.gbps / self.fp32.gbps if self.fp16.gbps and self.fp32.gbps else None

    @property
    def time_ratio(self) -> float | None:
        if not self.same_shape or not self.fp16.seconds or not self.fp32.seconds:
            return None
        return self.fp16.seconds / self.fp32.seconds


@dataclass(frozen=True, slots=True)
class Sweep:
    """Hold one operation in one precision over at least three sizes, the smallest first."""

    name: str
    precision: str
    outcomes: tuple[Outcome, ...]


def precision_pairs(outcomes: Iterable[Outcome]) -> list[PrecisionPair]:
    """Find pairs of the same shape, then pairs that move equally many bytes, each in the order of the FP32 halves.

    Anything that is ambiguous (two of one kind) is left out.
    """
    halves = [o for o in outcomes if precision_of(o) in ("fp32", "fp16") and o.gbps is not None]
    alike = [PrecisionPair(_pair_name(a), a, b) for a, b in _paired(halves, _identity)]
    taken = {id(half) for pair in alike for half in (pair.fp32, pair.fp16)}
    rest = [o for o in halves if id(o) not in taken and "operation" in o.tags]
    of_size = [
        PrecisionPair(_sweep_name(a), a, b, same_shape=False)
        # The same operation and version, of any sizes.
        for a, b in _paired(rest, lambda o: (str(o.tags["operation"]), *_words(o)))
        if abs(a.bytes_moved - b.bytes_moved) <= BYTES_ALIKE * a.bytes_moved
    ]
    return [*alike, *of_size]


def _paired(outcomes: Iterable[Outcome], key: Callable[[Outcome], tuple[str, ...]]) -> list[tuple[Outcome, Outcome]]:
    """Return (FP32, FP16) of each key that has exactly one of each."""
    groups: dict[tuple[str, ...], dict[str | None, list[Outcome]]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), {}).setdefault(precision_of(outcome), []).append(outcome)
    return [
        (group["fp32"][0], group["fp16"][0])
        for group in groups.values()
        if len(group.get("fp32", ())) == len(group.get("fp16", ())) == 1
    ]


def size_sweeps(outcomes: Iterable[Outcome]) -> list[Sweep]:
    """Return sweeps in the order of their first result."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.gbps is not None and outcome.bytes_moved > 0:
            groups.setdefault((_sweep_name(outcome), precision_of(outcome) or ""), []).append(outcome)
    return [
        Sweep(name, precision, tuple(sorted(group, key=lambda o: o.bytes_moved)))
        for (name, precision), group in groups.items()
        if len({o.bytes_moved for o in group}) >= SWEEP_SIZES_AT_LEAST
    ]


def precision_of(outcome: Outcome) -> str | None:
    """Return the precision by its usual name (fp32, fp16, …), from the tags, else as measured."""
    named = outcome.tags.get("precision", outcome.precision)
    return _SPELLINGS.get(named.lower(), named.lower()) if isinstance(named, str) else None


def _identity(outcome: Outcome) -> tuple[str, ...]:
    """Return what is equal in both halves of a pair: tags without the precision, else the key without it."""
    if "operation" in outcome.tags:
        return tuple(sorted(f"{k}={v}" for k, v in outcome.tags.items() if k != "precision"))
    return (_TOKEN.sub("*", outcome.key),)


def _pair_name(outcome: Outcome) -> str:
    operation = outcome.tags.get("operation")
    if not isinstance(operation, str):
        return _TOKEN.sub("*", outcome.short_name)
    sizes = {name: size for name, value in outcome.tags.items() if (size := whole(value)) is not None}
    shape = [f"{sizes.pop('M')}×{sizes.pop('N')}×{sizes.pop('K')}"] if {"M", "N", "K"} <= sizes.keys() else []
    return " ".join([operation, *_words(outcome), *shape, *(f"{name}={size}" for name, size in sizes.items())])


def _sweep_name(outcome: Outcome) -> str:
    operation = outcome.tags.get("operation")
    if isinstance(operation, str):
        return " ".join([operation, *_words(outcome)])
    name = outcome.nodeid.partition("[")[0].rsplit("/", 1)[-1]
    return f"{name} @ {outcome.label}" if outcome.label else name


def _words(outcome: Outcome) -> Sequence[str]:
    return [v for k, v in sorted(outcome.tags.items()) if k not in ("operation", "precision") and isinstance(v, str)]
