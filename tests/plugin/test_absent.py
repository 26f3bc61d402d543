"""Entries whose test is gone are named by a run of everything, and by no other."""

import json
import shlex

import pytest
from plugin_texts import COPY

BASELINE = """schema: 1
entries:
  test_copy.py::test_copy:
    bandwidth: 1 GB/s
  test_copy.py::test_copy @ large @ cold:
    bandwidth: 1 GB/s
  test_gone.py::test_it[1 @ 2]:
    bandwidth: 1 GB/s
"""


@pytest.fixture
def known(project):
    project.file("test_copy.py", COPY + "\ndef test_plain(): pass\n")
    project.file("b.yaml", BASELINE)
    return project


def test_a_run_of_everything_names_them_and_the_command_removes_them(known, monkeypatch):
    result = known.run_here("--bandwidth-baseline=b.yaml", "--bandwidth-only", "--bandwidth-json=run.json")
    told = [line for line in result.outlines if "no test any more" in line]
    assert told == [
        "1 entry has no test any more; to remove: pytest-bandwidth baseline prune b.yaml 'test_gone.py::test_it[1 @ 2]'"
    ]
    document = json.loads((known.path / "run.json").read_text())
    assert document["findings"] == [{"code": "absent", "text": told[0]}]
    from pytest_bandwidth.cli import main

    monkeypatch.chdir(known.path)
    assert main(shlex.split(told[0].partition("pytest-bandwidth ")[2])) == 0
    assert "no test any more" not in known.run_here("--bandwidth-baseline=b.yaml").stdout.str()


@pytest.mark.parametrize("narrowed", [("test_copy.py",), ("-k", "copy"), ("-m", "not slow"), ("--deselect=x",)])
def test_a_run_of_less_does_not_know(known, narrowed):
    result = known.run_here("--bandwidth-baseline=b.yaml", *narrowed)
    assert "no test any more" not in result.stdout.str()


def test_a_file_that_was_skipped_may_hold_any_test(known):
    known.file("test_gone.py", "import pytest\npytest.skip('not here', allow_module_level=True)\n")
    assert "no test any more" not in known.run_here("--bandwidth-baseline=b.yaml").stdout.str()
