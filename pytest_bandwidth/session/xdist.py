"""Under pytest-xdist: what the controller tells its workers, and what a worker hands back when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pytest

from pytest_bandwidth.session.against.checkout import Revision
from pytest_bandwidth.session.checkout import check_out
from pytest_bandwidth.session.fresh.child import Invocation, started_as_module

_FURTHER = "bandwidth_further"


def tell_worker(node: Any) -> None:
    """How the controller was started, the revision that it checked out, and whether each worker runs every test."""
    node.workerinput["bandwidth_as_module"] = started_as_module()
    node.workerinput["bandwidth_every_test"] = node.config.option.dist == "each"
    revision = check_out(node.config)
    node.workerinput["bandwidth_revision"] = None if revision is None else asdict(revision)


def runs_every_test(config: pytest.Config) -> bool:
    """Whether this process is a worker that runs all tests, on a device that may be its own."""
    return bool(getattr(config, "workerinput", {}).get("bandwidth_every_test"))


def tell_controller(config: pytest.Config, further: Mapping[str, Any]) -> None:
    """In a worker: hands plain data to the controller when the worker's session ends."""
    # xdist sets this on a worker's config, and sends it to the controller.
    output: dict[str, Any] = vars(config)["workeroutput"]
    output[_FURTHER] = dict(further)


def told_by_worker(node: Any) -> Mapping[str, Any] | None:
    """In the controller: what `tell_controller` was given; None where nothing was, or the worker died."""
    output: Mapping[str, Any] = getattr(node, "workeroutput", {})
    return output.get(_FURTHER)


def invocation_of(config: pytest.Config) -> Invocation:
    """How to start this run anew, from where this process stands: a worker may be on another machine.

    Its arguments are the controller's, with paths as they are where the worker runs.
    """
    given: dict[str, Any] = getattr(config, "workerinput", {})
    extra = []
    if config.pluginmanager.hasplugin("xdist"):
        extra += ["-n0"]  # no workers of its own: goes before --dist and --tx
    if config.pluginmanager.hasplugin("_cov") or config.pluginmanager.hasplugin("pytest_cov"):
        extra += ["--no-cov"]
    return Invocation(
        args=tuple(str(arg) for arg in config.invocation_params.args),
        folder=config.invocation_params.dir,
        as_module=given.get("bandwidth_as_module", started_as_module()),
        extra_args=tuple(extra),
    )


def revision_of(config: pytest.Config) -> Revision | None:
    """The revision that this run judges by: checked out by the controller, for its workers too."""
    if not hasattr(config, "workerinput"):
        return check_out(config)
    given: dict[str, Any] | None = config.workerinput.get("bandwidth_revision")
    return None if given is None else Revision(**given)
