"""Add up what the equations of a JAX callable read and write, as its jaxpr lists them, beside its compiler's count."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.explanation import Explanation, Operator, Wording

# Equations that stand for the jaxpr inside them; others that have one, such as loops, are one operator.
_CALLS = frozenset(
    {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call"}
)
_COMPILED = frozenset({"jit", "pjit"})
WORDING = Wording("JAX", "equation", " where each runs by itself")


@dataclass(eq=False, slots=True)
class _Array:
    """Hold an array of the traced call. made: whether an equation makes it."""

    nbytes: int
    made: bool = False


@dataclass(slots=True)
class _Tally:
    operators: list[Operator] = field(default_factory=list)
    made: dict[_Array, None] = field(default_factory=dict)
    read: dict[_Array, None] = field(default_factory=dict)


def explained_jax(function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Explanation:
    """Trace the call and return what its equations move, each by itself; nothing of it runs but its Python.

    Raises UsageError where it cannot be traced, or no equation is in it.
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
    return Explanation(WORDING, tuple(tally.operators), least, tuple(between), compiled, is_compiled=whole)


def _add(jaxpr: Any, known: dict[Any, _Array | None], tally: _Tally) -> None:
    """Add a jaxpr's equations. known: its variables' arrays; grows by what its equations make."""
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
            tally.operators.append(Operator(equation.primitive.name, reads + writes, reads, writes, _flop(equation)))


def _add_inside(equation: Any, known: dict[Any, _Array | None], tally: _Tally) -> bool:
    """Add the equations of the jaxpr that one stands for; return False where it is an operator itself."""
    names = ("jaxpr", "call_jaxpr", "fun_jaxpr")
    inner = next((found for name in names if (found := equation.params.get(name)) is not None), None)
    if inner is None:
        return False
    jaxpr, consts = (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, ())
    if len(jaxpr.invars) != len(equation.invars):
        return False
    # A frame of its own, since the same jaxpr may be called more than once.
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


def _flop(equation: Any) -> int | None:
    """Return the FLOP that XLA counts of one equation, an exponential or the like as one; None where it tells none."""
    jax = sys.modules["jax"]
    places = [place for place, variable in enumerate(equation.invars) if not hasattr(variable, "val")]
    written = [getattr(variable, "val", None) for variable in equation.invars]

    def alone(*arrays: Any) -> Any:
        given = list(written)
        for place, array in zip(places, arrays, strict=True):
            given[place] = array
        return equation.primitive.bind(*given, **equation.params)

    shapes = [jax.ShapeDtypeStruct(equation.invars[p].aval.shape, equation.invars[p].aval.dtype) for p in places]
    with suppress(Exception):  # whatever a primitive raises where it is bound by itself: its FLOP are not known then
        cost = next(_costs(jax.jit(alone).lower(*shapes).cost_analysis()), None)
        return None if cost is None else int(cost.get("flops", 0)) + int(cost.get("transcendentals", 0))
    return None


def _compiled_bytes(jax: Any, function: Callable[..., Any], arrays: Sequence[Any]) -> int | None:
    """Return the bytes that XLA says its program for the call accesses; None where it does not tell."""
    try:
        cost = next(_costs(jax.jit(function).lower(*arrays).compile().cost_analysis()), None)
    except (NotImplementedError, RuntimeError, jax.errors.JAXTypeError):  # a backend without cost analysis: no figure
        return None
    told = None if cost is None else cost.get("bytes accessed")
    return None if told is None else int(told)


def _costs(analysis: Any) -> Iterator[Mapping[str, float]]:
    """Yield the analysis of each program: JAX has returned a list of mappings, and one mapping."""
    yield from analysis if isinstance(analysis, (list, tuple)) else filter(None, [analysis])
