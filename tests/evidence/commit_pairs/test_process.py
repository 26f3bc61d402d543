"""Which code a new process ran: each side its own tree's, or an error. Real processes; byte counts tell which."""

from __future__ import annotations

import ctypes
import json
import math
import os
import runpy
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import LazyLoader, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from repositories import committed
from two_processes import memory_of

from pytest_bandwidth.evidence.commit_pairs import process as processes
from pytest_bandwidth.evidence.commit_pairs import run_in_worktree as run_in_worktree
from pytest_bandwidth.evidence.commit_pairs.alternate import take_turns
from pytest_bandwidth.evidence.commit_pairs.process import (
    ForeignImport,
    NothingThere,
    Worktrees,
    check_loaded_files,
    invocation_at,
    modules_findable,
    names_of_finders,
    without_own_option,
)
from pytest_bandwidth.evidence.commit_pairs.worktree import CheckedOut, Revision
from pytest_bandwidth.evidence.processes.child import FreshProcessFailed, Invocation

pytestmark = pytest.mark.processes

ARGS = ("-p", "bandwidth", "--bandwidth-device=cpu", "--bandwidth-max-time=0.01", "--bandwidth-min-samples=1")
TEST = """
import kern

def test_it(bandwidth):
    bandwidth(len, "abc", reads=kern.BYTES)
"""
AT_THE_REVISION, IN_THE_WORKING_TREE = 1000, 2000

memory = pytest.fixture(memory_of(0))


class Repo:
    """A package `kern` and a test of it: BYTES is one number in the commit and another in the working tree."""

    def __init__(self, path):
        self.path = path
        self.test = path / "tests" / "test_it.py"
        self.package = path / "src" / "kern" / "__init__.py"
        self._checked_out = None

    def write(self, kern="BYTES = {}\n", test=TEST, ini="pythonpath = src\n"):
        for file, text in {
            self.path / "pytest.ini": f"[pytest]\nbandwidth_busy_processors = 1000\n{ini}",
            self.package: kern.format(AT_THE_REVISION),
            self.test: test,
        }.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        committed(self.path)
        self.package.write_text(kern.format(IN_THE_WORKING_TREE))

    def worktrees(self, *args, folder=None):
        self._checked_out = CheckedOut(self.path, "HEAD")
        invocation = Invocation((*ARGS, *args), folder or self.path, as_module=False)
        nodeid = "tests/test_it.py::test_it"
        return Worktrees(invocation, self._checked_out.revision, "cpu", nodeid, self.test, 120)

    def close(self):
        if self._checked_out is not None:
            self._checked_out.remove()


@pytest.fixture
def repo(tmp_path, monkeypatch):
    # Plugins that take no part would only cost time.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    repo = Repo(tmp_path / "repo")
    yield repo
    repo.close()


def bytes_read(rows):
    (row,) = rows
    return row["bytes_read"]


@pytest.mark.smoke
def test_each_side_runs_the_code_of_its_tree_where_nothing_is_installed(repo):
    repo.write()
    worktrees = repo.worktrees("--bandwidth-against", "HEAD")
    assert bytes_read(worktrees.base()) == AT_THE_REVISION
    assert bytes_read(worktrees.head()) == IN_THE_WORKING_TREE


@pytest.fixture
def first_is_slow(monkeypatch):
    """Of each pair whoever was started first takes twice as long."""
    rounds = {None: [(2.0, 1.0)] * 3}
    monkeypatch.setattr(processes, "take_turns", lambda *given: replace(take_turns(*given), rounds=rounds))


@pytest.mark.usefixtures("first_is_slow")
def test_the_other_side_is_started_first_in_every_other_pair(repo):
    repo.write()
    found = repo.worktrees().alternating(1, 0.01)
    both = [rows[None] for rows in (found.head, found.base)]
    assert [one.bytes_read for one in both] == [IN_THE_WORKING_TREE, AT_THE_REVISION]
    assert found.drops == {None: pytest.approx(-math.log(2))}
    assert [one.probe_gbps for one in both] == [None, None], "they need no probe"


COPIES = """
import numpy as np

def test_it(bandwidth):
    x, y, own = bandwidth.random(1 << 12), bandwidth.empty(1 << 12), np.empty(1 << 10)
    bandwidth(np.copyto, y, x, reads=x, writes=y)
    bandwidth(np.copyto, own, x[:1 << 10], reads=x, writes=own, label="of the test's own")
"""


@pytest.mark.usefixtures("memory", "first_is_slow")
def test_pairs_of_which_all_lies_in_the_same_memory_are_alike(repo):
    repo.write(test=COPIES)
    found = repo.worktrees("--bandwidth-max-time=0.3").alternating(0, 0.01)
    assert found.drops == {None: pytest.approx(math.log(2))}
    assert set(found.head) == set(found.base) == {None, "of the test's own"}
    assert set(found.alike) == ({None} if takes_addresses() else set())


WHERE = """
import ctypes, json, os, sys
from runpy import run_path
script = run_path(sys.argv[1])
script["lay_out"](int(sys.argv[2]), sys.argv[3])
import numpy
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
with open("/proc/self/maps") as maps:
    loaded = next(line.split("-")[0] for line in maps if "_multiarray_umath" in line)
with open("/proc/self/stat") as stat:
    stack = stat.read().rpartition(")")[2].split()[25]
code, heap = ctypes.cast(libc.strlen, ctypes.c_void_p).value, libc.malloc(1 << 16)
left = [name for name in os.environ if name.startswith("PYTEST_BANDWIDTH_PADDING")]
print(json.dumps([code, [loaded, stack], left, libc.personality(ctypes.c_ulong(0xFFFFFFFF)) & 0x0040000]))
"""


def takes_addresses():
    """Whether the system lets a process choose: the profiles of container runtimes do not."""
    personality = ctypes.CDLL(None).personality
    before = personality(ctypes.c_ulong(0xFFFFFFFF))
    if personality(ctypes.c_ulong(before | 0x0040000)) == -1:
        return False
    personality(ctypes.c_ulong(before))
    return True


def where(mark, number, *arguments, python=sys.executable, **variables):
    command = [python, "-c", WHERE, run_in_worktree.__file__, str(number), str(mark), *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": "1", **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=100)
    mark.unlink()
    return json.loads(done.stdout)


def test_processes_of_one_number_have_the_same_addresses_and_of_another_number_others(tmp_path):
    if not takes_addresses():
        pytest.skip("this sandbox refuses to lay a process out as asked")
    mark = tmp_path / "mark"
    one = where(mark, 1)
    # The kernel rounds the place below the texts and that below what points to them, each to 16 bytes.
    python = tmp_path / ("p" * 9)
    python.symlink_to(os.path.realpath(sys.executable))
    given = {"python": python, "PYTHONPATH": str(Path(np.__file__).parents[1])}
    found = [where(mark, 1, *more, OF_ONE_SIDE="x" * 300, **given) for more in ([], ["and"], ["and", "more"])]
    assert found == [found[0]] * 3
    assert found[0][0] == one[0]
    code, places, left, fixed = where(mark, 2)
    assert code == one[0]
    assert all(a != b for a, b in zip(places, one[1], strict=True)), "what is loaded, and the stack"
    assert (left, fixed) == ([], 0), "what the test starts is as the user's"


def test_where_the_system_refuses_the_process_goes_on_as_it_is(tmp_path, monkeypatch):
    mark, asked = str(tmp_path / "mark"), []

    def refuses(*_):
        raise OSError("argument list too long")

    def system(*answers):
        left = iter(answers)
        return SimpleNamespace(personality=lambda kind: asked.append(kind.value) or next(left))

    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("started again"))
    for answers in ([-1], [0, -1]):
        assert not run_in_worktree.lay_out(1, mark, system(*answers))
    monkeypatch.setattr(os, "execve", refuses)
    assert not run_in_worktree.lay_out(1, mark, system(8, 8, 8))
    assert asked[-1] == 8, "as it was"


@pytest.fixture
def asked(repo, monkeypatch):
    """Return how pairs of these numbers are asked for, two processes each: none is started."""

    def of_pairs(*numbers, **changes):
        both, found = replace(repo.worktrees(), **changes), []
        monkeypatch.setattr(processes.Process, "started", lambda process: found.append(process) or nullcontext())
        for number in numbers:
            with pytest.raises(TypeError):
                both.alternating(number, 0.01)
        repo.close()
        return found

    repo.write()
    return of_pairs


def test_both_of_a_pair_have_one_hash_seed_unless_the_user_has(asked, monkeypatch):
    for of_the_user in ("", "random", "7"):
        monkeypatch.setenv("PYTHONHASHSEED", of_the_user)
        one, two = (process.environment["PYTHONHASHSEED"] for process in asked(0))
        assert one == two
        assert one.isdigit()
        assert (one == "7") == (of_the_user == "7")


@pytest.mark.parametrize("of_the_user", [None, "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_threads_of_a_pair_spin_briefly_unless_the_user_says_how_long(asked, monkeypatch, of_the_user):
    names = ("OMP_WAIT_POLICY", *processes.SHORT_SPINS)
    for name in names:
        monkeypatch.delenv(name, raising=False)
    if of_the_user is not None:
        monkeypatch.setenv(of_the_user, "active")
    wanted = processes.SHORT_SPINS if of_the_user is None else {of_the_user: "active"}
    for process in asked(0):
        assert {name: process.environment[name] for name in names if name in process.environment} == wanted


def test_installed_editable_by_a_path(repo, monkeypatch):
    """What a .pth file does: an entry of sys.path leads into the working tree. It is not the script's own folder."""
    file = repo.path / "data.bin"  # data of the working tree is no error
    repo.write(ini="", kern=f"BYTES = {{}}; TEXT = open({str(file)!r}).read()\n")
    file.touch()
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # Python 3.10 ignores it
    monkeypatch.setenv("PYTHONPATH", str(repo.path / "src"))
    assert bytes_read(repo.worktrees().base()) == AT_THE_REVISION


def test_a_kernel_file_of_the_working_tree_is_an_error(repo):
    file = repo.path / "kernel.cu"
    repo.write(kern=f"BYTES = {{}}; TEXT = open({str(file)!r}).read()\n")
    file.touch()
    with pytest.raises(ForeignImport, match=r"ran code of .*kernel\.cu"):
        repo.worktrees().base()


def finder_of_an_environment(tmp_path, repo):
    """What setuptools' editable finders are: nothing on sys.path, and a finder that knows the folder."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import sys, importlib.util\n"
        "class Finder:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name == 'kern':\n"
        f"            return importlib.util.spec_from_file_location(name, {str(repo.package)!r})\n"
        "sys.meta_path.insert(0, Finder)\n"
    )
    return str(site)


def test_installed_editable_by_a_finder(repo, tmp_path, monkeypatch):
    repo.write(ini="")
    monkeypatch.setenv("PYTHONPATH", finder_of_an_environment(tmp_path, repo))
    worktrees = repo.worktrees()
    # The finder leads into the working tree all the same.
    with pytest.raises(ForeignImport, match=r"ran code of .*src/kern/__init__.*its figures do not count"):
        worktrees.base()
    module = ModuleType("kern")
    module.__file__ = str(repo.package)  # this process has it loaded, as one that has run the test has
    monkeypatch.setitem(sys.modules, "kern", module)
    assert bytes_read(worktrees.base()) == AT_THE_REVISION


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        (TEST.replace("BYTES)", "BYTES) if 0 else None"), "skips or measures nothing"),
        (TEST + "    assert False, 'as it was'\n", "the test fails at HEAD .*as it was"),
    ],
)
def test_what_the_revision_does_not_measure(repo, test, reason):
    repo.write(test=test)
    with pytest.raises(NothingThere, match=reason):
        repo.worktrees().base()


def test_a_file_that_the_revision_does_not_have_needs_no_process(repo):
    repo.write()
    repo.test = repo.path / "tests" / "test_later.py"
    with pytest.raises(NothingThere, match=r"has no test_later\.py"):
        repo.worktrees().base()


def test_a_worker_on_a_machine_without_the_worktree_is_an_error_not_an_absence(repo):
    repo.write()
    worktrees = repo.worktrees()
    elsewhere = replace(worktrees, revision=replace(worktrees.revision, tree=str(repo.path / "not head")))
    with pytest.raises(ForeignImport, match=r"no worktree of HEAD .* on this machine, expected workers where pytest"):
        elsewhere.base()


def test_a_revision_that_cannot_be_imported_is_an_error_not_an_absence(repo):
    repo.write(kern="import no_such_module; BYTES = {}\n")
    with pytest.raises(FreshProcessFailed, match=r"(?s)at HEAD .*no_such_module"):
        repo.worktrees().base()


def test_a_process_that_proves_nothing_is_an_error(repo):
    conftest = repo.path / "tests" / "conftest.py"
    conftest.parent.mkdir(parents=True)
    conftest.write_text("\ndef pytest_unconfigure():\n    import os; os._exit(0)\n")
    repo.write()
    with pytest.raises(
        ForeignImport, match="sent no list of loaded files: it ended with exit status 0; its last lines"
    ):
        repo.worktrees().base()


REVISION = Revision("main", "f" * 40, "/r", "/t")


def test_paths_into_the_repository_become_paths_into_the_tree(tmp_path):
    given = Invocation(
        ("/r/tests/test_a.py::t", "-c", "/r/x.ini", "--rootdir=/r", "-k", "a", "tests"), Path("/r"), True
    )
    outside = Invocation(("r/a.py::t", "b.py"), tmp_path, True)
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "a.py").touch()
    at = Revision("main", "f" * 40, str(tmp_path / "r"), "/t")
    assert invocation_at(outside, at) == replace(outside, args=("/t/a.py::t", "b.py"))
    own = ["--bandwidth-against", "HEAD~1", "tests", "-x", "--bandwidth-against=a"]
    assert without_own_option(own) == ["tests", "-x"]
    moved = invocation_at(given, Revision("main", "f" * 40, "/r", "/"))
    assert moved.args == ("/tests/test_a.py::t", "-c", "/x.ini", "--rootdir=/", "-k", "a", "tests")
    assert (moved.folder, moved.as_module) == (Path("/"), True)


def plan(environment=()):
    return {"others": ["/r"], "tree": "/t", "environment": list(environment)}


def test_what_is_loaded_comes_from_none_of_the_other_trees_but_for_their_environment(tmp_path):
    loaded = {"modules": {"numpy": "/r/.venv/lib/numpy/__init__.py"}, "files": ["/r/.venv/lib/x.so"], "path": []}
    check_loaded_files(loaded, plan(["/r/.venv"]), REVISION)
    check_loaded_files({"modules": {"a": "/repository/a.py"}, "files": [], "path": []}, plan(), REVISION)
    with pytest.raises(ForeignImport, match=r"/r/\.venv/lib/numpy/__init__\.py, /r/\.venv/lib/x\.so"):
        check_loaded_files(loaded, plan(), REVISION)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "kern.py").touch()
    asked, loaded = {**plan(), "tree": str(tmp_path)}, {"modules": {"kern": "/site/kern.py"}, "files": [], "path": []}
    with pytest.raises(ForeignImport, match=r"kern \(.*\) is an installed copy, .*pip install -e"):
        check_loaded_files(loaded, asked, REVISION)
    check_loaded_files({**loaded, "modules": {"numpy": "/site/numpy.py"}}, asked, REVISION)
    asked = {**plan(), "others": ["/r", "/g"]}
    assert run_in_worktree.moved("/g/src", asked) == "/t/src"
    with pytest.raises(ForeignImport, match=r"ran code of /g: /g/a\.py; its figures do not count"):
        check_loaded_files({"modules": {"a": "/g/a.py"}, "files": [], "path": []}, asked, REVISION)


def test_the_script_hides_no_module_and_who_imports_it_keeps_sys_path(monkeypatch):
    monkeypatch.setattr(sys, "path", ["/tests", *sys.path])
    runpy.run_path(run_in_worktree.__file__, run_name="run_in_worktree")
    assert sys.path[0] == "/tests"
    beside = {entry.stem for entry in Path(run_in_worktree.__file__).parent.iterdir()}
    assert "process" in beside
    assert not beside & sys.stdlib_module_names


def test_what_a_process_loaded_is_told_without_loading_more(tmp_path, monkeypatch):
    (tmp_path / "lazily.py").write_text("LOADED = True\n")
    spec = spec_from_file_location("lazily", tmp_path / "lazily.py")
    spec.loader = LazyLoader(spec.loader)
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "lazily", module)
    spec.loader.exec_module(module)
    assert run_in_worktree.loaded_modules()["lazily"] == str(tmp_path / "lazily.py")
    assert "LOADED" not in object.__getattribute__(module, "__dict__")


def test_modules_are_found_without_being_imported(repo, monkeypatch):
    repo.write(kern="raise SystemExit('imported')\nBYTES = {}\n", ini="")
    monkeypatch.syspath_prepend(str(repo.path / "src"))
    found = modules_findable(["kern", "no_module_of_that_name", "not-a-name"])
    assert found == {"kern": str(repo.package)}
    assert "kern" not in sys.modules
    repo.worktrees()
    revision = repo._checked_out.revision
    assert names_of_finders(revision, found) == {}, "an entry of sys.path leads there"
    monkeypatch.setattr(sys, "path", [])
    assert names_of_finders(revision, found) == {"kern": str(Path(revision.tree, "src"))}
