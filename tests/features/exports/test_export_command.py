"""`pytest-bandwidth export`: each form read by what reads it, or held to its own schema."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
from datetime import datetime, timezone

import pytest
import yaml
from documented import BLOCKS, ROOT, words
from hostile import COMMANDS, HOSTILE, commands_in
from run_documents import GPU, HOST, outcome, run_of, save

from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.features.exports.forms import METRICS
from pytest_bandwidth.outcomes.outcome import Outcome

COPY, SUM = "tests/test_a.py::test_copy[64-float32]", 'tests/test_a.py::test_sum @ "odd\\, =1+1 ü'
FORMATS = ("bencher", "github-action-benchmark", "otava", "openmetrics", "csv-long")


def timed(minute: int, *rows: Outcome, device: DeviceIdentity = GPU):
    """Make a run that began at that minute."""
    moment = f"2026-01-02T03:{minute:02}:00Z"
    environment = {"started_at": moment, "commit": f"c{minute}", "host": "node-7"}
    return run_of(*rows, device=device, environment=environment)


@pytest.fixture
def runs(tmp_path):
    """Three runs of two tests, the second of which is not valid in the last, and a third test in the first alone."""
    documents = [
        timed(0, outcome(COPY, 700.0), outcome(SUM, 400.0), outcome("tests/test_b.py::once", 1.0)),
        timed(1, outcome(COPY, 720.0), outcome(SUM, 410.0)),
        timed(2, outcome(COPY, 710.0), outcome(SUM, 900.0, invalid="above peak")),
    ]
    return [save(tmp_path / f"run{number}.json", document) for number, document in enumerate(documents)]


def test_bencher_and_what_is_left_out(command, runs):
    found = json.loads(command("export", *runs, "--format", "bencher").out)
    # https://bencher.dev/docs/reference/bencher-metric-format/
    assert all(list(metric) == ["value"] for measures in found.values() for metric in measures.values())
    assert list(found) == [COPY, SUM, "tests/test_b.py::once"]
    assert found[COPY]["bandwidth"] == {"value": 710.0}
    assert found[SUM]["bandwidth"]["value"] == pytest.approx(405.0)
    assert found[COPY]["latency"]["value"] == pytest.approx(2**28 / 710)
    assert found[COPY]["share-of-probe"]["value"] == pytest.approx(710 / 900)
    said = command("export", runs[2], "--format", "bencher")
    assert said.status == 0
    assert "1 result left out (not timed, or not valid): tests/test_a.py::test_sum" in said.err


def test_github_action_benchmark(command, runs):
    found = json.loads(command("export", *runs, "--format", "github-action-benchmark").out)
    assert len({entry["name"] for entry in found}) == len(found) == 6
    told = {"value": 710.0, "extra": "3 runs on Imaginary GPU"}
    assert found[0] == {"name": COPY, "unit": "GB/s", **told}
    assert (found[1]["name"], found[1]["unit"]) == (f"{COPY} (share of probe)", "%")
    assert found[1]["value"] == pytest.approx(100 * 710 / 900)


def test_otava(command, runs):
    said = command("export", *reversed(runs), "--format", "otava")
    header, *rows = csv.reader(io.StringIO(said.out))
    assert header == ["time", "run_id", "commit", "device", COPY]
    assert [row[0] for row in rows] == [f"2026-01-02T03:0{minute}:00+00:00" for minute in range(3)]
    assert [float(row[4]) for row in rows] == [700.0, 720.0, 710.0]
    assert "2 results left out (not in every run, and Otava's columns have no gaps)" in said.err
    whole = command("export", *runs[:2], "--format", "otava")
    assert next(csv.reader(io.StringIO(whole.out)))[4:] == [COPY, SUM]


@pytest.fixture
def documented_runs(command, tmp_path, monkeypatch):
    """Thirty runs, the last fifteen a sixth slower, in the place and with the files that docs/ci.md has."""
    (config,) = [block for block in BLOCKS if block.page == "ci.md" and block.text.startswith("# otava.yaml")]
    (tmp_path / "otava.yaml").write_text(config.text)
    (tmp_path / "runs").mkdir()
    for minute in range(30):
        rows = outcome("test_triad.py::test_triad", (720.0 if minute < 15 else 600.0) + minute % 3), outcome(SUM, 400.0)
        save(tmp_path / "runs" / f"run{minute:02}.json", timed(minute, *rows))
    monkeypatch.chdir(tmp_path)

    def export(form, program):
        """Export as the docs say for the form. Returns the arguments that they then hand that program."""
        (block,) = [block for block in BLOCKS if block.page == "ci.md" and "pytest-bandwidth export" in block.text]
        steps = [step["run"] for step in yaml.safe_load(block.text) if "run" in step]
        (exported,) = [step for step in steps if f"--format {form} " in step]
        assert command(*words(exported, tmp_path)[1:]).status == 0
        (then,) = [step for step in steps if step.startswith(f"{program} ")]
        return words(then, tmp_path)[1:]

    return export


def read_by(program, arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_otava_itself_finds_what_changed(documented_runs):
    """In an environment of its own, where `make trackers` installs it: it pins NumPy."""
    program = ROOT / ".venv-otava" / "bin" / "otava"
    if not program.exists():
        pytest.skip("Apache Otava is not installed: make trackers")
    arguments = documented_runs("otava", "otava/bin/otava")
    # Without a date it leaves out what is older than a year.
    said = json.loads(read_by(program, [*arguments, "--since", "2026-01-01", "--output", "json"]))
    (change,) = said["bandwidth"]
    assert change["attributes"]["commit"] == "c15"
    assert [one["metric"] for one in change["changes"]] == ["test_triad.py::test_triad"]
    assert [float(change["changes"][0][name]) for name in ("mean_before", "mean_after")] == [721.0, 601.0]


def test_promtool_itself_reads_it(documented_runs, tmp_path):
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed: it comes with Prometheus")
    read_by(program, documented_runs("openmetrics", "promtool"))
    (block,) = (tmp_path / "data").iterdir()
    stats = json.loads((block / "meta.json").read_text())["stats"]
    assert (stats["numSamples"], stats["numSeries"]) == (30 * 2 * 5, 2 * 5)  # runs, tests, and a figure of each kind


def test_openmetrics(command, runs):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="prometheus_client is not installed")
    said = command("export", *runs, "--format", "openmetrics")
    families = {family.name: family for family in parser.text_string_to_metric_families(said.out)}
    assert {family.type for family in families.values()} == {"gauge"}
    bandwidth = families["pytest_bandwidth_bandwidth_bytes_per_second"]
    assert bandwidth.unit == "bytes_per_second"
    found = [(one.labels["test"], float(one.timestamp), one.value) for one in bandwidth.samples]
    start = datetime(2026, 1, 2, 3, tzinfo=timezone.utc).timestamp()
    assert [moment - start for name, moment, _ in found if name == COPY] == [0, 60, 120]
    assert [value for name, _, value in found if name == COPY] == [700e9, 720e9, 710e9]
    assert [value for name, _, value in found if name == SUM] == [400e9, 410e9]
    assert {one.labels["host"] for one in bandwidth.samples} == {"node-7"}
    assert families["pytest_bandwidth_utilization_ratio"].samples[0].value == pytest.approx(0.7)


def test_csv_long(command, runs):
    rows = list(csv.DictReader(io.StringIO(command("export", *runs, "--format", "csv-long").out)))
    assert {row["metric"] for row in rows} == {metric.name for metric in METRICS}
    assert [row["value"] for row in rows if row["metric"] == "bandwidth"] == ["700", "400", "1", "720", "410", "710"]
    assert {row["started_at"] for row in rows} == {f"2026-01-02T03:0{minute}:00Z" for minute in range(3)}
    assert {(row["device_kind"], row["commit"][0]) for row in rows} == {("cuda", "c")}


CELLS = ("a\n::error::forged", "=1+1", "\t=1+1", "a\r\n@x", 'a"b\\', "\x00nul", "a\u2028::warning::x")
HOSTILE_NAMES = (*COMMANDS, *CELLS, *HOSTILE)


@pytest.mark.parametrize("form", FORMATS)
def test_hostile_texts_stay_text_in_every_form(command, tmp_path, form):
    names = [
        name for name in dict.fromkeys(HOSTILE_NAMES) if name.strip() and len(name.encode("utf-8", "replace")) < 1000
    ]
    run = timed(0, *(outcome(name.replace("\ud800", "?"), 700.0) for name in names))
    first = names[0]
    run["run_id"] = run["device"]["name"] = run["device"]["serial"] = first
    run["environment"] |= {"commit": first, "host": first}
    said = command("export", save(tmp_path / "run.json", run), "--format", form)
    assert said.status == 0, said.err
    assert commands_in(said.out) == []
    assert all(line.isprintable() for line in said.out.splitlines())
    if form in ("otava", "csv-long"):
        cells = [cell for row in csv.reader(io.StringIO(said.out)) for cell in row]
        assert not [cell for cell in cells if cell.lstrip().startswith(("=", "+", "@"))]
    else:
        assert all(text in said.out for text in ("forged", "window.pwned=1"))


def test_a_file_holds_what_would_be_printed(command, runs, tmp_path):
    printed = command("export", runs[0], "--format", "csv-long")
    said = command("export", runs[0], "--format", "csv-long", "-o", tmp_path / "out" / "file")
    assert (said.status, said.out) == (0, "")
    assert (tmp_path / "out" / "file").read_text(encoding="utf-8") == printed.out


def test_what_cannot_be_exported_is_one_line(command, runs, tmp_path):
    counted = timed(0, outcome(COPY, None, None, method="ptx", counts={"load_sectors": 8}))
    for document, found in (
        (counted, "found 1 result without valid timings, expected a run that took times"),
        (timed(0), "found no results, expected a run that took times"),
        (run_of(outcome(COPY, 1.0)), "environment.started_at is None, expected a time"),
    ):
        said = command("export", save(tmp_path / "run.json", document), "--format", "otava")
        assert (said.status, said.out, said.err.count("\n")) == (2, "", 1)
        assert f"run.json: {found}" in said.err
    said = command("export", runs[0], "--format", "excel")
    assert (said.status, said.out, said.err.count("\n")) == (2, "", 1)
    assert "invalid choice: 'excel'" in said.err
    assert command("export", runs[0]).status == 2


def test_runs_that_cannot_be_told_apart_are_refused(command, runs, tmp_path):
    said = command("export", runs[0], runs[0], "--format", "csv-long")
    assert (said.status, "has the same run as" in said.err) == (2, True)
    same = save(tmp_path / "same.json", timed(0, outcome(COPY, 1.0)))
    said = command("export", runs[0], same, "--format", "openmetrics")
    assert (said.status, "began in the same second on Imaginary GPU" in said.err) == (2, True)


def test_two_devices_go_where_a_test_has_a_figure_for_each(command, runs, tmp_path):
    host = save(tmp_path / "host.json", timed(0, outcome(COPY, 20.0, 25.0, device=HOST, peak=None), device=HOST))
    for form in FORMATS:
        said = command("export", runs[0], host, "--format", form)
        assert said.status == (0 if form in ("openmetrics", "csv-long") else 2), form
    assert "found runs of two devices" in command("export", runs[0], host, "--format", "otava").err


@pytest.mark.parametrize("name", ["t" * 1025, "ü" * 512 + "t"])
def test_a_name_that_bencher_does_not_take_is_refused(command, tmp_path, name):
    """Its limit is of bytes, as UTF-8."""
    said = command("export", save(tmp_path / "run.json", timed(0, outcome(name, 1.0))), "--format", "bencher")
    assert (said.status, "has 1025 bytes, Bencher takes names of 1024 at most" in said.err) == (2, True)


def test_what_the_docs_have_ci_run_is_written(command, runs, tmp_path, monkeypatch):
    (block,) = [block for block in BLOCKS if block.page == "ci.md" and "pytest-bandwidth export" in block.text]
    steps = [step["run"] for step in yaml.safe_load(block.text) if "export" in step.get("run", "")]
    assert [step.split("--format ")[1].split()[0] for step in steps] == list(FORMATS)
    (tmp_path / "runs").mkdir()
    for number, path in enumerate(runs):
        path.rename(tmp_path / "runs" / f"{number}.json")
    (tmp_path / "run.json").write_text((tmp_path / "runs" / "0.json").read_text())
    monkeypatch.chdir(tmp_path)
    for step in steps:
        _, *arguments = words(step, tmp_path)
        assert command(*arguments).status == 0, step
        assert (tmp_path / arguments[-1]).stat().st_size > 0


def test_a_run_is_not_overwritten_by_its_own_export(command, tmp_path):
    path = save(tmp_path / "run.json", timed(0, outcome(COPY, 700.0)))
    before = path.read_bytes()
    link = tmp_path / "link.json"
    link.symlink_to(path)
    for target in (path, link):
        said = command("export", path, "--format", "bencher", "-o", target)
        assert said.status == 2
        assert "found an input" in said.err
        assert path.read_bytes() == before
