"""Objects that hold their code, as `code=`: what the real libraries compile without a GPU, or for the host."""

import importlib.util
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from pytest_bandwidth.devices.code.callables import callable_code
from pytest_bandwidth.devices.code.compiled import held_code
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.fixture.input import checked_code

CUDA = 'extern "C" __global__ void scale(float* x) { x[threadIdx.x] *= 2.0f; }'
COMMENTED = CUDA.replace("{ x", "{  // a comment\n x")
OTHER = CUDA.replace("2.0f", "3.0f")
WARP = """
import warp as wp

@wp.kernel
def scale(x: wp.array(dtype=float)):
    i = wp.tid()
    x[i] = x[i] * 2.0
"""


def test_the_object_code_of_cuda_core_is_its_kernels(tmp_path):
    core = pytest.importorskip("cuda.core", reason="pip install cuda-core")
    from pytest_bandwidth.features.traffic.ptx import compile_ptx

    def compiled(text):
        options = core.ProgramOptions(arch="sm_90", lineinfo=True)
        return core.Program(text, code_type="c++", options=options).compile("cubin")

    def of_ptx(text):
        return core.ObjectCode.from_ptx(compile_ptx(text, arch="sm_90", options=("-lineinfo",)).ptx.encode())

    for made in (compiled, of_ptx):
        assert held_code(made(CUDA)) == held_code(made(COMMENTED)) != held_code(made(OTHER))
    file = tmp_path / "scale.cubin"
    file.write_bytes(compiled(CUDA).code)
    assert checked_code(core.ObjectCode.from_cubin(str(file))) == checked_code(compiled(CUDA))
    with pytest.raises(UsageError, match="expected the ObjectCode that it came from"):
        held_code(core.Kernel.__new__(core.Kernel))


def test_a_dispatcher_of_numba_cuda_is_what_it_compiled(monkeypatch):
    pytest.importorskip("numba_cuda", reason="pip install numba-cuda")
    from numba import cuda
    from numba.cuda import codegen, dispatcher, types

    card = SimpleNamespace(compute_capability=(9, 0))  # the driver is asked for nothing else
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: card)
    monkeypatch.setattr(codegen, "devices", SimpleNamespace(get_context=lambda: SimpleNamespace(device=card)))

    def made(factor, *dtypes):
        @cuda.jit
        def scale(x):
            x[cuda.grid(1)] *= factor

        for dtype in dtypes:
            signature = (dtype[:],)
            scale.overloads[signature] = dispatcher._Kernel(scale.py_func, signature)
        return scale

    one = types.float32
    assert held_code(made(2.0, one)) == held_code(made(2.0, one))
    codes = [made(2.0, one), made(3.0, one), made(2.0, types.float64), made(2.0, one, types.float64)]
    assert len(set(map(held_code, codes))) == 4
    with pytest.raises(UsageError, match="launch it once before it is measured"):
        held_code(made(2.0))

    def launched(grid):
        configured = object.__new__(dispatcher._LaunchConfiguration)  # its own constructor asks the driver for a stream
        configured.griddim, configured.blockdim, configured.sharedmem = (grid, 1, 1), (64, 1, 1), 0
        return callable_code(configured, (np.zeros(4),), {}, "said").identity

    assert launched(4) == launched(4) != launched(8)


@pytest.mark.parametrize("field", ["__cubin__", "__ptx__"])
def test_a_function_of_the_cute_dsl_is_what_it_kept(field):
    """A stand-in of its shape: the real one compiles for a card that is there."""
    from pytest_bandwidth.features.traffic.ptx import compile_cubin, compile_ptx

    base = type("JitCompiledFunction", (), {"__module__": "cutlass.base_dsl.jit_executor"})

    def kept(text):
        options = ("-lineinfo",)
        data = (
            compile_cubin(text, options=options).data
            if field == "__cubin__"
            else compile_ptx(text, options=options).ptx
        )
        return type("Own", (base,), {"__cubin__": None, "__ptx__": None, field: data})()

    assert held_code(kept(CUDA)) == held_code(kept(COMMENTED)) != held_code(kept(OTHER))
    with pytest.raises(UsageError, match="CUTE_DSL_KEEP_CUBIN=1"):
        held_code(type("Own", (base,), {"__cubin__": None, "__ptx__": None})())


def test_a_kernel_of_warps_is_what_was_loaded(tmp_path, monkeypatch):
    wp = pytest.importorskip("warp", reason="pip install warp-lang")
    monkeypatch.setattr(wp.config, "kernel_cache_dir", str(tmp_path / "cache"))

    def written(text):
        path = tmp_path / "kernels.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("warps_kernels", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "warps_kernels", module)
        spec.loader.exec_module(module)
        return module.scale

    def launched(text):
        kernel = written(text)
        wp.launch(kernel, dim=4, inputs=[wp.ones(4, dtype=float, device="cpu")], device="cpu")
        assert held_code(kernel) == held_code(kernel.module)
        return held_code(kernel)

    with pytest.raises(UsageError, match="launch it once before it is measured"):
        held_code(written(WARP))
    first = launched(WARP)
    assert first == launched(WARP.replace("    i =", "    # a comment\n    i ="))
    assert first != launched(WARP.replace("2.0", "3.0"))
