"""Provide the facts of a whole run: how it was started, its revision, its commit, and its environment.

pytest-xdist's processes share the first two. Without xdist a process is its own controller.
"""

from __future__ import annotations

import os
import platform
import sys
from contextlib import ExitStack, suppress
from dataclasses import asdict
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pytest_bandwidth import __version__
from pytest_bandwidth.baseline.code_files import is_written_by_updates
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import FULL_HASH
from pytest_bandwidth.domain.units import format_moment
from pytest_bandwidth.evidence.commit_pairs.build import Build, check_out
from pytest_bandwidth.evidence.commit_pairs.worktree import Revision
from pytest_bandwidth.evidence.git import current_commit, root_in_checkout, uncommitted_files
from pytest_bandwidth.evidence.processes.child import Invocation, started_as_module
from pytest_bandwidth.evidence.processes.start_and_end import signals_as_interrupts
from pytest_bandwidth.measuring.progress import write_line
from pytest_bandwidth.options.options import RUNS_NOTHING, own_command, settings_of, usage_error
from pytest_bandwidth.options.settings import ANCHOR

_REVISION = pytest.StashKey[Revision]()


def configure_worker(node: Any) -> None:
    """Send a worker the controller's facts: how pytest was started, and the revision."""
    node.workerinput["bandwidth_as_module"] = started_as_module()
    node.workerinput["bandwidth_every_test"] = node.config.option.dist == "each"
    revision = _check_out(node.config)
    node.workerinput["bandwidth_revision"] = None if revision is None else asdict(revision)


def invocation_of(config: pytest.Config) -> Invocation:
    """Return how to start this run again from this process: a worker may be on another machine.

    The arguments are the controller's, with paths as they are on the worker's machine.
    """
    given: dict[str, Any] = getattr(config, "workerinput", {})
    extra = []
    if config.pluginmanager.hasplugin("xdist"):
        extra += ["-n0"]  # no workers of its own: this overrides --dist and --tx
    if config.pluginmanager.hasplugin("_cov") or config.pluginmanager.hasplugin("pytest_cov"):
        extra += ["--no-cov"]
    return Invocation(
        args=tuple(str(arg) for arg in config.invocation_params.args),
        folder=config.invocation_params.dir,
        as_module=given.get("bandwidth_as_module", started_as_module()),
        extra_args=tuple(extra),
    )


def revision_of(config: pytest.Config) -> Revision | None:
    """Return the revision that this run compares with; the controller checks it out, for its workers too."""
    if not hasattr(config, "workerinput"):
        return _check_out(config)
    given: dict[str, Any] | None = config.workerinput.get("bandwidth_revision")
    return None if given is None else Revision(**given)


def _check_out(config: pytest.Config) -> Revision | None:
    """Check the run's revision out at the first call; return None if the run compares with no revision.

    It is removed when pytest ends, also by a signal. Raises pytest.UsageError, one line, for an unknown revision.
    """
    settings = settings_of(config)
    name = settings.against
    runs_nothing = any(config.getoption(option, False) for option in RUNS_NOTHING)
    if name in (None, ANCHOR) or runs_nothing or settings.disable or settings.skip:
        return None
    if _REVISION in config.stash:
        return config.stash[_REVISION]
    stack = ExitStack()
    stack.enter_context(signals_as_interrupts())
    config.add_cleanup(stack.close)
    try:
        build = None if settings.build is None else Build(settings.build, config.rootpath)
        at_revision = check_out(config.rootpath, name, build, lambda text: write_line(config, f"bandwidth: {text}"))
        config.stash[_REVISION] = stack.enter_context(at_revision)
    except UsageError as error:
        raise usage_error(error) from None
    return config.stash[_REVISION]


_COMMIT_VARIABLES = ("GITHUB_SHA", "CI_COMMIT_SHA")
_PACKAGES = (
    *("pytest", "numpy", "numba", "cupy-cuda12x", "cupy-cuda13x", "cupy-rocm-7-0"),
    *("torch", "triton", "numba-cuda", "nvidia-ml-py"),
)


def describe(root: Path, started: float, baseline: Path | None = None, commit: str | None = None) -> dict[str, object]:
    """Return JSON-ready facts about the environment of a run that began at `started`, in seconds since the epoch.

    baseline: the file or folder that the run may have written. commit: as in `commit_of_run`.
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
        "uncommitted_changes": None if (files := uncommitted_code(root, baseline)) is None else bool(files),
        "command": own_command(sys.argv),
        "ci": bool(os.environ.get("CI")),
        "started_at": format_moment(datetime.fromtimestamp(started, timezone.utc)),
    }


def commit_of_run(root: Path, given: str | None) -> str | None:
    """Return the full hash of the current commit; None where it is unknown.

    Without a repository, as in a container, it is `given` (ini bandwidth_commit), or GitHub's or GitLab's variable.
    """
    others = (given, *(os.environ.get(name) for name in _COMMIT_VARIABLES))
    return current_commit(root) or next((one for one in others if one and FULL_HASH.fullmatch(one)), None)


def uncommitted_code(root: Path, baseline: Path | None) -> list[str] | None:
    """Return files that make the code differ from the commit; None where git gives no answer.

    Files that updates of the baseline write are left out: they are no part of the code.
    """
    if baseline is None:
        return uncommitted_files(root)
    written = baseline.resolve()
    return uncommitted_files(root, lambda path: is_written_by_updates(path, written))


def now() -> str:
    """Return the current time: UTC in ISO 8601, to the second."""
    return format_moment(datetime.now(timezone.utc))


def new_run_id() -> str:
    """Return a unique name that sorts by time: 20261121T040000Z-3f2c1ab9."""
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{uuid4().hex[:8]}"
