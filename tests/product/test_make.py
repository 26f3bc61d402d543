"""Every `make` command of README and docs, run in a copy of the repository."""

import json

import pytest
from documented import BLOCKS, ROOT, commands, commands_in_text
from repositories import HERE, copy_of_repository, run

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.devices.cuda.device import open_cuda
from pytest_bandwidth.domain.errors import DeviceUnavailable

IN_BLOCKS = [command for block in BLOCKS if block.kind == "console" for command in commands(block.text)]
DOCUMENTED = {command for command in (*commands_in_text(), *IN_BLOCKS) if command.startswith("make ")}
RUN_HERE = {
    "make clean",
    "make demo",  # by test_demo.py: it measures
    "make docs",  # by test_docs.py
    "make gpu",
    "make traffic",
    "make traffic PYTEST_ARGS=--bandwidth-update",
}
# `make test` and `make test-slow` run this; `make bench` measures for half an hour, by scripts that test_benchmarks.py
# runs one by one. The others install, as CI's jobs of them do, or come after the tests.
NOT_RUN_HERE = sorted(DOCUMENTED - RUN_HERE)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    return copy_of_repository(tmp_path_factory.mktemp("repository"))


@pytest.fixture
def baselines_compiler():
    """Skips where NVRTC is missing, or is not the one whose code baselines/ counts."""
    pytest.importorskip("cuda.bindings", reason="counting needs NVRTC: pip install 'pytest-bandwidth[traffic]'")
    from pytest_bandwidth.features.traffic.ptx import nvrtc_version

    entries = baseline_files.load(ROOT / "baselines" / "traffic-sm-90.yaml").entries.values()
    (counted,) = {entry.settings["nvrtc"] for entry in entries}
    if nvrtc_version() != counted:
        pytest.skip(f"baselines/ was counted with NVRTC {counted}, here is {nvrtc_version()}")


def baselines_in(folder):
    files = [file for file in (folder / "baselines").rglob("*") if file.is_file()]
    return {file.relative_to(folder): file.read_text(encoding="utf-8") for file in files}


def test_what_is_run_here_is_documented():
    assert RUN_HERE <= DOCUMENTED


@pytest.mark.parametrize("command", NOT_RUN_HERE)
def test_what_is_not_run_here_would_run(command, copy):
    assert run("make", *HERE, "--dry-run", *command.split()[1:], cwd=copy).returncode == 0


@pytest.mark.slow
@pytest.mark.usefixtures("baselines_compiler")
def test_traffic_is_what_the_repositorys_baseline_says_and_an_update_changes_nothing(copy):
    """In code too: PTX, machine code and launch are those of whichever machine wrote it. CI judges all of it."""
    for option, status in (("--bandwidth-strict", "OK"), ("--bandwidth-update", "SAVED")):
        result = run("make", *HERE, "traffic", f"PYTEST_ARGS={option} -k copy --bandwidth-json=run.json", cwd=copy)
        assert result.returncode == 0, result.stdout + result.stderr
        rows = json.loads((copy / "run.json").read_text(encoding="utf-8"))["results"]
        known = baseline_files.load(ROOT / "baselines" / "traffic-sm-90.yaml").entries
        assert rows
        assert all(row["code_identity"] == known[row["key"]].code for row in rows)
        assert {row["status"] for row in rows} == {status}
    assert baselines_in(copy) == baselines_in(ROOT)


def test_gpu_says_that_there_is_none_and_writes_nothing(copy):
    try:
        open_cuda(0).release()
    except DeviceUnavailable:
        pass
    else:
        pytest.skip("there is a GPU: `make gpu` would measure for minutes and write its files")
    result = run("make", *HERE, "gpu", cwd=copy)
    assert "nothing written: " in result.stderr
    assert result.returncode != 0
    assert sorted(path.name for path in copy.glob("docs/gpu/*")) == sorted(p.name for p in ROOT.glob("docs/gpu/*"))


def test_clean_removes_what_was_made(copy):
    for made in (".venv/bin/python", "demo-results/baseline.yaml", "docs/_build/index.html"):
        (copy / made).parent.mkdir(parents=True, exist_ok=True)
        (copy / made).touch()
    assert run("make", "clean", cwd=copy).returncode == 0
    assert [made for made in (".venv", "demo-results", "docs/_build") if (copy / made).exists()] == []
    assert (copy / "README.md").is_file()
