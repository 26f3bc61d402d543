"""Know what was handed to this run of pytest, where a process of the plugin's own started it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from pytest_bandwidth.options.handed_over import ANCESTOR_VARIABLE, PARENT_VARIABLE, taken, unexpected

_TAKEN = pytest.StashKey["dict[str, Any] | None"]()


def take(config: pytest.Config) -> bool:
    """Take what was handed to this run, when first called; return whether it was something.

    Raises ValueError, one line, for a variable that no process of the plugin's own set for this one.
    """
    if _TAKEN in config.stash:
        return False
    config.stash[_TAKEN] = None
    config.stash[_TAKEN] = taken()
    for name in (PARENT_VARIABLE, ANCESTOR_VARIABLE):
        if name in os.environ and not is_own_process(config):
            raise unexpected(name)
    return is_own_process(config)


def is_own_process(config: pytest.Config) -> bool:
    """Return whether the plugin started this process, to measure for another."""
    return config.stash.get(_TAKEN, None) is not None


def handed(config: pytest.Config, name: str) -> dict[str, Any] | None:
    """Return what was handed to this run by that name; None where nothing was."""
    found: dict[str, Any] | None = (config.stash.get(_TAKEN, None) or {}).get(name)
    return found
