"""Texts of a baseline and names of tests stay text in a log of CI, whichever way they get there."""

import json

import pytest
from hostile import COMMANDS, commands_in

pytestmark = [pytest.mark.in_process, pytest.mark.slow]

COPY = """
import numpy as np
import pytest

def copy(bandwidth, **given):
    a, b = bandwidth.random(1 << 14, "float32"), bandwidth.empty(1 << 14, "float32")
    bandwidth(np.copyto, b, a, reads=a, writes=b, **given)

@pytest.mark.parametrize("number", range(6))
def test_copy(bandwidth, number):
    copy(bandwidth)
"""
HEAD = "schema: 2\ntests:\n"
ENTRY = "  test_copy.py::test_copy[{}]:\n    bandwidth: 900 GB/s\n"
SHOWN = ("-ra", "-vv", "-o", "bandwidth_confirm=0", "--bandwidth-baseline=b.yaml", "--bandwidth-strict")


@pytest.fixture(autouse=True)
def copies(project):
    project.file("test_copy.py", COPY)


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def log_of(project, *args):
    result = project.run_here(*SHOWN, *args)
    log = f"{result.stdout.str()}\n{result.stderr.str()}"
    assert commands_in(log) == []
    return result, log


def test_a_text_of_an_entry_is_no_command(project):
    kinds = ("    xfail: {}\n", "    method: {}\n", "    settings: {{{}: a}}\n")
    texts = [kind.format(quoted(text)) for kind in kinds for text in COMMANDS]
    project.file("test_copy.py", COPY.replace("range(6)", f"range({len(texts)})"))
    project.file("b.yaml", HEAD + "".join(ENTRY.format(number) + text for number, text in enumerate(texts)))
    result, log = log_of(project)
    assert result.ret in (0, 1)
    assert "forged" in log


def test_a_name_of_an_entry_or_its_device_is_no_command(project):
    entries = "".join(f"  {quoted(text.strip())}: {{bandwidth: 1}}\n" for text in COMMANDS)
    project.file("b.yaml", f"schema: 2\ndevice: {{name: {quoted(COMMANDS[0])}}}\ntests:\n{entries}")
    log_of(project)


@pytest.mark.parametrize(("name", "said"), [("gpu", COMMANDS[0]), ("commit", COMMANDS[2]), ("facts", COMMANDS[1])])
def test_a_text_of_a_run_is_no_command(project, name, said):
    """A text of one line may be one: it stays inside of ours. Any other is refused, on one line."""
    project.file("b.yaml", f"{HEAD}{ENTRY.format(0)}    runs: 1\n")
    tests = {"test_copy.py::test_copy[0]": {"gbps": 900.0}}
    told = {name: {"numpy": said} if name == "facts" else said}
    line = {"schema": 2, "id": "18ebe921fd8f11ef-a3ec2f.0", "tests": tests, **told}
    project.file("b.runs.jsonl", json.dumps(line) + "\n")
    log_of(project, *tests)


def test_a_text_of_one_line_has_no_other(project):
    project.file("b.yaml", f"{HEAD}{ENTRY.format(0)}    xfail: {quoted('a' + chr(10) + '::error::forged')}\n")
    result, log = log_of(project)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert r"found 'a\n::error::forged', expected text of one line" in log
    # Nor has an option that is quoted.
    result, _ = log_of(project, "--bandwidth-device=a\n::error::forged")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


RAISES = """
import pytest

TEXT = {text!r}

def test_in_the_callable(bandwidth):
    def call():
        raise ValueError(TEXT)
    bandwidth(call, reads=10**6)

def test_in_a_declaration(bandwidth):
    bandwidth(len, TEXT, reads=TEXT)

def test_in_a_kernel(bandwidth):
    bandwidth.kernel("a.cu", TEXT)

@pytest.mark.bandwidth(device=TEXT)
def test_in_a_marker(bandwidth):
    bandwidth(len, "a", reads=10**6)

@pytest.mark.parametrize("name", [TEXT], ids=[TEXT])
def test_in_an_id(bandwidth, name):
    bandwidth(len, name, reads=10)
"""


@pytest.mark.parametrize("text", ["##[error]forged", "a\u2028::error::forged", "\x1b[31m\u202e\x00a"])
def test_what_fails_in_a_test_prints_no_command(project, text):
    project.file("test_copy.py", RAISES.format(text=text))
    result = project.run_here("-ra", "-v", "--tb=line", "-o", "console_output_style=classic")
    lines = [line for line in result.stdout.lines if "FAILED" in line or "bandwidth" in line]
    assert lines
    assert [line for line in commands_in("\n".join(lines)) if "test_in_an_id[" not in line] == []
    assert not any(sign in line for line in lines for sign in "\x1b\u202e\x00\u2028")
