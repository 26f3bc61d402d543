"""What Triton compiles, for cards that are not here: no GPU is needed to compile, nor is one driven.

Triton itself sets registers and spills of a kernel that its driver has loaded; its driver here only answers.
"""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest

# Older ones take AMD's linker from elsewhere, and are given a driver in another way.
pytest.importorskip("triton", minversion="3.9", reason="make frameworks installs Triton")

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pytest_bandwidth.devices.code.given import compiled_resources
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


def test_what_a_launch_returns_tells_registers_and_shared_memory(written, monkeypatch):
    loaded = []

    def load_binary(name, kernel, shared, _device):
        loaded.append((name, kernel, shared))
        return "module", "function", 40, 3, 1024

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
    x = np.ones(1024, np.float32)
    argument = SimpleNamespace(data_ptr=lambda: x.ctypes.data, dtype="float32")
    kernel = written(SOURCE)[(1,)](argument, argument, x.size, BLOCK=1024)
    assert compiled_resources(compiled(written(SOURCE))) is None  # not loaded
    kernel.module = None  # it would be unloaded once the driver is another
    assert loaded == [("scale", kernel.asm["cubin"], kernel.metadata.shared)]
    assert compiled_resources(kernel) == KernelResources(40, 12, kernel.metadata.shared)
