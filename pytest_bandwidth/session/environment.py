"""Where a run took place: versions, commit, host, command. Nothing here is a figure of the device."""

from __future__ import annotations

import os
import platform
import sys
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from uuid import uuid4

from pytest_bandwidth import __version__
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.session.against.checkout import git

_PACKAGES = ("pytest", "numpy", "numba", "cupy-cuda12x", "cupy-cuda13x", "cupy-rocm-7-0", "torch", "nvidia-ml-py")
GIT_SECONDS = 10


def describe(root: Path, started: float) -> dict[str, object]:
    """JSON-ready facts about the software around a run that began at `started`, in seconds since the epoch."""
    return {
        "plugin": __version__,
        "python": platform.python_version(),
        "packages": _versions(),
        "os": platform.platform(),
        "host": platform.node(),
        "commit": commit(root),
        "uncommitted_changes": _uncommitted(root),
        "command": " ".join(sys.argv)[:1000],
        "ci": bool(os.environ.get("CI")),
        "started_at": _moment(datetime.fromtimestamp(started, timezone.utc)),
    }


def now() -> str:
    """UTC in ISO 8601, to the second."""
    return _moment(datetime.now(timezone.utc))


def new_run_id() -> str:
    """Sorts by time and is unique: 20261121T040000Z-3f2c1ab9."""
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{uuid4().hex[:8]}"


def commit(root: Path) -> str | None:
    """The commit that the tests come from (short hash), None outside a git checkout."""
    return _git(root, "rev-parse", "--short=12", "HEAD") or None


def _uncommitted(root: Path) -> bool | None:
    changes = _git(root, "status", "--porcelain", "--untracked-files=no")
    return None if changes is None else bool(changes)


def _git(root: Path, *args: str) -> str | None:
    try:
        return git(root, *args, seconds=GIT_SECONDS).strip()
    except UsageError:
        return None


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
