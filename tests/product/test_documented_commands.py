"""Every command and snippet of README and docs, run; with stand-ins for the machines that some of them ask for."""

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import yaml
from documented import BLOCKS, PAGES, ROOT, commands, commands_in_text, installations, plain, printed, words
from repositories import committed, git

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.cli.main import commands as known_commands
from pytest_bandwidth.cli.main import main
from pytest_bandwidth.devices.cuda.device import open_cuda
from pytest_bandwidth.domain.errors import DeviceUnavailable
from pytest_bandwidth.features.tinygrad.backend import open_backend
from pytest_bandwidth.options.options import declared
from pytest_bandwidth.options.settings import dest
from pytest_bandwidth.registry import hooks

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'")
pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'pytest-bandwidth[history]'")
pytest.importorskip("vl_convert", reason="vl-convert is not installed: pip install 'pytest-bandwidth[report]'")
pytest.importorskip("ruptures", reason="ruptures is not installed: pip install 'pytest-bandwidth[history]'")

# Runs inside this process must not load modules anew.
pytestmark = pytest.mark.usefixtures("everything_loaded", "traffic_loaded")

KINDS = {"console", "python", "cuda", "c", "yaml", "toml", "text", "{toctree}", "{include}"}
# What tests stand in for, by page: each has a test of its own.
A_GPU, TWO_GPUS, MACHINES, CLUSTER, RUNNER, REPOSITORY, BUCKET = LACKING = (
    ("gpu.md", "a GPU"),
    ("ci.md", "two GPUs"),
    ("ci.md", "other machines"),
    ("fleet.md", "a Ray cluster"),
    ("ci.md", "a GitLab runner"),
    ("kernels.md", "this repository, whose record it rewrites"),
    ("history.md", "a bucket"),
)
# Runs the last of its arguments, as the host that it names would.
SSH = """#!/bin/sh
for last; do :; done
exec sh -c "$last"
"""
# The name of a command of ours, without what it works on.
NAMED = re.compile(r"pytest-bandwidth (?:COMMAND --help|[a-z]+(?: [a-z]+)?)")
# Tested by test_benchmarks.py and test_make.py; test_contract.py and tests/baseline/test_baseline_json_schema.py
# compare what they would write.
RUN_ELSEWHERE = (
    "python benchmarks/",
    "python tests/support/write_json_schema.py",
    "make ",
    "python tests/product/test_contract.py",
)
# Take minutes; tests/cli/test_selftest.py does the same with fewer runs.
MINUTES = ("pytest-bandwidth selftest --runs 20",)
# Small budgets, and counting where a command names no device: a busy machine must not decide whether it runs.
INI = """[pytest]
addopts = -p no:randomly -p no:hypothesispytest -p no:benchmark -p no:cacheprovider
bandwidth_device = traffic
bandwidth_max_time = 1
bandwidth_min_samples = 10
bandwidth_precision = 50%
bandwidth_tolerance = 95%
bandwidth_busy_processors = 1000
bandwidth_pairs = 4
"""
# Typed by tests/product/test_tutorial.py, from top to bottom.
TYPED = {"README.md", "extensions.md", "frameworks.md", "tutorial.md"}
RUN_PAGES = sorted({b.page for b in BLOCKS if b.kind in ("console", "python") and not b.lacking} - TYPED)
FRAGMENTS = [b for b in BLOCKS if b.kind == "python" and b.file is None and "def test_" not in b.text]
IN_A_TEST = [b for b in FRAGMENTS if "bandwidth." in b.text.replace("pytest_bandwidth.", "")]

# What a page's reader has, and has done before.
FILES = {
    "history.md": {
        "test_triad.py": """
import numpy as np

def test_triad(bandwidth):
    a, b, c = bandwidth.empty(4096), bandwidth.random(4096), bandwidth.random(4096)
    triad = bandwidth.kernel("stream.cu", "triad_f32")
    bandwidth.launch(triad, 4, 256, (a, b, c, np.float32(3), np.int64(4096)), reads=(b, c), writes=a)
"""
    },
}
BEFORE = {"history.md": ("pytest --bandwidth-json=old/run1.json",)}
# What a fragment takes for granted, by page.
GIVEN = {
    "kernels.md": """
import numpy as np
n, grid, block = 1 << 12, 4, 256
a, b, c = bandwidth.empty(n), bandwidth.random(n), bandwidth.random(n)
kernel = bandwidth.kernel("stream.cu", "triad_f32")
args = (a, b, c, np.float32(3), np.int64(n))
args_of_twice_the_size = (*(bandwidth.empty(2 * n) for _ in range(3)), np.float32(3), np.int64(2 * n))
""",
    "traffic.md": """
source = 'extern "C" __global__ void scale(float* x, float s, int n) {' \\
         ' int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= s; }'
import numpy as np
n = 1 << 12
x = np.ones(n, np.float32)
""",
}


@pytest.fixture
def shell(pytester, capsys):
    """Runs a documented command in a scratch folder that holds README's first files; returns its exit status."""
    pytester.makefile(".ini", pytest=INI)
    for block in [b for b in BLOCKS if b.page == "README.md" and b.kind in ("cuda", "python")][:2]:
        write(block, pytester.path)

    def run(command):
        program, *args = words(command, pytester.path)
        if program == "pytest":
            if any(arg.startswith("--bandwidth-against=") for arg in args):
                committed(pytester.path)
            return int(pytester.runpytest_inprocess(*args).ret)
        if program == "pytest-bandwidth":
            if args[0] == "bisect" and "--help" not in args:
                commit_a_regression(pytester.path, args[1])
            try:
                return main(args)
            finally:
                capsys.readouterr()
        if program == "pip":
            assert command.removeprefix("pip ") in installations()  # tests/product/test_wheel.py runs them
            return 0
        assert program == "make", f"{command}: expected pytest, pytest-bandwidth, pip or make"
        return 0  # tests/product/test_make.py sees to it that it runs all

    return run


@pytest.fixture(scope="module")
def kept_baselines(tmp_path_factory):
    return tmp_path_factory.mktemp("kept") / "baselines"


@pytest.fixture
def with_baselines(shell, pytester, kept_baselines):
    """The scratch folder's baselines/ knows its tests on the traffic device."""
    if kept_baselines.exists():
        shutil.copytree(kept_baselines, pytester.path / "baselines")
        return
    assert shell("pytest --bandwidth-baseline=baselines/ --bandwidth-update") == 0
    shutil.copytree(pytester.path / "baselines", kept_baselines)


def write(block, folder):
    assert block.file is not None, f"{block}: expected a first line that names its file"
    (folder / block.file).write_text(block.text, encoding="utf-8")


def commit_a_regression(folder, good):
    """A git repository in which README's kernel was good, and is not on main; the folder's files stay."""
    shutil.rmtree(folder / ".git", ignore_errors=True)
    committed(folder)
    git(folder, "tag", good)
    kernel = folder / "scale.cu"
    text = kernel.read_text()
    strided = "int t = blockIdx.x * blockDim.x + threadIdx.x, i = t * 32 % n + t * 32 / n;"
    kernel.write_text(text.replace("int i = blockIdx.x * blockDim.x + threadIdx.x;", strided))
    committed(folder)
    kernel.write_text(text)


def test_every_block_is_of_a_kind_that_is_checked():
    assert [str(b) for b in BLOCKS if b.kind not in KINDS] == []


def test_what_is_stood_in_for_has_a_test():
    assert sorted((b.page, b.lacking) for b in BLOCKS if b.lacking) == sorted(LACKING)


def lacking(what):
    (block,) = [b for b in BLOCKS if (b.page, b.lacking) == what]
    return block


def test_commands_for_a_gpu_run_or_say_that_there_is_none(shell, pytester):
    try:
        open_cuda(0).release()
        lacks = ""
    except DeviceUnavailable as error:
        lacks = str(error)
    for command in commands(lacking(A_GPU).text):
        if command.startswith("pytest") and lacks:
            result = pytester.runpytest_inprocess(*words(command, pytester.path)[1:])
            assert result.ret == pytest.ExitCode.USAGE_ERROR
            assert lacks in result.stdout.str() + result.stderr.str()
        else:
            assert shell(command) == 0, command


@pytest.mark.usefixtures("with_baselines")
def test_the_command_for_two_gpus_runs_with_two_workers(pytester):
    pytest.importorskip("xdist", reason="xdist is not installed: pip install pytest-xdist")
    pytester.makepyfile(
        test_told="import os\nfrom pathlib import Path\n"
        "def test_told():\n    Path(f'told-{os.environ[\"CUDA_VISIBLE_DEVICES\"]}').touch()\n"
    )
    (command,) = commands(lacking(TWO_GPUS).text)
    result = pytester.runpytest_subprocess(*words(command, pytester.path)[1:])
    assert result.ret == 0
    assert sorted(path.name for path in pytester.path.glob("told-*")) == ["told-0", "told-1"]


@pytest.mark.usefixtures("with_baselines")
def test_the_command_for_other_machines_runs_through_ssh(pytester, tmp_path_factory, monkeypatch):
    pytest.importorskip("xdist", reason="xdist is not installed: pip install pytest-xdist")
    programs, checkout = tmp_path_factory.mktemp("programs"), tmp_path_factory.mktemp("machines") / "kernels"
    (programs / "ssh").write_text(SSH)
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    shutil.copytree(pytester.path, checkout)
    (command,) = commands(lacking(MACHINES).text)
    here = command.replace("/srv/kernels/.venv/bin/python", sys.executable).replace("/srv/kernels", str(checkout))
    assert here.count(str(checkout)) == here.count(sys.executable) == command.count("--tx ssh=") == 2
    result = pytester.runpytest_subprocess(*words(here, pytester.path)[1:])
    assert result.ret == 0
    assert result.parseoutcomes()["passed"] == 2
    assert (pytester.path / "run.json").is_file()


def test_the_fleets_commands_say_what_they_lack_where_there_is_no_cluster(tmp_path):
    """tests/features/fleet has a cluster."""
    for command in commands(lacking(CLUSTER).text):
        program, *args = words(command, tmp_path)
        if program == "ray":
            continue
        (tmp_path / "baselines").mkdir(exist_ok=True)
        (tmp_path / "tests/gpu").mkdir(exist_ok=True, parents=True)
        # No port of any service.
        command_line = [sys.executable, "-m", "pytest_bandwidth.cli", args[0], "--address=127.0.0.1:1", *args[1:]]
        done = subprocess.run(command_line, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        said = done.stdout + done.stderr
        assert "pip install 'pytest-bandwidth[fleet]'" in said or "no Ray answers there" in said, said


def test_the_commands_for_a_bucket_run_at_a_store_on_disk(shell, tmp_path, monkeypatch):
    """tests/features/history/test_history_in_s3.py has an S3."""
    pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'pytest-bandwidth[bucket]'")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for command in commands(lacking(BUCKET).text):
        assert shell(command.replace("s3://", f"file://{tmp_path}/")) == 0, command
    assert list((tmp_path / "bucket/kernels").glob("*.parquet"))


@pytest.mark.usefixtures("with_baselines")
@pytest.mark.parametrize("block", [b for b in BLOCKS if b.kind == "yaml" and "jobs:" in b.text], ids=str)
def test_githubs_workflows_run(block, shell, pytester):
    workflow = yaml.safe_load(block.text)
    (job,) = workflow["jobs"].values()
    assert workflow["permissions"] == {"contents": "read"}
    assert job["steps"][0]["with"] == {"persist-credentials": False, "fetch-depth": 0}
    runs = [step["run"].removeprefix(".venv/bin/") for step in job["steps"] if "run" in step]
    installing, testing = runs[-2:]
    assert (installing.split()[0], testing.split()[0]) == ("pip", "pytest")
    for command in (installing, testing.replace("--bandwidth-device=cuda", "--bandwidth-device=traffic")):
        assert shell(command) == 0, command
    (uploaded,) = [step["with"]["path"] for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
    assert (pytester.path / uploaded).is_dir()


@pytest.mark.usefixtures("with_baselines")
def test_githubs_job_annotates_the_slow_kernel_as_shown_and_uploads_what_pytest_wrote(pytester, monkeypatch):
    workflow = next(b for b in BLOCKS if b.page == "ci.md" and b.kind == "yaml")
    (testing,) = re.findall(r"run: \.venv/bin/(pytest .*)", workflow.text)
    (option,) = re.findall(r"`(--bandwidth-sarif=\S+)`", (ROOT / "docs/ci.md").read_text(encoding="utf-8"))
    write([b for b in BLOCKS if b.page == "README.md" and b.kind == "cuda"][1], pytester.path)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = pytester.runpytest_inprocess(*words(f"{testing} {option}", pytester.path)[1:])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (shown,) = [b for b in BLOCKS if b.page == "ci.md" and b.kind == "text"]
    assert printed(shown).search(plain(result.stdout.str()))
    (scanning,) = [b for b in BLOCKS if b.page == "ci.md" and "upload-sarif" in b.text]
    assert "permissions: {contents: read, security-events: write}" in scanning.text
    (upload,) = yaml.safe_load(scanning.text)
    (run,) = json.loads((pytester.path / upload["with"]["sarif_file"]).read_text(encoding="utf-8"))["runs"]
    assert [one["ruleId"] for one in run["results"]] == ["counts"]


@pytest.mark.usefixtures("with_baselines")
def test_gitlabs_jobs_run(shell, pytester):
    file = yaml.safe_load(lacking(RUNNER).text)
    assert file.pop("variables") == {"GIT_DEPTH": 0}
    artifacts = file.pop("default")["artifacts"]
    results, junit = (pytester.path / name for name in (*artifacts["paths"], artifacts["reports"]["junit"]))
    jobs = {name: {**file.get(job.get("extends"), {}), **job} for name, job in file.items() if name[0] != "."}
    assert set(jobs) == {"traffic", "gpu", "gpu-merge-request"}
    for name, job in jobs.items():
        assert ("gpu" in job.get("tags", ())) == ("resource_group" in job) == name.startswith("gpu")
        shutil.rmtree(results, ignore_errors=True)
        junit.unlink(missing_ok=True)
        for command in (*job.get("before_script", ()), *job["script"]):
            if command == "python3 -m venv .venv":
                continue  # what it is for is installed here
            known = command.replace("$CI_MERGE_REQUEST_DIFF_BASE_SHA", "HEAD").replace(" --bandwidth-device=cuda", "")
            assert shell(known.removeprefix(".venv/bin/")) == 0, command
        assert results.is_dir()
        assert junit.is_file()


def test_the_record_rewritten_in_a_copy_of_the_repository_is_the_one_that_it_holds(tmp_path):
    everything_else = shutil.ignore_patterns("__pycache__", "[!i]*.cu")
    for name in ("cuda_src", "tests/kernels", "tests/support"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=everything_else)
    rewriting, checking = commands(lacking(REPOSITORY).text)
    program, *args = words(rewriting, tmp_path)
    assert program == "python"
    subprocess.run([sys.executable, *args], cwd=tmp_path, check=True)
    now, then = (yaml.safe_load((root / "tests/support/resources.yaml").read_text()) for root in (tmp_path, ROOT))
    assert list(now["kernels"]) == ["intensity.cu"]  # the shortest: compiling them all takes a minute
    if now["nvrtc"] == then["nvrtc"]:
        assert now["kernels"]["intensity.cu"] == then["kernels"]["intensity.cu"]
    program, *folders = words(checking, ROOT)
    assert program == "pytest"
    assert all((ROOT / folder).is_dir() for folder in folders)  # they run beside this one


@pytest.mark.parametrize("command", [c for c in commands_in_text() if NAMED.fullmatch(c)])
def test_commands_that_the_text_names_say_how_they_are_used(command, shell):
    bare = command.removesuffix(" --help")
    for name in known_commands() if "COMMAND" in bare else [""]:
        with pytest.raises(SystemExit) as ended:
            shell(f"{bare.replace('COMMAND', name)} --help")
        assert ended.value.code == 0


@pytest.mark.usefixtures("with_baselines")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(c, marks=pytest.mark.experiment if c in MINUTES else ())
        for c in commands_in_text()
        if not c.startswith(RUN_ELSEWHERE) and not NAMED.fullmatch(c)
    ],
)
def test_commands_in_the_text_run(command, shell):
    program, *args = words(command, ROOT)
    if program != "python":
        # The suite takes minutes, and `make traffic` runs it.
        collects = ("--collect-only",) if "--pyargs" in args else ()
        assert shell(" ".join((command.replace("REV", "HEAD"), *collects))) == 0
    elif args[:2] == ["-m", "pytest"]:
        subprocess.run([sys.executable, *args, "--collect-only", "-q"], cwd=ROOT, check=True)
    elif args == ["-m", "pytest_bandwidth.suite.operations.table"]:
        subprocess.run([sys.executable, *args], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    elif "-runs=200000" in args:
        pytest.importorskip("atheris", reason="atheris is not installed: it has wheels for Linux on x86-64 only")
        subprocess.run([sys.executable, *args, "-runs=100"], cwd=ROOT, check=True)
    else:
        assert command in lacking(REPOSITORY).text


@pytest.mark.parametrize("page", RUN_PAGES)
def test_commands_run_in_the_order_of_their_page(page, shell, pytester):
    if page == "backends.md":
        pytest.importorskip("tinygrad", reason="tinygrad is not installed: pip install 'pytest-bandwidth[tinygrad]'")
        open_backend("PYTHON")  # loaded here, not by a run inside this process
    for name, text in FILES.get(page, {}).items():
        (pytester.path / name).write_text(text, encoding="utf-8")
    for command in BEFORE.get(page, ()):
        assert shell(command) == 0
    # Its test takes a gigabyte: tests/card/test_documented.py runs it with less.
    kinds = ("console",) if page == "cuda.md" else ("console", "cuda", "python")
    for block in BLOCKS:
        if block.page != page or block.kind not in kinds or block.lacking:
            continue
        if block.kind == "console":
            for command in commands(block.text):
                assert shell(command) == block.exit_status, f"{block}: {command}"
        elif block.file is not None:
            write(block, pytester.path)
        elif block in FRAGMENTS and block not in IN_A_TEST:
            exec(compile(GIVEN.get(page, "") + block.text, str(block), "exec"), {})


def test_the_recipe_for_the_traffic_device_passes_there(pytester):
    pytester.makefile(".ini", pytest=INI)
    (block,) = [b for b in BLOCKS if 'device="traffic"' in b.text]
    write(block, pytester.path)
    pytester.runpytest_inprocess("--bandwidth-device=traffic").assert_outcomes(passed=1)


def test_fragments_run(pytester):
    pytester.makefile(".ini", pytest=INI)
    for number, block in enumerate(IN_A_TEST):
        body = "".join(f"    {line}\n" for line in (GIVEN[block.page] + block.text).splitlines())
        pytester.makepyfile(**{f"test_fragment{number}": f"def test_fragment(bandwidth):\n{body}"})
    pytester.runpytest_inprocess("--bandwidth-device=cpu").assert_outcomes(passed=len(IN_A_TEST))


def test_figures_beside_the_traffic_model_are_the_models():
    from pytest_bandwidth.suite import traffic_models as traffic

    (block,) = [b for b in FRAGMENTS if "traffic.gemm(2048" in b.text]
    model = traffic.gemm(2048, 2048, 2048, "float32", tile=32)
    said = [float(figure) for figure in re.findall(r"[\d.]+", block.text.split("#")[1].splitlines()[0])]
    found = model.bytes_moved / 1e6, model.bytes_requested / 1e9, model.arithmetic_intensity
    np.testing.assert_allclose(said, found, rtol=0.01)


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.kind == "yaml"], ids=str)
def test_documented_yaml_is_what_it_says(block, tmp_path):
    if block.file is None:
        (tmp_path / "b.yaml").write_text(block.text, encoding="utf-8")
        assert baseline_files.load(tmp_path / "b.yaml").entries
        return
    jobs = yaml.safe_load(block.text)
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert [used for used in re.findall(r"uses: (actions/.*)", block.text) if used not in text] == []
    assert jobs


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.kind == "toml"], ids=str)
def test_documented_ini_options_exist(block):
    given = tomllib.loads(block.text)["tool"]["pytest"]["ini_options"]
    assert given
    assert set(given) <= set(map(dest, declared(hooks())))


@pytest.mark.parametrize("file", [*PAGES, *(ROOT / ".github" / "workflows").glob("*.yml")], ids=lambda f: f.name)
def test_every_option_and_command_that_a_page_or_a_workflow_names_exists(file):
    text = file.read_text(encoding="utf-8")
    named = set(re.findall(r"--bandwidth-([a-z]+(?:-[a-z]+)*)", text))
    assert named - {name.replace("_", "-") for name, one in declared(hooks()).items() if not one.ini_only} == set()
    assert set(re.findall(r"[`\n]pytest-bandwidth ([a-z]+)", text)) - set(known_commands()) == set()
