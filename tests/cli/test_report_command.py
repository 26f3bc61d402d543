"""`pytest-bandwidth report`: what it renders is chosen by the ending of the file's name."""

import pytest
from hostile import COMMANDS, commands_in
from run_documents import outcome, run_of, save
from user_project import LINK

KEY = "tests/test_a.py::test_copy"


@pytest.fixture
def run_file(tmp_path):
    return save(tmp_path / "run.json", run_of(outcome(KEY, 700.0)))


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (("-o", "x.pdf"), "-o x.pdf: found ending '.pdf', expected .csv, .md, .sarif, .html, .svg or .png"),
        (("--chart", "nope"), "--chart nope chooses what is drawn: found no -o, expected -o FILE.svg or FILE.png"),
        (("--chart", "nope", "-o", "x.csv"), "found -o x.csv, expected -o FILE.svg or FILE.png"),
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
    first = said.err.partition("has data for: ")[2].removesuffix(f"{LINK}\n").split(", ")[0]
    for path in (tmp_path / "named.svg", tmp_path / "first.svg"):
        chosen = ("--chart", first) if path.stem == "named" else ()
        assert command("report", run_file, "-o", path, *chosen).status == 0
    assert (tmp_path / "named.svg").read_text() == (tmp_path / "first.svg").read_text()
    assert (tmp_path / "first.svg").read_text().startswith("<svg")
    assert command("report", run_file, "-o", tmp_path / "x.PNG").status == 0
    assert (tmp_path / "x.PNG").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize("text", COMMANDS)
def test_no_line_of_a_saved_run_is_a_command_of_ci(command, tmp_path, text):
    many = [f"t.py::test_x[{text}]", f"t.py::test_x[y{text}]"]
    rows = [outcome(key, 700.0, invalid=f"{text} {key}") for key in many]
    whole = outcome(text, 700.0)
    for name, run in {"parameters": run_of(*rows), "whole": run_of(whole)}.items():
        said = command("report", save(tmp_path / f"{name}.json", run))
        assert said.status == 0
        assert "forged" in said.out
        assert commands_in(said.out) == []
