"""What the compiler gives a kernel is judged as counts are."""

import json
import re

import pytest
from repositories import committed

pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'")

KERNEL = """extern "C" __global__ void BOUNDS sums(float* out, const float* in)
{
    float kept[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    #pragma unroll
    for (int k = 0; k < 64; k++)
        kept[k] = in[i + k * n];
    #pragma unroll
    for (int k = 0; k < 256; k++)
        kept[k % 64] = kept[k % 64] * kept[(k + 7) % 64] + kept[(k + 31) % 64];
    float sum = 0;
    #pragma unroll
    for (int k = 0; k < 64; k++)
        sum += kept[k] * kept[63 - k];
    out[i] = sum;
}
"""
TEST = """
import pytest

@pytest.mark.bandwidth(MARK)
def test_sums(bandwidth):
    x, y = bandwidth.random(64 * 256, "float32"), bandwidth.empty(256, "float32")
    sums = bandwidth.kernel("sums.cu", "sums", options=(OPTIONS))
    bandwidth.launch(sums, 1, 256, (y, x), reads=x, writes=y, shared_mem=SHARED)
"""
PLAIN, BOUNDED, FEW = "", "__launch_bounds__(1024, 2)", "'--maxrregcount=32',"
# So few blocks fit by shared memory that registers do not limit them.
MUCH_SHARED = 100 * 1024


@pytest.fixture
def build(project, traffic_loaded):
    """Run the test of a kernel that is built in such a way; return its row."""
    del traffic_loaded

    def run(*args, bounds=PLAIN, options="", shared=0, mark=""):
        project.file("sums.cu", KERNEL.replace("BOUNDS", bounds))
        test = TEST.replace("OPTIONS", options).replace("SHARED", str(shared)).replace("MARK", mark)
        project.file("test_sums.py", test)
        given = ("--bandwidth-device=traffic", "--bandwidth-baseline=t.yaml", "--bandwidth-json=run.json")
        project.run_here(*given, *args)
        (row,) = json.loads((project.path / "run.json").read_text())["results"]
        return row

    return run


@pytest.mark.parametrize("how", [{"bounds": BOUNDED}, {"options": FEW}])
def test_registers_that_spill_are_a_regression(build, how):
    assert build("--bandwidth-update")["status"] == "SAVED"
    row = build(**how)
    assert (row["status"], row["reason_code"]) == ("REGRESSED", "counts")
    spilled = row["resources"]["local_bytes"]
    assert row["counts"]["local_bytes_per_thread"] == spilled > 0
    title = f"REGRESSED: stack and spill bytes a thread 0 → {spilled}"
    assert row["message"].startswith(title), row["message"]
    cause = rf"likely cause .*registers \d+ → 32; spills 0 → {spilled} B a thread; occupancy \d+ → 100 %, limited by"
    assert re.search(cause, row["message"]), row["message"]
    assert not re.search("^    (note|at|baseline) ", row["message"], re.M), "neither data nor a line has caused it"


def test_a_build_that_spills_no_more_is_an_improvement(build):
    build("--bandwidth-update", options=FEW, shared=MUCH_SHARED)
    row = build(shared=MUCH_SHARED)
    assert (row["status"], row["reason_code"]) == ("IMPROVED", "counts")
    assert row["counts"]["local_bytes_per_thread"] == 0


def test_a_fall_of_occupancy_is_a_regression(build):
    first = build("--bandwidth-update")
    row = build(shared=MUCH_SHARED)
    assert (first["counts"]["resident_warps"], row["counts"]["resident_warps"]) == (24, 16)
    assert row["message"].startswith("REGRESSED: resident warps an SM 24 → 16 (−33.3 %)"), row["message"]
    assert "occupancy 38 → 25 %, limited by shared memory" in row["message"]
    assert build(shared=MUCH_SHARED, mark="tolerance=0.4")["status"] == "OK"


def test_a_baseline_of_counts_alone_still_passes(build, project):
    build("--bandwidth-update")
    file = project.path / "t.yaml"
    file.write_text(re.sub(r", (local_bytes_per_thread|resident_warps): \d+", "", file.read_text()))
    assert build(options=FEW)["status"] == "OK"


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("max_spill_bytes=0", "REGRESSED: {local_bytes} stack and spill bytes a thread exceed max_spill_bytes, 0"),
        ("max_registers=31", "REGRESSED: {registers} registers a thread exceed max_registers, 31"),
        ("max_registers=32, max_spill_bytes=4000", None),
    ],
)
@pytest.mark.parametrize("update", [(), ("--bandwidth-update",)])
def test_a_marker_limits_resources_whatever_the_baseline_says(build, mark, said, update):
    row = build("--bandwidth-update", options=FEW)
    row = build(*update, options=FEW, mark=mark)
    assert row["status"] == ("REGRESSED" if said else "SAVED" if update else "OK")
    if said:
        first, *_, accept, _, _ = row["message"].splitlines()
        assert first == said.format(**row["resources"])
        assert accept.split("  ")[-1] == "raise the limit in the test's marker"


def test_a_revision_of_the_same_ptx_has_its_own_resources(build, project):
    build("--bandwidth-update")
    committed(project.path)
    row = build("--bandwidth-against=HEAD", options=FEW)
    assert (row["status"], row["counts"]["resident_warps"]) == ("REGRESSED", 64)
    assert build("--bandwidth-against=HEAD")["reason_code"] == "code-unchanged"
    assert build("--bandwidth-against=HEAD", mark="max_registers=8")["reason_code"] == "floor:max_registers"
