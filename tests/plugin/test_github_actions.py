"""Runs as a step of a GitHub Actions job: a summary of the job, and annotations where the tests stand."""

import html
import re

import pytest

pytestmark = pytest.mark.in_process

FLOORED = """
import pytest

@pytest.mark.bandwidth(min_gbps=10_000_000)
def test_slow(bandwidth):
    a, b = bandwidth.random(1 << 14), bandwidth.empty(1 << 14)
    bandwidth(bandwidth.xp.copyto, b, a, reads=a, writes=b)
"""
COMMAND = re.compile(r"\s*::(error|warning) (?:file=([^,:]+),(?:line=(\d+),)?)?title=([^,:]+)::(\S.*)")


@pytest.fixture
def github(project, monkeypatch):
    """A project in a folder of its checkout, run as a step of a job; its test is slow."""
    project.file("test_floor.py", FLOORED)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.path.parent))
    project.summary = project.path / "step_summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.summary))
    return project


def commands(result: pytest.RunResult) -> list[str]:
    """Lines that the runner takes for commands: blanks before them do not count."""
    return [line for line in result.outlines if line.lstrip().startswith("::")]


@pytest.mark.processes
def test_a_failure_is_annotated_on_its_line_and_leads_the_summary(github):
    github.summary.write_text("# An earlier command of the step\n", encoding="utf-8")
    result = github.run("-o", "bandwidth_confirm=1", "-n1")
    result.assert_outcomes(failed=1)
    (command,) = commands(result)
    kind, file, line, title, message = COMMAND.fullmatch(command).groups()
    assert (kind, file, line) == ("error", f"{github.path.name}/test_floor.py", "4")
    assert re.fullmatch(r"REGRESSED%3A [\d.]+ GB/s is below min_gbps%2C 10000000 GB/s", title)
    name, measured, again, *_ = message.split("%0A")
    assert name == "test_floor.py::test_slow"
    assert measured.startswith("    measured   moved 131 kB in ")
    assert re.fullmatch(r" +re-runs +[\d.]+ GB/s", again)
    summary = github.summary.read_text(encoding="utf-8")
    assert summary.startswith("# An earlier command of the step\n\n## ❌ ")
    assert summary.count("\n## ") == 1, "new processes and workers report to their run, not to the job"
    assert "❌ REGRESSED" in summary


def test_what_cannot_be_judged_is_a_warning_and_a_summary_that_cannot_be_written_fails_nothing(github, monkeypatch):
    github.file("test_floor.py", FLOORED.replace("min_gbps=10_000_000", ""))
    result = github.run_here()
    result.assert_outcomes(passed=1)
    (command,) = commands(result)
    assert COMMAND.fullmatch(command)[1] == "warning"
    assert "no baseline to compare with" in github.summary.read_text(encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(github.path / "missing" / "summary.md"))
    result = github.run_here()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["no job summary: $GITHUB_STEP_SUMMARY cannot be written: *"])


def test_a_test_outside_of_the_checkout_is_annotated_at_the_job_and_elsewhere_nothing_is_said(github, monkeypatch):
    elsewhere = github.path / "checkout"
    elsewhere.mkdir()
    monkeypatch.setenv("GITHUB_WORKSPACE", str(elsewhere))
    (command,) = commands(github.run_here("-o", "bandwidth_confirm=0"))
    assert command.startswith("::error title=REGRESSED%3A ")
    assert "re-runs" not in command, "with bandwidth_confirm=0 there are none"
    assert "old code" not in command, "a floor is compared with no old code"
    github.summary.unlink()
    monkeypatch.delenv("GITHUB_ACTIONS")
    assert commands(github.run_here("-o", "bandwidth_confirm=0")) == []
    assert not github.summary.exists()


def test_what_stops_the_run_is_the_summary(github):
    result = github.run_here("--bandwidth-baseline=nowhere.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    heading, _, said = github.summary.read_text(encoding="utf-8").strip().partition("\n\n")
    assert heading == "## ❌ The run stopped before its tests"
    assert said.startswith("- no baseline file nowhere&#46;yaml")
    github.summary.unlink()
    github.file("test_broken.py", "import nothing_of_this_name")
    result = github.run_here("--bandwidth-device=cpu")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    said = github.summary.read_text(encoding="utf-8")
    assert said.startswith("\n## ❌ The run stopped before its tests")
    assert "- test_broken.py: ModuleNotFoundError: No module named 'nothing" in html.unescape(said)
    github.summary.unlink()
    github.file("pytest.ini", "[pytest]\n")
    assert github.run_here(quick=False).ret == pytest.ExitCode.INTERRUPTED
    assert not github.summary.exists(), "without options of the plugin it is no concern of it"


def test_a_summary_stays_below_githubs_limit_for_the_whole_step(github):
    github.summary.write_text("x" * 899_900, encoding="utf-8")
    github.run_here("-o", "bandwidth_confirm=0")
    assert 899_900 < github.summary.stat().st_size < 2**20
    assert github.summary.read_text(encoding="utf-8").endswith("The rest is in the HTML summary.\n")
