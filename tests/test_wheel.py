"""The built wheel in an empty environment: what a user gets from the index."""

import os
import re
import shlex
import subprocess
import sys
import venv
import zipfile

import pytest
from documented import ROOT, installations

INSTALLATIONS = installations()
# The tutorial's: what it names is what a laptop without a GPU needs.
TUTORIAL = "install 'pytest-bandwidth[cpu,traffic,report]'"
TEST = """
import numpy as np

def test_triad(bandwidth):
    n = 1 << 16
    b, c = bandwidth.random(n, "float32"), bandwidth.random(n, "float32")
    a = bandwidth.empty(n, "float32")
    triad = bandwidth.kernel("stream.cu", "triad_f32")
    bandwidth.launch(triad, 64, 256, (a, b, c, np.float32(3), np.int64(n)), reads=(b, c), writes=a)
    assert np.allclose(a, b + 3 * c)
"""


def run(*command, cwd, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV", "PYTEST"))}
    done = subprocess.run(command, cwd=cwd, env={**clean, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (file,) = folder.glob("*.whl")
    return file


def test_wheel_carries_kernels_templates_and_types(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    shipped = {f"pytest_bandwidth/cuda_src/{path.name}" for path in (ROOT / "cuda_src").glob("*.cu")}
    assert shipped
    assert shipped <= names
    data = [
        p
        for p in (ROOT / "pytest_bandwidth").rglob("*")
        if p.suffix in (".html", ".lark", ".json", ".css", ".js", ".typed")
    ]
    assert {p.relative_to(ROOT).as_posix() for p in data} <= names
    assert "pytest_bandwidth/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]


@pytest.mark.slow
@pytest.mark.parametrize("command", INSTALLATIONS)
def test_documented_installation_finds_all_that_it_needs(wheel, command, tmp_path):
    # All but the last step: CUDA's libraries are gigabytes.
    all_but = {"PIP_DRY_RUN": "1", "PIP_IGNORE_INSTALLED": "1", "PIP_FIND_LINKS": str(wheel.parent)}
    text = run(sys.executable, "-m", "pip", *shlex.split(command), cwd=tmp_path, **all_but)
    assert re.search(r"^Would install .*pytest.bandwidth-", text, re.MULTILINE)


@pytest.mark.slow
def test_installed_wheel_runs_from_there(wheel, tmp_path):
    environment = tmp_path / "env"
    venv.create(environment, with_pip=True)
    python = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    assert TUTORIAL in INSTALLATIONS
    run(python, "-m", "pip", *shlex.split(TUTORIAL), cwd=tmp_path, PIP_FIND_LINKS=str(wheel.parent))
    project = tmp_path / "project"
    project.mkdir()
    (project / "test_triad.py").write_text(TEST)
    quick = ("--bandwidth-device=cpu", "--bandwidth-max-time=0.05", "--bandwidth-min-samples=3")
    text = run(python, "-m", "pytest", *quick, "--bandwidth-json=run.json", cwd=project)
    assert "1 passed" in text
    text = run(
        python, "-m", "pytest", *quick, "--pyargs", "pytest_bandwidth.suite", "-k", "copy-plain-float32", cwd=project
    )
    assert "1 passed" in text
    assert "stream.cu" in run(
        python, "-c", "from pytest_bandwidth.devices.kernel_source import *; print(shipped_files())", cwd=project
    )
    where = run(python, "-c", "import pytest_bandwidth; print(pytest_bandwidth.__file__)", cwd=project)
    assert str(environment) in where
    assert "pytest-bandwidth" in run(environment / python.parent.name / "pytest-bandwidth", "--version", cwd=project)
