"""Entries whose test is gone are named by a run of everything, and by no other."""

import json
import shlex

import pytest
from plugin_texts import COPY

pytestmark = pytest.mark.in_process

BASELINE = """schema: 2
tests:
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
    assert {"code": "absent", "text": told[0]} in document["findings"]
    assert {finding["code"] for finding in document["findings"]} == {"absent", "not-measured"}
    from pytest_bandwidth.cli.main import main

    monkeypatch.chdir(known.path)
    assert main(shlex.split(told[0].partition("pytest-bandwidth ")[2])) == 0
    assert "no test any more" not in known.run_here("--bandwidth-baseline=b.yaml").stdout.str()


@pytest.mark.parametrize(
    "narrowed", [("test_copy.py",), ("-k", "copy"), ("-m", "not slow"), ("--deselect=x",), ("--lf",), ("--stepwise",)]
)
def test_a_run_of_less_does_not_know(known, narrowed):
    result = known.run_here("--bandwidth-baseline=b.yaml", *narrowed)
    assert "no test any more" not in result.stdout.str()


DESELECTS = """
import pytest

@pytest.hookimpl({order})
def pytest_collection_modifyitems(config, items):
    config.hook.pytest_deselected(items=[item for item in items if "{left_out}" in item.name])
    items[:] = [item for item in items if "{left_out}" not in item.name]
"""


@pytest.mark.parametrize("order", ["tryfirst=True", "trylast=True"])
@pytest.mark.parametrize("left_out", ["test_it", "test_plain"])
def test_what_others_deselect_is_not_gone(known, order, left_out):
    known.file(
        "test_gone.py", "import pytest\n@pytest.mark.parametrize('a', ['1 @ 2'])\ndef test_it(bandwidth, a): pass\n"
    )
    known.file("b.yaml", BASELINE + "  test_never.py::test_it:\n    bandwidth: 1 GB/s\n")
    known.file("conftest.py", DESELECTS.format(order=order, left_out=left_out))
    result = known.run_here("--bandwidth-baseline=b.yaml")
    (told,) = [line for line in result.outlines if "no test any more" in line]
    assert told.endswith("prune b.yaml test_never.py::test_it")


def test_a_file_that_was_skipped_may_hold_any_test(known):
    known.file("test_gone.py", "import pytest\npytest.skip('not here', allow_module_level=True)\n")
    assert "no test any more" not in known.run_here("--bandwidth-baseline=b.yaml").stdout.str()
