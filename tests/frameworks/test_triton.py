"""What Triton compiles, for cards that are not here: no GPU is needed to compile, nor is one driven.

Triton itself sets registers and spills of a kernel that its driver has loaded; its driver here only answers.
"""

from __future__ import annotations

import importlib.util
import sys
from types import SimpleNamespace

import numpy as np
import pytest

# Older ones take AMD's linker from elsewhere, and are given a driver in another way.
pytest.importorskip("triton", minversion="3.9", reason="make frameworks installs Triton")

import triton
from scripted import ScriptedDevice
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from user_project import bandwidth_on

from pytest_bandwidth.devices.code.compiled import compiled_resources
from pytest_bandwidth.devices.triton import as_tensors
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.measured.measurement import KernelResources
from pytest_bandwidth.fixture.input import checked_code

SOURCE = """
import triton
import triton.language as tl

@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)
"""
SAME = {
    "a comment": SOURCE.replace("    tl.store", "    # twice\n    tl.store"),
    "lines before": "# A module\n\n\n" + SOURCE,
    "a name": SOURCE.replace("i = ", "at = ").replace("+ i", "+ at").replace("=i", "=at"),
    "the kernel's name": SOURCE.replace("def scale", "def double"),
}
OTHER = {"a number": SOURCE.replace("2.0", "3.0"), "a load": SOURCE.replace("* 2.0", "* tl.load(y + i, mask=i < n)")}
SIGNATURE = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
TARGETS = [*(GPUTarget("cuda", capability, 32) for capability in (80, 90, 120)), GPUTarget("hip", "gfx942", 64)]


@pytest.fixture
def written(tmp_path):
    """Write a module and import it: Triton reads a kernel's source from its file."""

    def write(text):
        path = tmp_path / "kernels.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("kernels", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return next(found for name, found in vars(module).items() if name in ("scale", "double"))

    return write


def compiled(kernel, target=TARGETS[0], block=1024):
    return triton.compile(ASTSource(kernel, SIGNATURE, {"BLOCK": block}), target=target)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: str(target.arch))
@pytest.mark.parametrize("edit", SAME)
def test_an_edit_that_changes_no_code_leaves_it_the_same(written, edit, target):
    before, after = compiled(written(SOURCE), target), compiled(written(SAME[edit]), target)
    assert checked_code(before) == checked_code(after)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: str(target.arch))
def test_an_edit_that_changes_code_makes_it_another(written, target):
    kernels = [compiled(written(text), target) for text in (SOURCE, *OTHER.values())]
    kernels.append(compiled(written(SOURCE), target, block=512))
    assert len({checked_code(kernel) for kernel in kernels}) == len(kernels)


@pytest.mark.bandwidth(device="cpu", min_samples=3, max_time=0.01)
def test_a_measured_row_has_the_code_of_the_kernel_and_of_its_machine_code(written, bandwidth):
    kernel, x = compiled(written(SOURCE)), bandwidth.random(1 << 10)
    codes = {"kernel": kernel, "machine code": kernel.asm["cubin"], "its PTX": kernel.asm["ptx"]}
    found = [bandwidth(x.sum, reads=x, code=code, label=label).code for label, code in codes.items()]
    assert found[0] == found[1] != found[2]


@pytest.fixture
def loaded(monkeypatch):
    """Answer as the driver of a card would; launches do nothing. What was loaded, each once."""
    loaded = []

    def load_binary(name, kernel, shared, _device):
        loaded.append((name, kernel, shared))
        return None, "function", 40, 3, 1024

    target = TARGETS[0]
    utils = SimpleNamespace(
        load_binary=load_binary,
        unload_module=lambda _: None,
        get_device_properties=lambda _: {"max_shared_mem": 1 << 16},
    )
    answers = SimpleNamespace(
        get_current_target=lambda: target,
        get_current_device=lambda: 0,
        get_current_stream=lambda _: 0,
        launcher_cls=lambda *_: lambda *_: None,
        utils=utils,
    )
    monkeypatch.setattr(triton.runtime.driver, "_active", answers)
    return loaded


@pytest.fixture
def argument():
    x = np.ones(1024, np.float32)
    return SimpleNamespace(data_ptr=lambda: x.ctypes.data, dtype="float32")


def test_what_a_launch_returns_tells_registers_and_shared_memory(written, loaded, argument):
    kernel = written(SOURCE)[(1,)](argument, argument, 1024, BLOCK=1024)
    assert compiled_resources(compiled(written(SOURCE))) is None  # not loaded
    assert loaded == [("scale", kernel.asm["cubin"], kernel.metadata.shared)]
    assert compiled_resources(kernel) == KernelResources(40, 12, kernel.metadata.shared)


@pytest.mark.usefixtures("loaded")
def test_a_launch_on_a_card_is_identified_by_the_machine_code_that_triton_returned(
    written, argument, tmp_path, monkeypatch
):
    card = DeviceIdentity("cuda", "a card", 1 << 30, "0", timed_on="gpu")
    monkeypatch.setattr("pytest_bandwidth.measuring.measurer.open_device", lambda _: ScriptedDevice(identity=card))
    bandwidth = bandwidth_on("cuda", tmp_path)

    def launched(text, label, grid=1, **constants):
        kernel, args = written(text), (argument, argument, 1024)
        return bandwidth.launch(
            kernel, grid, None, args, reads=4096, writes=4096, label=label, constants={"BLOCK": 1024, **constants}
        )

    first = launched(SOURCE, "first")
    assert first.code.function is not None
    assert first.resources == KernelResources(40, 12, 0)
    assert launched(SAME["a comment"], "a comment").code.function == first.code.function
    changed = [
        launched(SOURCE.replace("2.0", "3.0"), "a number"),
        launched(SOURCE, "a grid", grid=(2,)),
        launched(SOURCE, "a constant", BLOCK=512),
    ]
    assert len({one.code.function for one in (first, *changed)}) == 4
    bound = bandwidth.bind(written(SOURCE), 1, None, (argument, argument, 1024), constants={"BLOCK": 1024})
    assert bandwidth(bound, reads=4096, writes=4096).resources == first.resources


def test_arrays_of_cupy_become_tensors_of_the_same_memory(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(ndarray=np.ndarray))
    x = np.arange(4.0)
    given = as_tensors((x, 4, "text"), on_gpu=True)
    assert isinstance(given[0], torch.Tensor)
    given[0][1] = 7
    assert (x[1], given[1:]) == (7, (4, "text"))
