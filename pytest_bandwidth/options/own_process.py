"""Know what was handed to this run of pytest, where a process of the plugin's own started it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from pytest_bandwidth.options.handed_over import (
    ANCESTOR_VARIABLE,
    FLEET_VARIABLE,
    PARENT_VARIABLE,
    REQUEST_VARIABLE,
    taken,
    unexpected,
)

_TAKEN = pytest.StashKey[dict[str, "dict[str, Any] | None"]]()


def take(config: pytest.Config) -> bool:
    """Take what was handed to this run, when first called; return whether it was something.

    Raises ValueError, one line, for a variable that no process of the plugin's own set for this one.
    """
    if _TAKEN in config.stash:
        return False
    config.stash[_TAKEN] = {}
    config.stash[_TAKEN] = {name: taken(name) for name in (REQUEST_VARIABLE, FLEET_VARIABLE)}
    is_ours = any(config.stash[_TAKEN].values())
    for name in (PARENT_VARIABLE, ANCESTOR_VARIABLE):
        if name in os.environ and not is_ours:
            raise unexpected(name)
    return is_ours


def told(config: pytest.Config, name: str) -> dict[str, Any] | None:
    """Return what was handed to this run by a variable; None where nothing was."""
    return config.stash.get(_TAKEN, {}).get(name)
