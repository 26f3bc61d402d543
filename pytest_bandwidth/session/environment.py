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
from pytest_bandwidth.session.git import current_commit, has_uncommitted_changes

_PACKAGES = ("pytest", "numpy", "numba", "cupy-cuda12x", "cupy-cuda13x", "cupy-rocm-7-0", "torch", "nvidia-ml-py")


def describe(root: Path, started: float) -> dict[str, object]:
    """JSON-ready facts about the software around a run that began at `started`, in seconds since the epoch."""
    return {
        "plugin": __version__,
        "python": platform.python_version(),
        "packages": _versions(),
        "os": platform.platform(),
        "host": platform.node(),
        "commit": current_commit(root),
        "uncommitted_changes": has_uncommitted_changes(root),
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
