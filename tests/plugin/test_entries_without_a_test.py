"""Entries of the baseline that no test of a run is there to measure: told, and red with strict."""

import shlex

import pytest
from user_project import COPY

from pytest_bandwidth.cli.main import main

pytestmark = [pytest.mark.in_process, pytest.mark.slow]

# Takes the fixture and has no entry: a strict run of it alone passes.
TAKES = "def test_takes(bandwidth):\n    pass\n"
STRICT = ("--bandwidth-baseline=b.yaml", "--bandwidth-strict")


def entries(project, *keys):
    told = "".join(f"  {key!r}: {{bandwidth: 1 MB/s}}\n" for key in keys)
    project.file("b.yaml", f"schema: 2\ntests:\n{told}" if told else "schema: 2\ntests: {}\n")


def told(result, start):
    return [line for line in result.outlines if line.startswith(start)]


SKIP = "import pytest\npytest.skip('no card', allow_module_level=True)\n"
SKIPPED = {
    "module": ("test_gpu.py", SKIP, "no card"),
    "import": ("test_gpu.py", "import pytest\npytest.importorskip('no_such')\n", "could not import 'no_such'"),
    "package": ("gpu/__init__.py", SKIP, "no card"),
}


@pytest.mark.parametrize("kind", list(SKIPPED))
def test_a_file_that_is_skipped_hides_none(project, kind):
    name, text, why = SKIPPED[kind]
    project.file(name, text)
    if kind == "package":
        project.file("gpu/test_gpu.py", "def test_it(bandwidth):\n    pass\n")
    project.file("test_other.py", TAKES if kind == "module" else "def test_plain():\n    pass\n")
    key = "gpu/test_gpu.py::test_it" if kind == "package" else "test_gpu.py::test_it"
    entries(project, key)
    strict = project.run_here(*STRICT, "--bandwidth-json=run.json")
    assert strict.ret == 1
    (line,) = told(strict, "NOT MEASURED")
    assert line.startswith(f"NOT MEASURED 1 entry of the baseline: {key} (its file was skipped: {why}")
    (failed,) = told(strict, "FAILED:")
    assert key in failed
    assert why in failed
    findings = project.told()["findings"]
    assert [f["code"] for f in findings] == ["not-measured"]
    if kind == "module":
        lenient = project.run_here("--bandwidth-baseline=b.yaml")
        assert (lenient.ret, told(lenient, "NOT MEASURED")) == (0, [line])


@pytest.mark.parametrize(
    "less",
    [
        *(("-k", "takes"), ("--deselect=x",), ("--lf",)),
        *(("test_other.py",), ("test_other.py::test_takes",)),
    ],
)
def test_a_selection_asks_for_no_more_than_it_names(project, less):
    project.file("test_gpu.py", SKIP)
    project.file("test_other.py", TAKES)
    entries(project, "test_gpu.py::test_it", "test_gone.py::test_it", "test_other.py::test_before[1]")
    result = project.run_here(*STRICT, *less)
    if less == ("test_other.py",):  # all of that file, whose entries it answers for
        assert result.ret == 1
        (line,) = told(result, "FAILED:")
        assert "test_other.py::test_before[1]" in line
        assert "test_gpu.py" not in line
        assert "test_gone.py" not in line
    else:
        assert result.ret == 0
        assert not told(result, "FAILED")
        assert not told(result, "NOT MEASURED")
        assert "no test any more" not in result.stdout.str()


EMPTY = """
import pytest

@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("n", {values})
def test_sizes(bandwidth, n, m):
    pass
"""


def test_an_empty_parametrization_hides_none(project):
    project.file("test_k.py", EMPTY.format(values=[]) + TAKES)
    keys = ("test_k.py::test_sizes[4-1]", "test_k.py::test_sizes[8-2] @ cold")
    entries(project, *keys)
    lenient = project.run_here("--bandwidth-baseline=b.yaml")
    lenient.assert_outcomes(passed=1, skipped=2)
    (line,) = told(lenient, "NOT MEASURED")
    assert line.startswith("NOT MEASURED 2 entries of the baseline: ")
    assert all(f"{key} (the test skipped: got empty parameter set" in line for key in keys)
    strict = project.run_here(*STRICT)
    assert strict.ret == 1
    strict.assert_outcomes(passed=1, errors=2)
    assert all(told(strict, f"{key} is in the baseline, and the test skipped: got empty") for key in keys)
    assert project.run_here(*STRICT, "-k", "takes").ret == 0


def test_a_run_whose_tests_all_lost_the_fixture_fails(project):
    project.file("test_k.py", "def test_it():\n    pass\n\ndef test_plain():\n    pass\n")
    entries(project, "test_k.py::test_it")
    lenient = project.run_here("--bandwidth-baseline=b.yaml")
    assert lenient.ret == 0
    assert told(lenient, "NOT MEASURED 1 entry of the baseline: test_k.py::test_it (the test does not take the fixture")
    strict = project.run_here(*STRICT)
    strict.assert_outcomes(passed=1, failed=1)
    assert strict.ret == 1
    only = project.run_here(*STRICT, "--bandwidth-only")
    assert only.ret == 1
    (line,) = told(only, "FAILED:")
    assert "test_k.py::test_it (the test does not take the fixture `bandwidth`)" in line
    assert project.run_here(*STRICT, "-k", "plain").ret == 0


def test_a_run_without_such_tests_opens_no_device(project):
    project.file("test_k.py", "def test_plain():\n    pass\n")
    entries(project)
    result = project.run_here(*STRICT, "--bandwidth-device=cuda")
    assert result.ret == 0
    assert not told(result, "bandwidth:")


def test_tests_that_are_gone_fail_a_strict_run_of_everything(project):
    project.file("test_k.py", TAKES)
    entries(project, "test_gone.py::test_it", "test_k.py::test_renamed", f"{'a' * 300}.py::test_it")
    lenient = project.run_here("--bandwidth-baseline=b.yaml")
    assert lenient.ret == 0
    strict = project.run_here(*STRICT)
    assert strict.ret == 1
    (line,) = told(strict, "FAILED:")
    remedy = "pytest-bandwidth baseline prune b.yaml "
    assert f"3 entries have no test any more; rename the key of a renamed test, or: {remedy}" in line
    assert " test_gone.py::test_it test_k.py::test_renamed" in line
    assert told(lenient, "3 entries have no test any more")
    # A folder answers for its own entries.
    project.file("sub/test_s.py", TAKES)
    assert project.run_here(*STRICT, "sub").ret == 0
    entries(project, "sub/test_s.py::test_renamed", "test_gone.py::test_it")
    below = project.run_here(*STRICT, "sub")
    assert below.ret == 1
    (line,) = told(below, "FAILED:")
    assert line.endswith("prune b.yaml sub/test_s.py::test_renamed")


REMOVES = """
import pytest

@pytest.hookimpl({how})
def pytest_collection_modifyitems(items):
    {first}
    items[:] = [item for item in items if item.name != "test_left"]
    {last}
"""
LEAVES = """
def pytest_{hook}({given}):
    return {condition} or None
"""
LEFT = """
import pytest

def test_kept(bandwidth):
    pass

@pytest.mark.slow
def test_left(bandwidth):
    pass
"""
BY_OPTIONS = "its test was left out by addopts or PYTEST_ADDOPTS"
BY_OTHERS = "its test was left out by a conftest.py or a plugin"
UNREAD, UNRUN = "its file was not collected", "its test did not run"
# What leaves a test out although no command line says so: files of the project, and why its entry was not measured.
LEFT_OUT = {
    "conftest.py": ({"conftest.py": REMOVES.format(how="", first="", last="return")}, BY_OTHERS),
    "conftest.py, after everybody": (
        {"conftest.py": REMOVES.format(how="wrapper=True, tryfirst=True", first="yield", last="return")}, BY_OTHERS
    ),
    "conftest.py, its file": ({"conftest.py": "collect_ignore = ['sub']\n"}, UNREAD),
    "conftest.py, its loop": (
        {"conftest.py": LEAVES.format(hook="runtestloop", given="", condition="True")}, UNRUN
    ),
    "conftest.py, its protocol": (
        {"conftest.py": LEAVES.format(hook="runtest_protocol", given="item", condition="True")},
        UNRUN,
    ),
    "addopts -m": ({"pytest.ini": "addopts = -m 'not slow'"}, BY_OPTIONS),
    "addopts --ignore": ({"pytest.ini": "addopts = --ignore sub"}, UNREAD),
    "PYTEST_ADDOPTS": ({"PYTEST_ADDOPTS": "-k kept"}, BY_OPTIONS),
    "python_files": ({"pytest.ini": "python_files = test_k.py"}, UNREAD),
}  # fmt: skip


@pytest.fixture
def left(project, monkeypatch, request):
    """A project that has a test and its entry, and a way to leave the test out that no command line names."""
    project.file("test_k.py", TAKES)
    project.file("sub/test_s.py", LEFT)
    entries(project, "sub/test_s.py::test_left")
    for name, text in LEFT_OUT[request.param][0].items():
        if name == "PYTEST_ADDOPTS":
            monkeypatch.setenv(name, text)
        else:
            ini = "[pytest]\nmarkers = slow: takes long\n" if name == "pytest.ini" else ""
            project.file(name, f"{ini}{text}\n")
    return project, LEFT_OUT[request.param][1]


@pytest.mark.parametrize("left", list(LEFT_OUT), indirect=True)
@pytest.mark.filterwarnings("ignore:Unknown pytest.mark.slow")
def test_what_configuration_leaves_out_is_not_measured(left):
    project, why = left
    strict = project.run_here(*STRICT)
    assert strict.ret == pytest.ExitCode.TESTS_FAILED
    (line,) = told(strict, "NOT MEASURED 1 entry of the baseline: sub/test_s.py::test_left (")
    assert why in line
    (failed,) = told(strict, "FAILED:")
    assert "sub/test_s.py::test_left" in failed
    assert not told(strict, "1 entry has no test")
    if why == BY_OPTIONS:
        lenient = project.run_here("--bandwidth-baseline=b.yaml")
        assert (lenient.ret, told(lenient, "NOT MEASURED")) == (0, [line])


ASKED = {
    "-k": (("-k", "kept"), True),
    "-m": (("-m", "not slow"), True),
    "--deselect": (("--deselect=sub/test_s.py::test_left",), True),
    "a node id": (("sub/test_s.py::test_kept",), True),
    "--ignore": (("--ignore=sub",), False),
    "in a worker": (("-k", "kept", "-n1"), True),
}


@pytest.mark.parametrize("kind", ASKED)
@pytest.mark.filterwarnings("ignore:Unknown pytest.mark.slow")
def test_what_the_command_line_leaves_out_is_counted(project, kind):
    less, counted = ASKED[kind]
    run = project.run if "-n1" in less else project.run_here
    project.file("test_k.py", TAKES)
    project.file("sub/test_s.py", LEFT)
    skipped = "sub/test_s.py::test_kept"  # its test passes, and measures nothing
    entries(project, "sub/test_s.py::test_left", skipped)
    result = run("--bandwidth-baseline=b.yaml", *less)
    assert result.ret == 0
    assert len(told(result, "left out on the command line: 1 of the baseline's entries")) == counted
    assert not [line for line in told(result, "NOT MEASURED") if "test_left" in line]
    entries(project, "sub/test_s.py::test_left")
    assert run(*STRICT, *less).ret == 0


@pytest.mark.filterwarnings("ignore:Unknown pytest.mark.slow")
def test_a_command_line_spares_only_what_it_names(project):
    project.file("conftest.py", REMOVES.format(how="", first="", last="return"))
    project.file("sub/test_s.py", LEFT + "\ndef test_third(bandwidth):\n    pass\n")
    entries(project, "sub/test_s.py::test_left", "sub/test_s.py::test_third")
    result = project.run_here(*STRICT, "-k", "kept or left")
    assert result.ret == 1
    (line,) = told(result, "NOT MEASURED 1 entry of the baseline: sub/test_s.py::test_left (")
    assert BY_OTHERS in line
    assert told(result, "left out on the command line: 1 of the baseline's entries")


@pytest.mark.filterwarnings("ignore:Unknown pytest.mark.slow")
def test_what_a_first_failure_ends_names_no_more(project):
    project.file("sub/test_s.py", LEFT.replace("pass", "assert False", 1))
    entries(project, "sub/test_s.py::test_left")
    result = project.run_here(*STRICT, "-x")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert not told(result, "NOT MEASURED")


@pytest.mark.processes
@pytest.mark.smoke
def test_workers_of_xdist_tell_it_once(project):
    project.file("test_gpu.py", SKIP)
    project.file("test_k.py", TAKES + "".join(f"\ndef test_{n}():\n    pass\n" for n in range(4)))
    entries(project, "test_gpu.py::test_it", "test_gone.py::test_it", "test_k.py::test_1")
    result = project.run(*STRICT, "-n2")
    assert result.ret == 1
    result.assert_outcomes(passed=4, failed=1, skipped=1)
    assert len(told(result, "NOT MEASURED 2 entries of the baseline")) == 1
    assert len(told(result, "FAILED:")) == 2


def test_a_test_of_the_same_name_in_a_folder_above_is_another(project):
    project.file("test_k.py", TAKES)
    project.file("sub/test_k.py", TAKES)
    project.file("sub/__init__.py", "")
    entries(project, "test_k.py::test_takes")
    result = project.run_here("--bandwidth-baseline=b.yaml", "sub")
    assert result.ret == 0
    assert "rootdir, which is" not in result.stdout.str()


def test_another_rootdir_is_named(project, monkeypatch):
    """Without an ini file node ids begin at the folder where pytest is started."""
    (project.path / "pytest.ini").unlink()
    project.file("sub/test_k.py", TAKES)
    project.file("sub/deep/test_d.py", TAKES)
    entries(project, "sub/test_k.py::test_takes", "other/test_gone.py::test_it")
    monkeypatch.chdir(project.path / "sub")
    result = project.run_here("--bandwidth-baseline=../b.yaml")
    hint = (
        "the baseline has no entry of these tests, but sub/test_k.py::test_takes for test_k.py::test_takes: node ids "
        f"begin at the rootdir, which is {project.path / 'sub'}; start pytest in the folder where the baseline was "
        "written, or put a pytest.ini there"
    )
    assert hint in result.outlines
    assert "prune" not in result.stdout.str()
    assert project.run_here("--bandwidth-baseline=../b.yaml", "--bandwidth-strict").ret == 1
    # The other way round: written below, read from above.
    entries(project, "deep/test_d.py::test_takes")
    monkeypatch.chdir(project.path)
    above = project.run_here("--bandwidth-baseline=b.yaml")
    above.stdout.fnmatch_lines(["*no entry of these tests, but deep/test_d.py::test_takes for sub/deep/test_d.py::*"])


def test_of_two_rootdirs_that_share_a_baseline_each_has_its_own_entries(project, monkeypatch):
    """Both in one repository, with a file of the same name; started in the first."""
    (project.path / "pytest.ini").rename(project.path / "elsewhere.ini")
    project.file(".git/HEAD", "")
    for folder, name in (("libs/core/a", "first"), ("b", "second")):
        project.file(f"{folder}/pytest.ini", "[pytest]\naddopts = -p no:randomly\n")
        project.file(f"{folder}/tests/test_k.py", TAKES.replace("takes", name))
    project.file("b/tests/test_b.py", TAKES)
    monkeypatch.chdir(project.path / "libs" / "core" / "a")
    # Node ids begin at their own rootdir.
    of_second = ("tests/test_k.py::test_second @ cold", "tests/test_b.py::test_takes")
    shared = ("--bandwidth-baseline=../../../b.yaml", "--bandwidth-strict")
    entries(project, *of_second)
    result = project.run_here(*shared)
    assert result.ret == 0
    other = project.path / "b"
    assert f"2 entries are of tests of another rootdir; only runs from there measure them: {other}" in result.outlines
    assert "no test any more" not in result.stdout.str()
    gone = "tests/test_k.py::test_sec"  # part of a name that the other rootdir has
    entries(project, *of_second, gone, "tests/test_gone.py::test_takes", "../b/tests/test_b.py::test_takes")
    result = project.run_here(*shared)
    assert result.ret == 1
    (line,) = told(result, "FAILED: 2 entries have no test any more")
    assert line.endswith(f" {gone} tests/test_gone.py::test_takes")


@pytest.mark.smoke
def test_the_command_that_is_told_removes_those_that_are_gone(project, monkeypatch):
    project.file("test_copy.py", COPY + "\ndef test_plain(): pass\n")
    keys = ("test_copy.py::test_copy", "test_copy.py::test_copy @ large @ cold", "test_gone.py::test_it[1 @ 2]")
    entries(project, *keys)
    result = project.run_here("--bandwidth-baseline=b.yaml", "--bandwidth-only", "--bandwidth-json=run.json")
    (line,) = told(result, "1 entry has no test any more")
    remedy = "pytest-bandwidth baseline prune b.yaml 'test_gone.py::test_it[1 @ 2]'"
    assert line == f"1 entry has no test any more; rename the key of a renamed test, or: {remedy}"
    document = project.told()
    assert {"code": "absent", "text": line} in document["findings"]
    assert {finding["code"] for finding in document["findings"]} == {"absent", "not-measured"}
    monkeypatch.chdir(project.path)
    assert main(shlex.split(remedy)[1:]) == 0
    assert "no test any more" not in project.run_here("--bandwidth-baseline=b.yaml").stdout.str()


DESELECTS = """
import pytest

@pytest.hookimpl({order})
def pytest_collection_modifyitems(config, items):
    config.hook.pytest_deselected(items=[item for item in items if "test_it" in item.name])
    items[:] = [item for item in items if "test_it" not in item.name]
"""


@pytest.mark.parametrize("order", ["tryfirst=True", "trylast=True"])
def test_what_others_deselect_is_not_gone(project, order):
    text = "import pytest\n@pytest.mark.parametrize('a', ['1 @ 2'])\ndef test_it(bandwidth, a): pass\n"
    project.file("test_k.py", text + "\ndef test_plain(): pass\n")
    entries(project, "test_k.py::test_it[1 @ 2]", "test_never.py::test_it")
    project.file("conftest.py", DESELECTS.format(order=order))
    (line,) = told(project.run_here("--bandwidth-baseline=b.yaml"), "1 entry has no test any more")
    assert line.endswith("prune b.yaml test_never.py::test_it")
