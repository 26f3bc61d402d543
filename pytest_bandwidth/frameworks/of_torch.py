"""Know PyTorch's tensors: which have memory, and where."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.frameworks.extents import Extent


class Torch:
    """Know PyTorch's tensors."""

    name = "PyTorch"
    computes_later = False  # on a GPU it does, in the order of a stream that events can be recorded on
    known_to_devices = True
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
                f"{path} requires grad: each run would record a graph, and keep what the declaration does not tell; "
                "expected it detached, or the call under torch.no_grad()"
            )
        if array.is_nested:
            raise UsageError(f"{path} is a nested tensor, whose rows lie apart: expected a strided one, or the bytes")
        if array.layout is not self._torch.strided or type(array).__name__ == "FunctionalTensor":
            raise UsageError(f"{path} is a tensor of layout {array.layout}, expected a strided one, or the bytes")
        size = array.element_size()
        strides = tuple(stride * size for stride in array.stride())
        space = "host" if array.device.type == "cpu" else str(array.device)
        return Extent(space, array.data_ptr(), tuple(array.shape), strides, size)

    def is_on_host(self, array: Any) -> bool:
        return str(array.device.type) == "cpu"

    def stream(self, array: Any) -> Any:
        return self._torch.cuda.current_stream(array.device) if array.device.type == "cuda" else None

    def is_made(self, array: Any) -> bool:
        return not (array.is_meta or _is_fake(array))

    def wait(self, arrays: Sequence[Any]) -> None:
        del arrays

    def as_numpy(self, array: Any) -> Any:
        try:
            return array.detach().numpy()
        except (RuntimeError, TypeError):  # on a device, or of a type that NumPy has not
            return None


def _is_fake(array: Any) -> bool:
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    return fake is not None and isinstance(array, fake.FakeTensor)
