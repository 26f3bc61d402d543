"""Print what docs/cuda.md shows, from its own test: the message of a slowed kernel, the summary, and the baseline.

    python benchmarks/readme.py             # about half a minute

Takes the Python block of docs/cuda.md, commits it to a repository of its own, writes a baseline, lets its triad do a
third more work than it declares, and prints what the plugin then says.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cuda.md"
# As declared, and a third more of it while the declaration stays.
HONEST = ("n = 1 << 25", "reads=(b, c), writes=a,")
SLOWED = ("n = (1 << 25) * 4 // 3", "reads=8 << 25, writes=4 << 25,")


def shown_test() -> str:
    """Return the Python block of docs/cuda.md that defines tests."""
    blocks: list[str] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (test,) = [block for block in blocks if "def test_" in block]
    return test


def slowed(test: str) -> str:
    for honest, slow in zip(HONEST, SLOWED, strict=True):
        if test.count(honest) != 1:
            raise SystemExit(f"docs/cuda.md: expected {honest!r} once in its test; change it here too")
        test = test.replace(honest, slow)
    return test


def run(folder: Path, *args: str) -> str:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:randomly",
        "-p",
        "no:benchmark",
        "-p",
        "no:cacheprovider",
    ]
    command += ["--bandwidth-device=cpu", "--bandwidth-baseline=baseline.yaml", *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def commit(folder: Path, message: str) -> None:
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
    name = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    subprocess.run(["git", *name, "commit", "-qm", message], cwd=folder, check=True)


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        tests = folder / "tests"
        tests.mkdir()
        (tests / "test_triad.py").write_text(shown_test())
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        (folder / ".gitignore").write_text("__pycache__/\n*.nbi\n*.nbc\n")
        commit(folder, "Test a triad")
        # The first process compiles the kernels, which is no part of what is shown.
        run(folder, "--bandwidth-disable")
        print(run(folder, "--bandwidth-update"))
        baseline = folder / "baseline.yaml"
        if not baseline.is_file():
            raise SystemExit("no baseline was written, see above")
        print(baseline.read_text())
        commit(folder, "Add its baseline")
        print(run(folder))
        (tests / "test_triad.py").write_text(slowed(shown_test()))
        print(run(folder))


if __name__ == "__main__":
    main()
