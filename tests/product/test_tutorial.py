"""Quick starts, typed in an empty folder: their commands, their files, and what they say is printed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from documented import BLOCKS, commands, plain, printed, words
from repositories import committed

pytest.importorskip("numba", reason="Numba is not installed: pip install 'pytest-bandwidth[cpu]'")
pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'")

# What a busy machine does to figures must not decide, and other plugins print lines of their own.
ADDOPTS = (
    "-p no:randomly -p no:benchmark -p no:hypothesispytest -p no:cacheprovider "
    "-o bandwidth_busy_processors=1000 -o bandwidth_tolerance={} -o bandwidth_runs=2"
)
UNPRINTED = "no command of this page prints it"
# A kernel of this one is two thirds slower in the end.
TOLERANCES = {"extensions.md": "30%"}
# The page says to begin with another one.
BEGINS_WITH = {"tutorial.md": "README.md"}


def typed(page, folder):
    """Type the page from top to bottom; yield each text block with what the commands before it printed."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "GITHUB_", "CI"))}
    # On a busy machine a probe on several threads is as slow as the one that waits for a processor.
    addopts = ADDOPTS.format(TOLERANCES.get(page, "95%"))
    environment |= {"PYTEST_ADDOPTS": addopts, "COLUMNS": "120", "NUMBA_NUM_THREADS": "1"}
    environment["PATH"], output = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}", ""
    (folder / ".gitignore").write_text("*.so\n__pycache__/\n")
    for block in (block for block in BLOCKS if block.page in (page, BEGINS_WITH.get(page))):
        if block.kind == "console" and not block.text.startswith("pip install "):  # test_wheel.py does that
            output = ""
            committed(folder)
            for command in commands(block.text):
                done = subprocess.run(
                    words(command, folder),
                    cwd=folder,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    encoding="utf-8",
                )
                fails = block.exit_status if command.startswith("pytest") else 0
                assert done.returncode == fails, f"{command}\n{done.stdout}"
                output += done.stdout
        elif block.file is not None and block.kind in ("python", "cuda", "c", "toml"):
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.kind == "text" and block.mark != UNPRINTED and block.page == page:
            yield block, output


@pytest.mark.parametrize(
    ("page", "blocks"),
    [
        ("README.md", 2),
        pytest.param("tutorial.md", 2, marks=pytest.mark.slow),
        pytest.param("extensions.md", 1, marks=pytest.mark.slow),
        pytest.param("frameworks.md", 2, marks=pytest.mark.slow),
    ],
)
def test_a_page_typed_in_an_empty_folder_prints_what_it_shows(page, blocks, tmp_path):
    if page == "frameworks.md":
        for name in ("torch", "triton"):
            pytest.importorskip(name, reason=f"{name} is not installed: make frameworks")
    shown = [b for b in BLOCKS if (b.page, b.kind) == (page, "text") and b.mark != UNPRINTED]
    seen = 0
    for block, output in typed(page, tmp_path):
        assert printed(block).search(plain(output)), f"{block.text}\nis not what is printed:\n{output}"
        seen += 1
    assert seen == len(shown) == blocks
