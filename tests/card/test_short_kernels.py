"""Kernels of a few microseconds: what stands in their samples beside their work, and what is judged without it."""

import re
from typing import Any

import pytest
from card_processes import Card

# Each kernel starts and drains in 3 µs, and an event is noted half a microsecond later.
LAUNCH_NS, EVENT_NS = 3000, 500
FLOOR = (LAUNCH_NS + EVENT_NS) * 1e-9


@pytest.fixture(scope="module")
def floors(shared_card: Card) -> Any:
    return shared_card.told("floors", LAUNCH_NS=LAUNCH_NS, EVENT_STEP_NS=32)


def test_an_empty_launch_shows_the_floor_and_launches_in_a_graph_share_the_event(floors: Any) -> None:
    assert floors["first"]["floor_seconds"] == pytest.approx(FLOOR, rel=0.01)
    assert floors["first"]["seconds"] > 2 * FLOOR
    assert floors["first"]["event_step_seconds"] == pytest.approx(32e-9, abs=1e-9)
    launches = floors["graph"]["graph_launches"]
    assert launches > 1
    assert floors["graph"]["floor_seconds"] == pytest.approx((LAUNCH_NS + EVENT_NS / launches) * 1e-9, rel=0.01)


def test_it_is_found_once_in_a_process_and_is_cheap(floors: Any) -> None:
    """By the card's time, calibration included."""
    assert floors["again"]["floor_seconds"] == floors["first"]["floor_seconds"]
    assert 0 < floors["first"]["took"] - floors["again"]["took"] < 0.05


# Each thread moves one element; the first of them, or none, a second one: work that the card's memory is busy with.
COPY = """
extern "C" __global__ void copy_{i}(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
    if (i < {more}) y[n + i] = x[n + i];
}}
"""
N = 40 * 1024
MORE = {"same": 0, "edited": -1, "a tenth": N // 10, "a fifteenth": N // 15}
TESTS = f"""
import numpy as np
import pytest

@pytest.mark.bandwidth(tolerance="5%")
@pytest.mark.parametrize("graph", [False, True], ids=["launch", "graph"])
@pytest.mark.parametrize("i", range({len(MORE)}))
def test_copy(bandwidth, i, graph):
    x, y = bandwidth.random({N * 5 // 4}, "float32"), bandwidth.empty({N * 5 // 4}, "float32")
    args = (x, y, np.int32({N}))
    bandwidth.launch(bandwidth.kernel("copies.cu", f"copy_{{i}}"), {N // 256}, 256, args, reads={4 * N}, writes={4 * N},
                     graph=graph)
"""
# Memory as fast as the card's, and a start and drain that take as long as on a card of today.
REAL: dict[str, object] = {"MEMORY_PACE": 1, "LAUNCH_NS": LAUNCH_NS}


def sources(changed: bool) -> str:
    return "".join(COPY.format(i=i, more=more if changed else 0) for i, more in enumerate(MORE.values()))


@pytest.fixture(scope="module")
def judged(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Rows by what changed in a test's kernel, and how it is launched."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "copies.cu").write_text(sources(changed=False))
    (folder / "test_copies.py").write_text(TESTS)
    status, shown, _ = shared_card.judged(folder, "--bandwidth-update", **REAL)
    assert status == 0, shown
    (folder / "copies.cu").write_text(sources(changed=True))
    _, shown, rows = shared_card.judged(folder, **REAL)
    assert len(rows) == 2 * len(MORE), shown
    found: dict[tuple[str, str], Any] = {}
    for row in rows:
        number, launched = re.search(r"\[(\d)-(\w+)\]", row["nodeid"]).groups()  # type: ignore[union-attr]
        found[list(MORE)[int(number)], launched] = row
    return found


@pytest.mark.parametrize("launched", ["launch", "graph"])
def test_more_work_of_a_short_kernel_is_judged_as_such(judged: Any, launched: str) -> None:
    """A fifteenth more work takes less than 5 % longer, floor included."""
    expected = {"same": "OK", "edited": "OK", "a tenth": "REGRESSED", "a fifteenth": "REGRESSED"}
    rows = {change: judged[change, launched] for change in MORE}
    assert {change: row["status"] for change, row in rows.items()} == expected
    assert 7e-6 < rows["same"]["seconds"] < 9e-6
    assert {row["reason_code"] for change, row in rows.items() if change != "same"} == {"old-kernel"}
    for change, drop in (("edited", 0.0), ("a tenth", 1 - 1 / 1.1), ("a fifteenth", 1 - 15 / 16)):
        assert rows[change]["verdict"]["drop"] == pytest.approx(drop, abs=0.006), change
    slower = rows["a fifteenth"]["verdict"]
    assert slower["observed"] / slower["reference"] > 1 - 0.045


def test_a_row_says_what_its_verdict_leaves_out(judged: Any) -> None:
    row = judged["a tenth", "launch"]
    assert re.search(r"slower than the old code, not counting the floor of 3\.5\d* µs \(tolerance", row["reason"])
    assert re.search(r"measured +moved 328 kB in 8\.\d+ µs, of which 3\.5\d* µs floor: ", row["message"])


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
    folder = tmp_path_factory.mktemp("warm")
    (folder / "copies.cu").write_text(sources(changed=False))
    (folder / "test_warm.py").write_text(WARM)
    _, shown, rows = shared_card.tested(folder, "--bandwidth-min-samples=8", LAUNCH_NS=1, MEMORY_PACE=0.2)
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
