"""What a test, a conftest.py or a plugin does to a failure: the run fails, and says what it failed by."""

import pytest

pytestmark = [pytest.mark.in_process, pytest.mark.slow]

# Ten thousand times below what it asks for; without confirmation the first look is the verdict.
SLOW = """
import pytest
from virtual_time import sleep

@pytest.mark.bandwidth(min_gbps="90 TB/s")
def test_slow(bandwidth):
    bandwidth(sleep, 0.002, reads=1 << 20)
"""
WHY = "test_k.py::test_slow failed by its verdict REGRESSED, and was not reported as failed"
SET_OUTCOME = """
import pytest

@pytest.hookimpl({how}, {order}=True)
def pytest_runtest_makereport(item, call):
    {body}
"""
NEW_STYLE = "report = yield\n    report.outcome = 'passed'\n    return report"
NEW_REPORT = (
    "report = yield\n    return pytest.TestReport(item.nodeid, item.location, {}, 'passed', None, call.when, (), 0.0)"
)
# What hides a failure: the text of a conftest.py, one put before the test, and whether the report says that it failed.
HIDDEN = {
    "fail replaced by the test": ("", "import pytest\npytest.fail = lambda *_, **__: None\n", False),
    "outcome set by a wrapper": (SET_OUTCOME.format(how="wrapper=True", order="tryfirst", body=NEW_STYLE), "", False),
    "another report": (SET_OUTCOME.format(how="wrapper=True", order="tryfirst", body=NEW_REPORT), "", False),
    "outcome set before it is logged": (
        "import pytest\n@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_runtest_logreport(report):\n    report.outcome = 'passed'\n", "", False
    ),
    "a rerun that never comes": (
        SET_OUTCOME.format(
            how="wrapper=True", order="tryfirst",
            body="report = yield\n    if call.when == 'call':\n        report.outcome = 'rerun'\n    return report",
        ), "", False
    ),
    "status set at the end": ("def pytest_sessionfinish(session):\n    session.exitstatus = 0\n", "", True),
    "status set while pytest ends": (
        "def pytest_sessionstart(session):\n    session.config.kept = session\n"
        "def pytest_unconfigure(config):\n    config.kept.exitstatus = 0\n", "", True
    ),
    "exit at the end": (
        "import pytest\ndef pytest_sessionfinish():\n    pytest.exit('well', returncode=0)\n", "", True
    ),
    "failures not counted": (
        "import pytest\n@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
        "def pytest_runtestloop(session):\n    yield\n    session.testsfailed = 0\n    return True\n", "", True
    ),
}  # fmt: skip
EXITS = "\n\ndef test_that_ends_it_all():\n    pytest.exit('well', returncode=0)\n"


@pytest.mark.parametrize("kind", list(HIDDEN))
def test_a_hidden_failure_fails_the_run(slept, monkeypatch, kind):
    monkeypatch.setattr(pytest, "fail", pytest.fail)  # what the test replaces comes back
    conftest, before, reported = HIDDEN[kind]
    slept.file("conftest.py", conftest)
    slept.file("test_k.py", before + SLOW)
    result = slept.run_here("-o", "bandwidth_confirm=0", "--bandwidth-json=run.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    told = [line for line in result.outlines if line.startswith(f"FAILED: {WHY}")]
    assert len(told) == (not reported)
    if not reported:
        document = slept.told()
        assert [f["text"] for f in document["findings"] if f["code"] == "failure-hidden"] == [told[0][8:]]


def test_an_exit_without_error_after_a_failure_fails(slept):
    slept.file("test_k.py", SLOW + EXITS)
    assert slept.run_here("-o", "bandwidth_confirm=0").ret == pytest.ExitCode.TESTS_FAILED
    slept.file("test_k.py", SLOW.replace("90 TB/s", "1 MB/s") + EXITS)
    assert slept.run_here("-o", "bandwidth_confirm=0").ret == pytest.ExitCode.OK
    slept.file("test_k.py", SLOW + EXITS.replace("=0", "=7"))
    assert slept.run_here("-o", "bandwidth_confirm=0").ret == 7


UNJUDGED = """
import pytest

@pytest.mark.bandwidth
def test_slow(bandwidth):
    pass

def test_broken(bandwidth):
    raise ValueError("no such kernel")

def test_lost(bandwidth):
    pass
"""
WHYS = (
    "failed by marked bandwidth, and measured nothing: there is nothing to judge",
    "failed by ValueError: no such kernel",
    "failed by test_k.py::test_lost is in the baseline, and the test passed and measured nothing",
)


def test_what_strict_fails_cannot_be_hidden(slept):
    slept.file("conftest.py", HIDDEN["outcome set by a wrapper"][0])
    slept.file("test_k.py", UNJUDGED)
    slept.file("b.yaml", "schema: 2\ntests:\n  test_k.py::test_lost: {bandwidth: 1 MB/s}\n")
    result = slept.run_here("--bandwidth-strict", "--bandwidth-baseline=b.yaml")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    told = [line for line in result.outlines if line.startswith("FAILED: ")]
    assert len(told) == len(WHYS)
    assert all(any(why in line for line in told) for why in WHYS)


LEGITIMATE = {
    "a mark expects it": ('@pytest.mark.xfail(reason="known")\n', ""),
    "the entry expects it": ("", "  test_k.py::test_slow: {bandwidth: 1 MB/s, xfail: known}\n"),
}


@pytest.mark.parametrize("kind", list(LEGITIMATE))
def test_an_expected_failure_is_none(slept, kind):
    mark, entry = LEGITIMATE[kind]
    slept.file("test_k.py", SLOW.replace("@pytest.mark.bandwidth", f"{mark}@pytest.mark.bandwidth"))
    slept.file("b.yaml", f"schema: 2\ntests:\n{entry}" if entry else "schema: 2\ntests: {}\n")
    result = slept.run_here("-o", "bandwidth_confirm=0", "--bandwidth-baseline=b.yaml", "--bandwidth-json=run.json")
    assert result.ret == 0
    result.assert_outcomes(xfailed=1)
    assert "REGRESSED" in result.stdout.str()
    (row,) = slept.told()["results"]
    assert row["status"] == "REGRESSED"
    assert row["xfail"].startswith("known")


SECOND_TIME = SLOW.replace("bandwidth(sleep, 0.002", "tries.append(1)\n    bandwidth(sleep, 0.002 / len(tries) ** 9")


def test_a_rerun_that_passes_is_none(slept):
    pytest.importorskip("pytest_rerunfailures")
    slept.file("test_k.py", f"tries = []\n{SECOND_TIME}".replace("90 TB/s", "1 GB/s"))
    result = slept.run_here("-o", "bandwidth_confirm=0", "--reruns=1")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["1 measured: 1 OK"])


@pytest.mark.processes
def test_processes_hide_no_failure(slept):
    slept.file("conftest.py", HIDDEN["outcome set by a wrapper"][0])
    slept.file("test_k.py", SLOW)
    result = slept.run("-o", "bandwidth_confirm=1", "-n1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert len([line for line in result.outlines if line.startswith(f"FAILED: {WHY}")]) == 1
