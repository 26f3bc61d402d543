"""What Triton's launch returns, as `code=`: a stand-in of its shape. tests/frameworks/test_triton.py has the real."""

from types import SimpleNamespace

import pytest

from pytest_bandwidth.devices.code.compiled import compiled_resources, machine_code
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.measurement import KernelResources

ASM = {"ttir": "module {}", "ptx": ".version 8.7", "cubin": b"\x7fELF machine code"}


def compiled(asm=None, **more):
    """Triton's CompiledKernel has these; n_regs and n_spills are None before its first launch."""
    shape = {"n_regs": 64, "n_spills": 6, "metadata": SimpleNamespace(shared=2048, num_warps=4)}
    return SimpleNamespace(asm=ASM if asm is None else asm, **{**shape, **more})


def test_registers_spills_and_shared_memory():
    assert compiled_resources(compiled()) == KernelResources(64, 24, 2048)
    assert compiled_resources(compiled(metadata=None)) == KernelResources(64, 24, 0)
    assert compiled_resources(compiled(n_regs=None)) is None
    assert compiled_resources(b"a cubin") is None


def test_machine_code():
    assert machine_code(compiled()) == ASM["cubin"]
    assert machine_code(compiled(asm={"hsaco": b"AMD's"})) == b"AMD's"
    assert machine_code(compiled(asm={"ptx": "text"})) is None


@pytest.mark.bandwidth(device="cpu", min_samples=3, max_time=0.01)
def test_a_measured_row_has_its_code_and_resources(bandwidth):
    x = bandwidth.random(1 << 10)
    by_kernel = bandwidth(x.sum, reads=x, code=compiled(), label="kernel")
    by_bytes = bandwidth(x.sum, reads=x, code=ASM["cubin"], label="bytes")
    other = bandwidth(x.sum, reads=x, code=compiled(asm={"cubin": b"another"}), label="other")
    assert by_kernel.code == by_bytes.code != other.code
    assert (by_kernel.resources, by_bytes.resources) == (KernelResources(64, 24, 2048), None)
    assert bandwidth.measurements["kernel"] is by_kernel


@pytest.mark.bandwidth(device="cpu", min_samples=3, max_time=0.01)
def test_a_kernel_without_machine_code_is_refused(bandwidth):
    with pytest.raises(
        UsageError, match="code=: a SimpleNamespace with ptx in its asm, expected a cubin or hsaco there"
    ):
        bandwidth(lambda: None, reads=8, code=compiled(asm={"ptx": "text"}))
    with pytest.raises(UsageError, match=r"code=7, expected bytes or text .*, or a kernel that Triton compiled"):
        bandwidth(lambda: None, reads=8, code=7)
