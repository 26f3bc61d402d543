"""Several devices in one run: what they and their files are called, and what of their updates is refused."""

from pathlib import Path

import pytest

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.domain.measured.measurement import Finding
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.outcomes.run_findings import OUTLIER
from pytest_bandwidth.session.publishing.gathered import (
    DeviceReport,
    DeviceResults,
    Gathered,
    Row,
    names_of,
    own_file,
    suffixes_of,
)
from pytest_bandwidth.session.publishing.update import update_baselines


def device(name, serial, kind="cuda"):
    return {"kind": kind, "name": name, "serial": serial, "memory_gib": 80, "peak": None, "timed_on": "gpu"}


def measured(gbps, status="SAVED", **more):
    return Outcome("t.py::t", "t.py::t", None, status, "", "", gbps=gbps, bytes_read=8, method="events", **more)


def test_the_serial_tells_devices_of_one_name_apart_and_names_show_no_control_characters():
    devices = [device("NVIDIA H200", "GPU-1"), device("NVIDIA H200", "GPU-2"), device("NVIDIA A100", "GPU-3")]
    assert names_of(devices) == ["NVIDIA H200 (GPU-1)", "NVIDIA H200 (GPU-2)", "NVIDIA A100"]
    assert suffixes_of(devices) == ["nvidia-h200-gpu-1", "nvidia-h200-gpu-2", "nvidia-a100"]
    assert names_of([device("a\x1b[2J", "1")]) == ["a\\x1b[2J"]
    assert own_file(Path("out/run.json"), "x") == Path("out/run.x.json")
    assert own_file(Path("run"), "x") == Path("run.x")


@pytest.mark.parametrize(
    "devices",
    [
        [device("a", "1"), device("A", "1"), device("a!", "1")],
        [device("x" * 300, "1"), device("x" * 300, "2"), device("x" * 300, "3")],
        [device("../..", "/"), device("\0\n", "."), device("", "")],
        [device("a", "1"), device("a", "1-2"), device("a 1", "2"), device("a-1", "3")],
    ],
)
def test_suffixes_are_unique_and_safe_in_file_names(devices):
    suffixes = suffixes_of(devices)
    assert len(set(suffixes)) == len(devices)
    assert all(1 <= len(s) < 70 and s.replace("-", "").isalnum() and s.isascii() for s in suffixes)


def row(key, gbps):
    return Row(Outcome(key, key, None, "OK", "", "", gbps=gbps)).to_plain()


def test_the_last_report_of_a_test_on_a_device_counts_and_a_device_of_which_nothing_was_judged_is_told():
    gathered = Gathered()
    gathered.add("gw0", "t", device("a", "1"), [row("u", 1.0), row("t", 1.0)])
    gathered.add("gw1", "t", device("a", "1"), [row("t", 2.0)])
    gathered.add("gw2", "t", device("a", "2"), [row("t", 3.0)])
    one, two = gathered.results({("gw0", "t"), ("gw2", "t")})
    assert [r.gbps for r in one.outcomes] == [2.0, 1.0]
    assert (one.failed, two.failed) == (frozenset(), {"t"})
    assert [len(run.succeeded) for run in (one, two)] == [2, 0]
    gathered = Gathered()
    gathered.add("gw0", "t", device("a", "1"), [row("t", 1.0)])
    gathered.add("gw1", "t", device("a", "2"), unjudged="ValueError: no data")
    gathered.add("gw2", "u", device("a", "3"), unjudged="mended by a rerun")
    gathered.add("gw3", "v", None, unjudged="no device")
    runs = gathered.results({("gw1", "t"), ("gw3", "v")})
    assert [(run.device["serial"], len(run.rows), run.unjudged) for run in runs] == [
        ("1", 1, {}),
        ("2", 0, {"t": "ValueError: no data"}),
    ]


def results(name, gbps=100.0, serial="1", **more):
    return DeviceResults(device(name, serial), (Row(measured(gbps)),), **more)


def updated(pytestconfig, settings, *devices, unlike=None, interrupted=False):
    names = names_of([one.device for one in devices])
    unlike = unlike or [None] * len(devices)
    found = zip(devices, names, unlike, strict=True)
    reports = [DeviceReport(one, name, None, other, one.rows) for one, name, other in found]
    update_baselines(pytestconfig, settings, reports, interrupted=interrupted)
    return reports


def problems(updates):
    """What updates of devices say that could not be done."""
    return [remark.text for update in updates for remark in update.remarks if remark.kind == "problem"]


def test_one_file_for_two_models_is_one_error_that_says_to_use_a_folder(pytestconfig, tmp_path):
    settings = Settings(baseline=tmp_path / "b.yaml", update=True, runs=1)
    (problem,) = problems(updated(pytestconfig, settings, results("a"), results("b")))
    assert "one file, and the devices a, b, expected a folder" in problem
    assert list(tmp_path.iterdir()) == []
    assert problems(updated(pytestconfig, settings, results("a"), results("a", serial="2"))) == []


def test_further_runs_of_several_devices_need_workers_that_run_every_test(pytestconfig, tmp_path):
    settings = Settings(baseline=tmp_path / "folder", update=True, runs=2)
    found = problems(updated(pytestconfig, settings, results("a"), results("b")))
    assert ["no further runs of a, expected --dist=each" in text for text in found] == [True, False]
    assert ["no further runs of b, expected --dist=each" in text for text in found] == [False, True]
    assert list(tmp_path.iterdir()) == []


def told(update):
    (row,) = update.rows
    return row.outcome.status, row.outcome.reason


def test_an_interrupted_run_leaves_every_file_as_it_is(pytestconfig, tmp_path):
    settings = Settings(baseline=tmp_path / "folder", update=True, runs=1)
    updates = updated(pytestconfig, settings, results("a"), results("b"), interrupted=True)
    said = ("UNDECIDED", "not saved: the run was interrupted")
    assert [told(update) for update in updates] == [said, said]
    assert [update.interrupted for update in updates] == [True, False]  # it is said once
    assert list(tmp_path.iterdir()) == []


def test_an_outlier_does_not_enter_what_others_of_its_model_write(pytestconfig, tmp_path):
    devices = [results("a", 100.0 - n, str(n)) for n in range(2)]
    settings = Settings(baseline=tmp_path, update=True, runs=1)
    updates = updated(pytestconfig, settings, *devices, unlike=[None, Finding(OUTLIER, "a (1) is slower")])
    (file,) = tmp_path.glob("*.yaml")
    assert [run.gbps for run in baseline_files.load(file).entries["t.py::t"].runs] == [100.0]
    assert told(updates[0]) == ("SAVED", "")
    assert told(updates[1]) == ("SAVED", "left out of the baseline's update: it is an outlier")
    (note,) = updates[1].remarks
    assert (note.kind, note.text) == ("note", "a (1) was left out of the baseline's update: it is an outlier")


def test_what_failed_is_not_written_and_is_not_called_saved(pytestconfig, tmp_path):
    failed = results("a", failed=frozenset({"t.py::t"}))
    (update,) = updated(pytestconfig, Settings(baseline=tmp_path, update=True, runs=1), failed)
    assert told(update) == ("UNDECIDED", "not saved: the test failed")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("trouble", [None, "a new process ended"])
def test_an_update_that_fails_says_why_and_leaves_the_file(pytestconfig, tmp_path, trouble):
    file = tmp_path / "b.yaml"
    file.write_text("schema: 7\n", encoding="utf-8")
    settings = Settings(baseline=file, update=True, runs=1)
    (update,) = updated(pytestconfig, settings, results("a", trouble=trouble))
    (problem,) = update.remarks
    assert problem.text.startswith("the baseline was not updated: ")
    assert (trouble or "found schema 7, expected 2") in problem.text
    assert (problem.kind, problem.code) == ("problem", "not-updated")
    assert told(update) == ("UNDECIDED", "not saved: the update failed")
    assert file.read_text(encoding="utf-8") == "schema: 7\n"
