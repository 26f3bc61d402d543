"""Formats of files: a conftest.py adds one of its own; what it does wrong costs nothing else."""

from user_project import COPY

from pytest_bandwidth.reports.formats import formats

CONFTEST = """
from pytest_bandwidth.hooks import Format

def pytest_addoption(parser):
    parser.addoption("--team-report", metavar="FILE")

def slowest(document):
    rows = sorted(document["results"], key=lambda row: row["gbps"] or 0.0)
    return "# Slowest first\\n" + "".join(f"- {row['key']}\\n" for row in rows)

def pytest_bandwidth_formats():
    return [Format("md", slowest, begins="# Slowest", option="team_report", in_folder=True)]
"""


def test_a_conftest_adds_a_format_and_its_option(project):
    project.file("conftest.py", CONFTEST)
    project.file("test_copy.py", COPY)
    result = project.run_here("--team-report=slow.md", "--bandwidth-dir=all", "-p", "no:bandwidth-html")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["wrote slow.md"])
    text = (project.path / "slow.md").read_text()
    assert text == "# Slowest first\n- test_copy.py::test_copy\n"
    (folder,) = (project.path / "all").iterdir()
    assert (folder / "bandwidth_report.md").read_text() == text
    assert not (folder / "bandwidth_report.html").exists()


def test_a_file_of_others_is_refused_before_anything_is_measured(project):
    project.file("conftest.py", CONFTEST)
    project.file("test_copy.py", COPY)
    (project.path / "slow.md").write_text("# My notes\n")
    result = project.run_here("--team-report=slow.md")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: --team-report: found *slow.md, which pytest-bandwidth did not write*"])


def test_a_format_that_raises_is_named_and_the_others_write(project):
    project.file("conftest.py", CONFTEST.replace('document["results"]', 'document["rows"]'))
    project.file("test_copy.py", COPY)
    result = project.run_here("--team-report=slow.md", "--bandwidth-json=run.json")
    assert result.ret == 4
    said = "ERROR: slow.md was not written: conftest.py:8: the format 'md' raised KeyError: 'rows'"
    result.stdout.fnmatch_lines(["wrote run.json", said])


def test_kinds_of_the_core_and_of_features():
    assert list(formats()) == ["json", "csv", "md", "sarif", "html", "svg", "png"]
