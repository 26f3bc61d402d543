"""Find in a log what a runner of CI would take for a command."""

from __future__ import annotations

import re

# GitHub's runner takes a line for a command by its begin, or by what it holds; Azure's and TeamCity's likewise.
COMMANDS = (
    "::error file=a.py::forged",
    "  ::stop-commands::forged",
    "##[error]forged",
    "##vso[task.complete]forged",
    "##VSO[task.complete]forged",
    "##teamcity[buildStatus forged]",
)
_COMMAND = re.compile(r"^\s*::|##\w*\[")


def commands_in(log: str) -> list[str]:
    """Return the lines that hold a command."""
    return [line for line in re.split(r"[\n\r\v\f\x85\u2028\u2029]", log) if _COMMAND.search(line)]
