"""A view means the same to a launch on the card, on the host and on the traffic device."""

import runpy

import numpy as np
import pytest
from card_processes import PROGRAMS, Card

from pytest_bandwidth.devices.cpu.device import CpuDevice

program = runpy.run_path(str(PROGRAMS / "views.py"))
REFUSED = {"repeated", "columns", "each other", "backwards", "axes swapped"}


def told_by(device: str, card: Card) -> dict[str, object]:
    if device == "cuda":
        return card.told("views")
    if device == "cpu":
        return program["told"](CpuDevice())
    pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC")
    from pytest_bandwidth.features.traffic.device import open_traffic

    return program["told"](open_traffic())


@pytest.mark.parametrize("device", ["cuda", "cpu", "traffic"])
def test_a_kernel_gets_a_view_as_it_lies_in_memory_and_none_with_gaps(device: str, card: Card) -> None:
    x = np.arange(128, dtype=np.float32).reshape(8, 16)
    found = told_by(device, card)
    for name, view in program["VIEWS"].items():
        part = view(x)
        assert found[f"bytes of {name}"] == (x[0].nbytes if name == "repeated" else part.nbytes), name
        if name in REFUSED:
            expected = (
                f" is not contiguous (shape {part.shape}, strides {part.strides}), and a raw kernel ignores strides: "
                "pass bandwidth.xp.ascontiguousarray of it, or hand the strides to the kernel yourself"
            )
            assert str(found[name]).startswith("argument 2"), name
            assert str(found[name]).endswith(expected), name
        else:
            assert found[name] == part.ravel(order="K").tolist(), name
