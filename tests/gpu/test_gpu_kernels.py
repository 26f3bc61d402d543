"""Kernels, launches and errors on a real device."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_work import COPY, child, quiet

from pytest_bandwidth.devices.base import Budget, KernelSource, Launch, Workload
from pytest_bandwidth.devices.cuda.device import CudaDevice
from pytest_bandwidth.devices.cuda.kernels import newest_ptx
from pytest_bandwidth.domain.code.stored_kernel import in_version
from pytest_bandwidth.domain.errors import KernelError, UsageError
from pytest_bandwidth.domain.traffic import Traffic

TEMPLATE = "template <typename T> __global__ void fill(T* x, T v, int n) {\n"
TEMPLATE += "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) x[i] = v;\n}\n"


def launch(device: CudaDevice, kernel: Any, *args: Any, **more: Any) -> None:
    device.launcher(Launch(kernel, (4, 1, 1), (256, 1, 1), args, **more), None)()


@pytest.mark.parametrize("users", [False, True])
def test_an_extern_c_kernel_and_a_users_raw_kernel_compute(device: CudaDevice, users: bool) -> None:
    x, y = device.random(1024, "float32"), device.xp.zeros(1024, "float32")
    kernel = device.xp.RawKernel(COPY, "copy") if users else device.kernel(KernelSource(COPY, "copy"))
    launch(device, kernel, x, y, np.int64(256))
    assert (device.xp.asnumpy(x) == device.xp.asnumpy(y)).all()


@pytest.mark.parametrize("expressions", [(), ("fill<int>", "fill<float>")])
def test_a_templates_instance(device: CudaDevice, expressions: tuple[str, ...]) -> None:
    x = device.xp.zeros(1000, np.float32)
    source = KernelSource(TEMPLATE, "fill<float>", name_expressions=expressions)
    launch(device, device.kernel(source), x, np.float32(3), 1000)
    assert (x == 3).all()


def test_a_kernel_with_a_cpp_name(device: CudaDevice) -> None:
    text = COPY.replace('extern "C" ', "")
    assert device.kernel(KernelSource(text, "copy")) is not None


def test_a_compile_error_names_the_file_and_a_users_own_kernel_is_compiled_before_it_is_timed(
    device: CudaDevice, tmp_path: Path
) -> None:
    wrong = 'extern "C" __global__ void f() { undeclared_thing(); }'
    with pytest.raises(KernelError, match=r"own\.cu does not compile \(kernel f\).*\n(?s:.*)undeclared_thing"):
        device.kernel(KernelSource(wrong, "f", file=tmp_path / "own.cu"))
    with pytest.raises(KernelError, match="undeclared_thing"):
        launch(device, device.xp.RawKernel(wrong, "f"))


def test_a_missing_kernel_lists_those_there_are(device: CudaDevice) -> None:
    with pytest.raises(KernelError, match=r"no kernel 'cpoy', it has copy"):
        device.kernel(KernelSource(COPY, "cpoy"))
    for text in (TEMPLATE, "namespace space { __global__ void fill() {} }"):
        with pytest.raises(KernelError, match=r"no kernel 'fill', it has fill; a template .* a namespace its name"):
            device.kernel(KernelSource(text, "fill"))


def test_options_reach_the_compiler(device: CudaDevice, tmp_path: Path) -> None:
    (tmp_path / "own.h").write_text("#define ANSWER 42")
    text = '#include "own.h"\nextern "C" __global__ void f(int* x) { *x = ANSWER + MORE; }'
    source = KernelSource(text, "f", file=tmp_path / "own.cu", options=("-DMORE=1",))
    x = device.xp.zeros(1, np.int32)
    device.launcher(Launch(device.kernel(source), (1, 1, 1), (1, 1, 1), (x,)), None)()
    assert int(x[0]) == 43


def test_what_cannot_be_launched_is_refused(device: CudaDevice) -> None:
    with pytest.raises(UsageError, match="str is not a kernel"):
        launch(device, "copy")
    text = 'extern "C" __global__ void __launch_bounds__(128) f() {}'
    with pytest.raises(UsageError, match="this kernel allows 128"):
        launch(device, device.kernel(KernelSource(text, "f")))


ADD = 'extern "C" __global__ void add(float* x, int n) { for (int i = threadIdx.x; i < n; i += 256) x[i] += BY; }'


@pytest.mark.usefixtures("nvidia")
def test_old_code_runs_from_machine_code_and_newer_ptx(device: CudaDevice) -> None:
    x = device.xp.full(1024, 5, np.float32)
    kernels = [device.kernel(KernelSource(ADD, "add", options=(f"-DBY={by}",))) for by in (2, 1)]
    old, new = (Launch(kernel, (1, 1, 1), (256, 1, 1), (x, np.int32(1024))) for kernel in kernels)
    told, now = device.code(old), device.code(new)
    assert told.ptx is not None
    assert now.ptx is not None
    newest = newest_ptx(device._cupy)
    assert newest is not None
    newer = in_version(told.ptx, (newest[0] + 1, 0))
    work = Workload(device.launcher(new, None), Traffic(4096, 4096), launch=new)
    for ptx, cubin in ((told.ptx, None), (newer, None), (told.ptx, told.cubin)):
        code = device.old_code(work, ptx, now.ptx, cubin=cubin)
        assert (x == 5).all()
        code.calls[0]()
        assert (x == 7).all()
        code.restore()
    # Where CuPy loads machine code, it is held to the old one's without a detour by the driver's compiler.
    assert (len(code.calls) == 1) == (told.cubin is not None or not device._codes.loads_machine_code)


def test_resources_of_a_kernel(device: CudaDevice) -> None:
    kernel = device.kernel(KernelSource(COPY, "copy"))
    found = device.resources(Launch(kernel, (4, 1, 1), (256, 1, 1), ()))
    assert 4 <= found.registers <= 255
    assert found.local_bytes == 0
    assert 0 < found.occupancy <= 1


def test_more_than_48_kib_of_shared_memory(device: CudaDevice) -> None:
    text = 'extern "C" __global__ void f(float* x) { extern __shared__ float s[]; s[threadIdx.x] = 1; x[0] = s[0]; }'
    x = device.xp.zeros(1, np.float32)
    kernel = device.kernel(KernelSource(text, "f"))
    launch(device, kernel, x, shared_bytes=60 * 1024)
    assert float(x[0]) == 1
    with pytest.raises(UsageError, match="shared memory"):
        launch(device, kernel, x, shared_bytes=1 << 30)


def test_a_torch_tensor_is_passed_as_it_is(device: CudaDevice, torch: Any) -> None:
    x, y = torch.rand(1024, device="cuda"), torch.zeros(1024, device="cuda")
    launch(device, device.kernel(KernelSource(COPY, "copy")), x, y, np.int64(256))
    torch.cuda.synchronize()
    assert bool((x == y).all())
    assert device.nbytes(x) == 4096
    with pytest.raises(UsageError):
        device.nbytes(torch.zeros(4))


def test_an_illegal_access_loses_the_device_once_and_for_all() -> None:
    seen = child(
        """
        from pytest_bandwidth.domain.errors import DeviceLost
        kernel = device.kernel(KernelSource('extern "C" __global__ void f(float* x) { x[1ll << 40] = 1; }', "f"))
        x = device.empty(4, "float32")
        call = device.launcher(Launch(kernel, (1, 1, 1), (1, 1, 1), (x,)), None)
        seen = []
        for _ in range(2):
            try:
                device.measure(Workload(call, Traffic(4, 4)), Budget(), quiet)
            except DeviceLost as error:
                seen.append(str(error))
        for touch in (lambda: device.random(4, "float32"), lambda: device.run(Workload(lambda: None, Traffic(4, 4)))):
            try:
                touch()
            except DeviceLost as error:
                seen.append(str(error))
        device.release()  # leaves the GPU alone
        print(json.dumps(seen))
        sys.stdout.flush()
        import os
        os._exit(0)  # CuPy's own clean-up would fail on the lost context
        """
    )
    assert len(seen) == 4
    assert len(set(seen)) == 1
    assert "compute-sanitizer" in seen[0]


@pytest.mark.usefixtures("nvidia")
def test_launch_blocking_is_told_and_measured_without_a_hold() -> None:
    found = child(
        """
        x = device.random(1 << 22, "float32")
        m = device.measure(Workload(lambda: x + 1, Traffic(x.nbytes, x.nbytes)), Budget(30, 0.2), quiet)
        print(json.dumps([m.method, [f.code for f in m.findings], m.gbps]))
        """,
        CUDA_LAUNCH_BLOCKING="1",
    )
    assert found[:2] == ["events", ["launch-blocking"]]
    assert found[2] > 0


BUSY = """
import cupy, time
x = cupy.zeros(1 << 26)
print("on", flush=True)
end = time.time() + 20
while time.time() < end:
    x += 1
    cupy.cuda.runtime.deviceSynchronize()
"""


@pytest.mark.usefixtures("nvidia")
def test_a_busy_neighbour_is_seen(device: CudaDevice) -> None:
    watched = str(device.identity.facts["other_processes"])
    if watched.startswith("not watched"):
        pytest.skip(watched)
    # A child would count as ours, so a shell starts it and ends: its parent is then nobody of ours.
    shell = subprocess.Popen(
        ["sh", "-c", '"$0" -c "$1" & echo $!', sys.executable, BUSY], stdout=subprocess.PIPE, text=True
    )
    neighbour = int(shell.stdout.readline())
    try:
        assert shell.stdout.readline() == "on\n"
        x = device.random(1 << 26, "float32")
        task = Workload(lambda: x + 1, Traffic(x.nbytes, x.nbytes))
        found = device.measure(task, Budget(min_samples=10_000, max_seconds=3), quiet)
        reported = device._health.gpu is not None and device._health.gpu.activity(0) is not None
    finally:
        os.kill(neighbour, signal.SIGKILL)
        shell.stdout.close()
        shell.wait()
    if not reported:
        pytest.skip("this GPU does not report what processes use it")
    assert found.invalid.code == "others"
