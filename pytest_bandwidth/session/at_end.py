"""Hand what each process knows when its tests have run to the run's controller.

Every run of pytest loads this, those without bandwidth tests, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

_TOLD = "bandwidth_told"
_TOLD_HERE = pytest.StashKey[Mapping[str, Any]]()


def tell_controller(config: pytest.Config, told: Mapping[str, Any]) -> None:
    """Hand plain data from this process to the controller, which may be itself, when its tests have run."""
    if hasattr(config, "workerinput"):
        # xdist sets this on a worker's config, and sends it to the controller.
        output: dict[str, Any] = vars(config)["workeroutput"]
        output[_TOLD] = dict(told)
    else:
        config.stash[_TOLD_HERE] = told


def told_here(config: pytest.Config) -> Mapping[str, Any] | None:
    """Return what this process gave to `tell_controller`; None where it gave nothing."""
    return config.stash.get(_TOLD_HERE, None)


def told_by_worker(node: Any) -> Mapping[str, Any] | None:
    """Return what a worker gave to `tell_controller`; None where it gave nothing, or died."""
    output: Mapping[str, Any] = getattr(node, "workeroutput", {})
    return output.get(_TOLD)
