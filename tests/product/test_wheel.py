"""The built wheel in an empty environment: what a user gets from the index."""

import os
import re
import shlex
import sys
import venv
import zipfile
from email.parser import Parser

import pytest
from documented import ROOT, installations
from repositories import run

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


def done(*command, cwd, **environment):
    """What the command printed; it has to end well."""
    result = run(*command, cwd=cwd, **environment)
    assert result.returncode == 0, f"{command}: {result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    done(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def metadata(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(archive.read(name).decode())


def of_wheel(command, wheel):
    """The command's words with this wheel for the project's name, whatever an index has."""
    # A constraint would change no word, but pip 23.2 (in Python 3.11) fails on one where there are extras.
    words = [re.sub("^pytest-bandwidth", str(wheel), word) for word in shlex.split(command)]
    assert words != shlex.split(command)
    return words


def test_wheel_carries_kernels_templates_and_types(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    shipped = {f"pytest_bandwidth/cuda_src/{path.name}" for path in (ROOT / "cuda_src").glob("*.cu")}
    assert shipped
    assert shipped <= names
    files = [p for p in (ROOT / "pytest_bandwidth").rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    assert {".css", ".j2", ".js", ".json", ".lark", ".py"} <= {p.suffix for p in files}
    assert {p.relative_to(ROOT).as_posix() for p in files} <= names
    assert "pytest_bandwidth/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]


def test_an_index_shows_readme_with_links_to_the_site_and_the_versions_files(metadata):
    addresses = dict(line.split(", ") for line in metadata.get_all("Project-URL"))
    assert addresses.keys() == {"Documentation", "Source", "Issues", "Changelog"}
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "Development Status :: 3 - Alpha" in metadata.get_all("Classifier")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", metadata.get_payload())]
    site, tree = f"{addresses['Documentation']}/", f"{addresses['Source']}/blob/v{metadata['Version']}/"
    pages = [f"docs/{link.removeprefix(site).removesuffix('.html')}.md" for link in links if link.startswith(site)]
    files = [link.removeprefix(tree) for link in links if link.startswith(tree)]
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", metadata.get_payload())
    pictures = [link.removeprefix(tree.replace("/blob/", "/raw/")) for link in shown]
    assert len(pages) > 10
    assert len(pictures) == 2
    assert [file for file in (*pages, *files, *pictures) if not (ROOT / file).is_file()] == []
    assert [link for link in links if not link.startswith("https://")] == []


def test_documented_installations_name_extras_that_there_are(metadata):
    named = set(re.findall(r"\w+", "".join(re.findall(r"\[[\w,]+\]", " ".join(INSTALLATIONS)))))
    assert len(named) > 5
    assert named <= set(metadata.get_all("Provides-Extra"))


@pytest.mark.slow
def test_installed_wheel_runs_from_there(wheel, tmp_path):
    environment = tmp_path / "env"
    venv.create(environment)
    python = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    assert TUTORIAL in INSTALLATIONS
    # Most of what it installs is never imported here: Python compiles what is.
    done(sys.executable, "-m", "pip", "--python", python, *of_wheel(TUTORIAL, wheel), "--no-compile", cwd=tmp_path)
    project = tmp_path / "project"
    project.mkdir()
    (project / "test_triad.py").write_text(TEST)
    quick = ("--bandwidth-device=cpu", "--bandwidth-max-time=0.05", "--bandwidth-min-samples=3")
    text = done(python, "-m", "pytest", *quick, "--bandwidth-json=run.json", "--bandwidth-html=run.html", cwd=project)
    assert "1 passed" in text
    page = (project / "run.html").read_text(encoding="utf-8")
    assert "test_triad.py::test_triad" in page
    assert '<figure class="chart"' in page
    suite = ("--pyargs", "pytest_bandwidth.suite", "-k", "copy and float32")
    text = done(python, "-m", "pytest", *quick, *suite, cwd=project)
    assert "2 passed" in text
    where = done(python, "-c", "import pytest_bandwidth; print(pytest_bandwidth.__file__)", cwd=project)
    assert str(environment) in where
    assert "pytest-bandwidth" in done(environment / python.parent.name / "pytest-bandwidth", "--version", cwd=project)
