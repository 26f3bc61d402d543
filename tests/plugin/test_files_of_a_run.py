"""The files that a run writes, and what a machine that has only those makes of them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

COPY = """
def test_copy(bandwidth):
    x = bandwidth.random(1 << 16, "float32")
    bandwidth(x.copy, reads=x, writes=x.nbytes)
"""
# The console script's, where CuPy cannot be imported.
WITHOUT_CUPY = """
import sys
sys.modules["cupy"] = None
from pytest_bandwidth.cli.main import main
sys.exit(main())
"""


@pytest.mark.smoke
def test_the_folder_of_a_run_holds_each_form_once(project):
    project.file("test_copy.py", COPY)
    assert project.run("--bandwidth-dir=results").ret == 0
    (folder,) = (project.path / "results").iterdir()
    files = sorted(file.name for file in folder.iterdir())
    assert files == ["bandwidth_report.csv", "bandwidth_report.html", "bandwidth_report.json"]
    assert json.loads((folder / "bandwidth_report.json").read_text(encoding="utf-8"))["run_id"] == folder.name


def test_a_saved_run_is_rendered_where_there_is_no_cupy(project):
    pytest.importorskip("vl_convert", reason="vl-convert is not installed: pip install 'pytest-bandwidth[report]'")
    project.file("test_copy.py", COPY)
    project.document()
    for arguments in (("report", "run.json", "-o", "x.html"), ("report", "run.json", "-o", "x.png")):
        said = subprocess.run(
            [sys.executable, "-c", WITHOUT_CUPY, *arguments],
            cwd=project.path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (said.returncode, said.stderr) == (0, f"wrote {arguments[-1]}\n")
    assert "test_copy.py::test_copy" in (project.path / "x.html").read_text(encoding="utf-8")
    assert (project.path / "x.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
