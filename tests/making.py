"""`make` in a copy of the repository, with the environment that these tests run in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from documented import ROOT
from repositories import git

# What `make` would install first: it is here, or the tests that need it skip.
INSTALLED = tuple(f"--old-file={Path(sys.prefix, stamp)}" for stamp in (".test", ".demo", ".traffic"))
HERE = (f"VENV={sys.prefix}", *INSTALLED)
# What the `make` that runs these tests was told goes on to those that it starts: VENV is what `make clean` removes.
_TOLD = ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "PYTHON", "VENV", "LOWEST", "RESULTS", "PYTEST_ARGS")


def copy_of_repository(folder: Path) -> Path:
    """The files that git knows or would add, as they are now, in `folder`."""
    for name in git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def make(folder: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`make` with these arguments, and with none of those that were given to the `make` around it."""
    own = {name: value for name, value in os.environ.items() if name not in _TOLD}
    return subprocess.run(
        ["make", *args], cwd=folder, env={**own, **environment}, capture_output=True, text=True, check=False
    )
