"""Tries of a profiler: how often, and what is said of those that are not made."""

from pathlib import Path

import pytest
import stand_in_profilers
from children import gone
from counted_device import GPU

from pytest_bandwidth.evidence import fresh_processes
from pytest_bandwidth.evidence.fresh_processes import JudgedTest
from pytest_bandwidth.evidence.processes.child import Invocation
from pytest_bandwidth.features.counters import profilers
from pytest_bandwidth.features.counters.counted import Counters, CountRequest
from pytest_bandwidth.features.counters.dram_traffic import CountersFailed
from pytest_bandwidth.features.counters.evidence import file_name
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.measuring.measurer import Measurer
from pytest_bandwidth.measuring.progress import Progress
from pytest_bandwidth.measuring.task import Task
from pytest_bandwidth.options.settings import Settings

TEST = "test_a.py::test_a"
REQUEST = CountRequest("cuda", target=TEST, nodeids=(TEST,))


@pytest.fixture
def counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counters:
    """Counters on a GPU, with a stand-in for ncu that hangs."""
    stand_in_profilers.install(tmp_path / "bin", "ncu")
    monkeypatch.setattr(profilers, "DRIVER_PARAMETERS", tmp_path / "none")
    monkeypatch.setattr(profilers, "_TOOLKIT_FOLDERS", {"ncu": str(tmp_path / "none")})
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("STAND_IN", "hang")
    monkeypatch.setenv("STAND_IN_NOTES", str(tmp_path / "notes"))
    monkeypatch.setattr(fresh_processes, "FRESH_SECONDS_LEAST", 1.0)
    return Counters("ncu", GPU)


def asked(folder: Path) -> JudgedTest:
    """A test that took no time."""
    measurer, invocation = Measurer(Settings(), folder, Task("cpu")), Invocation((), folder, as_module=True)
    return JudgedTest(TEST, TEST, MarkerOptions(), 0.0, measurer, invocation, Progress())


def test_a_profiler_that_hangs_is_ended_and_tried_twice_for_reports(counters: Counters, tmp_path: Path) -> None:
    said = []
    for _ in range(3):
        with pytest.raises(CountersFailed) as caught:
            counters.profile(asked(tmp_path), REQUEST, tmp_path / "profiles" / "a.ncu-rep")
        said.append(str(caught.value))
    hung = "the test under ncu did not end in 1 s"
    assert said == [hung, hung, f"not tried any more: 2 tries in a row failed, the last time: {hung}"]
    started = [int(line.partition(" ")[0]) for line in (tmp_path / "notes").read_text().splitlines()]
    assert started
    assert all(gone(pid) for pid in started)


def test_what_can_be_told_beforehand_is_told_each_time(counters: Counters, tmp_path: Path) -> None:
    (tmp_path / "bin" / "ncu").unlink()
    for _ in range(3):
        with pytest.raises(CountersFailed, match="no ncu on PATH"):
            counters.profile(asked(tmp_path), REQUEST, tmp_path / "a.ncu-rep")


def test_reports_of_one_test_are_apart_on_each_device() -> None:
    key = "tests/test_a.py::test_a[../ü] @ x"
    names = {file_name(key, serial) for serial in ("GPU-0", "GPU-1")} | {file_name(f"{key}y", "GPU-0")}
    assert len(names) == 3
    assert all(name.startswith("test-a-x") for name in names)
    assert all(name.isascii() and name.replace("-", "").isalnum() for name in names)
    assert file_name(key, "GPU-0") == file_name(key, "GPU-0")
