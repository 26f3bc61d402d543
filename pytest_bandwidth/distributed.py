"""Under pytest-xdist: how the controller tells its workers what a fresh process needs to know."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pytest_bandwidth.checkout import check_out
from pytest_bandwidth.processes import Invocation, started_as_module
from pytest_bandwidth.worktree import Revision


def tell_worker(node: Any) -> None:
    """A worker knows its own arguments only; fresh processes are to be started as the controller was."""
    node.workerinput["bandwidth_args"] = [str(arg) for arg in node.config.invocation_params.args]
    node.workerinput["bandwidth_folder"] = str(node.config.invocation_params.dir)
    node.workerinput["bandwidth_as_module"] = started_as_module()
    revision = check_out(node.config)
    node.workerinput["bandwidth_revision"] = None if revision is None else asdict(revision)


def invocation_of(config: pytest.Config) -> Invocation:
    """How this run was started by its user, in a worker too, and what a fresh one needs on top."""
    given: dict[str, Any] = getattr(config, "workerinput", {})
    args = given.get("bandwidth_args") or [str(arg) for arg in config.invocation_params.args]
    extra = []
    if config.pluginmanager.hasplugin("xdist"):
        extra += ["-n0"]
    if config.pluginmanager.hasplugin("_cov") or config.pluginmanager.hasplugin("pytest_cov"):
        extra += ["--no-cov"]
    return Invocation(
        args=tuple(args),
        folder=Path(given.get("bandwidth_folder") or config.invocation_params.dir),
        as_module=given.get("bandwidth_as_module", started_as_module()),
        extra_args=tuple(extra),
    )


def revision_of(config: pytest.Config) -> Revision | None:
    """The revision that this run judges by: checked out by the controller, for its workers too."""
    if not hasattr(config, "workerinput"):
        return check_out(config)
    given: dict[str, Any] | None = config.workerinput.get("bandwidth_revision")
    return None if given is None else Revision(**given)
