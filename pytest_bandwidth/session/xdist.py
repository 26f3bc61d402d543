"""Share between pytest-xdist's processes what is one for the whole run: how it was started, its revision.

Without pytest-xdist a process is its own controller.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import pytest

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.evidence.commit_pairs.build import Build, check_out
from pytest_bandwidth.evidence.commit_pairs.worktree import Revision
from pytest_bandwidth.evidence.processes.child import Invocation, started_as_module
from pytest_bandwidth.evidence.processes.start_and_end import signals_as_interrupts
from pytest_bandwidth.measuring.progress import write_line
from pytest_bandwidth.options.options import RUNS_NOTHING, settings_of, usage_error
from pytest_bandwidth.options.settings import ANCHOR

_REVISION = pytest.StashKey[Revision]()


def tell_worker(node: Any) -> None:
    """Tell a worker what only the controller knows: how it was started, and its revision."""
    node.workerinput["bandwidth_as_module"] = started_as_module()
    node.workerinput["bandwidth_every_test"] = node.config.option.dist == "each"
    revision = _check_out(node.config)
    node.workerinput["bandwidth_revision"] = None if revision is None else asdict(revision)


def invocation_of(config: pytest.Config) -> Invocation:
    """Return how to start this run anew, from where this process stands: a worker may be on another machine.

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
    """Return the revision that this run judges by: checked out by the controller, for its workers too."""
    if not hasattr(config, "workerinput"):
        return _check_out(config)
    given: dict[str, Any] | None = config.workerinput.get("bandwidth_revision")
    return None if given is None else Revision(**given)


def _check_out(config: pytest.Config) -> Revision | None:
    """Check the run's revision out when first called; return None where nothing is to be measured against one.

    It goes when pytest ends, however that is. Raises pytest.UsageError, one line, where there is no such revision.
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
