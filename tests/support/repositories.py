"""Run git in tests."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git(folder: Path | str, *args: str) -> str:
    """Return what git printed there. Raises CalledProcessError where it fails."""
    return subprocess.run(["git", "-C", str(folder), *args], check=True, capture_output=True, text=True).stdout
