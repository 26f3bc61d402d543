"""`pytest-bandwidth report`: what it renders is chosen by the ending of the file's name."""

from __future__ import annotations

import pytest
from saved_runs import outcome, run_of, save

KEY = "tests/test_a.py::test_copy"


@pytest.fixture
def run_file(tmp_path):
    return save(tmp_path / "run.json", run_of(outcome(KEY, 700.0)))


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (("-o", "x.pdf"), "-o x.pdf: found ending '.pdf', expected .html, .csv, .md, .svg or .png"),
        (("--chart", "roofline"), "--chart roofline: found no chart to write, expected -o FILE.svg or -o FILE.png"),
        (("--chart", "roofline", "-o", "x.csv"), "found no chart to write"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_run_is_read(command, more, problem):
    said = command("report", "/nowhere/run.json", *more)
    assert (said.status, said.out) == (2, "")
    assert problem in said.err


def test_a_chart_is_written_by_its_ending_and_name(command, run_file, tmp_path):
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")
    said = command("report", run_file, "-o", tmp_path / "x.svg", "--chart", "no-such")
    assert said.status == 2
    first = said.err.partition("has data for: ")[2].strip().split(", ")[0]
    for path in (tmp_path / "named.svg", tmp_path / "first.svg"):
        chosen = ("--chart", first) if path.stem == "named" else ()
        assert command("report", run_file, "-o", path, *chosen).status == 0
    assert (tmp_path / "named.svg").read_text() == (tmp_path / "first.svg").read_text()
    assert (tmp_path / "first.svg").read_text().startswith("<svg")
    assert command("report", run_file, "-o", tmp_path / "x.PNG").status == 0
    assert (tmp_path / "x.PNG").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
