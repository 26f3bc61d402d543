"""What the compiler gives a kernel is judged as counts are."""

import json
import re

import pytest
from containers import copying
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
@pytest.mark.bandwidth({mark})
def test_{name}(bandwidth):
    x, y = bandwidth.random(64 * 256, "float32"), bandwidth.empty(256, "float32")
    sums = bandwidth.kernel("{name}.cu", "sums", options=({options}))
    bandwidth.launch(sums, 1, 256, (y, x), reads=x, writes=y, shared_mem={shared})
"""
PLAIN = {"bounds": "", "options": "", "shared": 0, "mark": ""}
BOUNDED, FEW = {"bounds": "__launch_bounds__(1024, 2)"}, {"options": "'--maxrregcount=32',"}
# So few blocks fit by shared memory that registers do not limit them.
MUCH_SHARED = {"shared": 100 * 1024}


@pytest.fixture
def build(project, traffic_loaded):
    """Run tests, each of a kernel that is built in such a way; return their rows by the tests' names."""
    del traffic_loaded

    def run(*args, **tests):
        written = "import pytest\n"
        for name, changes in tests.items():
            how = {**PLAIN, **changes}
            project.file(f"{name}.cu", KERNEL.replace("BOUNDS", how["bounds"]))
            written += TEST.format(name=name, **how)
        project.file("test_sums.py", written)
        given = ("--bandwidth-device=traffic", "--bandwidth-baseline=t.yaml", "--bandwidth-json=run.json")
        project.run_here(*given, *args)
        rows = json.loads((project.path / "run.json").read_text())["results"]
        return {row["key"].rpartition("::test_")[2]: row for row in rows}

    return run


def test_registers_that_spill_are_a_regression_where_the_baseline_knows_of_them(build, project):
    saved = build("--bandwidth-update", bounded={}, few={})
    assert {row["status"] for row in saved.values()} == {"SAVED"}
    spilling = {"bounded": BOUNDED, "few": FEW}
    for row in build(**spilling).values():
        assert (row["status"], row["reason_code"]) == ("REGRESSED", "counts")
        spilled = row["resources"]["local_bytes"]
        assert row["counts"]["local_bytes_per_thread"] == spilled > 0
        title = f"REGRESSED: stack and spill bytes a thread 0 → {spilled}"
        assert row["message"].startswith(title), row["message"]
        cause = rf"likely cause .*registers \d+ → 32; spills 0 → {spilled} B a thread; occupancy \d+ → 100 %, limited"
        assert re.search(f"{cause} by", row["message"]), row["message"]
        assert not re.search("^    (note|at|baseline) ", row["message"], re.M), "neither data nor a line has caused it"
    file = project.path / "t.yaml"
    file.write_text(re.sub(r", (local_bytes_per_thread|resident_warps): \d+", "", file.read_text()))
    assert build(**spilling)["few"]["status"] == "OK"


def test_fewer_spills_are_an_improvement_and_a_fall_of_occupancy_a_regression(build):
    first = build("--bandwidth-update", spills={**FEW, **MUCH_SHARED}, falls={}, tolerant={})
    assert first["falls"]["counts"]["resident_warps"] == 24
    rows = build(spills=MUCH_SHARED, falls=MUCH_SHARED, tolerant={**MUCH_SHARED, "mark": "tolerance=0.4"})
    assert (rows["spills"]["status"], rows["spills"]["reason_code"]) == ("IMPROVED", "counts")
    assert rows["spills"]["counts"]["local_bytes_per_thread"] == 0
    assert rows["falls"]["counts"]["resident_warps"] == 16
    message = rows["falls"]["message"]
    assert message.startswith("REGRESSED: resident warps an SM 24 → 16 (−33.3 %)"), message
    assert "occupancy 38 → 25 %, limited by shared memory" in message
    assert rows["tolerant"]["status"] == "OK"


def test_a_marker_limits_resources_whatever_the_baseline_says(build):
    marks = {
        "spills": "max_spill_bytes=0",
        "many": "max_registers=31",
        "fits": "max_registers=32, max_spill_bytes=4000",
    }
    build("--bandwidth-update", **dict.fromkeys(marks, FEW))
    for update, passes in (((), "OK"), (("--bandwidth-update",), "SAVED")):
        rows = build(*update, **{name: {**FEW, "mark": mark} for name, mark in marks.items()})
        assert rows["fits"]["status"] == passes
        for name, said in (
            ("spills", "{local_bytes} stack and spill bytes a thread exceed max_spill_bytes, 0"),
            ("many", "{registers} registers a thread exceed max_registers, 31"),
        ):
            first, *_, accept, _, _ = rows[name]["message"].splitlines()
            assert rows[name]["status"] == "REGRESSED"
            assert first == f"REGRESSED: {said.format(**rows[name]['resources'])}"
            assert accept.split("  ")[-1] == "raise the limit in the test's marker"


SEVERAL = """
import pytest

@pytest.mark.bandwidth(max_registers=LIMIT)
def test_several(bandwidth):
    x, y = bandwidth.random(64 * 256, "float32"), bandwidth.empty(256, "float32")
    runs = [bandwidth.bind(bandwidth.kernel(name), 1, 256, (y, x)) for name in ("few.cu", "many.cu")]
    bandwidth(lambda: [run() for run in runs], reads=x, writes=y)
"""


@pytest.mark.parametrize(("limit", "status"), [(16, "REGRESSED"), (200, "UNDECIDED")])
def test_a_limit_holds_for_each_of_several_launches(project, traffic_loaded, limit, status):
    del traffic_loaded
    project.file("many.cu", KERNEL.replace("BOUNDS", ""))
    project.file("few.cu", KERNEL.replace("BOUNDS", "").replace("64", "2").replace("63", "1"))
    project.file("test_sums.py", SEVERAL.replace("LIMIT", str(limit)))
    project.run_here("--bandwidth-device=traffic", "--bandwidth-json=run.json")
    (row,) = json.loads((project.path / "run.json").read_text())["results"]
    assert (row["status"], row["reason_code"]) == (
        status,
        "floor:max_registers" if status == "REGRESSED" else "no-baseline",
    )
    assert 32 < row["resources"]["registers"] < 200


def test_a_limit_that_cannot_be_checked_is_said_with_and_without_a_baseline(project, traffic_loaded):
    del traffic_loaded
    project.file("k.ptx", copying("k"))
    project.file(
        "test_k.py",
        "import pytest\n\n@pytest.mark.bandwidth(max_registers=8)\ndef test_k(bandwidth):\n"
        "    x, y = bandwidth.random(32), bandwidth.empty(32)\n"
        '    bandwidth.launch(bandwidth.kernel("k.ptx"), 1, 32, (y, x), reads=x, writes=y)\n',
    )
    traffic = ("--bandwidth-device=traffic", "--bandwidth-json=run.json")
    project.run_here(*traffic[:1], "--bandwidth-baseline=t.yaml", "--bandwidth-update").assert_outcomes(passed=1)
    for more in ((), ("--bandwidth-baseline=t.yaml",)):
        project.run_here(*traffic, *more)
        (row,) = json.loads((project.path / "run.json").read_text())["results"]
        assert (row["status"], row["reason_code"]) == ("UNDECIDED", "floor:max_registers")


def test_a_revision_of_the_same_ptx_has_its_own_resources(build, project):
    build("--bandwidth-update", few={}, same={}, limited={})
    committed(project.path)
    rows = build("--bandwidth-against=HEAD", few=FEW, same={}, limited={"mark": "max_registers=8"})
    assert (rows["few"]["status"], rows["few"]["counts"]["resident_warps"]) == ("REGRESSED", 64)
    assert rows["same"]["reason_code"] == "code-unchanged"
    assert rows["limited"]["reason_code"] == "floor:max_registers"
