"""Kernels of a few microseconds: their samples include a fixed floor, which the judgement subtracts.

By events, and by CUPTI's records, which a stand-in for cupti-python makes of the card's own: no launch is in them.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from card_processes import Card

# Each kernel starts and drains in 3 µs, and an event is noted half a microsecond later.
LAUNCH_NS, EVENT_NS = 3000, 500
FLOOR = (LAUNCH_NS + EVENT_NS) * 1e-9


@pytest.fixture(scope="module")
def floors(shared_card: Card) -> Any:
    return shared_card.told("measured", LAUNCH_NS=LAUNCH_NS, EVENT_STEP_NS=32)


def test_an_empty_launch_shows_the_floor_and_launches_in_a_graph_share_the_event(floors: Any) -> None:
    alone, graph = floors["first"]["detail"], floors["graph"]["detail"]
    assert alone["floor_seconds"] == pytest.approx(FLOOR, rel=0.01)
    assert floors["first"]["seconds"] > 2 * FLOOR
    assert alone["event_step_seconds"] == pytest.approx(32e-9, abs=1e-9)
    assert graph["graph_launches"] > 1
    assert graph["floor_seconds"] == pytest.approx((LAUNCH_NS + EVENT_NS / graph["graph_launches"]) * 1e-9, rel=0.01)


def test_it_is_found_once_in_a_process_and_is_cheap(floors: Any) -> None:
    """By the card's time, calibration included."""
    first, again = floors["first"], floors["again"]
    assert again["detail"]["floor_seconds"] == first["detail"]["floor_seconds"]
    assert 0 < first["took"] - again["took"] < 0.05


# Each thread moves one element; the first of them, or none, a second one: work that the card's memory is busy with.
COPY = """
extern "C" __global__ void copy_{i}(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
    if (i < {more}) y[n + i] = x[n + i];
}}
"""
MORE = {"same": "0", "edited": "-1", "a tenth": "n / 10", "a fifteenth": "n / 15"}
COPIES = """
import numpy as np
import pytest

N = {n}

@pytest.mark.bandwidth(tolerance="5%")
@pytest.mark.parametrize(("i", "graph"), [*((i, "launch") for i in range(4)), (3, "graph")])
def test_copy(bandwidth, i, graph):
    x, y = bandwidth.random(N * 5 // 4, "float32"), bandwidth.empty(N * 5 // 4, "float32")
    kernel, args = bandwidth.kernel("copies.cu", f"copy_{{i}}"), (x, y, np.int32(N))
    bandwidth.launch(kernel, N // 256, 256, args, reads=4 * N, writes=4 * N, graph=graph == "graph")
"""
N = 40 * 1024
# Memory as fast as the card's, and a start and drain that take as long as on a card of today.
REAL: dict[str, object] = {"MEMORY_PACE": 1, "LAUNCH_NS": LAUNCH_NS}


def written(folder: Path, n: int, changed: bool = False) -> Path:
    """Write the tests of the copies of n elements, and their kernels."""
    (folder / "test_copies.py").write_text(COPIES.format(n=n))
    kernels = (COPY.format(i=i, more=more if changed else 0) for i, more in enumerate(MORE.values()))
    (folder / "copies.cu").write_text("".join(kernels))
    return folder


def by_change(rows: Any) -> dict[tuple[str, str], Any]:
    """Return rows by what changed in a test's kernel, and how it is launched."""
    found = {}
    for row in rows:
        number, launched = re.search(r"\[(\d)-(\w+)\]", row["nodeid"]).groups()  # type: ignore[union-attr]
        found[list(MORE)[int(number)], launched] = row
    return found


@pytest.fixture(scope="module")
def judged(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = written(tmp_path_factory.mktemp("user"), N)
    status, shown, _ = shared_card.judged(folder, "--bandwidth-update", **REAL)
    assert status == 0, shown
    _, shown, rows = shared_card.judged(written(folder, N, changed=True), **REAL)
    assert len(rows) == len(MORE) + 1, shown
    return by_change(rows)


def test_more_work_of_a_short_kernel_is_judged_as_such(judged: Any) -> None:
    """A fifteenth more work takes less than 5 % longer, floor included."""
    same = judged.pop(("same", "launch"))
    assert (same["status"], 7e-6 < same["seconds"] < 9e-6) == ("OK", True)
    expected = {"edited": ("OK", 0.0), "a tenth": ("REGRESSED", 1 - 1 / 1.1), "a fifteenth": ("REGRESSED", 1 - 15 / 16)}
    for (change, _), row in judged.items():
        status, drop = expected[change]
        assert (row["status"], row["reason_code"]) == (status, "old-kernel"), change
        assert row["verdict"]["drop"] == pytest.approx(drop, abs=0.006), change
        if change == "a fifteenth":
            assert row["verdict"]["observed"] / row["verdict"]["reference"] > 1 - 0.045


def test_a_row_says_what_its_verdict_leaves_out(judged: Any) -> None:
    row = judged["a tenth", "launch"]
    assert re.search(r"slower than the old code, overhead of 3\.5\d* µs excluded \(tolerance", row["reason"])
    assert re.search(r"measured +moved 328 kB in 8\.\d+ µs \(3\.5\d* µs overhead\): ", row["message"])


WARM = f"""
import numpy as np
import pytest

@pytest.mark.parametrize("graph", [False, True], ids=["launch", "graph"])
@pytest.mark.parametrize("cold", [True, False], ids=["cold", "warm"])
def test_copy(bandwidth, cold, graph):
    x, y = bandwidth.random({N}, "float32"), bandwidth.xp.zeros({N}, "float32")
    kernel, args = bandwidth.kernel("copies.cu", "copy_0"), (x, y, np.int32({N}))
    bandwidth.launch(kernel, {N // 256}, 256, args, reads=x, writes=y, graph=graph, cold=cold)
    bandwidth.xp.testing.assert_array_equal(x, y)
"""


@pytest.fixture(scope="module")
def warm(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Rows by how caches are, and how the kernel is launched; arrays and the probe's fit the cache together."""
    folder = written(tmp_path_factory.mktemp("warm"), N)
    (folder / "test_warm.py").write_text(WARM)
    short = ("test_warm.py", "--bandwidth-min-samples=8")
    _, shown, rows = shared_card.tested(folder, *short, LAUNCH_NS=1, MEMORY_PACE=0.2)
    assert len(rows) == 4, shown
    return {tuple(re.findall(r"\w+", row["nodeid"].partition("[")[2])): row for row in rows}


@pytest.mark.parametrize(("launched", "method"), [("launch", "events+block"), ("graph", "events+block+graph")])
def test_a_warm_cache_serves_a_kernel(warm: Any, launched: str, method: str) -> None:
    cold, kept = warm["cold", launched], warm["warm", launched]
    assert (cold["method"], kept["method"]) == (method, f"{method}+warm")
    assert (cold["detail"]["cache_flushed"], kept["detail"]["cache_flushed"]) == (True, False)
    assert kept["gbps"] > 2 * cold["gbps"]
    assert kept["utilization"] > 1
    assert kept["reason_code"] == "no-baseline", "it is valid"


# By CUPTI's records: what tests/gpu/test_gpu_records.py, which runs on the card, too, does not ask.

CUPTI = "--bandwidth-timer=cupti"
NO_OLD_CODE = "-obandwidth_settle=never"
# So many copied elements take 8 µs without a floor.
RECORDED_N = 70 * 1024
SOME = ("-k", "1-launch or 2-launch")
# Processes that hardly differ, so that two runs are enough.
QUIET: dict[str, object] = {**REAL, "PROCESS_JITTER": 0.0005}


@pytest.fixture(scope="module")
def recorded(shared_card: Card) -> Any:
    return shared_card.told("recorded", LAUNCH_NS=LAUNCH_NS, L2_BYTES=1 << 13)


@pytest.mark.parametrize("work", ["one", "probe"])
def test_the_floor_is_not_in_the_figures(recorded: Any, work: str) -> None:
    events, cupti = recorded["events"]["one"], recorded["cupti"]["one"]
    figure = "probe" if work == "probe" else "seconds"
    assert (events["method"], cupti["method"]) == ("events+block", "cupti+block")
    assert events[figure] - cupti[figure] == pytest.approx(FLOOR, rel=0.03)
    assert cupti["floor"] < 1e-7 < FLOOR < 1.01 * events["floor"]


def test_a_sample_with_records_beyond_its_events_does_not_count(recorded: Any) -> None:
    found = recorded["cupti"]["beyond"]
    assert len(found["dropped"]) == 1
    assert "another stream, outside the sample's events" in found["dropped"][0]
    assert found["seconds"] == pytest.approx(recorded["cupti"]["one"]["seconds"], rel=0.02)


def test_nothing_of_cupti_is_loaded_unless_asked_for(recorded: Any) -> None:
    assert recorded["imported"] is False


@pytest.fixture(scope="module")
def user(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tests with a baseline by CUPTI's records, whose kernels have changed since."""
    folder = written(tmp_path_factory.mktemp("user"), RECORDED_N)
    update = ("--bandwidth-update", "-obandwidth_runs=2")
    status, shown, _ = shared_card.judged(folder, CUPTI, *update, *SOME, **QUIET)
    assert status == 0, shown
    return written(folder, RECORDED_N, changed=True)


@pytest.mark.parametrize("compared", ["with the old code", "with the baseline"])
def test_a_tenth_more_work_of_8_microseconds_is_a_tenth(shared_card: Card, user: Path, compared: str) -> None:
    args = ("--bandwidth-strict", NO_OLD_CODE) if compared == "with the baseline" else ("--bandwidth-strict",)
    _, shown, rows = shared_card.judged(user, CUPTI, *args, *SOME, **QUIET)
    found = {change: row for (change, _), row in by_change(rows).items()}
    assert {change: row["status"] for change, row in found.items()} == {"edited": "OK", "a tenth": "REGRESSED"}, shown
    assert found["edited"]["seconds"] == pytest.approx(8e-6, rel=0.05)
    assert found["a tenth"]["verdict"]["drop"] == pytest.approx(1 - 1 / 1.1, abs=0.01)


def test_figures_of_events_are_not_compared_with_those_of_records(shared_card: Card, user: Path) -> None:
    _, shown, rows = shared_card.judged(user, NO_OLD_CODE, *SOME, **QUIET)
    assert {row["status"] for row in rows} == {"MISMATCH"}, shown
    assert "method is events+block, was cupti+block" in shown


@pytest.mark.parametrize(
    ("cupti", "said"),
    [
        ("absent", r"--bandwidth-timer=cupti \(No module named 'cupti'\): pip install 'pytest-bandwidth\[cupti\]'"),
        ("taken", r"CUPTI does not record \(ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED \(39\)\): end other profilers"),
        ("mute", r"CUPTI recorded nothing for a sample, because another profiler in this process took the records"),
    ],
)
def test_what_is_wrong_with_cupti_is_said(card: Card, tmp_path: Path, cupti: str, said: str) -> None:
    (tmp_path / "test_one.py").write_text(
        "def test_one(bandwidth):\n    x = bandwidth.random(4096, 'float32')\n    bandwidth(lambda: x + 1, reads=x)\n"
    )
    status, shown, _ = card.tested(tmp_path, CUPTI, CUPTI=cupti)
    assert status == (4 if cupti == "absent" else 1), shown
    assert re.search(said, shown.replace("\n", " ")), shown
