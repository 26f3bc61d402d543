"""What `torch.compile` returns is known by the files that the test read, whatever Inductor keeps of its kernels."""

import importlib.util
import shutil

import pytest

OPERATORS = "def scale(x):\n    return x * 2 + 1\n\n\ndef shift(x):\n    return x.sin() - 3\n"
MEASURED = """
import pytest
import torch
import operators

@pytest.mark.parametrize("name", ["scale", "shift"])
def test_operator(bandwidth, name):
    bandwidth(torch.compile(getattr(operators, name)), torch.ones(1 << 16), reads=1 << 18, writes=1 << 18)
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: docs/frameworks.md")
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor compiles by g++")
def test_a_compiled_callable_is_known_by_the_files_of_its_test(slept, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    slept.file("operators.py", OPERATORS)
    slept.file("test_operators.py", MEASURED)
    slept.file("README.md", "Say it.\n")

    def found(*args):
        rows = slept.document("--bandwidth-baseline=b.yaml", "-obandwidth_settle=never", *args)["results"]
        return {row["nodeid"].rpartition("::")[2]: (row["reason_code"], row["code_diff"]) for row in rows}

    shift, same = "test_operator[shift]", ("code-unchanged", "")
    slept.run("--bandwidth-baseline=b.yaml", "--bandwidth-update").assert_outcomes(passed=2)
    slept.file("README.md", "Say it again.\n")
    assert found("-k", "shift") == {shift: same}
    slept.file("operators.py", OPERATORS.replace("* 2", "* 3"))
    assert {diff for _, diff in found().values()} == {"operators.py changed"}
