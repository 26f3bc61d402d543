"""A run on one of tinygrad's backends: its interpreter, whose time is that of its work and which takes no compiler."""

import re

import pytest

from pytest_bandwidth.features.tinygrad.backend import open_backend

BACKEND = "--bandwidth-device=tinygrad:PYTHON"
BASELINE = "--bandwidth-baseline=baselines"
# What is enough for an interpreter beside others; a kernel of 512 numbers takes it some milliseconds.
LONGER = "--bandwidth-max-time=0.2"

# On a busy host: sixteen times the work against a quarter of the speed leaves room for neighbours that come and go.
TEST = """
    import pytest
    import tinygrad

    TIMES = {times}

    @pytest.mark.bandwidth(judged_on="gbps", tolerance="75%")
    def test_kernel(bandwidth):
        x = bandwidth.random(512)

        @tinygrad.TinyJit
        def kernel(x):
            for _ in range(TIMES):
                x = (x * 2).realize()
            return x

        bandwidth(kernel, x, reads="args", writes="result")
"""


@pytest.fixture(autouse=True)
def tinygrad():
    """Load what a run inside this process loads: it would have to forget it."""
    pytest.importorskip("tinygrad", reason="tinygrad is not installed: docs/backends.md")
    open_backend("PYTHON")


def written(project, times=1):
    project.pytester.makepyfile(test_kernels=TEST.format(times=times))


@pytest.mark.usefixtures("inside")
def test_a_kernel_that_does_its_work_many_times_is_found(project):
    written(project)
    document = project.document(BACKEND, BASELINE, LONGER, "--bandwidth-update")
    (row,) = document["results"]
    assert document["device"]["kind"] == "tinygrad"
    assert document["device"]["settings"]["backend"] == "PYTHON"
    assert row["method"] == "clock+synchronize"
    assert row["bytes_read"] == row["bytes_written"] == 2048
    assert row["detail"]["tinygrad"] == {"kernels": 1, "total_bytes": 4096, "declared_bytes": 4096}
    (file,) = (project.path / "baselines").glob("*.yaml")
    assert file.stem.endswith("-tinygrad-python")
    assert "kind: tinygrad" in file.read_text()
    runs = file.with_suffix(".runs.jsonl").read_text()
    assert re.search(r'"tinygrad":"\d', runs), "each run notes its release"

    project.run(BACKEND, BASELINE, LONGER).assert_outcomes(passed=1)

    written(project, times=16)
    document = project.document(BACKEND, BASELINE, LONGER)
    (row,) = document["results"]
    assert row["status"] == "REGRESSED"
    assert row["fresh"], "confirmed by processes that open the same backend"
    assert row["detail"]["tinygrad"]["kernels"] == 16
    assert "tinygrad's 16 kernels move 65.5 kB" in row["findings"][0]["text"]


@pytest.mark.in_process
def test_a_device_that_cannot_be_measured_is_told_at_once(project):
    written(project)
    result = project.run_here("--bandwidth-device=tinygrad:NONE")
    text = result.stdout.str() + result.stderr.str()
    assert "found tinygrad:NONE, which is not a backend of tinygrad's; expected tinygrad:BACKEND" in text
    assert "Traceback" not in text
    assert result.ret == pytest.ExitCode.USAGE_ERROR


WRONG = (
    ("bandwidth(lambda x: x + 1, x[1:3], reads='args')", r"x is a view, and tinygrad does not give its address"),
    ("bandwidth(lambda: x + 1, reads=np.ones(4))", r"a numpy\.ndarray in reads= or writes= is not in the memory"),
    ("bandwidth(lambda x: x.to('PYTHON:1'), x, writes='result')", r"the result is on tinygrad's PYTHON:1, this run"),
    (
        "bandwidth(lambda x: (x + i for i in range(2)), x, reads='args')",
        r"the callable returned a generator, which has not run: return the arrays themselves",
    ),
)


@pytest.mark.in_process
def test_a_wrong_use_is_named_in_one_line(project):
    tests = [
        f"def test_{n}(bandwidth):\n    x = bandwidth.random(64)\n    {body}\n" for n, (body, _) in enumerate(WRONG)
    ]
    project.file("test_wrong.py", "import numpy as np\n" + "".join(tests))
    result = project.run_here(BACKEND)
    result.assert_outcomes(failed=len(WRONG))
    text = result.stdout.str()
    for number, (_, said) in enumerate(WRONG):
        assert re.search(rf"test_wrong\.py:{3 * number + 4}: {said}", text)
    assert "Traceback" not in text


def test_what_is_left_lazy_is_waited_for_and_what_runs_elsewhere_skips(project):
    project.file(
        "test_some.py",
        """
import pytest

def test_lazy(bandwidth):
    x = bandwidth.random((16, 16))
    result = bandwidth(lambda x: x.softmax(), x, reads="args", writes="result")
    assert result.value.uop.is_realized
    assert result.bytes_moved == 2 * 1024
    assert result.detail["tinygrad"]["kernels"] > 1

def test_explained(bandwidth):
    assert "kernels move" in str(bandwidth.explain(lambda x: x.softmax(), bandwidth.random((16, 16))))

def test_in_place(bandwidth):
    x, out = bandwidth.random(64), bandwidth.empty(64)
    bandwidth(lambda out, x: out.assign(x + 1), out, x, reads=x, writes=out)

@pytest.mark.bandwidth(device="tinygrad:PYTHON")
def test_asked_for(bandwidth):
    assert bandwidth.device == "tinygrad"

def test_kernel(bandwidth):
    bandwidth.kernel("stream.cu", "copy_f32")

@pytest.mark.bandwidth(device="tinygrad:METAL")
def test_on_an_apple_gpu(bandwidth):
    pass

@pytest.mark.bandwidth(device="cpu")
def test_on_the_host(bandwidth):
    pass
""",
    )
    result = project.run(BACKEND, "-rs", "-v")
    result.assert_outcomes(passed=4, skipped=3)
    result.stdout.fnmatch_lines_random(
        [
            "SKIP*CUDA kernels need a CUDA or traffic device: tinygrad measures callables*",
            "SKIP*the test asks for device 'tinygrad:METAL', this run measures on 'tinygrad:PYTHON'*",
            "SKIP*the test asks for device 'cpu', this run measures on 'tinygrad'*",
        ]
    )
