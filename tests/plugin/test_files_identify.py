"""Callables that nothing identifies are known by the files that their process read: of a repository, by real runs."""

import json
import os
import shutil

import pytest
from repositories import committed
from user_project import INI_OF_COMMITS

FILES = {
    "mypkg/__init__.py": "",
    "mypkg/tensors.py": """
import numpy as np
from virtual_time import sleep
from . import timing

class Tensor:
    def __init__(self, size):
        self.data = np.zeros(size, "f4")

    def copy_to(self, other):
        np.copyto(other.data, self.data)
        sleep(timing.SECONDS)
""",
    "mypkg/timing.py": "SECONDS = 0.002\n",
    "mypkg/compiled.py": """
from pathlib import Path
from virtual_time import sleep

def compiled(file):
    text = Path(file).read_text()
    def launch():
        sleep(text.count("step") / 1000)
    return launch
""",
    "tests/test_tensors.py": """
import pytest
from mypkg.tensors import Tensor

@pytest.mark.bandwidth(judged_on="gbps", tolerance="20%")
def test_method(bandwidth):
    a, b = Tensor(1 << 14), Tensor(1 << 14)
    bandwidth(a.copy_to, b, reads=a.data, writes=b.data)

@pytest.mark.bandwidth(judged_on="gbps", tolerance="20%")
def test_closure(bandwidth):
    a, b = Tensor(1 << 14), Tensor(1 << 14)
    bandwidth(lambda: a.copy_to(b), reads=a.data, writes=b.data)
""",
    "tests/test_compiled.py": """
from pathlib import Path
import pytest
from mypkg.compiled import compiled

@pytest.mark.bandwidth(judged_on="gbps", tolerance="20%")
@pytest.mark.parametrize("name", ["one", "two"])
def test_kernel(bandwidth, name):
    launch = compiled(Path(__file__).with_name(f"{name}.cu"))
    bandwidth(launch, reads=1 << 20)
""",
    "tests/one.cu": '#include "deep/common.cuh"\nstep\nstep\n',
    "tests/two.cu": "step\nstep\n",
    "tests/deep/common.cuh": "",
    "README.md": "Say it.\n",
    "pytest.ini": f"{INI_OF_COMMITS}bandwidth_runs = 1\n",
}


@pytest.fixture
def repo(to_commit):
    for name, text in FILES.items():
        to_commit.file(name, text)
    committed(to_commit.path)
    return to_commit


def rows(project, *args):
    """Return a run's rows by the name of their test."""
    found = project.document("-obandwidth_settle=never", *args)["results"]
    return {row["nodeid"].rpartition("::")[2]: row for row in found}


def unchanged(found):
    return {name for name, row in found.items() if row["reason_code"] == "code-unchanged"}


# Edits of files, and what is said of each test that reads one.
EDITS = {
    "README.md": "Say it again.\n",
    "mypkg/unused.py": "",
    "mypkg/timing.py": "SECONDS = 0.0021\n",
    "tests/one.cu": "step step\n",
}
CHANGED = {
    **dict.fromkeys(("test_method", "test_closure"), "mypkg/timing.py changed"),
    "test_kernel[one]": "tests/deep/common.cuh is gone\ntests/one.cu changed",
}


def test_an_edit_changes_those_tests_that_read_the_file(repo, tmp_path_factory):
    """Taken back in the same folder they change none, nor does another way of running the same files."""
    same = ("--bandwidth-baseline=b.yaml",)
    repo.run(*same, "--bandwidth-update").assert_outcomes(passed=4)
    for name, text in EDITS.items():
        repo.file(name, text)
    found = rows(repo, *same)
    assert set(found) - unchanged(found) == CHANGED.keys()
    assert {test: found[test]["code_diff"] for test in CHANGED} == CHANGED
    for name, text in EDITS.items():
        repo.file(name, FILES.get(name, text))
    for path in repo.path.rglob("*"):
        if ".git" not in path.parts:
            os.utime(path, (10**9, 10**9))
    assert unchanged(rows(repo, *same, "-pxdist", "-n2", "tests/test_compiled.py", "tests/test_tensors.py")) == set(
        found
    )
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "folder"
    shutil.copytree(repo.path, elsewhere)
    given = ("-obandwidth_settle=never", "-kclosure or two", f"--bandwidth-json={elsewhere}/run.json")
    result = repo.run(f"--rootdir={elsewhere}", "-c", f"{elsewhere}/pytest.ini", str(elsewhere), *same, *given)
    result.assert_outcomes(passed=2, deselected=2)
    found = json.loads((elsewhere / "run.json").read_text())["results"]
    assert [row["reason_code"] for row in found] == ["code-unchanged"] * 2


def test_a_slower_helper_is_regressed_and_named_while_the_lists_of_files_are_there(repo):
    same = ("--bandwidth-baseline=b.yaml",)
    repo.run(*same, "--bandwidth-update").assert_outcomes(passed=4)
    assert len(list(repo.path.glob("code/*.files"))) == 3, "two tests of one file read the same"
    repo.file("mypkg/timing.py", "SECONDS = 0.02\n")
    found = rows(repo, *same, "-k", "closure or one")
    assert found["test_closure"]["status"] == "REGRESSED"
    assert "mypkg/timing.py changed" in found["test_closure"]["message"]
    assert found["test_kernel[one]"]["reason_code"] == "code-unchanged"
    shutil.rmtree(repo.path / "code")
    repo.file("mypkg/timing.py", "SECONDS = 0.0022\n")
    found = rows(repo, *same, "-k", "closure")
    (said,) = (one["text"] for one in found["test_closure"]["findings"] if one["code"] == "code-diff")
    assert "the changed files cannot be shown: found no " in said


def test_against_a_revision_the_same_files_take_no_pair(repo):
    """A relative import of math, which the bytecode of a function alone names, is not Python's."""
    repo.file("mypkg/math.py", "from mypkg.timing import SECONDS\nfrom virtual_time import sleep\n"
              "def f(): sleep(SECONDS)\n")  # fmt: skip
    repo.file("mypkg/imports.py", "def kernel(x):\n    from .math import f\n    f()\n")
    repo.file("tests/test_math.py", "from mypkg.imports import kernel\ndef test_math(bandwidth):\n"
              "    x = bandwidth.empty(1 << 14)\n    bandwidth(kernel, x, reads=x)\n")  # fmt: skip
    committed(repo.path, "two")
    repo.file("README.md", "Say it again.\n")
    repo.file("mypkg/timing.py", "SECONDS = 0.02\n")
    found = rows(repo, "--bandwidth-against=HEAD", "-obandwidth_pairs=4", "-k", "closure or kernel or math")
    assert unchanged(found) == {"test_kernel[one]", "test_kernel[two]"}
    for slower in ("test_closure", "test_math"):
        assert found[slower]["status"] == "REGRESSED"
        assert "mypkg/timing.py changed" in found[slower]["message"]
    assert found["test_kernel[one]"]["method"] == "unmeasured"


MEASURES = "def test_{}(bandwidth{}):\n    bandwidth(Tensor(1 << 14).copy_to, Tensor(1 << 14), reads=1 << 14)\n"


def test_what_a_fixture_read_belongs_to_its_tests(repo):
    """Whichever test sets it up; a file that a module reads belongs to those that import it."""
    reads = "Path(__file__).with_name('data').read_text()"
    repo.file(
        "tests/conftest.py",
        f"import pytest\nfrom pathlib import Path\n@pytest.fixture(scope='session')\ndef data():\n    return {reads}\n",
    )
    repo.file("mypkg/table.py", f"from pathlib import Path\nTABLE = {reads}\n")
    tests = "".join(
        MEASURES.format(name, fixture) for name, fixture in (("first", ", data"), ("second", ", data"), ("none", ""))
    )
    repo.file("tests/test_tensors.py", f"from mypkg.tensors import Tensor\n{tests}")
    imports = "from mypkg import table\nfrom mypkg.tensors import Tensor\n"
    repo.file("tests/test_table.py", imports + MEASURES.format("table", ""))
    for name in ("tests/data", "mypkg/data"):
        repo.file(name, "1")
    files = ("tests/test_tensors.py", "tests/test_table.py")
    repo.run("--bandwidth-baseline=b.yaml", "--bandwidth-update", *files).assert_outcomes(passed=4)
    for name in ("tests/data", "mypkg/data"):
        repo.file(name, "2")
    found = rows(repo, "--bandwidth-baseline=b.yaml", *files)
    diffs = {name: row["code_diff"] for name, row in found.items()}
    ours = "tests/data changed"
    assert diffs == {"test_first": ours, "test_second": ours, "test_none": "", "test_table": "mypkg/data changed"}
