"""Run git in tests."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git(folder: Path | str, *args: str) -> str:
    """Return what git printed there. Raises CalledProcessError where it fails."""
    return subprocess.run(["git", "-C", str(folder), *args], check=True, capture_output=True, text=True).stdout


def committed(folder: Path | str, subject: str = "one", *files: str) -> str:
    """Commit these files, or all of them, to a repository that is made where there is none; return the hash."""
    if not Path(folder, ".git").exists():
        git(folder, "init", "-q", "-b", "main")
    git(folder, "add", *(files or ("-A",)))
    git(folder, "-c", "user.name=n", "-c", "user.email=e@localhost", "commit", "-qm", subject)
    return git(folder, "rev-parse", "HEAD").strip()
