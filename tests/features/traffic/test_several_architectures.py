"""One run counts for several architectures: a test of each, with its own row, entry and verdict."""

import json
from functools import partial

import pytest
import test_traffic_device
from test_traffic_device import TEST

from pytest_bandwidth.devices.open import open_device
from pytest_bandwidth.domain.errors import DeviceUnavailable

pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'")

ARCHS = ("sm_80", "sm_90a", "sm_120")
KERNEL = test_traffic_device.KERNEL.replace("INDEX", "i")
OF_ITS_OWN = """    identity = bandwidth.identity
    assert identity.settings["arch"] == identity.variant == scale.program.compiled.arch
"""


@pytest.fixture
def run(project, traffic_loaded):
    """Run pytest for each architecture inside this process."""
    del traffic_loaded
    project.file("scale.cu", KERNEL)
    project.file("test_scale.py", TEST + OF_ITS_OWN)
    return partial(project.run_here, f"--bandwidth-device=traffic:{','.join(ARCHS)}")


@pytest.fixture
def judged(run):
    """Run it with a baseline that has been written."""
    run("--bandwidth-baseline=t.yaml", "--bandwidth-update").assert_outcomes(passed=3)
    return partial(run, "--bandwidth-baseline=t.yaml")


def test_each_has_its_counts_in_one_baseline_also_by_xdist(project, judged):
    result = judged("--bandwidth-strict", "--bandwidth-json=run.json")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines([f"{arch} *OK*code unchanged" for arch in ARCHS])
    rows = json.loads((project.path / "run.json").read_text())["results"]
    # An SM of the last holds fewer warps.
    assert {(row["key"], row["counts"]["load_sectors"], row["counts"]["resident_warps"]) for row in rows} == {
        (f"test_scale.py::test_scale[{arch}]", (1 << 14) * 4 // 32, warps)
        for arch, warps in zip(ARCHS, (64, 64, 48), strict=True)
    }
    judged("-n2").assert_outcomes(passed=3)


def test_a_baseline_outlives_a_change_of_the_list(judged):
    result = judged("--bandwidth-device=traffic:sm_120,sm_100,sm_80", "--bandwidth-update-new")
    result.stdout.fnmatch_lines(["*1 new, 0 updated", "+ test_scale.py::test_scale?sm_100? *"])
    judged("--bandwidth-device=traffic:sm_80,sm_100").stdout.fnmatch_lines(["2 measured: 2 OK"])


# An index that the compiler does not know keeps the array in the thread's stack.
CHANGES = {
    "in[i * 8 % n]": ("REGRESSED: * more sectors loaded than the baseline", "    sectors loaded *, was 2,048"),
    "(slots[i % 16] = in[i], slots[n % 16])": (
        "REGRESSED: bytes of local arrays 0 *",
        "    stack and spill bytes a thread  64, was 0",
    ),
}


def test_what_grew_on_one_is_regressed_there_alone(project, judged):
    line = "        out[i] = s * in[i];\n"
    for change, said in CHANGES.items():
        changed = f"{{ float slots[16] = {{}}; {line.replace('in[i]', change)} }}\n"
        project.file("scale.cu", KERNEL.replace(line, f"#if __CUDA_ARCH__ == 800\n{changed}#else\n{line}#endif\n"))
        result = judged()
        result.assert_outcomes(passed=2, failed=1)
        accept = "*accept it *test_scale[[]sm_80[]]* --bandwidth-device=traffic:sm_80,sm_90a,sm_120 *"
        result.stdout.fnmatch_lines([*said, accept, "sm_80 *REGRESSED*", "sm_90a *OK*", "sm_120 *OK*"])


def test_a_kernel_of_one_architecture_skips_on_the_others_and_the_fixture_is_an_argument(project, run):
    project.file(
        "one.cu", 'extern "C" __global__ void one(int* p) { asm volatile("wgmma.fence.sync.aligned;"); *p = 1; }'
    )
    project.file(
        "test_scale.py",
        """
import pytest

def count(bandwidth):
    out = bandwidth.empty(1, "int32")
    bandwidth.launch(bandwidth.kernel("one.cu", "one"), 1, 1, (out,), writes=out)

def test_compiled(bandwidth):
    count(bandwidth)

@pytest.mark.bandwidth(device="traffic:sm_90a,sm_100a")
def test_marked(bandwidth):
    count(bandwidth)

def test_late(request):
    request.getfixturevalue("bandwidth")
""",
    )
    result = run("-rs")
    result.assert_outcomes(passed=2, skipped=4, failed=1)
    result.stdout.fnmatch_lines(["*expected it as an argument: the run counts for each of sm_80, sm_90a, sm_120"])
    result.stdout.fnmatch_lines(
        [
            "SKIPPED*one.cu needs another architecture than sm_80: *'wgmma.fence' not supported on .target 'sm_80'",
            "SKIPPED*the test asks for device 'traffic:sm_90a,sm_100a', this run measures on 'traffic:sm_120'",
        ]
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("sm_80,sm_80", "traffic:sm_80,sm_80: found sm_80 twice, expected"),
        ("sm_80,", "traffic:sm_80,: found an empty name, expected"),
        ("sm_80,sm_52", r"traffic:sm_52: NVRTC .* compiles for sm_75, .*sm_90"),
        ("sm_80a", r"traffic:sm_80a: NVRTC .* compiles for sm_75, .*sm_90"),
        ("sm_90,sm_90f", r"traffic:sm_90f: NVRTC .* compiles for sm_75, .*sm_90"),
    ],
)
def test_a_list_that_cannot_be_is_told_in_one_line(given, said):
    with pytest.raises(DeviceUnavailable, match=f"^{said}"):
        open_device(f"traffic:{given}")
