"""Describe an operation of the suite as data: what to launch, what it moves, what it should give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from pytest_bandwidth.domain.traffic import Traffic

Sizes = Mapping[str, int]
Dim = tuple[int, int, int]
# They run kernels: from CUDA source, its PTX, or a twin on the host.
RUN_KERNELS: frozenset[str] = frozenset({"cuda", "cpu", "traffic"})


class Arrays(Protocol):
    """Make arrays: the `bandwidth` fixture, or anything like it."""

    @property
    def xp(self) -> Any: ...
    def random(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Make floats in [1, 2) with random mantissas, integers with all bits random."""

    def empty(self, shape: int | Sequence[int], dtype: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class KernelStep:
    """Describe one launch of a kernel of cuda_src/. `args` in the kernel's order, scalars already of its types.

    reads, writes: the arrays of which the launch reads and writes every byte once, for a model of this launch alone.
    """

    file: str
    kernel: str
    grid: Dim
    block: Dim
    args: tuple[Any, ...]
    reads: tuple[Any, ...]
    writes: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class CallStep:
    """Describe one call of the device's array library instead of a kernel; `reads` and `writes` as for a launch."""

    call: Callable[[], object]
    reads: tuple[Any, ...]
    writes: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Let a result differ from its reference by `absolute` + `relative`·|reference|."""

    relative: float = 0.0
    absolute: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """Hold an operation on arrays that exist: run `steps` in order, then `results` should equal `expected()`.

    traffic: of all steps together. results: the arrays that hold the outcome, by name. expected: computes the reference
    from host copies of the inputs, so that it is called before or after the run alike.
    """

    steps: tuple[KernelStep | CallStep, ...]
    traffic: Traffic
    results: Mapping[str, Any]
    expected: Callable[[], Mapping[str, NDArray[Any]]]
    tolerance: Tolerance = Tolerance()


@dataclass(frozen=True, slots=True)
class Operation:
    """Describe one version of one operation, for the dtypes that it exists in.

    name: the operation ("triad"); versions of one name compute the same ("plain", "wide", "fused" …).
    prepare: (arrays, dtype, sizes) → Case. Raises UsageError for sizes that it does not take.
    shapes: (bytes, dtype) → sizes that move about so many bytes; operations with shapes of their own ignore the bytes.
    small: sizes to check the numerics at: 0, 1, odd, and past one block or tile; an interpreter is quick with them.
    devices: kinds of device that can run it. A kernel without a twin on the host skips there by itself.
    computes: by dtype, the precision whose peak rate bounds it, where that is not the usual one (`precision`).
    """

    name: str
    version: str
    dtypes: tuple[str, ...]
    prepare: Callable[[Arrays, str, Sizes], Case]
    shapes: Callable[[int, str], tuple[Sizes, ...]]
    small: tuple[Sizes, ...]
    devices: frozenset[str] = RUN_KERNELS
    computes: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.name}-{self.version}"

    def precision(self, dtype: str) -> str:
        """Return the precision that it computes a dtype in: halves are mostly a storage format, computed in float."""
        return self.computes.get(dtype) or {"float64": "fp64", "float32": "fp32", "float16": "fp32"}[dtype]
