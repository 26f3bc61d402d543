"""The same tests without a GPU: kernels are compiled, executed, counted, and gated with zero tolerance."""

import json
import re
from functools import partial

import pytest
from ptx_sources import ENDLESS_TEMPLATES

from pytest_bandwidth.reports.wording import help_link

pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'")

KERNEL = """extern "C" __global__ void scale(float* out, const float* in, float s, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = s * in[INDEX];
}
"""
TEST = """
import numpy as np

def test_scale(bandwidth):
    n = 1 << 14
    x, y = bandwidth.random(n, "float32"), bandwidth.empty(n, "float32")
    scale = bandwidth.kernel("scale.cu", "scale")
    bandwidth.launch(scale, n // 256, 256, (y, x, np.float32(2), np.int32(n)), reads=x, writes=y)
"""


@pytest.fixture
def counts(project, traffic_loaded):
    """Run pytest on the traffic device inside this process."""
    del traffic_loaded
    return partial(project.run_here, "--bandwidth-device=traffic")


@pytest.fixture
def counted(project, counts):
    """A project whose traffic baseline has been written; `run` starts processes, `run_here` none."""
    project.file("scale.cu", KERNEL.replace("INDEX", "i"))
    project.file("test_scale.py", TEST)
    baseline = "--bandwidth-baseline=t.yaml"
    project.run = partial(project.run, "--bandwidth-device=traffic", baseline)
    project.run_here = partial(counts, baseline)
    result = project.run_here("--bandwidth-update")
    result.assert_outcomes(passed=1)
    result.stdout.re_match_lines([r"test_scale\.py::test_scale +4\.0 \+ 4\.0 +coalesced +SAVED"])
    return project


GATHER = """
def test_before(bandwidth):
    bandwidth.random(1000)

def test_gather(bandwidth):
    n = 1 << 12
    x, y = bandwidth.random(n), bandwidth.empty(n)
    at = bandwidth.xp.argsort(bandwidth.random(n, "uint32"))
    text = 'extern "C" __global__ void g(float* out, const float* in, const long long* at) {' \\
        'int i = blockIdx.x * 256 + threadIdx.x; out[i] = in[at[i]]; }'
    bandwidth.launch(bandwidth.kernel(text, "g"), n // 256, 256, (y, x, at), reads=(x, at), writes=y)
"""


def test_unchanged_code_is_unchanged_and_its_results_are_identical_whichever_tests_run(counted):
    counted.file("test_random.py", GATHER)
    counted.run_here("--bandwidth-update-new").assert_outcomes(passed=3)
    results = []
    for options in (["--bandwidth-strict", "-k", "scale or gather"], []):
        result = counted.run("--bandwidth-json=run.json", *options)
        result.assert_outcomes(passed=2 if options else 3, deselected=1 if options else 0)
        results.append(json.loads((counted.path / "run.json").read_text())["results"])
    assert results[0] == results[1]
    rows = {row["key"].rpartition("_")[2]: row for row in results[0]}
    for row in rows.values():
        assert (row["status"], row["reason_code"]) == ("OK", "code-unchanged")
        assert row["gbps"] is None, "nothing was timed"
    assert rows["gather"]["detail"]["loads"]["sectors_per_request"] > 16, "random"
    row = rows["scale"]
    assert row["detail"]["loads"]["sectors_per_request"] == row["detail"]["stores"]["sectors_per_request"] == 4.0
    assert row["counts"]["load_sectors"] == (1 << 14) * 4 // 32
    # Two arrays of 2¹⁴ floats at the 3.35 TB/s of the card's datasheet.
    assert row["detail"]["modelled_floor_seconds"]["NVIDIA H100 80GB HBM3"] == pytest.approx((1 << 17) / 3.35e12)


def test_a_strided_read_fails_with_line_and_pattern(counted):
    counted.file("scale.cu", KERNEL.replace("INDEX", "i * 8 % n"))
    result = counted.run_here("--bandwidth-json=run.json")
    result.assert_outcomes(failed=1)
    (row,) = json.loads((counted.path / "run.json").read_text())["results"]
    assert re.search(r"^\+ shl\.b32 ", row["code_diff"], re.MULTILINE), row["code_diff"]
    options = "--bandwidth-device=traffic --bandwidth-baseline=t.yaml --bandwidth-update"
    message = row["message"].replace("python -m ", "")  # as the tests were started
    assert [line.partition("; registers")[0] for line in message.splitlines()] == [
        "REGRESSED: 8× more sectors loaded than the baseline",
        "    sectors loaded  16,384, was 2,048",
        "    at              scale.cu:5 loads strided (32 bytes), 32.0 sectors a request",
        "    baseline        loads coalesced, stores coalesced",
        "    likely cause    the kernel's code changed",
        f"    accept it       pytest test_scale.py::test_scale {options}",
        f"    help            {help_link('counts')}",
        "test_scale.py:4: REGRESSED",
    ]
    assert row["message"] in result.stdout.str()


def test_bank_conflicts_have_their_source_line(counted):
    line = "{ volatile __shared__ float t[8192]; t[threadIdx.x * STEP] = in[i]; out[i] = s * t[threadIdx.x * STEP]; }"
    kernel = KERNEL.replace("out[i] = s * in[INDEX];", line)
    counted.file("scale.cu", kernel.replace("STEP", "1"))
    counted.run_here("--bandwidth-update").assert_outcomes(passed=1)
    counted.file("scale.cu", kernel.replace("STEP", "32"))
    result = counted.run_here()
    result.stdout.fnmatch_lines(
        [
            "REGRESSED: bank conflicts 0 → 31,744",
            "    bank conflicts  31,744, was 0",
            "    at              scale.cu:5, 100 % of the bank conflicts",
        ],
        consecutive=True,
    )


TWICE = """
import numpy as np

def test_scale(bandwidth):
    n = 1 << 14
    x, y = bandwidth.random(n, "float32"), bandwidth.empty(n, "float32")
    scale = bandwidth.kernel("scale.cu", "scale")
    for label in ("stats", "sums"):
        args = (y, x, np.float32(2), np.int32(n))
        bandwidth.launch(scale, n // 256, 256, args, reads=READ, writes=y, label=label)
"""


def test_a_failure_names_its_measurement_where_the_test_has_several(counted):
    counted.file("test_scale.py", TWICE.replace("READ", "x"))
    counted.run_here("--bandwidth-update").assert_outcomes(passed=1)
    counted.file("scale.cu", KERNEL.replace("INDEX", "i * 8 % n"))
    result = counted.run_here()
    result.stdout.fnmatch_lines(["REGRESSED @ stats: 8×*", "*.py:10: REGRESSED", "REGRESSED @ sums: *"])
    counted.file("scale.cu", KERNEL.replace("INDEX", "i"))
    counted.file("test_scale.py", TWICE.replace("READ", "4 * n + 32"))
    untouched = counted.run_here("--bandwidth-update", "--bandwidth-strict")
    untouched.stdout.fnmatch_lines(["the kernel @ sums touches 65,536 of *", "test_scale.py:10: declared bytes"])
    counted.file("test_scale.py", TWICE.replace("READ", "bandwidth.random(n)"))
    counted.run_here("--bandwidth-update", "--bandwidth-strict").stdout.fnmatch_lines(["array 1 of reads= *no kernel*"])
    counted.file("test_scale.py", TWICE.replace("READ", "x").replace("stats", "stat"))
    unknown = counted.run_here()
    expected = "t.yaml has no entry 'test_scale @ stat', it has 'test_scale', 'test_scale @ stats', *"
    unknown.stdout.fnmatch_lines([f"UNDECIDED test_scale.py::test_scale @ stat: {expected}"])


def test_other_bytes_and_numbers_than_the_kernel_reads_are_told_and_shown_where_the_body_failed(project, counts):
    project.file("scale.cu", KERNEL.replace("INDEX", "i"))
    other_bytes = TEST.replace("reads=x", "reads=4")
    other_numbers = TEST.replace('random(n, "float32")', 'random(n, "float64")').replace("test_scale", "test_wide")
    transposed = TEST.replace('random(n, "float32")', 'random((n // 64, 64), "float32").T')
    failing = other_bytes.replace("test_scale", "test_failing") + "    assert False\n"
    failing += transposed.replace("test_scale", "test_transposed") + "    assert False\n"
    project.file("test_scale.py", other_bytes + other_numbers + failing)
    result = counts()
    result.assert_outcomes(passed=2, failed=2)
    for line in (
        r"NOTE .*declared 4 B read, the kernel touches 65\.5 kB: 65\.5 kB of `in`",
        r"NOTE .*`in` is float64, the kernel's parameter is float",
    ):
        result.stdout.re_match_lines([line])
    result.stdout.re_match_lines(
        [r"-+ Captured bandwidth findings call -+", r"declared 4 B read, the kernel touches 65\.5 kB.*"]
    )
    result.stdout.re_match_lines(
        [r"-+ Captured bandwidth findings call -+", r"argument 2 lies in Fortran order, as `x\.T` does: .*"]
    )


TWO = """
import numpy as np

def test_two(bandwidth):
    n = 1 << 14
    x, y = bandwidth.random(n, "float32"), bandwidth.empty(n, "float32")
    scale = bandwidth.kernel("scale.cu", "scale")
    there = bandwidth.bind(scale, n // 256, 256, (y, x, np.float32(2), np.int32(n)))
    back = bandwidth.bind(scale, n // 256, 256, (y, y, np.float32(3), np.int32(n)))
    bandwidth(lambda: (there(), back()), reads=x, writes=y)
"""
ONE_MORE = ("back()), reads", "back(), back()), reads")
FUSED = ("(there(), back())", "bandwidth.bind(scale, n // 256, 256, (y, x, np.float32(6), np.int32(n)))()")


@pytest.mark.parametrize(("edit", "title"), [(ONE_MORE, "REGRESSED: sectors loaded 4,096 → 6,144"), (FUSED, None)])
def test_another_number_of_launches_is_compared_by_what_they_ask_for_in_all(project, counts, edit, title):
    project.file("scale.cu", KERNEL.replace("INDEX", "i"))
    project.file("test_two.py", TWO)
    counts("--bandwidth-baseline=t.yaml", "--bandwidth-update").assert_outcomes(passed=1)
    project.file("test_two.py", TWO.replace(*edit))
    result = counts("--bandwidth-baseline=t.yaml")
    result.assert_outcomes(passed=title is None, failed=title is not None)
    result.stdout.fnmatch_lines([f"{title}*" if title else "*IMPROVED*"])


def test_another_compiler_is_not_comparable_where_it_made_other_ptx(counted):
    file = counted.path / "t.runs.jsonl"
    file.write_text(re.sub(r'"nvrtc":"[\d.]+"', '"nvrtc":"12.0"', file.read_text()))
    result = counted.run_here("--bandwidth-strict")
    result.assert_outcomes(passed=1)
    result.stdout.re_match_lines([r".*test_scale .* OK"])
    file.write_text(re.sub(r'"ptx":"\w{32}"', f'"ptx":"{"a" * 32}"', file.read_text()))
    result = counted.run_here()
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [
            r".*MISMATCH: nvrtc is [\d.]+, was 12\.0",
            r"    bytes   declared 65\.5 kB read, 65\.5 kB written; touched 65\.5 kB read, 65\.5 kB written",
            r"    remedy  pin nvidia-cuda-nvrtc-cu12==12\.0\.\*, or update the baseline: .* --bandwidth-update",
        ],
        consecutive=True,
    )


def test_architectures_are_devices_of_their_own_and_what_only_counts_has_no_anchor(counted):
    result = counted.run_here("--bandwidth-device=traffic:sm_80")
    assert result.ret != 0
    result.stderr.re_match_lines([r".*traffic sm_90.*traffic sm_80.*|.*traffic sm_80.*traffic sm_90.*"])
    counted.run_here("--bandwidth-device=traffic:sm_1").stderr.re_match_lines([r".*NVRTC .* compiles for .*sm_90.*"])
    result = counted.run_here("--bandwidth-against=anchor")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    expected = "expected a revision: --bandwidth-against=REV"
    result.stderr.fnmatch_lines([f"*found anchor with a device that only counts, {expected}*"])


FAULT = """
def test_fault(bandwidth):
    a, e = bandwidth.random(256), bandwidth.empty(256)
    text = 'extern "C" __global__ void k(float* a, const float* e) { a[threadIdx.x + 1] = e[threadIdx.x]; }'
    bandwidth.launch(bandwidth.kernel(text, "k"), 1, 256, (a, e), reads=a, writes=a)
"""


def test_what_no_kernel_may_do_is_an_error_with_thread_and_line(project, counts):
    project.file("test_fault.py", FAULT)
    result = counts()
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r"test_fault\.py:5: kernel k: .*uninitialised: kernel\.cu:1: .* e"])
    result.stdout.re_match_lines([r".*out-of-bounds: kernel\.cu:1: thread \(255, 0, 0\).* of a"])


def test_what_does_not_compile_or_launches_nothing_is_told_with_the_reason(project, counts):
    project.file(
        "test_bad.py",
        """
import numpy as np

def test_bad(bandwidth):
    bandwidth.kernel('extern "C" __global__ void k(float* a) { a[0] = nothing; }', "k")

def test_missing(bandwidth):
    bandwidth.kernel('extern "C" __global__ void k(float* a) { a[0] = 1; }', "q")

def test_sum(bandwidth):
    bandwidth(np.sum, [1], reads=8)
""",
    )
    result = counts("-rs")
    result.assert_outcomes(failed=2, skipped=1)
    result.stdout.re_match_lines([r'.*identifier "nothing" is undefined', r".*no kernel named 'q'; it has: k"])
    result.stdout.fnmatch_lines(["SKIPPED*this callable launched no kernel *: expected *"])


def test_templates_and_dynamic_shared_memory_and_the_minute_that_a_launch_may_take(project, counts):
    project.file(
        "test_template.py",
        """
import numpy as np
import pytest

SOURCE = '''
template <typename T> __global__ void reverse(T* out, const T* in)
{
    extern __shared__ char bytes[];
    T* s = reinterpret_cast<T*>(bytes);
    s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
'''

@pytest.mark.parametrize("names", [{}, {"name_expressions": ["reverse<double>"]}])
def test_template(bandwidth, names):
    x, y = bandwidth.random(128, "float64"), bandwidth.empty(128, "float64")
    k = bandwidth.kernel(SOURCE, "reverse<double>", **names)
    bandwidth.launch(k, 1, 128, (y, x), reads=x, writes=y, shared_mem=1024)
    assert (y == x[::-1]).all()
    assert bandwidth._device._timeout == 60.0
""",
    )
    counts().assert_outcomes(passed=2)


def test_a_sample_of_blocks_counts_for_the_whole_grid_and_floors_of_time_do_not_hold(counted):
    sampled = TEST.replace("def test", "@pytest.mark.bandwidth(blocks=4)\ndef test")
    floors = "@pytest.mark.bandwidth(min_gbps=9000, min_utilization=0.9, min_relative=0.9)\ndef test_floors"
    counted.file("test_scale.py", f"import pytest\n{sampled}{TEST.replace('def test_scale', floors)}")
    counted.run_here("--bandwidth-update", "--bandwidth-json=run.json").assert_outcomes(passed=2)
    _, row = json.loads((counted.path / "run.json").read_text())["results"]
    assert row["method"] == "ptx, 4 blocks"
    assert row["counts"]["load_sectors"] == (1 << 14) * 4 // 32, "all blocks are alike, so scaling is exact"
    assert (row["detail"]["blocks"], row["detail"]["blocks_run"], row["detail"]["sample_spread"]) == (64, 4, 0.0)
    counted.run_here("--bandwidth-strict").assert_outcomes(passed=2)  # some blocks touch less than is declared


def test_a_kernel_that_skips_a_part_of_its_work_has_gained_nothing(counted):
    for index in ("0", "i / 2 * 2"):
        counted.file("scale.cu", KERNEL.replace("INDEX", index))
        result = counted.run_here()
        result.assert_outcomes(failed=1)
        result.stdout.re_match_lines([r".*MISMATCH: distinct bytes read 65,536 → .* of 65,536 declared: a part .*"])


def test_a_kernel_that_came_to_read_a_texture_fails_where_it_has_an_entry(counted):
    counted.file(
        "scale.cu",
        KERNEL.replace("INDEX", "i").replace("    if", "    if (tex1Dfetch<float>(0ull, 0) > 1e30f) return;\n    if"),
    )
    why = r"the test skipped: .*tex\.1d.*"
    for mode in ([], ["--bandwidth-strict"]):
        result = counted.run_here(*mode)
        result.assert_outcomes(failed=1)
        result.stdout.re_match_lines([rf"test_scale\.py::test_scale is in the baseline, and {why}"])
    counted.run_here("--bandwidth-update").assert_outcomes(skipped=1)


ENDLESS = """
import numpy as np

SOURCE = '''extern "C" __global__ void spin(volatile int* flag)
{
    int turns = 0;
    while (*flag == 0) turns++;
    *flag = turns;
}
'''

def test_spin(bandwidth):
    flag = np.zeros(1, np.int32)
    bandwidth.launch(bandwidth.kernel(SOURCE, "spin"), 1, 32, (flag,), reads=flag)
"""


def test_an_endless_kernel_and_an_endless_compilation_are_stopped_by_time(project, counts):
    project.file("test_spin.py", ENDLESS)
    project.file(
        "test_much.py",
        f"SOURCE = {ENDLESS_TEMPLATES!r}\ndef test_much(bandwidth):\n    bandwidth.kernel(SOURCE, 'k')\n",
    )
    result = counts("--bandwidth-traffic-timeout=1")
    result.assert_outcomes(failed=2)
    result.stdout.re_match_lines([r"test_much\.py:3: kernel\.cu still compiles after 1 s; .*"])
    result.stdout.re_match_lines([r".*kernel spin has run for 1 s on this device, now at kernel\.cu:4; .*"])
