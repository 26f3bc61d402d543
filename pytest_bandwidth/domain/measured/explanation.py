"""Hold what each operator of a framework's callable moves, and the least that one fused operator would move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from pytest_bandwidth.domain.traffic import differ
from pytest_bandwidth.domain.units import counted, digits, format_bytes

# A finding of this code: a callable's operators move other bytes than were declared.
MATERIALISED = "operators-move"
# The key of an explanation in a measurement's `detail`.
EXPLAINED = "explained"
OPERATORS_LISTED = 200

Bound = Literal["memory", "compute"]


@dataclass(frozen=True, slots=True)
class Operator:
    """Hold one operator: its name, the distinct bytes of the arrays that it reads and writes, and its FLOP.

    bytes_read, bytes_written: None where the framework reports only their sum. flop: None where it is unknown.
    """

    name: str
    bytes_moved: int
    bytes_read: int | None = None
    bytes_written: int | None = None
    flop: int | None = None

    @property
    def arithmetic_intensity(self) -> float | None:
        """Return FLOP ÷ bytes moved."""
        return self.flop / self.bytes_moved if self.flop is not None and self.bytes_moved else None

    def bound(self, ridge_point: float | None) -> Bound | None:
        """Return what bounds the operator under the roofline; None where its FLOP or the ridge point are unknown."""
        intensity = self.arithmetic_intensity
        if intensity == 0:
            return "memory"
        if intensity is None or ridge_point is None:
            return None
        return "memory" if intensity < ridge_point else "compute"


@dataclass(frozen=True, slots=True)
class Wording:
    """Hold the words for a framework's operators in messages; caveat: a remark on their count."""

    framework: str
    operator: str
    caveat: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Hold what a call's operators move.

    least_bytes: what one fused operator would move: the inputs that operators read, and the results, each byte once.
    intermediates: bytes of each array that was created and not returned, the largest first; None where the framework
    does not report them. compiled_bytes: what the compiled program accesses, by its compiler's count; None without a
    count. is_compiled: whether that program runs, and not the operators one by one. ridge_point: the device's.
    """

    wording: Wording
    operators: tuple[Operator, ...]
    least_bytes: int
    intermediates: tuple[int, ...] | None
    compiled_bytes: int | None = None
    is_compiled: bool = False
    ridge_point: float | None = None

    @property
    def bytes_moved(self) -> int:
        return sum(operator.bytes_moved for operator in self.operators)

    def under(self, ridge_point: float) -> Explanation:
        """Return the explanation with a device's ridge point, which decides what bounds each operator."""
        return replace(self, ridge_point=ridge_point)

    def __str__(self) -> str:
        """Return a sentence and a line for each operator."""
        words = self.wording
        total = f"{counted(len(self.operators), words.operator)} {self._move} {format_bytes(self.bytes_moved)}"
        made = self.intermediates
        between = f": {counted(len(made), 'intermediate')}, {format_bytes(sum(made))}, materialised" if made else ""
        clauses = [f"{total}{words.caveat}{between}"]
        if self.compiled_bytes is not None:
            clauses.append(f"compiled, {format_bytes(self.compiled_bytes)} by the compiler's count")
        lines = ["; ".join([*clauses, self._fused])]
        for one in self.operators:
            if one.bytes_read is None or one.bytes_written is None:
                parts = [f"moves {format_bytes(one.bytes_moved)}"]
            else:
                parts = [f"reads {format_bytes(one.bytes_read)}", f"writes {format_bytes(one.bytes_written)}"]
            if one.arithmetic_intensity is not None:
                parts.append(f"{digits(one.arithmetic_intensity)} FLOP/byte")
            if (bound := one.bound(self.ridge_point)) is not None:
                parts.append(f"{bound}-bound")
            lines.append(f"  {one.name}: {', '.join(parts)}")
        return "\n".join(lines)

    def differs(self, declared_bytes: int) -> str | None:
        """Return a sentence where the operators move other bytes than were declared.

        None where they do not, or where the bytes of the compiled program are unknown.
        """
        moved, words = self.compiled_bytes if self.is_compiled else self.bytes_moved, self.wording
        if moved is None or not differ(moved, declared_bytes):
            return None
        if self.is_compiled:
            found = (
                f"{words.framework}'s compiled program accesses {format_bytes(moved)}, by its compiler's count"
                f" ({format_bytes(self.bytes_moved)} if nothing were fused)"
            )
        else:
            operators = words.operator if len(self.operators) == 1 else f"{words.operator}s"
            found = f"{words.framework}'s {operators} {self._move} {format_bytes(moved)}{words.caveat}"
            made = self.intermediates
            if made:
                size = f"of {'' if made[0] == made[-1] else 'up to '}{format_bytes(made[0])}"
                verb = "is" if len(made) == 1 else "are"
                found += f": {counted(len(made), 'intermediate')} {size} {verb} materialised"
        return f"declared {format_bytes(declared_bytes)}; {found}; {self._fused}"

    def to_plain(self) -> Mapping[str, Any]:
        """Return the explanation as plain data for a document."""
        made = self.intermediates
        return {
            "framework": self.wording.framework,
            "bytes_moved": self.bytes_moved,
            "least_bytes": self.least_bytes,
            "compiled_bytes": self.compiled_bytes,
            "is_compiled": self.is_compiled,
            "intermediates": None if made is None else list(made[:OPERATORS_LISTED]),
            "operator_count": len(self.operators),
            "operators": [
                {**asdict(one), "arithmetic_intensity": one.arithmetic_intensity, "bound": one.bound(self.ridge_point)}
                for one in self.operators[:OPERATORS_LISTED]
            ],
        }

    @property
    def _move(self) -> str:
        return "moves" if len(self.operators) == 1 else "move"

    @property
    def _fused(self) -> str:
        return f"{format_bytes(self.least_bytes)} if fused"
