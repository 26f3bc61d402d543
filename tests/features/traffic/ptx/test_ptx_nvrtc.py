"""Compiling touches nothing of the process that asks for it, and can be ended; its process outlives what it refuses."""

from __future__ import annotations

import base64
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import HANGS_SECONDS
from kept import VARIABLE
from ptx_sources import ENDLESS_TEMPLATES, run

from pytest_bandwidth.devices.kernel_source import STAND_INS
from pytest_bandwidth.domain.code.ptx_normal_form import normal_form
from pytest_bandwidth.domain.errors import KernelError, NotOnThisDevice
from pytest_bandwidth.features.traffic import ptx
from pytest_bandwidth.features.traffic.ptx import nvrtc as compiling
from pytest_bandwidth.features.traffic.ptx.nvrtc import _IDLE, _SERVER, _Child, idle_child
from pytest_bandwidth.features.traffic.ptx.nvrtc_server import MEMORY_BYTES
from pytest_bandwidth.features.traffic.ptx.parsing import parse_ptx


@pytest.fixture(autouse=True)
def _compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have NVRTC compile, whatever it has compiled before."""
    monkeypatch.delenv(VARIABLE)


# Not in the cache of programs that other tests share: it has to be compiled here.
EMPTY_LOG = 'extern "C" __global__ void nothing_to_log_of() {}\n'


def test_a_compile_leaves_the_one_byte_objects_that_python_shares() -> None:
    """An empty log is one NUL byte, written where NVRTC is told to; Python has one object for each byte."""
    module = ptx.compile_ptx(EMPTY_LOG)
    assert module.log == ""
    assert [chr(code).encode("latin-1")[0] for code in range(256)] == list(range(256))


@pytest.mark.parametrize("folder", ['6" wafer', "back\\slash", 'a"; }{ //', "a\nb", 'é".d'])
def test_a_path_may_hold_what_ptx_escapes(folder: str) -> None:
    module = ptx.compile_ptx(PLAIN, filename=f'{folder}/the "kernel".cu')
    (path,) = parse_ptx(module.ptx).files.values()
    assert path.endswith(f'/{folder}/the "kernel".cu')
    assert ptx.Program(module).kernels
    x = np.zeros(1, np.int32)
    ptx.execute(ptx.Program(module), "k", (1,), (1,), (x,))
    assert x[0] == 1


PLAIN = 'extern "C" __global__ void k(int* x) { *x = 1; }'


def test_a_compilation_past_its_time_is_ended_and_the_next_one_is_well() -> None:
    began = time.monotonic()
    with pytest.raises(KernelError, match=r"much\.cu still compiles after 1 s; .*traffic-timeout"):
        ptx.compile_ptx(ENDLESS_TEMPLATES, filename="much.cu", max_seconds=1)
    assert time.monotonic() - began < 20
    assert ".entry k" in ptx.compile_ptx(PLAIN).ptx


def test_ctrl_c_ends_a_compilation_at_once() -> None:
    text = "from pytest_bandwidth.features.traffic import ptx\nptx.nvrtc_version()\nprint(flush=True)\n"
    text += f"ptx.compile_ptx({ENDLESS_TEMPLATES!r})"
    with subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(1)
        assert process.poll() is None
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in said
    assert time.monotonic() - began < 10


@pytest.fixture
def compiler() -> Iterator[_Child]:
    child = _Child()
    child.ask({}, HANGS_SECONDS)  # has begun
    yield child
    child.end()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells another process's bounds")
def test_a_compiler_has_a_bound_of_memory(compiler: _Child) -> None:
    assert resource.prlimit(compiler._process.pid, resource.RLIMIT_AS)[0] == MEMORY_BYTES


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells another process's bounds")
def test_a_compiler_takes_no_more_memory_than_the_machine_allows() -> None:
    allowed = 2 * 2**30
    text = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, ({allowed}, {allowed}))
from pytest_bandwidth.features.traffic.ptx.nvrtc import idle_child, ask
ask({{}})
print(resource.prlimit(idle_child()._process.pid, resource.RLIMIT_AS)[0])
"""
    made = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True)
    assert int(made.stdout) == allowed


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds another process")
def test_a_compilation_past_its_memory_says_so_and_the_compiler_lives(compiler: _Child) -> None:
    """By a bound that is soon reached: with the compiler's own the test would take gigabytes."""
    pid = compiler._process.pid
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    bound = pages * resource.getpagesize() + 2**28
    resource.prlimit(pid, resource.RLIMIT_AS, (bound, bound))
    asked = {"filename": "much.cu", "names": [], "options": ["--gpu-architecture=compute_80"]}
    asked |= {"alarm": HANGS_SECONDS}
    assert "much.cu(" in (log := compiler.ask({**asked, "text": ENDLESS_TEMPLATES}, HANGS_SECONDS)["log"])
    assert "out of memory" in log
    assert ".entry k" in compiler.ask({**asked, "text": PLAIN}, HANGS_SECONDS)["ptx"]


def test_a_compiler_that_died_is_told_and_replaced() -> None:
    ptx.compile_ptx(PLAIN)
    child = idle_child()
    child._process.kill()
    with pytest.raises(KernelError, match=r"the compiler ended while it read NVRTC \(status -9\)"):
        child.ask({}, 60)
    child.end()
    _IDLE[os.getpid()].append(child)
    assert ".entry k" in ptx.compile_ptx(PLAIN).ptx


def test_a_compiler_reads_no_module_of_the_current_folder(tmp_path: Path) -> None:
    for name in ("runpy", "json", "signal"):
        (tmp_path / f"{name}.py").write_text(f"open('read', 'w').write({name!r})\n")
    text = (
        "import os, sys; from pytest_bandwidth.features.traffic import ptx; "
        "os.chdir(sys.argv[1]); print(ptx.nvrtc_version())"
    )
    made = subprocess.run([sys.executable, "-c", text, str(tmp_path)], check=True, capture_output=True, text=True)
    assert made.stdout.strip() == ptx.nvrtc_version()
    assert not (tmp_path / "read").exists()


STAND_INS_USED = """
enum { RED, GREEN };
template <class T, std::size_t... I> __device__ T total(const T* x, std::index_sequence<I...>) { return (x[I] + ...); }
template <class T> __device__ std::enable_if_t<std::is_same_v<T, float>, float> least(T) {
    return std::numeric_limits<T>::lowest();
}
extern "C" __global__ void k(const float* x, float* f, double* d, std::int64_t* n, int four, bool* truth) {
    const float v = x[threadIdx.x];
    f += 8 * threadIdx.x, d += 8 * threadIdx.x, n += 8 * threadIdx.x, truth += 8 * threadIdx.x;
    std::conditional_t<std::bool_constant<true>::value, std::pair<float, int>, void> pair(v, 3);
    std::swap(pair.first, f[0]);
    f[1] = std::sqrt(std::abs(v)) + std::fmaf(v, 2, 1);
    f[2] = std::pow(v, 2.0f) + std::hypot(v, 3.0f);
    f[3] = total(x, std::make_index_sequence<4>{});
    f[4] = least(v);
    f[5] = -INFINITY;
    f[6] = sqrt(4.0f) + pow(2.0f, 2.0f) + ROOT(four) + max(four, 7);  // NVRTC's own are no less clear
    d[0] = std::sqrt(four) + std::pow(v, 2) + std::fmax(v, 0.5) + std::floor(GREEN);
    d[1] = M_PI + DBL_EPSILON;
    d[2] = std::exp((double)v);
    n[0] = INT64_MIN + 8 + std::lround(v);
    n[1] = std::uint8_t(four + 254) + CHAR_BIT + offsetof(int2, y);
    std::memcpy(n + 2, n, sizeof(std::ptrdiff_t));
    truth[0] = std::isnan(v), truth[1] = std::isfinite(v), truth[2] = std::signbit(v), truth[3] = std::isnan(four);
    assert(std::is_signed_v<decltype(n[0])> == false);
    if (threadIdx.x > 3) std::printf("%" PRId64 " %" PRIu32 "\\n", n[0], std::uint32_t(four));
}
"""
OF_C = ("assert", "float", "inttypes", "limits", "math", "stdbool", "stddef", "stdint", "stdio", "string")
STAND_INS_NAMES = [*(f"{name}.h" for name in OF_C), *(f"c{name}" for name in OF_C), "limits", "type_traits", "utility"]
OF_CUDA = ["cuda/std/cmath", "cuda/std/cstdint", "cuda/std/limits", "cuda/std/utility", "cuda_fp16.h"]


@pytest.mark.parametrize(
    ("arch", "names", "using"),
    [
        ("sm_75", STAND_INS_NAMES * 2, "#define ROOT std::sqrt\n"),
        ("sm_120", [*STAND_INS_NAMES[::-1], *OF_CUDA], "#define ROOT sqrt\nusing namespace std;\n"),
    ],
)
def test_stand_ins_mean_what_the_hosts_headers_do(arch: str, names: list[str], using: str) -> None:
    x = np.array([2, -3.5, 0, np.inf], np.float32)
    f, d = np.zeros((4, 8), np.float32), np.zeros((4, 8))
    n, truth = np.zeros((4, 8), np.int64), np.zeros((4, 8), np.bool_)
    text = "".join(f"#include <{name}>\n" for name in names) + using + STAND_INS_USED
    run(text, "k", (1,), (4,), x, f, d, n, np.int32(4), truth, arch=arch)
    v = x.astype(np.float64)
    expected = [v, np.sqrt(abs(v)) + v * 2 + 1, v**2 + np.hypot(v, 3), [np.inf] * 4]
    np.testing.assert_allclose(f[:, :4].T, expected, rtol=1e-6)
    assert f[:, 4:7].tolist() == [[np.finfo(np.float32).min, -np.inf, 15]] * 4
    np.testing.assert_allclose(d[:, 0], 2 + v**2 + np.fmax(v, 0.5) + 1, rtol=1e-15)
    assert d[:, 1].tolist() == [np.pi + np.finfo(np.float64).eps] * 4
    np.testing.assert_allclose(d[:, 2], np.exp(v), rtol=1e-15)
    assert n[:3, 0].tolist() == [8 + rounded - 2**63 for rounded in (2, -4, 0)]
    assert n[:, 1].tolist() == [2 + 8 + 4] * 4
    np.testing.assert_array_equal(n[:, 2], n[:, 0])
    assert truth[:, :4].tolist() == [[False, np.isfinite(value), value < 0, False] for value in v]


CONVENIENT = """
#include <cmath>
#include <limits>
namespace { __device__ float unseen = 1; }
extern "C" __global__ void k(float* x, int n) {
    unseen += x[0];
    x[(int)std::pow(std::sqrt(n), 2)] = unseen + std::numeric_limits<float>::epsilon();
}"""


def test_what_a_stand_in_brings_is_told_at_the_users_line() -> None:
    module = ptx.compile_ptx(CONVENIENT)
    program = ptx.Program(module)
    assert "headers/cmath" in module.ptx
    [fault] = ptx.execute(program, "k", (1,), (1,), (np.zeros(4, np.float32), np.int32(4))).faults
    assert "kernel.cu:7" in fault.text
    assert {site.file for site in program.kernel("k").sites} == {"kernel.cu"}


def test_where_the_package_is_installed_is_not_part_of_a_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = ptx.compile_ptx(CONVENIENT).ptx
    shutil.copytree(STAND_INS, tmp_path / "elsewhere")
    folders = [*compiling._about()["folders"][:-1], str(tmp_path / "elsewhere")]
    monkeypatch.setattr(compiling, "_about", lambda: {**compiling.ask({}), "folders": folders})
    there = ptx.compile_ptx(CONVENIENT).ptx
    assert str(tmp_path) in there
    assert normal_form(there, "k") == normal_form(here, "k") is not None


def test_the_users_own_header_goes_before_a_stand_in(tmp_path: Path) -> None:
    (tmp_path / "cmath").write_text("#define ONE 1")
    text = '#include <cmath>\nextern "C" __global__ void k(int* x) { *x = ONE; }'
    x = np.zeros(1, np.int32)
    run(text, "k", (1,), (1,), x, compile_options=(f"-I{tmp_path}",))
    assert x[0] == 1


def test_other_headers_of_the_host_come_with_a_remedy() -> None:
    with pytest.raises(KernelError, match=r"kernel\.cu includes <vector>, and NVRTC.* no headers of the host; include"):
        ptx.compile_ptx(f"#include <vector>\n{PLAIN}")


def test_without_its_headers_such_a_kernel_skips(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without = {**compiling._about(), "folders": [str(tmp_path)]}
    monkeypatch.setattr(compiling, "_about", lambda: without)
    with pytest.raises(
        NotOnThisDevice, match=r"includes <mma\.h>, which is not installed: run pip install nvidia-cuda-crt"
    ):
        ptx.compile_ptx(f"#include <mma.h>\n{PLAIN}")


# ---- the process, asked by hand --------------------------------------------------------------------------------------

TWICE = """
template <typename T> __global__ void twice(T* x) { *x *= 2; }
extern "C" __global__ void plain(int* x) { unused(x); }
"""
GOOD = TWICE.replace("unused(x);", "*x = ONE;")


def answers(requests: list[dict[str, Any]], environment: dict[str, str]) -> list[dict[str, Any]]:
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    command = [sys.executable, str(_SERVER)]
    made = subprocess.run(command, input=lines, env=environment, capture_output=True, text=True, timeout=HANGS_SECONDS)
    assert made.returncode == 0, made.stderr
    return [json.loads(line) for line in made.stdout.splitlines()]


def request(text: str = GOOD, **changes: Any) -> dict[str, Any]:
    options = ["--gpu-architecture=compute_80", "-DONE=1"]
    asked = {"text": text, "filename": "k.cu", "names": [], "options": options, "alarm": 60}
    return asked | changes


def test_each_request_is_answered_in_order_those_refused_too(counted: dict[str, str]) -> None:
    machine_code = ["--gpu-architecture=sm_80", "-DONE=1"]
    about, ptx, cubin, broken, unknown, option, again = answers(
        [
            {},
            request(names=["twice<float>"]),
            request(options=machine_code),
            request(TWICE),
            request(names=["thrice<float>"]),
            request(options=["--no-such-option"]),
            request(GOOD.replace("ONE", "7")),
        ],
        counted,
    )
    assert about["version"].count(".") == 1
    assert "sm_80" in about["architectures"]
    assert about["folders"]
    assert set(ptx["lowered"]) == {"twice<float>"}
    assert f".entry {ptx['lowered']['twice<float>']}(" in ptx["ptx"]
    assert ptx["cubin"] == ""
    assert base64.b64decode(cubin["cubin"]).startswith(b"\x7fELF")
    assert ".target sm_80" in cubin["ptx"]
    assert broken["failed"] == "NVRTC_ERROR_COMPILATION"
    assert 'k.cu(3): error: identifier "unused" is undefined' in broken["log"]
    assert {*unknown} <= {"refused", "failed", "log"}
    assert {*option} <= {"refused", "failed", "log"}
    assert ", 7;" in again["ptx"]


def test_what_a_kernel_includes_ends_up_in_the_log_and_the_docs_say_so(counted: dict[str, str]) -> None:
    [answer] = answers([request('#include "/proc/self/environ"\n' + PLAIN)], {**counted, "TOKEN": "hunter2"})
    assert "TOKEN=hunter2" in answer["log"]
    docs = (Path(__file__).parents[4] / "docs" / "traffic.md").read_text(encoding="utf-8")
    told = " ".join(docs.partition("Compilers quote included files")[2][:400].split())
    assert "`/proc/self/environ`" in told
    assert "in jobs without secrets" in told


def test_an_installation_without_nvrtc_is_told(counted: dict[str, str], tmp_path: Any) -> None:
    bindings = tmp_path / "cuda" / "bindings"
    bindings.mkdir(parents=True)
    (tmp_path / "cuda" / "__init__.py").touch()
    (bindings / "__init__.py").write_text("raise ImportError('no bindings here')\n")
    [answer] = answers([{}], {**counted, "PYTHONPATH": str(tmp_path)})
    assert answer == {"unavailable": "no bindings here"}
