"""Whether the workflows are safe to run in public. `make lint` runs the linters of workflows."""

import re
import runpy
import shlex
from pathlib import Path

import pytest
import yaml
from repositories import run

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
JOBS = [
    pytest.param(job, id=f"{file.stem}-{name}")
    for file in WORKFLOWS
    for name, job in yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"].items()
]


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
    assert not (writes and "self-hosted" in job["runs-on"])
    if writes:
        assert not any("pip " in step.get("run", "") or "make " in step.get("run", "") for step in job["steps"])


def test_every_gate_is_strict():
    """What could not be judged would pass otherwise: in workflows, and in what docs/ci.md advises."""
    texts = [file.read_text(encoding="utf-8") for file in (*WORKFLOWS, ROOT / "docs" / "ci.md")]
    steps = [step for text in texts for step in re.split(r"\n\s*- |\n\n|\n\||`", text)]
    gates = [step for step in steps if re.search(r"--bandwidth-(against|baseline)=", step)]
    gates = [step for step in gates if "pytest" in step and "--bandwidth-update" not in step]
    assert len(gates) >= 8
    assert [step for step in gates if "--bandwidth-strict" not in step] == []


# By a job's target what it installs without a hash, as SECURITY.md says.
WITHOUT_HASHES = {
    "frameworks": ["torch", "triton", "numba-cuda[cu13]"],
    "trackers": ["apache-otava"],
    "lowest": ["uv", ".[cpu,traffic,report,history,bucket]", "nvidia-cuda-nvrtc"],
}


LINES = [line for param in JOBS for step in param.values[0]["steps"] for line in step.get("run", "").splitlines()]


def installed_without_hashes(command):
    """What a command of `make` would install by no list of hashes, less the package itself."""
    done = run(*shlex.split(command), "--dry-run", "VENV=/nowhere", "FLEET=/nowhere/fleet", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    steps = re.split(r"&&|\n", done.stdout.replace("\\\n", " "))
    installs = [shlex.split(step) for step in steps if re.search(r"\b(?:pip|uv) .*\binstall\b", step)]
    unlisted = [words for words in installs if not {"--require-hashes", "--no-deps"} & {*words}]
    return [re.split("[=<>~!]=", word)[0] for words in unlisted for word in requirements_among(words)]


def requirements_among(words):
    takes_value = {"--index-url", "--python", "--resolution", "--group"}
    given = words[words.index("install") + 1 :]
    return [
        word
        for before, word in zip(["", *given], given, strict=False)
        if not word.startswith("-") and before not in takes_value
    ]


def test_what_ci_installs_is_named_by_hash_but_for_what_security_md_names_and_by_make():
    plain = [re.sub(r"\$\{\{.*?\}\}", "x", line) for line in LINES]
    commands = sorted({found[0] for line in plain if (found := re.search(r"\bmake [a-z].*", line))})
    assert len(commands) > 10
    found = {command.split()[1]: installed for command in commands if (installed := installed_without_hashes(command))}
    assert found == WITHOUT_HASHES
    told = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("\n## CI\n")[2]
    assert re.findall(r"`make (\w+)`", told) == list(WITHOUT_HASHES)
    assert all(name in told for name in ("PyTorch", "Triton", "numba-cuda", "Apache Otava", "uv"))
    assert [line for line in LINES if re.search(r"\b(?:pip|pipx|uv) ", line)] == []


@pytest.fixture
def lists():
    return runpy.run_path(str(ROOT / ".ci" / "lists.py"))


def test_the_list_of_hashes_names_no_registry_and_hashes_everything(lists):
    text = lists["ALL"].read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^--?(?:index|extra|find|trusted)", text, re.MULTILINE)
    releases = lists["releases"](text)
    assert len(releases) > 100
    assert [one for one in releases if "==" not in one or "--hash=sha256:" not in one] == []


def test_each_purpose_has_a_list_and_together_they_are_the_file(lists, tmp_path):
    (purposes,) = re.findall(r"^PURPOSES := (.*)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    files = [tmp_path / f"{purpose}.txt" for purpose in sorted(purposes.split())]
    for file in files:
        file.write_text(lists["list_of"](file.stem), encoding="utf-8")
        assert "hatchling==" in file.read_text(encoding="utf-8"), "what builds the package in place"
    assert lists["merge"](files) == lists["ALL"].read_text(encoding="utf-8")


PULL_REQUEST = {"github.event_name": "pull_request", "github.ref": "refs/pull/7/merge", "inputs.update": ""}


def evaluated(text, context):
    """A value of a workflow as GitHub computes it: `${{ … }}` of comparisons, `&&`, `||` and `!`; others stay text."""
    expression = re.fullmatch(r"\$\{\{(.*)\}\}", text)
    if expression is None:
        return text
    tokens = re.findall(r"'[^']*'|&&|\|\||==|!=|!|[()]|[\w.]+|\S", expression[1])
    python = {"&&": "and", "||": "or", "!": "not"} | {name: repr(value) for name, value in context.items()}
    return eval(" ".join(python.get(token, token) for token in tokens), {"__builtins__": {}})


def reaches_our_runner_unapproved(job):
    """Whether a pull request's code runs on a runner of our own without the environment that has reviewers."""
    if "self-hosted" not in job["runs-on"] or not evaluated(job.get("if", "always"), PULL_REQUEST):
        return False
    return evaluated(job.get("environment", ""), PULL_REQUEST) != "gpu-pull-request"


@pytest.mark.parametrize("job", JOBS)
def test_a_pull_requests_code_waits_for_a_reviewer_before_it_reaches_our_runner(job):
    assert not reaches_our_runner_unapproved(job)


def test_the_jobs_that_run_all_tests_may_not_skip_those_in_a_browser():
    named = [(job, step.get("run", "")) for (job,) in (param.values for param in JOBS) for step in job["steps"]]
    jobs = {id(job): job for job, command in named if re.match(r"make (test|lowest)\b", command)}
    assert [job["env"] for job in jobs.values()] == [{"BROWSER_TESTS": "required"}] * 3


def test_a_pull_request_is_compared_with_what_its_checkout_merged_it_into():
    measure = yaml.safe_load((ROOT / ".github/workflows/gpu.yml").read_text(encoding="utf-8"))["jobs"]["measure"]
    checkout, *_ = measure["steps"]
    (against,) = [step["run"] for step in measure["steps"] if "--bandwidth-against" in step.get("run", "")]
    assert checkout["with"]["fetch-depth"] == 0
    assert "ref" not in checkout["with"]  # so it is the merge of both, whose first parent is the base
    assert "--bandwidth-against=HEAD^1 " in against
