"""Write what a run inside GitHub Actions found into the job's summary and, as annotations, onto tests' lines.

Variables: https://docs.github.com/en/actions/reference/workflows-and-actions/variables
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def is_github() -> bool:
    """Return whether this process is a step of a GitHub Actions job."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def write_summary(document: Mapping[str, Any]) -> str | None:
    """Append to the step's summary, which other commands of the step may have begun.

    Returns why not, in a line: the figures are whole without it, so a run does not fail over its summary.
    """
    from pytest_bandwidth.reports.github import SUMMARY_BYTES_AT_MOST, job_summary

    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if not target:
        return None
    try:
        with open(target, "a", encoding="utf-8") as file:
            room = SUMMARY_BYTES_AT_MOST - file.tell()
            file.write("\n" + job_summary(document, room))
    except OSError as error:
        return f"no job summary: $GITHUB_STEP_SUMMARY cannot be written: {error}"
    return None


def commands(document: Mapping[str, Any], rootpath: Path) -> str:
    """Return the annotations as workflow commands, one a line, for standard output."""
    from pytest_bandwidth.reports.github import annotations

    return annotations(document, _place_in_repository(rootpath))


def _place_in_repository(rootpath: Path) -> Callable[[str], str | None]:
    """Return a function that names a file as GitHub does, from the checkout's root; None for one outside of it."""
    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or rootpath).resolve()

    def place(file: str) -> str | None:
        path = (rootpath / file).resolve()
        return path.relative_to(workspace).as_posix() if path.is_relative_to(workspace) else None

    return place
