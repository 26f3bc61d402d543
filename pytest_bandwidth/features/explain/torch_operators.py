"""Add up what PyTorch's operators in a call read and write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.explanation import Explanation, Operator, Wording
from pytest_bandwidth.frameworks.arrays import arrays_in, framework_of, located
from pytest_bandwidth.frameworks.base import Extent, distinct_bytes

# Make an array and write nothing to it.
_ALLOCATE = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"})
# Write their first argument whole, and do not read it.
_OVERWRITE = frozenset({"copy_", "fill_", "zero_"})
# Compute nothing, though PyTorch tags some of them as computing a number from each.
_COPY = frozenset({*_OVERWRITE, "clone", "_to_copy", "full", "full_like", "zeros_like", "ones_like", "cat", "stack"})
WORDING = Wording("PyTorch", "operator")
COMPILED = Wording("PyTorch", "operator", " where nothing compiles them")


def explained_torch(function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Explanation:
    """Run the call once and return what its operators move; each is taken to read and write its arrays whole.

    Raises UsageError where no operator of PyTorch ran, and for tensors that have no memory or record gradients. What is
    made on the way is kept until the end. What `torch.compile` made runs uncompiled here: its operators are not to be
    seen.
    """
    record = _Record()

    def dispatch(self: Any, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del self, types
        value = operator(*args, **(kwargs or {}))
        record.add(operator, args, kwargs or {}, value)
        return value

    base: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode
    with type("Recording", (base,), {"__torch_dispatch__": dispatch})():
        value = function(*args, **keywords)
    if not record.operators:
        raise UsageError("explain: no operator of PyTorch ran in the call")
    found = record.explanation(value)
    # What torch.compile returned, a function or a module, has this.
    if not hasattr(function, "get_compiler_config"):
        return found
    return replace(found, wording=COMPILED, is_compiled=True)


class _Record:
    def __init__(self) -> None:
        self.operators: list[Operator] = []
        self._alive: list[Any] = []  # else a later array could lie where an earlier one did
        self._made: dict[int, list[Extent]] = {}
        self._from_outside: list[Extent] = []
        self._written_outside: list[Extent] = []

    def add(self, function: Any, args: Sequence[Any], keywords: dict[str, Any], value: object) -> None:
        """Note one operator that ran."""
        name = function._schema.name.rpartition("::")[2]
        self._alive.append(value)
        if function.is_view or name in _ALLOCATE:
            if name in _ALLOCATE:
                self._own(value)
            return
        written_only = [a.name for a in function._schema.arguments if a.alias_info and a.is_out]
        read = [keywords[key] for key in keywords if key not in written_only]
        read += args[1:] if name in _OVERWRITE else args
        inputs, outputs = _tensors(read), _tensors(value)
        self._from_outside += [_extent(one) for one in inputs if _storage(one) not in self._made]
        mutable = {_storage(one) for one in _tensors([*args, *keywords.values()])}
        for one in outputs:
            if _storage(one) in self._made:
                self._made[_storage(one)].append(_extent(one))
            elif _storage(one) in mutable:
                self._written_outside.append(_extent(one))
            else:
                self._own(one)
        reads, writes = (distinct_bytes(map(_extent, side)) for side in (inputs, outputs))
        flop = _flop(function, name, args, keywords, value)
        self.operators.append(Operator(name, reads + writes, reads, writes, flop))

    def explanation(self, result: object) -> Explanation:
        """Return all of it. result: what the call returned."""
        arrays = _tensors(result)
        returned = {_storage(one) for one in arrays}
        written = [_extent(one) for one in arrays if _storage(one) in self._made]
        least = distinct_bytes(self._from_outside) + distinct_bytes([*written, *self._written_outside])
        between = [distinct_bytes(extents) for storage, extents in self._made.items() if storage not in returned]
        return Explanation(WORDING, tuple(self.operators), least, tuple(sorted(filter(None, between), reverse=True)))

    def _own(self, value: object) -> None:
        for one in _tensors(value):
            self._made.setdefault(_storage(one), []).append(_extent(one))


def _flop(function: Any, name: str, args: Any, keywords: Any, value: object) -> int | None:
    """Return what PyTorch's flop counter says of a product, convolution or attention; else as its tags tell.

    One FLOP for each number that a pointwise operator writes or a reduction reads; None where nothing tells.
    """
    if name in _COPY:
        return 0
    formula = import_module("torch.utils.flop_counter").flop_registry.get(function.overloadpacket)
    if formula is not None:
        return int(formula(*args, **keywords, out_val=value))
    tags = {tag.name for tag in function.tags}
    if "pointwise" in tags:
        return sum(int(one.numel()) for one in _tensors(value))
    if "reduction" in tags:
        return sum(int(one.numel()) for one in _tensors(args[:1]))
    return None


def _tensors(value: object) -> list[Any]:
    found = [array for _, array in arrays_in(value, "an operator's argument")]
    return [one for one in found if (framework := framework_of(one)) is not None and framework.name == "PyTorch"]


def _extent(tensor: Any) -> Extent:
    return located("an operator's argument", tensor).extent


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)
