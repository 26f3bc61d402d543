"""What a process hands to one that it starts: taken once, and only where an ancestor wrote it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from user_project import LINK

from pytest_bandwidth.options.handed_over import REQUEST_VARIABLE, hand_over, taken

TAKES = """
import os
from pytest_bandwidth.options.handed_over import taken

try:
    print(taken(), "PYTEST_BANDWIDTH_REQUEST" in os.environ)
except ValueError as error:
    print(error)
"""
REFUSED = (
    "found PYTEST_BANDWIDTH_REQUEST in the environment, expected it only in processes that pytest-bandwidth starts: "
    "unset it\n"
)


def take_in_child(file: Path, code: str = TAKES) -> str:
    environment = {**os.environ, REQUEST_VARIABLE: str(file)}
    return subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)


@pytest.fixture
def file(tmp_path):
    hand_over(tmp_path / "request.json", {"device": "cpu"})
    return tmp_path / "request.json"


def test_a_child_takes_it_once(file):
    assert take_in_child(file) == "{'device': 'cpu'} False\n"
    assert not file.exists()
    assert take_in_child(file) == REFUSED
    assert taken({}) is None


def test_a_grandchild_takes_it_through_another_program(file):
    code = (
        f"import subprocess, sys\nprint(subprocess.check_output([sys.executable, '-c', {TAKES!r}], text=True), end='')"
    )
    assert take_in_child(file, code) == "{'device': 'cpu'} False\n"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="without /proc only a parent's number is known")
def test_a_process_that_has_an_ancestors_number_is_another(file):
    content = json.loads(file.read_text())
    content["from"][1] = "1"
    file.write_text(json.dumps(content))
    assert take_in_child(file) == REFUSED


@pytest.mark.parametrize(
    "content",
    [
        "not JSON",
        '{"device": "cpu"}',
        '{"device": "cpu", "from": [1]}',
        '{"device": "cpu", "from": ["1", "2"]}',
        '{"device": "cpu", "from": [999999999, "2"]}',
        "[" * 10_000,
        None,
    ],
)
def test_what_no_ancestor_wrote_is_refused(file, content):
    if content is None:
        file.unlink()
        file.mkdir()
    else:
        file.write_text(content)
    with pytest.raises(ValueError, match=re.escape(REFUSED.strip())):
        taken({REQUEST_VARIABLE: str(file)})


@pytest.mark.parametrize("name", [REQUEST_VARIABLE, "PYTEST_BANDWIDTH_PARENT", "PYTEST_BANDWIDTH_ANCESTOR"])
def test_a_run_with_a_variable_left_by_others_ends_at_once(pytester, monkeypatch, name):
    pytester.makepyfile("def test(): pass")
    monkeypatch.setenv(name, "")
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: bandwidth: found {name} in the environment, expected it only in*: unset it{LINK}"]
    )
