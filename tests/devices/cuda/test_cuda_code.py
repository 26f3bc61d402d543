"""Which of CuPy's raw kernels are identified, and why others are not: real CuPy and its NVRTC, which need no GPU."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

cupy = pytest.importorskip("cupy", reason="CuPy's compiler is asked", exc_type=ImportError)
compiler = pytest.importorskip("cupy.cuda.compiler")

from pytest_bandwidth.devices.cuda.code import RawKernelCodes, settings_of  # noqa: E402
from pytest_bandwidth.domain.code.identity import CodeIdentity, MeasuredCode  # noqa: E402
from pytest_bandwidth.features.traffic.ptx import compile_cubin, compile_ptx  # noqa: E402

pytestmark = pytest.mark.emulated
SOURCE = """
#include <cuda_fp16.h>
extern "C" __global__ void scale(float* x, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * 3.0f;
}
"""
ANOTHER = 'extern "C" __global__ void zero(float* x) { x[threadIdx.x] = 0; }\n'
DRIVER = "595.45.04"


@pytest.fixture(autouse=True)
def arch(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Say which GPU there is, and whether NVRTC makes its machine code; without one CuPy cannot."""

    def choose(option: str, made: str) -> None:
        monkeypatch.setattr(compiler, "_get_arch_for_options_for_nvrtc", lambda: (option, made))

    choose("-arch=sm_90", "cubin")
    return choose


@pytest.fixture(scope="module")
def codes() -> RawKernelCodes:
    return RawKernelCodes(cupy, DRIVER)


def code(codes: RawKernelCodes, text: str = SOURCE, **more: Any) -> MeasuredCode:
    return codes.code(cupy.RawKernel(text, "scale", **more))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (SOURCE.replace("if (i < n)", "if (i < n)  // inside\n       "), ()),
        (ANOTHER + SOURCE, ()),
        (SOURCE, ("-DUNUSED=1", "-lineinfo")),
        (SOURCE, ("--std=c++17",)),  # whatever CuPy's own is
    ],
)
def test_what_changes_no_code_leaves_its_identity(codes: RawKernelCodes, text: str, options: tuple[str, ...]) -> None:
    known = code(codes)
    assert known.unknown is None
    assert None not in (known.identity.ptx, known.identity.sass)
    assert ".entry scale" in (known.ptx or "")
    assert code(codes, text, options=options).identity == known.identity


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (SOURCE.replace("3.0f", "3.5f"), ()),
        (SOURCE, ("--maxrregcount=16", "--ptxas-options=-O1")),
    ],
)
def test_what_changes_code_changes_its_identity(codes: RawKernelCodes, text: str, options: tuple[str, ...]) -> None:
    changed = code(codes, text, options=options).identity
    assert changed.sass not in (None, code(codes).identity.sass)


def test_machine_code_that_the_driver_makes_is_known_by_ptx_and_driver(
    arch: Callable[[str, str], None],
) -> None:
    arch("-arch=compute_90", "ptx")
    by_driver = [code(RawKernelCodes(cupy, driver)).identity for driver in (DRIVER, DRIVER, "600.1", None)]
    assert by_driver[0] == by_driver[1]
    assert by_driver[0].ptx == by_driver[2].ptx == by_driver[3].ptx
    assert None not in (by_driver[0].sass, by_driver[2].sass)
    assert by_driver[0].sass != by_driver[2].sass
    assert by_driver[3].sass is None


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"backend": "nvcc"}, "nvcc compiled it"),
        ({"translate_cucomplex": True}, "CuPy translates its cuComplex.h"),
        ({"options": ("-dc",)}, "it is linked with the device runtime"),
        ({"options": ("-I/somewhere",)}, "CuPy's cache ignores changes of files that it includes"),
        ({"options": ("--no-such-option",)}, "compiling it again to identify its code failed"),
    ],
)
def test_what_cannot_be_told_is_unknown_and_says_why(codes: RawKernelCodes, more: Any, why: str) -> None:
    found = code(codes, **more)
    assert (found.identity, found.ptx) == (CodeIdentity(), None)
    assert found.unknown.startswith(why)


def test_a_kernel_of_a_compiled_file_is_known_by_it(codes: RawKernelCodes, tmp_path: Path) -> None:
    file = tmp_path / "module"

    def loaded(data: bytes, name: str = "scale") -> MeasuredCode:
        file.write_bytes(data)
        made = dict.fromkeys(cupy.RawKernel(SOURCE, name).__getstate__())
        made.update(cupy.RawKernel(SOURCE, name).__getstate__(), code=None, file_path=str(file))
        kernel = cupy.RawKernel(None, name)
        kernel.__setstate__(made)
        return codes.code(kernel)

    def cubin(text: str) -> bytes:
        return compile_cubin(text, arch="sm_90").data

    first = loaded(cubin(SOURCE)).identity
    assert first.sass is not None
    assert loaded(cubin(ANOTHER + SOURCE.replace("if (i", "// inside\n if (i"))).identity == first
    assert loaded(cubin(SOURCE.replace("3.0f", "3.5f"))).identity.sass not in (None, first.sass)
    text = compile_ptx(SOURCE, arch="sm_90").ptx
    of_ptx = loaded(text.encode())
    assert None not in (of_ptx.identity.ptx, of_ptx.identity.sass, of_ptx.ptx)
    assert loaded(text.replace("// Compiler", "// A compiler").encode()).identity == of_ptx.identity
    for data in (b"", b"neither", cubin(SOURCE)[:400], text.encode()):
        assert "holds no kernel other" in (loaded(data, "other").unknown or "")


def test_text_that_does_not_compile_and_names_that_are_not_there_are_unknown(codes: RawKernelCodes) -> None:
    assert "failed" in (code(codes, "no CUDA").unknown or "")
    assert codes.code(cupy.RawKernel(SOURCE, "other")).unknown == "compiled again, its source has no kernel other"


def test_what_is_no_raw_kernel_is_unknown(codes: RawKernelCodes) -> None:
    assert codes.code(len).unknown == "the source of a builtin_function_or_method is not available"


def test_a_cupy_that_no_longer_tells_its_options_leaves_code_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(compiler, "_get_arch_for_options_for_nvrtc")
    found = code(RawKernelCodes(cupy, DRIVER))
    assert found.identity == CodeIdentity()
    assert "_get_arch_for_options_for_nvrtc" in (found.unknown or "")


class _Kernel:
    preferred_shared_memory_carveout = -1


def test_a_share_of_the_cache_that_the_user_set_is_part_of_the_launch() -> None:
    kernel = _Kernel()
    runtime = SimpleNamespace(is_hip=False)
    module = SimpleNamespace(RawKernel=_Kernel, cuda=SimpleNamespace(runtime=runtime))
    assert settings_of(module, kernel) == ()
    kernel.preferred_shared_memory_carveout = 50
    assert settings_of(module, kernel) == ("carveout 50",)
    assert settings_of(module, len) == ()
    runtime.is_hip = True
    assert settings_of(module, kernel) == ()
