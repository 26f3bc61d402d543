"""Find the features, and provide their hooks: with those of pytest's current run, or for a command without pytest.

A feature is a module that an entry point of the group `pytest_bandwidth.features` names. It implements hooks of
`pytest_bandwidth.hooks`. This module imports no large package except pluggy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from importlib.metadata import Distribution, EntryPoint, distributions
from typing import Any

import pluggy

GROUP = "pytest_bandwidth.features"
# With pytester, runs are nested: the last is the innermost.
_RUNS: list[pluggy.PluginManager] = []


class FeatureFailed(Exception):
    """Raised where a feature cannot be used; the message is one line with the feature and its distribution."""


def hooks() -> pluggy.HookRelay:
    """Return the hooks of the innermost run of pytest, conftest.py files included; without a run, of the features."""
    return (_RUNS[-1] if _RUNS else _without_pytest()).hook


def add_features(manager: pluggy.PluginManager) -> None:
    """Register every feature as ``bandwidth-NAME``; pytest's ``-p no:bandwidth-NAME`` leaves it out.

    Raises FeatureFailed.
    """
    manager.add_hookspecs(import_module("pytest_bandwidth.hooks"))
    for distribution in _distributions():
        for found in distribution.entry_points.select(group=GROUP):
            name = f"bandwidth-{found.name}"
            if not manager.is_blocked(name) and not manager.has_plugin(name):
                module = _loaded(found)
                try:
                    manager.register(module, name)
                except pluggy.PluginValidationError as error:
                    raise _failed(found, " ".join(str(error).split())) from None
    refuse_unknown_hooks(manager)


def refuse_unknown_hooks(manager: pluggy.PluginManager) -> None:
    """Raise FeatureFailed for a hook of a plugin that has a name of this package's, and does not exist."""
    ours = {name: hook for name, hook in vars(manager.hook).items() if name.startswith("pytest_bandwidth_")}
    known = [name for name, hook in ours.items() if hook.has_spec()]
    for name in ours.keys() - known:
        for one in ours[name].get_hookimpls():
            if not one.optionalhook:
                from difflib import get_close_matches  # kept out of start-up

                (near,) = get_close_matches(name, known, n=1) or ("a name in pytest_bandwidth/hooks.py",)
                raise FeatureFailed(f"{one.plugin_name}: found the hook {name}, expected {near}")


def _distributions() -> Iterator[Distribution]:
    """Yield the distributions on `sys.path` whose metadata contain the group; fast, because each run waits for it."""
    for folder in dict.fromkeys(sys.path):
        try:
            names = os.listdir(folder or ".")
        except NotADirectoryError:
            yield from distributions(path=[folder])  # a zip file
            continue
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                metadata, text = os.path.join(folder, name), b""
                with suppress(OSError), open(os.path.join(metadata, "entry_points.txt"), "rb") as file:
                    text = file.read()
                if GROUP.encode() in text:
                    yield Distribution.at(metadata)


def _loaded(feature: EntryPoint) -> object:
    """Return a feature's module. Raises FeatureFailed where it cannot be imported or a hook lacks its mark."""
    try:
        module: object = feature.load()
    except Exception as error:  # a feature's module may raise any error
        text = " ".join(str(error).split())[:400]
        raise _failed(feature, f"importing it raised {type(error).__name__}: {text}") from error
    for hook, value in vars(module).items():
        if hook.startswith("pytest_bandwidth_") and callable(value) and not hasattr(value, "pytest_impl"):
            raise _failed(feature, f"found {hook} without a mark, expected @hookimpl before it")
    return module


def _failed(feature: EntryPoint, why: str) -> FeatureFailed:
    of = "" if feature.dist is None else f" (distribution {feature.dist.name} {feature.dist.version})"
    return FeatureFailed(f"feature {feature.name}{of}: {why}")


def later(function: str) -> Callable[..., Any]:
    """Return a callable for a function of this package, ``module:name``; its call imports the module."""
    module, _, name = function.partition(":")
    return lambda *args, **named: getattr(import_module(f"pytest_bandwidth.{module}"), name)(*args, **named)


def begin_run(manager: pluggy.PluginManager) -> Callable[[], None]:
    """Make `hooks` return those of a run of pytest, until the caller calls the returned function."""
    _RUNS.append(manager)
    return lambda: _RUNS.remove(manager)


@lru_cache(maxsize=1)
def _without_pytest() -> pluggy.PluginManager:
    manager = pluggy.PluginManager("pytest")
    add_features(manager)
    return manager
