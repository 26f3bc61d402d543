"""The options and the marker's arguments: their help, that each is read, and what is kept of a command line."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from user_project import LINK

import pytest_bandwidth
from pytest_bandwidth.domain.errors import BaselineError, Problem
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.options.options import declared, marker_help, own_command, usage_error
from pytest_bandwidth.options.settings import Settings, options_in
from pytest_bandwidth.registry import hooks
from pytest_bandwidth.reports.wording import help_link


def test_defaults_are_what_the_help_says():
    said = {name: re.search(r"\(default: (\S+)\)", option.meaning) for name, option in options_in(Settings)}
    read = {name: dict(options_in(Settings))[name].parse(found[1]) for name, found in said.items() if found}
    assert {name: getattr(Settings(), name) for name in read} == read
    assert {"tolerance", "runs", "settle_time"} < read.keys()


def test_an_error_that_ends_a_run_is_made_in_one_place_which_links_to_the_documentation():
    package = Path(pytest_bandwidth.__file__).parent
    texts = {str(file.relative_to(package)): file.read_text(encoding="utf-8") for file in package.rglob("*.py")}
    assert [file for file, text in texts.items() if "pytest.UsageError(" in text] == ["options/options.py"]
    assert str(usage_error("found x")) == f"found x (help: {help_link('usageerror')})"
    two = usage_error(BaselineError([Problem("b.yaml", 1, "one"), Problem("b.yaml", 2, "two")]))
    assert two.args == ("b.yaml:1: one", f"b.yaml:2: two (help: {help_link('baselineerror')})")


def test_options_of_features_are_among_all_and_the_marker_describes_its_arguments():
    assert set(declared(hooks())) > {"baseline", "history"}
    assert all(f" {field.name}: " in marker_help() for field in fields(MarkerOptions))


FILES = {
    "pytest.ini": "[pytest]\n{name} = {value}\n",
    "setup.cfg": "[tool:pytest]\n{name} = {value}\n",
    "pyproject.toml": '[tool.pytest.ini_options]\n{name} = "{value}"\n',
}
if int(pytest.__version__.split(".")[0]) >= 9:
    FILES |= {"native": '[tool.pytest]\n{name} = "{value}"\n', "pytest.toml": '[pytest]\n{name} = "{value}"\n'}
MISSPELT = [
    ("bandwidth_tolerence", "did you mean bandwidth_tolerance?"),
    ("bandwidth-tolerance", "did you mean bandwidth_tolerance?"),
    ("Bandwidth_tolerance", "did you mean bandwidth_tolerance?"),
    ("bandwidthstrict", "did you mean bandwidth_strict?"),
    ("bandwidth_xyzzy", "expected one of bandwidth_baseline, *"),
]


def ini(pytester, file, name, value="3"):
    path = pytester.path / ("pyproject.toml" if file == "native" else file)
    path.write_text(FILES[file].format(name=name, value=value))
    pytester.makepyfile("def test(): pass")
    return path


@pytest.mark.parametrize(
    ("file", "name", "meant"), [*(("pytest.ini", *one) for one in MISSPELT), *((file, *MISSPELT[0]) for file in FILES)]
)
def test_a_misspelt_name_ends_the_run_with_the_near_miss(pytester, file, name, meant):
    path = ini(pytester, file, name)
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {name} in {path}: unknown; {meant}{LINK}"])


def test_a_misspelt_name_on_the_command_line_ends_the_run(pytester):
    result = pytester.runpytest_inprocess("-o", "bandwidth_tolerence=3%")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: -o bandwidth_tolerence: unknown; did you mean bandwidth_tolerance?{LINK}"])


@pytest.mark.parametrize("file", FILES)
def test_names_of_other_plugins_and_own_ones_are_taken(pytester, file):
    ini(pytester, file, "bandwidth_of_others")
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.addini('bandwidth_of_others', 'theirs')\n")
    pytester.runpytest_inprocess("-o", "bandwidth_tolerance=3%").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["/usr/bin/pytest"], "pytest"),
        (["/lib/pytest/__main__.py", "tests"], "python -m pytest …"),
        (["pytest", "--token=hunter2", "-k", "x", "--bandwidth-json=r.json"], "pytest … --bandwidth-json=r.json"),
        (["pytest", "--bandwidth-device", "cpu", "secret"], "pytest --bandwidth-device cpu …"),
        (["pytest", "--bandwidth-strict", "secret"], "pytest --bandwidth-strict …"),
        (
            ["pytest", "--bandwidth-history=s3://key:secret@b/h", "--bandwidth-history", "gs://b/h?secret"],
            "pytest --bandwidth-history=s3://***@b/h --bandwidth-history gs://b/h?***",
        ),
    ],
)
def test_of_the_command_line_only_the_plugins_own_options_are_kept(given, kept):
    assert own_command(given) == kept
