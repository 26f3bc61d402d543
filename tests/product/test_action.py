"""The action for GitHub's workflows: its shell, run as GitHub runs it, with a `gh` that keeps comments in a file."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from documented import BLOCKS, ROOT
from repositories import clean_environment

ACTION = yaml.safe_load((ROOT / ".github/actions/bandwidth/action.yml").read_text(encoding="utf-8"))
MEASURE, COMMENT = ACTION["runs"]["steps"]
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
MARKER = "<!-- pytest-bandwidth: bandwidth -->"
BOT, SOMEBODY = "github-actions[bot]", "somebody"
HOSTILE = ["$(touch made)", "; touch made", "*", "it's", 'a"b', "--"]

# Answers of `gh api` as GitHub gives them, of two comments a page; a token that may not write gets 403.
GH = f"""#!{sys.executable}
import json, os, pathlib, subprocess, sys

command, *options = sys.argv[1:]
given = {{name: options[options.index(name) + 1] for name in ("--method", "--jq", "--field") if name in options}}
(endpoint,) = [word for word in options if not word.startswith("--") and word not in given.values()]
file = pathlib.Path(os.environ["COMMENTS"])
comments = json.loads(file.read_text())
issues = "repos/owner/kernels/issues"
assert command == "api"
if "--method" not in given:
    assert endpoint == f"{{issues}}/7/comments?per_page=100" and "--paginate" in options
    for start in range(0, len(comments), 2):
        page = json.dumps(comments[start : start + 2])
        subprocess.run(["jq", "--raw-output", given["--jq"]], input=page, text=True, check=True)
    sys.exit()
if os.environ["GH_TOKEN"] == "read-only":
    sys.exit("gh: Resource not accessible by integration (HTTP 403)")
key, _, value = given["--field"].partition("=@")
body = pathlib.Path(value).read_text(encoding="utf-8")
assert key == "body" and len(body) <= 65536
if given["--method"] == "POST":
    assert endpoint == f"{{issues}}/7/comments"
    comments.append({{"id": len(comments), "user": {{"login": "{BOT}"}}, "body": body}})
else:
    (changed,) = [c for c in comments if endpoint == f"{{issues}}/comments/{{c['id']}}"]
    changed["body"] = body
file.write_text(json.dumps(comments))
"""
# Prints its arguments, as JSON, in place of running them.
PRINTS = f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"
TEST = """
import numpy as np

def test_copy(bandwidth):
    a = bandwidth.random(4096)
    b = bandwidth.empty(4096)
    bandwidth(np.copyto, b, a, reads=a, writes=b)
"""


class Runner:
    """Runs the action's steps in a folder, as GitHub's runner does."""

    def __init__(self, folder):
        self.folder, self.programs = folder, folder / "programs"
        self.summary, self.table, self.comments = folder / "summary.md", folder / "bandwidth.md", folder / "comments"
        self.programs.mkdir()
        self.summary.touch()
        self.comments.write_text("[]")

    def program(self, name, text):
        (self.programs / name).write_text(text, encoding="utf-8")
        (self.programs / name).chmod(0o755)
        return str(self.programs / name)

    def run(self, step, inputs, **environment):
        """Run the step's script with these inputs, and the defaults of the others."""
        known = {name: declared["default"] for name, declared in ACTION["inputs"].items()}
        assert inputs.keys() <= known.keys()
        values = {f"inputs.{name}": value for name, value in {**known, **inputs}.items()}
        values |= {"github.token": "token", "github.event.pull_request.number": "7"}
        given = {name: values[re.fullmatch(r"\$\{\{ (\S+) \}\}", text)[1]] for name, text in step["env"].items()}
        of_runner = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_REPOSITORY": "owner/kernels",
            "GITHUB_RUN_ID": "11",
            "RUNNER_TEMP": str(self.folder),
            "COMMENTS": str(self.comments),
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
        }
        assert step["shell"] == "bash"  # which GitHub runs so:
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder,
            env={**clean_environment(), **of_runner, **given, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def comment(self, **environment):
        """Run the step that comments; return what it printed and the comments that there are then."""
        done = self.run(COMMENT, {}, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout, [comment["body"] for comment in json.loads(self.comments.read_text())]


@pytest.fixture
def runner(tmp_path):
    for name in ("bash", "jq"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed: GitHub's runners have it")
    runner = Runner(tmp_path)
    runner.program("gh", GH)
    return runner


def comments(runner, *texts):
    plain = [{"id": 40 + number, "user": {"login": who}, "body": body} for number, (who, body) in enumerate(texts)]
    runner.comments.write_text(json.dumps(plain))


def arguments(runner, **inputs):
    done = runner.run(MEASURE, {"python": runner.program("python", PRINTS), **inputs})
    assert done.returncode == 0, done.stderr
    module, pytest_itself, *given = json.loads(done.stdout)
    assert (module, pytest_itself) == ("-m", "pytest")
    return given


def test_pytest_gets_an_option_for_each_input_that_is_given(runner):
    assert arguments(runner) == ["--bandwidth-strict"]
    inputs = {"device": "traffic", "baseline": "baselines/", "against": "HEAD^1", "strict": "false"}
    options = ["--bandwidth-device=traffic", "--bandwidth-baseline=baselines/", "--bandwidth-against=HEAD^1"]
    assert arguments(runner, **inputs) == options
    assert arguments(runner, strict="False ") == ["--bandwidth-strict"]


def test_further_arguments_are_words_as_in_a_shell(runner):
    given = """--pyargs pytest_bandwidth.suite -k 'copy and not "half"' \n --bandwidth-dir=re\\ sults "it's" """
    expected = ["--pyargs", "pytest_bandwidth.suite", "-k", 'copy and not "half"', "--bandwidth-dir=re sults", "it's"]
    assert arguments(runner, strict="false", arguments=given) == expected


@pytest.mark.parametrize("text", HOSTILE)
def test_no_input_is_run_or_expanded(runner, text):
    names = ("device", "baseline", "against")
    quoted = f"'{text}'" if "'" not in text else f'"{text}"'
    given = arguments(runner, arguments=quoted, **dict.fromkeys(names, text))
    assert given == [*(f"--bandwidth-{name}={text}" for name in names), "--bandwidth-strict", text]
    assert not (runner.folder / "made").exists()


def test_a_quote_that_does_not_end_fails_before_pytest_runs(runner):
    done = runner.run(MEASURE, {"python": runner.program("python", PRINTS), "arguments": "-k 'copy"})
    assert done.returncode != 0
    assert done.stdout == ""
    assert "unmatched single quote" in done.stderr
    assert runner.table.read_text() == ""


@pytest.mark.slow
def test_a_run_that_fails_fails_the_step_and_leaves_its_table_to_summary_and_comment(runner):
    pytest.importorskip("numba", reason="Numba is not installed: pip install 'pytest-bandwidth[cpu]'")
    (runner.folder / "test_copy.py").write_text(TEST)
    quick = "-p no:randomly -p no:cacheprovider --bandwidth-max-time=0.05 --bandwidth-min-samples=3"
    inputs = {"python": sys.executable, "device": "cpu", "arguments": quick}
    done = runner.run(MEASURE, inputs)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"^::error file=test_copy.py,line=4,title=UNDECIDED", done.stdout, re.MULTILINE)
    assert "❌ UNDECIDED" in runner.summary.read_text(encoding="utf-8")
    _, (body,) = runner.comment()
    assert body.startswith(f"{MARKER}\n**bandwidth**: [the run](https://github.com/owner/kernels/actions/runs/11)\n\n")
    assert body.endswith(runner.summary.read_text(encoding="utf-8"))
    assert runner.run(MEASURE, {**inputs, "strict": "false"}).returncode == 0


def test_one_comment_is_made_and_then_kept_up_to_date(runner):
    others = [(SOMEBODY, "looks good"), (SOMEBODY, f"{MARKER}\nforged"), (BOT, f"quoted: {MARKER}")]
    comments(runner, *others, (BOT, "<!-- pytest-bandwidth: gpu -->\nanother job's"))
    runner.table.write_text("## first\n")
    printed, made = runner.comment()
    assert printed == ""
    assert made[-1].endswith("\n\n## first\n")
    runner.table.write_text("## second\n")
    _, changed = runner.comment()
    assert changed == [*made[:-1], made[-1].replace("first", "second")]


def test_a_run_without_a_table_takes_the_old_one_out_of_the_comment(runner):
    comments(runner, (BOT, f"{MARKER}\n## old"), (BOT, f"{MARKER}\nby a job that met the first"))
    runner.table.touch()
    _, (body, other) = runner.comment()
    assert body.endswith("\n\nNothing was measured.\n")
    assert other == f"{MARKER}\nby a job that met the first"


@pytest.mark.parametrize("known", [[], [(BOT, f"{MARKER}\nold")]])
@pytest.mark.parametrize("lacks", ["the right to write", "gh"])
def test_a_runner_that_cannot_comment_leaves_a_notice_and_fails_nothing(runner, known, lacks):
    comments(runner, *known)
    runner.table.write_text("## table\n")
    environment = {"GH_TOKEN": "read-only"}
    if lacks == "gh":
        (runner.programs / "gh").unlink()
        for name in ("bash", "awk"):
            (runner.programs / name).symlink_to(shutil.which(name))
        environment = {"PATH": str(runner.programs)}
    printed, there = runner.comment(**environment)
    assert printed.startswith("::notice title=No comment on the pull request::The job's summary has the table.")
    assert there == [body for _, body in known]


def test_a_long_table_is_cut_after_a_line_and_the_worst_stay(runner):
    rows = [f"| ❌ REGRESSED | test_{number} | {'é' * 200} |" for number in range(400)]
    runner.table.write_text("\n".join(rows) + "\n", encoding="utf-8")
    _, (body,) = runner.comment()
    kept = body.partition("\n\n")[2].splitlines()
    assert 100 < len(kept) < len(rows)
    assert kept == rows[: len(kept)]


def test_only_the_step_that_comments_has_the_token_and_it_runs_for_pull_requests_alone():
    assert [step["name"] for step in ACTION["runs"]["steps"] if "token" in json.dumps(step)] == [COMMENT["name"]]
    assert "if" not in MEASURE
    expected = "!cancelled() && github.event_name == 'pull_request' && inputs.comment != ''"
    assert COMMENT["if"] == f"${{{{ {expected} }}}}"


def test_every_input_is_documented_with_its_default():
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (?:`(.*?)`)? ?\| \S", PAGE.partition("| input |")[2], re.MULTILINE)
    told = {name.strip("`"): default for names, default in rows for name in names.split(", ")}
    assert told == {name: declared["default"] for name, declared in ACTION["inputs"].items()}
    assert all(declared["description"] for declared in ACTION["inputs"].values())


def test_the_documented_step_takes_this_repositorys_action_and_its_inputs():
    (block,) = [block for block in BLOCKS if block.page == "ci.md" and "actions/bandwidth" in block.text]
    (step,) = yaml.safe_load(block.text)
    (source,) = re.findall(r'^Source = "https://github.com/(.*)"', (ROOT / "pyproject.toml").read_text("utf-8"), re.M)
    assert step["uses"] == f"{source}/.github/actions/bandwidth@COMMIT"
    assert step["with"].keys() <= ACTION["inputs"].keys()
