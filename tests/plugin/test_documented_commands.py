"""Every command and snippet of README and docs: run, or marked as one that needs another machine, and counted."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from documented import BLOCKS, PAGES, ROOT, Block, commands, words

from pytest_bandwidth import storage
from pytest_bandwidth.cli import main
from pytest_bandwidth.options import INI_ONLY, OPTIONS, dest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'")
pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'pytest-bandwidth[history]'")
pytest.importorskip("vl_convert", reason="vl-convert is not installed: pip install 'pytest-bandwidth[report]'")
pytest.importorskip("ruptures", reason="ruptures is not installed: pip install 'pytest-bandwidth[history]'")

KINDS = {"console", "python", "cuda", "yaml", "toml", "text", "{toctree}", "{include}"}
# What a page's blocks say why they cannot run here, and how many do.
NOT_RUN = {
    ("gpu.md", "needs a GPU"): 1,
    ("ci.md", "needs a GitLab runner"): 1,
    ("ci.md", "needs two GPUs"): 1,
    ("ci.md", "needs other machines"): 1,
    ("kernels.md", "rewrites records of this repository"): 1,
}
# Small budgets, and counting where a command names no device: a busy machine must not decide whether it runs.
INI = """[pytest]
addopts = -p no:randomly -p no:hypothesispytest -p no:benchmark -p no:cacheprovider
bandwidth_device = traffic
bandwidth_max_time = 0.05
bandwidth_min_samples = 10
bandwidth_tolerance = 95%
bandwidth_busy_processors = 1000
bandwidth_pairs = 2
"""
PAGES_WITH_COMMANDS = sorted({b.page for b in BLOCKS if b.kind == "console" and b.is_run})
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


@pytest.fixture(scope="module", autouse=True)
def traffic_loaded() -> None:
    """As `everything_loaded`: runs inside this process must not load modules anew."""
    from pytest_bandwidth.devices.traffic import open_traffic

    open_traffic()


@pytest.fixture
def shell(pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]):
    """Runs a documented command in a scratch folder that holds the tutorial's first files; returns its exit status."""
    pytester.makefile(".ini", pytest=INI)
    for block in [b for b in BLOCKS if b.page == "tutorial.md" and b.kind in ("cuda", "python")][:2]:
        write(block, pytester.path)

    def run(command: str) -> int:
        program, *args = words(command, pytester.path)
        if program == "pytest":
            # Fresh processes have tests of their own; whether the command is right shows without them.
            args = [re.sub(r"^--bandwidth-runs=\d+$", "--bandwidth-runs=1", arg) for arg in args]
            if any(arg.startswith("--bandwidth-against=") for arg in args):
                commit_everything(pytester.path)
            return int(pytester.runpytest_inprocess(*args).ret)
        if program == "pytest-bandwidth":
            try:
                return main(args)
            finally:
                capsys.readouterr()
        if program == "pip":
            assert extras_of(command) - extras() == set(), command
            return 0
        assert program == "make", f"{command}: expected pytest, pytest-bandwidth, pip or make"
        assert all(re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M) for target in args), command
        return 0

    return run


def write(block: Block, folder: Path) -> None:
    assert block.file is not None, f"{block}: expected a first line that names its file"
    (folder / block.file).write_text(block.text, encoding="utf-8")


def commit_everything(folder: Path) -> None:
    """A git repository whose branch main holds the folder's files."""
    me = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
    for command in (("init", "--quiet", "--initial-branch=main"), ("add", "."), ("commit", "--quiet", "--message=all")):
        subprocess.run(["git", *me, *command], cwd=folder, check=True)


def extras() -> set[str]:
    return set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def extras_of(command: str) -> set[str]:
    return {extra for listed in re.findall(r"pytest-bandwidth\[([\w,]+)\]", command) for extra in listed.split(",")}


def test_every_block_is_of_a_kind_that_is_checked():
    assert [str(b) for b in BLOCKS if b.kind not in KINDS] == []


def test_what_is_not_run_is_counted():
    reasons = Counter((b.page, b.mark.removeprefix("not run here: ")) for b in BLOCKS if not b.is_run)
    assert reasons == NOT_RUN


def test_the_extras_of_commands_that_are_not_run_exist():
    asked = {e for b in BLOCKS if not b.is_run for e in extras_of(b.text)}
    assert asked
    assert asked <= extras()


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS)
def test_commands_run_in_the_order_of_their_page(page, shell, pytester):
    # README's tests take a gigabyte: `test_readmes_tests_run` runs them once.
    for name, text in FILES.get(page, {}).items():
        (pytester.path / name).write_text(text, encoding="utf-8")
    for command in BEFORE.get(page, ()):
        assert shell(command) == 0
    kinds = ("console",) if page == "README.md" else ("console", "cuda", "python")
    for block in BLOCKS:
        if block.page != page or block.kind not in kinds or not block.is_run:
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


@pytest.mark.parametrize("block", IN_A_TEST, ids=str)
def test_fragments_run(block, pytester):
    pytester.makefile(".ini", pytest=INI)
    body = "".join(f"    {line}\n" for line in (GIVEN[block.page] + block.text).splitlines())
    pytester.makepyfile(test_fragment=f"def test_fragment(bandwidth):\n{body}")
    pytester.runpytest_inprocess("--bandwidth-device=cpu").assert_outcomes(passed=1)


def test_figures_beside_the_traffic_model_are_the_models():
    from pytest_bandwidth.domain import traffic

    (block,) = [b for b in FRAGMENTS if "traffic.gemm(2048" in b.text]
    model = traffic.gemm(2048, 2048, 2048, "float32", tile=32)
    said = [float(figure) for figure in re.findall(r"[\d.]+", block.text.split("#")[1].splitlines()[0])]
    found = model.bytes_moved / 1e6, model.bytes_requested / 1e9, model.arithmetic_intensity
    np.testing.assert_allclose(said, found, rtol=0.01)


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.kind == "yaml"], ids=str)
def test_documented_yaml_is_what_it_says(block, tmp_path):
    if block.file is None:
        (tmp_path / "b.yaml").write_text(block.text, encoding="utf-8")
        assert storage.load(tmp_path / "b.yaml").entries
        return
    jobs = yaml.safe_load(block.text)
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert [used for used in re.findall(r"uses: (.*)", block.text) if used not in text] == []
    assert jobs


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.kind == "toml"], ids=str)
def test_documented_ini_options_exist(block):
    given = tomllib.loads(block.text)["tool"]["pytest"]["ini_options"]
    assert given
    assert set(given) <= {dest(name) for name, _, _ in (*OPTIONS, *INI_ONLY)}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_option_and_command_that_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"--bandwidth-([a-z]+(?:-[a-z]+)*)", text))
    assert named - {name for name, _, _ in OPTIONS} == set()
    from pytest_bandwidth.cli import _COMMANDS

    assert set(re.findall(r"[`\n]pytest-bandwidth ([a-z]+)", text)) - set(_COMMANDS) == set()
