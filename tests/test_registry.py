"""Features are found by entry points, those of other distributions as the project's own."""

from __future__ import annotations

import os
import subprocess
import sys
from fnmatch import fnmatch

import pytest

from pytest_bandwidth.registry import hooks

METADATA = "Metadata-Version: 2.1\nName: ranked\nVersion: 1.0\n"
ENTRY_POINTS = "[pytest_bandwidth.features]\nranked = ranked.feature\n"
FEATURE = """
from dataclasses import dataclass

from pytest_bandwidth.hooks import Command, hookimpl, option

@dataclass(frozen=True)
class RankOptions:
    rank: int = option("N", "the rank of what is named", int, 1)

@hookimpl
def pytest_bandwidth_options():
    return RankOptions

@hookimpl
def pytest_bandwidth_commands():
    return [Command("rank", "list tests by GB/s", "ranked.command")]
"""
COMMAND = '''
"""Rank tests."""

def declare(parser):
    parser.add_argument("names", nargs="+")

def run(options):
    print(*sorted(options.names))
    return 0
'''


@pytest.fixture
def with_ranked(tmp_path):
    """Return the environment of a process in which a distribution of two modules is installed."""
    (tmp_path / "ranked").mkdir()
    (tmp_path / "ranked" / "feature.py").write_text(FEATURE)
    (tmp_path / "ranked" / "command.py").write_text(COMMAND)
    (tmp_path / "ranked-1.0.dist-info").mkdir()
    (tmp_path / "ranked-1.0.dist-info" / "METADATA").write_text(METADATA)
    (tmp_path / "ranked-1.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def said(environment, *command):
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)


def test_a_distribution_of_ones_own_adds_a_command(with_ranked):
    done = said(with_ranked, "-m", "pytest_bandwidth.cli", "rank", "triad", "copy")
    assert (done.returncode, done.stdout) == (0, "copy triad\n"), done.stderr
    assert "list tests by GB/s" in said(with_ranked, "-m", "pytest_bandwidth.cli", "--help").stdout


def test_a_distribution_of_ones_own_adds_an_option(with_ranked, tmp_path):
    test = (
        "from pytest_bandwidth.hooks import options_of\n"
        "from ranked.feature import RankOptions\n"
        "def test_rank(pytestconfig):\n    assert options_of(pytestconfig, RankOptions).rank == 7\n"
    )
    (tmp_path / "test_rank.py").write_text(test)
    (tmp_path / "pytest.ini").write_text("[pytest]\nbandwidth_rank = 7\n")
    ran = said(with_ranked, "-m", "pytest", "-p", "bandwidth", str(tmp_path / "test_rank.py"))
    assert ran.returncode == 0, ran.stdout
    wrong = said(with_ranked, "-m", "pytest", "--bandwidth-rank=x", str(tmp_path / "test_rank.py"))
    assert "--bandwidth-rank: invalid literal for int()" in wrong.stderr


@pytest.mark.parametrize(
    ("old", "new", "said_of_it"),
    [
        (
            "@hookimpl\ndef pytest_bandwidth_commands",
            "def pytest_bandwidth_commands",
            "found pytest_bandwidth_commands *",
        ),
        (
            "from dataclasses",
            "import nowhere\nfrom dataclasses",
            "importing it raised ModuleNotFoundError: No module *",
        ),
        (
            "pytest_bandwidth_commands()",
            "pytest_bandwidth_commands(confg)",
            "*: pytest_bandwidth_commands(confg) Argument(s) {'confg'} are declared in the hookimpl but *",
        ),
    ],
)
def test_a_feature_that_cannot_be_used_is_one_line(with_ranked, tmp_path, old, new, said_of_it):
    (tmp_path / "ranked" / "feature.py").write_text(FEATURE.replace(old, new))
    line = f"feature ranked (distribution ranked 1.0): {said_of_it}"
    by_command = said(with_ranked, "-m", "pytest_bandwidth.cli", "report", "run.json")
    assert fnmatch(by_command.stderr, f"pytest-bandwidth: {line}\n"), by_command.stderr
    assert (by_command.returncode, by_command.stderr.count("\n")) == (2, 1)
    run = said(with_ranked, "-m", "pytest", "--co", str(tmp_path))
    assert fnmatch(run.stderr, f"ERROR: {line}\n*"), run.stderr
    assert (run.returncode, "Traceback" in run.stderr) == (4, False)


@pytest.mark.parametrize(
    ("old", "new", "said_of_it"),
    [
        (
            "_commands():",
            "_command():",
            "*: found the hook pytest_bandwidth_command, expected pytest_bandwidth_commands",
        ),
        ("Command(", "Commando(", "feature.py:*: pytest_bandwidth_commands raised NameError: name 'Commando' *"),
    ],
)
def test_hooks_of_a_feature_that_go_wrong_are_one_line(with_ranked, tmp_path, old, new, said_of_it):
    (tmp_path / "ranked" / "feature.py").write_text(FEATURE.replace(f"{old}", new))
    by_command = said(with_ranked, "-m", "pytest_bandwidth.cli", "report", "run.json")
    assert fnmatch(by_command.stderr, f"pytest-bandwidth: {said_of_it}\n"), by_command.stderr
    assert (by_command.returncode, by_command.stderr.count("\n")) == (2, 1)


def test_commands_do_not_load_pytest():
    code = (
        "import sys\nfrom pytest_bandwidth.cli.main import commands\n"
        "assert 'history' in commands()\nprint({'pytest', 'numpy', 'yaml'} & set(sys.modules))"
    )
    assert said(dict(os.environ), "-c", code).stdout == "set()\n"


def test_a_run_answers_for_its_own_conftest_and_no_longer(pytester):
    pytester.makeconftest(
        "from pytest_bandwidth.hooks import Command\n"
        "def pytest_bandwidth_commands():\n    return [Command('here', 'of this run', 'json')]\n"
    )
    pytester.makepyfile(
        "from pytest_bandwidth.registry import hooks\n"
        "def test_asked():\n"
        "    assert 'here' in [one.name for found in hooks().pytest_bandwidth_commands() for one in found]\n"
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=1)
    assert "here" not in [one.name for found in hooks().pytest_bandwidth_commands() for one in found]


def test_a_feature_can_be_left_out_of_a_run(pytester):
    pytester.makepyfile(
        "def test_asked(pytestconfig):\n"
        "    assert pytestconfig.pluginmanager.has_plugin('bandwidth-exports')\n"
        "    assert not pytestconfig.pluginmanager.has_plugin('bandwidth-history')\n"
    )
    pytester.runpytest_inprocess("-p", "no:bandwidth-history").assert_outcomes(passed=1)
