"""Kernels timed by CUPTI's records, which a stand-in for cupti-python makes of the card's own: no launch is in them."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from card_processes import TESTS, Card

# Each kernel starts and drains in 3 µs, and an event is noted half a microsecond later.
LAUNCH_NS, EVENT_NS = 3000, 500
FLOOR = (LAUNCH_NS + EVENT_NS) * 1e-9
CUPTI = "--bandwidth-timer=cupti"


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


def test_gaps_between_kernels_count(recorded: Any) -> None:
    one, three = (recorded["cupti"][work]["seconds"] for work in ("one", "three"))
    assert three == pytest.approx(3 * one + 2 * LAUNCH_NS * 1e-9, rel=0.02)


@pytest.mark.parametrize("work", ["copy", "fill"])
def test_copies_and_fills_are_recorded(recorded: Any, work: str) -> None:
    events, cupti = (recorded[timer][work]["seconds"] for timer in ("events", "cupti"))
    assert events - cupti == pytest.approx(EVENT_NS * 1e-9, abs=5e-8)


def test_work_may_be_on_any_stream_that_is_waited_for(recorded: Any) -> None:
    """So JAX's, which events cannot time."""
    assert "runs on another stream" in recorded["events"]["elsewhere"]["error"]
    found = recorded["cupti"]["elsewhere"]
    assert (found["method"], found["findings"], found["floor"]) == ("cupti", ["not-held"], None)
    assert found["seconds"] == pytest.approx(recorded["cupti"]["one"]["seconds"], rel=0.02)


def test_a_sample_with_records_beyond_its_events_does_not_count(recorded: Any) -> None:
    found = recorded["cupti"]["beyond"]
    assert len(found["dropped"]) == 1
    assert "another stream, beyond the sample's events" in found["dropped"][0]
    assert found["seconds"] == pytest.approx(recorded["cupti"]["one"]["seconds"], rel=0.02)


def test_nothing_recorded_is_an_error(recorded: Any) -> None:
    assert "CUPTI recorded nothing: the work ran elsewhere" in recorded["cupti"]["nothing"]["error"]


def test_nothing_of_cupti_is_loaded_unless_asked_for(recorded: Any) -> None:
    assert recorded["imported"] is False


N = 70 * 1024
CHANGES = {"same": -1, "a tenth": N // 10}
# Each thread moves one element; the first of them, or none, a second one.
SOURCE = """
extern "C" __global__ void copy_{i}(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
    if (i < {more}) y[n + i] = x[n + i];
}}
"""
BODY = f"""
import numpy as np
import pytest

@pytest.mark.bandwidth(tolerance="5%")
@pytest.mark.parametrize("i", range({len(CHANGES)}))
def test_copy(bandwidth, i):
    x, y = bandwidth.random({N * 5 // 4}, "float32"), bandwidth.empty({N * 5 // 4}, "float32")
    args = (x, y, np.int32({N}))
    bandwidth.launch(bandwidth.kernel("copies.cu", f"copy_{{i}}"), {N // 256}, 256, args, reads={4 * N}, writes={4 * N})
"""
# Memory as fast as the card's, and a start and drain that take as long as on a card of today.
REAL: dict[str, object] = {"MEMORY_PACE": 1, "LAUNCH_NS": LAUNCH_NS}
NO_OLD_CODE = "-obandwidth_settle=never"


@pytest.fixture(scope="module")
def user(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tests with a baseline by CUPTI's records, whose kernels have changed since."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "test_copies.py").write_text(BODY)
    (folder / "copies.cu").write_text("".join(SOURCE.format(i=i, more=0) for i in range(len(CHANGES))))
    status, shown, _ = shared_card.judged(folder, CUPTI, "--bandwidth-update", "-obandwidth_runs=2", **REAL)
    assert status == 0, shown
    edited = (SOURCE.format(i=i, more=more) for i, more in enumerate(CHANGES.values()))
    (folder / "copies.cu").write_text("".join(edited))
    return folder


@pytest.mark.parametrize("compared", ["with the old code", "with the baseline"])
def test_a_tenth_more_work_of_8_microseconds_is_a_tenth(shared_card: Card, user: Path, compared: str) -> None:
    args = ("--bandwidth-strict", NO_OLD_CODE) if compared == "with the baseline" else ("--bandwidth-strict",)
    _, shown, rows = shared_card.judged(user, CUPTI, *args, **REAL)
    found = dict(zip(CHANGES, rows, strict=True))
    assert {change: row["status"] for change, row in found.items()} == {"same": "OK", "a tenth": "REGRESSED"}, shown
    assert found["same"]["seconds"] == pytest.approx(8e-6, rel=0.05)
    assert found["a tenth"]["verdict"]["drop"] == pytest.approx(1 - 1 / 1.1, abs=0.01)


def test_figures_of_events_are_not_compared_with_those_of_records(shared_card: Card, user: Path) -> None:
    _, shown, rows = shared_card.judged(user, NO_OLD_CODE, **REAL)
    assert {row["status"] for row in rows} == {"MISMATCH"}, shown
    assert "method is events+block, was cupti+block" in shown


@pytest.mark.parametrize(
    ("cupti", "said"),
    [
        ("absent", r"--bandwidth-timer=cupti \(No module named 'cupti'\): pip install 'pytest-bandwidth\[cupti\]'"),
        ("taken", r"CUPTI does not record \(ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED \(39\)\): end other profilers"),
        ("mute", r"CUPTI recorded nothing of a sample, so another profiler in this process has its records"),
    ],
)
def test_what_is_wrong_with_cupti_is_said(card: Card, tmp_path: Path, cupti: str, said: str) -> None:
    (tmp_path / "test_one.py").write_text(
        "def test_one(bandwidth):\n    x = bandwidth.random(4096, 'float32')\n    bandwidth(lambda: x + 1, reads=x)\n"
    )
    status, shown, _ = card.tested(tmp_path, CUPTI, CUPTI=cupti)
    assert status == (4 if cupti == "absent" else 1), shown
    assert re.search(said, shown.replace("\n", " ")), shown


def test_the_stand_in_is_named_as_cupti_python_is() -> None:
    real = pytest.importorskip("cupti.cupti", reason="needs no GPU, but NVIDIA's package")
    source = ast.parse((TESTS / "emulated_card" / "site" / "cupti" / "cupti.py").read_text())
    public = [one for one in source.body if isinstance(one, (ast.ClassDef, ast.FunctionDef)) and one.name[0] != "_"]
    assert {one.name for one in public if not hasattr(real, one.name)} == set()
    kinds = next(one for one in public if one.name == "ActivityKind").body
    pairs = [(one.targets[0].id, one.value.value) for one in kinds if isinstance(one, ast.Assign)]  # type: ignore[attr-defined]
    assert pairs == [(name, int(real.ActivityKind[name])) for name, _ in pairs]
    records = [
        getattr(real, name) for name in dir(real) if re.fullmatch(r"Activity(Kernel|Memcpy|Memset|MemcpyPtoP)\d+", name)
    ]
    for record in records:
        assert all(
            isinstance(getattr(record(), name), int) for name in ("kind", "start", "end", "device_id", "stream_id")
        )
        assert hasattr(record, "name") == record.__name__.startswith("ActivityKernel")
