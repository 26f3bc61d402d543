"""The options and the marker's arguments: their help, and that each is read."""

from dataclasses import fields

import pytest

from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.options.options import INI_ONLY, OPTIONS, marker_help
from pytest_bandwidth.options.settings import _MARKER_PARSERS, _PARSERS, Settings


def test_every_option_has_a_field_and_all_but_switches_a_parser():
    named = {name: placeholder for name, placeholder, _ in (*OPTIONS, *INI_ONLY)}
    assert {name.replace("-", "_") for name in named} == {field.name for field in fields(Settings)}
    assert {name for name, placeholder in named.items() if placeholder is not None} == set(_PARSERS)


def test_every_argument_of_the_marker_has_a_parser():
    assert {field.name for field in fields(MarkerOptions)} == set(_MARKER_PARSERS)


def test_the_marker_tells_all_of_its_arguments():
    assert all(f" {field.name}: " in marker_help() for field in fields(MarkerOptions))


def test_without_docstrings_the_marker_is_declared_all_the_same(monkeypatch):
    """As under python -OO."""
    monkeypatch.setattr(MarkerOptions, "__doc__", None)
    assert marker_help().startswith("bandwidth(min_gbps=, ")


FILES = {
    "pytest.ini": "[pytest]\n{name} = {value}\n",
    "tox.ini": "[pytest]\n{name} = {value}\n",
    "setup.cfg": "[tool:pytest]\n{name} = {value}\n",
    "pyproject.toml": '[tool.pytest.ini_options]\n{name} = "{value}"\n',
}
if int(pytest.__version__.split(".")[0]) >= 9:
    FILES |= {"native": '[tool.pytest]\n{name} = "{value}"\n', "pytest.toml": '[pytest]\n{name} = "{value}"\n'}
MISSPELT = [
    ("bandwidth_tolerence", "did you mean bandwidth_tolerance?"),
    ("bandwidth-tolerance", "did you mean bandwidth_tolerance?"),
    ("bandwidth_Strict", "did you mean bandwidth_strict?"),
    ("Bandwidth_tolerance", "did you mean bandwidth_tolerance?"),
    ("bandwidthstrict", "did you mean bandwidth_strict?"),
    ("bandwidth_busy_procesors", "did you mean bandwidth_busy_processors?"),
    ("bandwidth_xyzzy", "expected one of bandwidth_baseline, *"),
]


def ini(pytester, file, name, value="3"):
    path = pytester.path / ("pyproject.toml" if file == "native" else file)
    path.write_text(FILES[file].format(name=name, value=value))
    pytester.makepyfile("def test(): pass")
    return path


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(("name", "meant"), MISSPELT)
def test_a_misspelt_name_ends_the_run_with_the_near_miss(pytester, file, name, meant):
    path = ini(pytester, file, name)
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {name} in {path}: unknown; {meant}"])


def test_a_misspelt_name_on_the_command_line_ends_the_run(pytester):
    pytester.makepyfile("def test(): pass")
    result = pytester.runpytest_inprocess("-o", "bandwidth_tolerence=3%")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: -o bandwidth_tolerence: unknown; did you mean bandwidth_tolerance?"])


@pytest.mark.parametrize("file", FILES)
def test_names_of_other_plugins_and_own_ones_are_taken(pytester, file):
    ini(pytester, file, "bandwidth_of_others")
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.addini('bandwidth_of_others', 'theirs')\n")
    pytester.runpytest_inprocess("-o", "bandwidth_tolerance=3%").assert_outcomes(passed=1)
