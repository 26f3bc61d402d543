"""Take the data that the starting process handed over, once, and check that an ancestor of this process wrote it.

An environment variable names a file. A process that inherits the variable by accident must not act on it. So both are
removed when they are read, and the file names its writer. `hand_over` uses the standard library alone: Ray carries it
to nodes by value.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

# A fresh process's request (`evidence.processes.child`), and the places of a fleet's card.
REQUEST_VARIABLE = "PYTEST_BANDWIDTH_REQUEST"
# Set together with one of those (`evidence.processes.start_and_end`).
PARENT_VARIABLE = "PYTEST_BANDWIDTH_PARENT"
ANCESTOR_VARIABLE = "PYTEST_BANDWIDTH_ANCESTOR"
_WRITER = "from"


def hand_over(file: Path, content: Mapping[str, Any]) -> None:
    """Write plain data, by the name of its reader, for a process that this one starts."""
    pid = os.getpid()
    file.write_text(json.dumps({**content, _WRITER: [pid, _start_of(pid)]}), encoding="utf-8")


def taken(environment: MutableMapping[str, str] = os.environ) -> dict[str, Any] | None:
    """Return the content of the variable's file, and remove both; None where the variable is not set.

    Raises ValueError, one line, where no ancestor of this process wrote the file.
    """
    path = environment.pop(REQUEST_VARIABLE, None)
    if path is None:
        return None
    file = Path(path)
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        pid, start = content.pop(_WRITER)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise unexpected(REQUEST_VARIABLE) from None
    ancestor = os.getppid()
    while ancestor > 0 and ancestor != pid:
        fields = _stat(ancestor)  # without /proc only the parent is known
        ancestor = int(fields[1]) if fields else 0
    if ancestor != pid or _start_of(pid) != start:
        raise unexpected(REQUEST_VARIABLE)
    os.unlink(path)
    return content


def unexpected(name: str) -> ValueError:
    """Return the error for a variable that no process of the plugin set for this one."""
    return ValueError(
        f"found {name} in the environment, expected it only in processes that pytest-bandwidth starts: unset it"
    )


def _start_of(pid: int) -> str | None:
    """Return when a process started, in ticks since boot: another process may have its number later."""
    fields = _stat(pid)
    return fields[19] if fields else None


def _stat(pid: int) -> list[str]:
    """Return a process's fields from its state on (man 5 proc_pid_stat); empty where they cannot be read."""
    try:
        # The name may hold any character, and ends at the last parenthesis.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2].split()
    except OSError:
        return []
