"""Run a build command by the shell, in a process that ends with the one that asked for it, and all that it started."""

from __future__ import annotations

import subprocess


def main(command: str) -> int:
    """Run the command and return its exit status."""
    return subprocess.call(command, shell=True)
