"""Find arrays in nested containers, with their frameworks and their places in memory.

It supports arrays of NumPy, PyTorch, JAX, of libraries with an array interface, and of frameworks that plug in.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from math import prod
from types import GeneratorType
from typing import Any

import numpy as np

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.frameworks.base import Extent, Framework, distinct_bytes
from pytest_bandwidth.registry import hooks


class NumPy(Framework):
    """Describe NumPy's arrays, without its scalars."""

    name = "NumPy"

    def owns(self, value: object) -> bool:
        return isinstance(value, np.ndarray)

    def extent(self, array: Any, path: str) -> Extent:
        if array.dtype.hasobject:
            raise UsageError(f"{path} is an array of Python objects, expected numbers, or its bytes as an int")
        return Extent("host", array.ctypes.data, array.shape, array.strides, array.itemsize)

    def is_on_host(self, array: Any) -> bool:
        return True

    def as_numpy(self, array: Any) -> Any:
        return array


class OfInterface(Framework):
    """Describe arrays of any library with an array interface: on a GPU, as CuPy's and Numba's, or in host memory."""

    def __init__(self, library: str, space: str) -> None:
        self.name, self._space = library, space
        self._interface = "__cuda_array_interface__" if space == "cuda" else "__array_interface__"

    def owns(self, value: object) -> bool:
        return hasattr(type(value), self._interface) and not isinstance(value, np.generic)

    def extent(self, array: Any, path: str) -> Extent:
        interface = getattr(array, self._interface)
        shape = tuple(map(int, interface["shape"]))
        size = np.dtype(interface["typestr"]).itemsize
        strides = interface.get("strides") or tuple(size * prod(shape[place + 1 :]) for place in range(len(shape)))
        address = (interface.get("data") or (0, False))[0]
        return Extent(self._space, int(address or 0), shape, tuple(map(int, strides)), size)

    def is_on_host(self, array: Any) -> bool:
        return self._space == "host"

    def as_numpy(self, array: Any) -> Any:
        return np.asarray(array) if self._space == "host" else None


class Torch(Framework):
    """Describe PyTorch's tensors."""

    name = "PyTorch"
    # On a GPU it computes later, but in the order of a stream that events can be recorded on.
    own_graphs = "torch.cuda.graph"

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def owns(self, value: object) -> bool:
        return isinstance(value, getattr(self._torch, "Tensor", ()))

    def extent(self, array: Any, path: str) -> Extent:
        if not self.is_made(array):
            raise UsageError(f"{path} is a meta or fake tensor, which has no memory: expected one that holds numbers")
        if array.requires_grad and self._torch.is_grad_enabled():
            raise UsageError(
                f"{path} requires grad: each run would record a graph and keep arrays that are not declared; expected "
                "it detached, or the call under torch.no_grad()"
            )
        if array.is_nested:
            raise UsageError(
                f"{path} is a nested tensor, which is not contiguous: expected a strided one, or its bytes as an int"
            )
        if array.layout is not self._torch.strided or type(array).__name__ == "FunctionalTensor":
            raise UsageError(
                f"{path} is a tensor of layout {array.layout}, expected a strided one, or its bytes as an int"
            )
        size = array.element_size()
        strides = tuple(stride * size for stride in array.stride())
        space = "host" if array.device.type == "cpu" else str(array.device)
        return Extent(space, array.data_ptr(), tuple(array.shape), strides, size)

    def is_on_host(self, array: Any) -> bool:
        return str(array.device.type) == "cpu"

    def stream(self, array: Any) -> Any:
        return self._torch.cuda.current_stream(array.device) if array.device.type == "cuda" else None

    def is_made(self, array: Any) -> bool:
        fake = sys.modules.get("torch._subclasses.fake_tensor")
        return not (array.is_meta or (fake is not None and isinstance(array, fake.FakeTensor)))

    def as_numpy(self, array: Any) -> Any:
        try:
            return array.detach().numpy()
        except (RuntimeError, TypeError):  # on a device, or of a type that NumPy lacks
            return None


class Jax(Framework):
    """Describe JAX's arrays."""

    name = "JAX"
    computes_later = True

    def __init__(self, jax: Any) -> None:
        self._jax = jax

    def owns(self, value: object) -> bool:
        return isinstance(value, getattr(self._jax, "Array", ()))

    def extent(self, array: Any, path: str) -> Extent:
        if isinstance(array, self._jax.core.Tracer):
            raise UsageError(f"{path} is a tracer of a JAX transformation: measure the compiled function from outside")
        if array.is_deleted():
            raise UsageError(
                f"{path} is a JAX array whose buffer was deleted or donated: create it again before the call"
            )
        if len(array.devices()) > 1:
            raise UsageError(
                f"{path} lies on {len(array.devices())} devices, expected an array on one, or its bytes as an int"
            )
        nbytes = int(array.nbytes)
        try:
            address, space = int(array.unsafe_buffer_pointer()), str(next(iter(array.devices())))
        except (AttributeError, RuntimeError, TypeError, ValueError):  # random keys, for example, have no buffer
            address, space = 0, f"JAX array {id(array)}"
        return Extent(space, address, (nbytes,), (1,), 1)

    def is_on_host(self, array: Any) -> bool:
        return all(device.platform == "cpu" for device in array.devices())

    def is_made(self, array: Any) -> bool:
        return not isinstance(array, self._jax.core.Tracer) and not array.is_deleted()

    def wait(self, arrays: Sequence[Any]) -> None:
        self._jax.block_until_ready(arrays)

    def as_numpy(self, array: Any) -> Any:
        try:
            return np.from_dlpack(array)
        except (RuntimeError, TypeError, ValueError, BufferError, AttributeError):
            return None


Makers = Mapping[str, Callable[[Any], Framework]]
# By the name of the module that has to be loaded; a framework that a process does not import is never used.
_OF_THE_CORE: Makers = {"torch": Torch, "jax": Jax}
_NUMPY = NumPy()


def loaded_frameworks() -> dict[str, Framework]:
    """Return the frameworks that this process has loaded, by their modules' names."""
    makers = _makers(hooks())
    found = {name: make(sys.modules[name]) for name, make in makers.items() if sys.modules.get(name) is not None}
    for name, framework in found.items():
        if not isinstance(framework, Framework):
            raise UsageError(
                f"pytest_bandwidth_frameworks: found {shown(framework)}, made of {name}, expected a Framework"
            )
    return found


def framework_of(value: object) -> Framework | None:
    """Return the framework whose array the value is; None for anything that is not an array."""
    if _NUMPY.owns(value):
        return _NUMPY
    for framework in loaded_frameworks().values():
        if framework.owns(value):
            return framework
    library = type(value).__module__.partition(".")[0]
    return next((one for space in ("cuda", "host") if (one := OfInterface(library, space)).owns(value)), None)


@lru_cache(maxsize=1)
def _makers(plugged: Any) -> Makers:
    """Return the functions that make frameworks of modules; cached, since each value needs them."""
    found = plugged.pytest_bandwidth_frameworks()
    for makers in found:
        if not isinstance(makers, Mapping) or not all(map(callable, makers.values())):
            raise UsageError(
                f"pytest_bandwidth_frameworks: found {shown(makers)}, expected a dictionary: "
                "by a module's name, what makes a Framework of it"
            )
    return {name: make for makers in (_OF_THE_CORE, *found) for name, make in makers.items()}


# A container that is larger, or nested deeper, is no list of arrays; one that holds itself has no end.
MOST_VISITED = 100_000
DEEPEST = 100
_NO_CONTAINERS = (str, bytes, bytearray, memoryview, range)


@dataclass(frozen=True, slots=True)
class FoundArray:
    """Hold an array that was found: its path in the caller's code (``x``, ``batch['w'][0]``), and where it lies."""

    path: str
    framework: Framework
    array: Any
    extent: Extent


@dataclass(frozen=True, slots=True)
class ArrayGroup:
    """Hold arrays that one side of a declaration names, and their distinct bytes."""

    nbytes: int
    arrays: tuple[Any, ...]


def arrays_in(value: object, path: str, *, passing_over: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the arrays in a value, containers in it included, with their paths; scalars and all else are passed over.

    Containers are tuples, lists and other sequences, mappings' values, sets, dataclasses, PyTorch's lists of parameters
    and JAX's pytrees. Raises UsageError for a generator, since reading its arrays uses it up, and for a value that is
    too large or nested too deep; passing_over: passes over those instead.
    """
    pending: list[tuple[int, str, object]] = [(0, path, value)]
    visited = 0
    while pending:
        depth, where, one = pending.pop()
        visited += 1
        if visited > MOST_VISITED or depth > DEEPEST:
            if passing_over:
                return
            raise UsageError(f"{path} holds too much, or is nested too deep, to find its arrays: declare bytes")
        if framework_of(one) is not None:
            yield where, one
        else:
            try:
                inside = list(_inside(one, where))
            except UsageError:
                if not passing_over:
                    raise
                continue
            pending += [(depth + 1, *inner) for inner in reversed(inside)]


def _inside(value: object, path: str) -> Iterable[tuple[str, object]]:
    if isinstance(value, (GeneratorType, Iterator)):
        raise UsageError(
            f"{path} is a {type(value).__name__}, which one run would leave empty: expected a list or a tuple"
        )
    if isinstance(value, Mapping):
        return ((f"{path}[{shown(key)}]", inner) for key, inner in value.items())
    # PyTorch's lists that are modules, and so no sequences.
    lists = (Sequence, getattr(sys.modules.get("torch.nn"), "ParameterList", ()))
    if isinstance(value, lists) and not isinstance(value, _NO_CONTAINERS):
        return ((f"{path}[{place}]", inner) for place, inner in enumerate(value))
    if isinstance(value, (Set, ValuesView)):
        return ((f"{path}{{…}}", inner) for inner in value)
    if is_dataclass(value) and not isinstance(value, type):
        return ((f"{path}.{field.name}", getattr(value, field.name)) for field in fields(value))
    jax = sys.modules.get("jax")
    leaves = [] if jax is None else jax.tree_util.tree_leaves(value)
    return () if any(leaf is value for leaf in leaves) else ((f"{path}<{n}>", leaf) for n, leaf in enumerate(leaves))


def located(path: str, array: Any) -> FoundArray:
    """Return an array with its place in memory. Raises UsageError where it has none, or cannot be measured as it is."""
    framework = framework_of(array)
    if framework is None:
        raise UsageError(f"{path} is a {type(array).__name__}, expected an array")
    return FoundArray(path, framework, array, framework.extent(array, path))


def grouped(found: Sequence[FoundArray], views: dict[Extent, Any]) -> ArrayGroup:
    """Return the arrays as one part of a declaration: each byte once. Raises UsageError (see `distinct_bytes`).

    views: NumPy's views of host arrays, by place, of the whole declaration: an array read and written is one object.
    """
    for one in found:
        if one.extent not in views and one.framework.known_to_devices:
            view = one.framework.as_numpy(one.array)
            views[one.extent] = one.array if view is None else view
    extents = dict.fromkeys(one.extent for one in found)
    return ArrayGroup(distinct_bytes(extents), tuple(views[extent] for extent in extents if extent in views))


def reachable(part: Any) -> FoundArray | None:
    """Return an array that a device can reach with its place; None for anything else. Raises UsageError."""
    if framework_of(part) is None:
        return None
    found = located("an array in the declaration", part)
    return found if found.framework.known_to_devices else None


def refuse_mixed(found: Iterable[FoundArray]) -> None:
    """Raise UsageError where arrays of one call belong to two frameworks: each has its own way to wait for them."""
    firsts: dict[str, str] = {}
    for one in found:
        firsts.setdefault(one.framework.name, one.path)
    if len(firsts) > 1:
        (name, path), (other, elsewhere) = list(firsts.items())[:2]
        raise UsageError(
            f"arrays of two frameworks in one call: {path} is {name}'s, {elsewhere} is {other}'s; expected arrays of "
            "one framework, or reads= and writes= that name the arrays or bytes"
        )
