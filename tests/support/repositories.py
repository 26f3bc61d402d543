"""Run git in repositories of tests; run `make` and scripts as a shell does, in a copy of this one where they write."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Holds the `sitecustomize.py` by which what tests start finds a small cache.
SMALL_MACHINE = Path(__file__).with_name("small_machine")
# What `make` would install first is here, or the tests that need it skip.
INSTALLED = tuple(f"--old-file={Path(sys.prefix, stamp)}" for stamp in (".test", ".demo", ".traffic"))
# The environment that these tests run in, into which nothing is installed.
HERE = (f"VENV={sys.prefix}", "DEVICE_EXTRA=", *INSTALLED)
# What the programs around these tests were told goes on to all that they start: VENV is what `make clean` removes.
_TOLD = ("BESIDE", "COV", "GNUMAKE", "MAKE", "MFLAGS", "PIP_", "PYTEST", "PYTHON", "VENV", "LOWEST", "RESULTS")


def git(folder: Path | str, *args: str) -> str:
    """Return what git printed there. Raises CalledProcessError where it fails."""
    return subprocess.run(["git", "-C", str(folder), *args], check=True, capture_output=True, text=True).stdout


def committed(folder: Path | str, subject: str = "one", *files: str) -> str:
    """Commit these files, or all of them, to a repository that is made where there is none; return the hash."""
    if not Path(folder, ".git").exists():
        git(folder, "init", "-q", "-b", "main")
    git(folder, "add", *(files or ("-A",)))
    git(folder, "-c", "user.name=n", "-c", "user.email=e@localhost", "commit", "--allow-empty", "-qm", subject)
    return git(folder, "rev-parse", "HEAD").strip()


def clean_environment() -> dict[str, str]:
    """Return this process's environment without what tests, coverage, pip and `make` put into it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_TOLD)}


def copy_of_repository(folder: Path) -> Path:
    """Copy the files that git knows or would add, as they are now, to `folder`."""
    for name in git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command on the small machine and return its end, whatever it is."""
    whole = {**clean_environment(), "PYTHONPATH": str(SMALL_MACHINE), **environment}
    return subprocess.run(command, cwd=cwd, env=whole, capture_output=True, text=True, check=False)
