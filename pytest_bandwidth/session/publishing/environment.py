"""Describe where a run took place: versions, commit, host, command. Nothing here is a figure of the device."""

from __future__ import annotations

import os
import platform
import re
import sys
from contextlib import suppress
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from uuid import uuid4

from pytest_bandwidth import __version__
from pytest_bandwidth.baseline.code_files import is_written_by_updates
from pytest_bandwidth.domain.units import format_moment
from pytest_bandwidth.evidence.git import current_commit, root_in_checkout, uncommitted_files
from pytest_bandwidth.options.options import own_command

_COMMIT_VARIABLES = ("GITHUB_SHA", "CI_COMMIT_SHA")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)
_PACKAGES = (
    *("pytest", "numpy", "numba", "cupy-cuda12x", "cupy-cuda13x", "cupy-rocm-7-0"),
    *("torch", "triton", "numba-cuda", "nvidia-ml-py"),
)


def describe(root: Path, started: float, baseline: Path | None = None, commit: str | None = None) -> dict[str, object]:
    """Gather JSON-ready facts about the software around a run that began at `started`, in seconds since the epoch.

    baseline: what the run may have written, a file or a folder. commit: as in `commit_of_run`.
    """
    versions = {}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "plugin": __version__,
        "python": platform.python_version(),
        "packages": versions,
        "os": platform.platform(),
        "host": platform.node(),
        "root": root_in_checkout(root),
        "commit": commit_of_run(root, commit),
        "uncommitted_changes": None if (files := uncommitted_beside(root, baseline)) is None else bool(files),
        "command": own_command(sys.argv),
        "ci": bool(os.environ.get("CI")),
        "started_at": format_moment(datetime.fromtimestamp(started, timezone.utc)),
    }


def commit_of_run(root: Path, given: str | None) -> str | None:
    """Return the full hash of the commit that runs; None where nothing says it.

    Where there is no repository, as in a container: given (ini bandwidth_commit), or what GitHub or GitLab say.
    """
    said = (given, *(os.environ.get(name) for name in _COMMIT_VARIABLES))
    return current_commit(root) or next((one for one in said if one and _COMMIT.fullmatch(one)), None)


def uncommitted_beside(root: Path, baseline: Path | None) -> list[str] | None:
    """Return the files by which what ran may be other than the commit holds; None if git does not say.

    What updates of the baseline write is no part of what ran.
    """
    if baseline is None:
        return uncommitted_files(root)
    written = baseline.resolve()
    return uncommitted_files(root, lambda path: is_written_by_updates(path, written))


def now() -> str:
    """Tell the moment: UTC in ISO 8601, to the second."""
    return format_moment(datetime.now(timezone.utc))


def new_run_id() -> str:
    """Make a name that sorts by time and is unique: 20261121T040000Z-3f2c1ab9."""
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{uuid4().hex[:8]}"
