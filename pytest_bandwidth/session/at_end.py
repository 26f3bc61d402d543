"""Hand what each process knows when its tests have run to the run's controller.

Every run of pytest loads this, those without bandwidth tests, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

_SENT = "bandwidth_at_end"
_SENT_HERE = pytest.StashKey[Mapping[str, Any]]()


def send_at_end(config: pytest.Config, sent: Mapping[str, Any]) -> None:
    """Hand plain data from this process to the controller, which may be itself, when its tests have run."""
    if hasattr(config, "workerinput"):
        # xdist sets this on a worker's config, and sends it to the controller.
        output: dict[str, Any] = vars(config)["workeroutput"]
        output[_SENT] = dict(sent)
    else:
        config.stash[_SENT_HERE] = sent


def sent_here(config: pytest.Config) -> Mapping[str, Any] | None:
    """Return what this process handed to `send_at_end`; None where it gave nothing."""
    return config.stash.get(_SENT_HERE, None)


def sent_by_worker(node: Any) -> Mapping[str, Any] | None:
    """Return what a worker handed to `send_at_end`; None where it gave nothing, or died."""
    output: Mapping[str, Any] = getattr(node, "workeroutput", {})
    return output.get(_SENT)
