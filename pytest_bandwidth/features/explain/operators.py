"""Add up the bytes that the operators of a call read and write: PyTorch's as they run, JAX's from its jaxpr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.explanation import Explanation, Operator, Wording
from pytest_bandwidth.frameworks.arrays import arrays_in, framework_of, located
from pytest_bandwidth.frameworks.base import Extent, distinct_bytes

# ---- PyTorch's operators ---------------------------------------------------------------------------------------------

# Operators that make an array without writing to it.
_ALLOCATE = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"})
# Operators that write all of their first argument without reading it.
_OVERWRITE = frozenset({"copy_", "fill_", "zero_"})
# Operators that compute nothing, though PyTorch tags some of them as pointwise.
_COPY = frozenset({*_OVERWRITE, "clone", "_to_copy", "full", "full_like", "zeros_like", "ones_like", "cat", "stack"})


def explained_torch(function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Explanation:
    """Run the call once and return the bytes of its operators; each is taken to read and write all of its arrays.

    Raises UsageError where no operator of PyTorch ran, and for tensors that have no memory or record gradients. Tensors
    that the call makes are kept until its end. Functions of `torch.compile` run uncompiled here: the operators of
    compiled code are invisible.
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
    # Functions and modules that torch.compile returned have this attribute.
    if not hasattr(function, "get_compiler_config"):
        return found
    wording = Wording("PyTorch", "operator", " where nothing compiles them")
    return replace(found, wording=wording, is_compiled=True)


class _Record:
    def __init__(self) -> None:
        self.operators: list[Operator] = []
        self._alive: list[Any] = []  # else a later array could get the address of an earlier one
        self._made: dict[int, list[Extent]] = {}
        self._from_outside: list[Extent] = []
        self._written_outside: list[Extent] = []

    def add(self, function: Any, args: Sequence[Any], keywords: dict[str, Any], value: object) -> None:
        """Record one operator that ran."""
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
        """Return the explanation of all operators. result: the call's return value."""
        arrays = _tensors(result)
        returned = {_storage(one) for one in arrays}
        written = [_extent(one) for one in arrays if _storage(one) in self._made]
        least = distinct_bytes(self._from_outside) + distinct_bytes([*written, *self._written_outside])
        between = [distinct_bytes(extents) for storage, extents in self._made.items() if storage not in returned]
        wording, sizes = Wording("PyTorch", "operator"), sorted(filter(None, between), reverse=True)
        return Explanation(wording, tuple(self.operators), least, tuple(sizes))

    def _own(self, value: object) -> None:
        for one in _tensors(value):
            self._made.setdefault(_storage(one), []).append(_extent(one))


def _flop(function: Any, name: str, args: Any, keywords: Any, value: object) -> int | None:
    """Return the FLOP of an operator: by PyTorch's flop counter for a product, convolution or attention, else by tags.

    By tags: one for each number that a pointwise operator writes or a reduction reads; None for other operators.
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


# ---- JAX's equations, and its compiler's count -----------------------------------------------------------------------

# Equations that are replaced by those of the jaxpr inside; others with a jaxpr, such as loops, are one operator.
_CALLS = frozenset(
    {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call"}
)
_COMPILED = frozenset({"jit", "pjit"})


@dataclass(eq=False, slots=True)
class _Array:
    """Hold the size of an array of the traced call. made: whether an equation makes it."""

    nbytes: int
    made: bool = False


@dataclass(slots=True)
class _Tally:
    operators: list[Operator] = field(default_factory=list)
    made: dict[_Array, None] = field(default_factory=dict)
    read: dict[_Array, None] = field(default_factory=dict)


def explained_jax(function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Explanation:
    """Trace the call and return the bytes of each equation by itself; only the call's Python code runs.

    Raises UsageError where JAX cannot trace the call, or where it has no equation.
    """
    jax = sys.modules["jax"]
    leaves, tree = jax.tree_util.tree_flatten((tuple(args), dict(keywords)))
    traced = [place for place, leaf in enumerate(leaves) if isinstance(leaf, (jax.Array, np.ndarray))]

    def of_arrays(*arrays: Any) -> Any:
        filled = list(leaves)
        for place, array in zip(traced, arrays, strict=True):
            filled[place] = array
        given, named = jax.tree_util.tree_unflatten(tree, filled)
        return function(*given, **named)

    arrays = [leaves[place] for place in traced]
    try:
        closed = jax.make_jaxpr(of_arrays)(*arrays)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        reason = str(error).split("\n", 1)[0]
        raise UsageError(f"explain: JAX cannot trace the call ({reason}): expected one that jax.jit takes") from None
    tally = _Tally()
    known: dict[Any, _Array | None] = {}
    for variable in (*closed.jaxpr.constvars, *closed.jaxpr.invars):
        known[variable] = _array_of(variable)
    _add(closed.jaxpr, known, tally)
    if not tally.operators:
        raise UsageError("explain: no equation of JAX is in the call")
    results = dict.fromkeys(one for v in closed.jaxpr.outvars if (one := _known(known, v)) is not None)
    least = sum(one.nbytes for one in tally.read) + sum(one.nbytes for one in results if one.made)
    between = sorted((one.nbytes for one in tally.made if one not in results and one.nbytes), reverse=True)
    whole = len(closed.jaxpr.eqns) == 1 and closed.jaxpr.eqns[0].primitive.name in _COMPILED
    compiled = _compiled_bytes(jax, of_arrays, arrays)
    wording = Wording("JAX", "equation", " where each runs by itself")
    return Explanation(wording, tuple(tally.operators), least, tuple(between), compiled, is_compiled=whole)


def _add(jaxpr: Any, known: dict[Any, _Array | None], tally: _Tally) -> None:
    """Add a jaxpr's equations. known: its variables' arrays; those that equations make are added."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in _CALLS and _add_inside(equation, known, tally):
            continue
        inputs = dict.fromkeys(one for v in equation.invars if (one := _known(known, v)) is not None)
        for variable in equation.outvars:
            known[variable] = _array_of(variable, made=True)
        outputs = [one for v in equation.outvars if (one := known[v]) is not None]
        tally.made.update(dict.fromkeys(outputs))
        tally.read.update(dict.fromkeys(one for one in inputs if not one.made))
        reads, writes = (sum(one.nbytes for one in side) for side in (inputs, outputs))
        if reads + writes:
            tally.operators.append(
                Operator(equation.primitive.name, reads + writes, reads, writes, _equation_flop(equation))
            )


def _add_inside(equation: Any, known: dict[Any, _Array | None], tally: _Tally) -> bool:
    """Add the equations of the jaxpr inside an equation; return False where that equation is an operator itself."""
    names = ("jaxpr", "call_jaxpr", "fun_jaxpr")
    inner = next((found for name in names if (found := equation.params.get(name)) is not None), None)
    if inner is None:
        return False
    jaxpr, consts = (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, ())
    if len(jaxpr.invars) != len(equation.invars):
        return False
    # A separate frame, since the same jaxpr may be called more than once.
    frame: dict[Any, _Array | None] = {}
    for variable, value in zip(jaxpr.constvars, consts, strict=True):
        frame[variable] = _Array(int(getattr(value, "nbytes", 0)))
    for variable, given in zip(jaxpr.invars, equation.invars, strict=True):
        frame[variable] = _known(known, given)
    _add(jaxpr, frame, tally)
    for outer, variable in zip(equation.outvars, jaxpr.outvars, strict=True):
        known[outer] = _known(frame, variable)
    return True


def _known(known: Mapping[Any, _Array | None], variable: Any) -> _Array | None:
    """Return a variable's array; None for a number that is written in the jaxpr itself."""
    return None if hasattr(variable, "val") else known.get(variable)


def _array_of(variable: Any, *, made: bool = False) -> _Array | None:
    aval = variable.aval
    if not hasattr(aval, "shape") or not hasattr(aval, "dtype"):  # a token, say
        return None
    return _Array(int(np.prod(aval.shape, dtype=np.int64)) * int(aval.dtype.itemsize), made)


def _equation_flop(equation: Any) -> int | None:
    """Return the FLOP that XLA counts for one equation, an exponential or the like as one; None without a count."""
    jax = sys.modules["jax"]
    places = [place for place, variable in enumerate(equation.invars) if not hasattr(variable, "val")]
    written = [getattr(variable, "val", None) for variable in equation.invars]

    def alone(*arrays: Any) -> Any:
        given = list(written)
        for place, array in zip(places, arrays, strict=True):
            given[place] = array
        return equation.primitive.bind(*given, **equation.params)

    shapes = [jax.ShapeDtypeStruct(equation.invars[p].aval.shape, equation.invars[p].aval.dtype) for p in places]
    with suppress(Exception):  # a primitive that is bound alone may raise anything: its FLOP are unknown then
        cost = _cost(jax.jit(alone).lower(*shapes).cost_analysis())
        return None if cost is None else int(cost.get("flops", 0)) + int(cost.get("transcendentals", 0))
    return None


def _compiled_bytes(jax: Any, function: Callable[..., Any], arrays: Sequence[Any]) -> int | None:
    """Return the bytes that the compiled call accesses by XLA's cost analysis; None without a figure."""
    try:
        cost = _cost(jax.jit(function).lower(*arrays).compile().cost_analysis())
    except (NotImplementedError, RuntimeError, jax.errors.JAXTypeError):  # a backend without cost analysis: no figure
        return None
    accessed = None if cost is None else cost.get("bytes accessed")
    return None if accessed is None else int(accessed)


def _cost(analysis: Any) -> Mapping[str, float] | None:
    """Return the analysis of the first program: JAX returns a list of mappings or one mapping, by release."""
    return next(iter(analysis if isinstance(analysis, (list, tuple)) else filter(None, [analysis])), None)
