"""Tell which tests a person left out on the command line; addopts, ini files, conftest.py and plugins do so as well."""

from __future__ import annotations

import copy
from argparse import Namespace
from collections.abc import Iterable
from functools import cached_property
from os.path import normpath
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

# pytest's options that leave tests out, by their names in its namespace.
_NARROWING = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise")
# Of these a later run cannot be told what they left out: it depends on an earlier run's outcomes.
_BY_OUTCOMES = ("lf", "stepwise")


class Asked:
    """Read the command line alone, without addopts and PYTEST_ADDOPTS, by pytest's own parser."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @cached_property
    def _options(self) -> Namespace:
        # The only parser that knows every plugin's options.
        return self._config._parser.parse_known_args([str(arg) for arg in self._config.invocation_params.args])

    @property
    def for_less(self) -> bool:
        """Return whether a person asked for less than the tests of the files and folders that are named."""
        return any(getattr(self._options, name, None) for name in _NARROWING)

    @property
    def for_single_tests(self) -> bool:
        """Return whether a person named tests by their node ids."""
        return any("::" in arg for arg in self._options.file_or_dir)

    @cached_property
    def places(self) -> list[Path]:
        """Return the files and folders that are asked for: the folder where pytest was started unless some are named.

        What testpaths or addopts name was not asked for.
        """
        named = self._options.file_or_dir or ["."]
        folder = self._config.invocation_params.dir
        return [Path(normpath(folder / arg)) for arg in map(str, named) if "::" not in arg]

    def left_out(self, items: Iterable[pytest.Item]) -> set[pytest.Item]:
        """Return the tests that the command line leaves out."""
        return _left_out_by(self._options, self._config, list(items))

    def left_out_by_options(self, items: Iterable[pytest.Item]) -> set[pytest.Item]:
        """Return the tests that the command line leaves out together with addopts and PYTEST_ADDOPTS."""
        return _left_out_by(self._config.option, self._config, list(items))


def _left_out_by(options: Namespace, config: pytest.Config, items: list[pytest.Item]) -> set[pytest.Item]:
    """Return which tests these options leave out, by pytest's own implementation of -k and -m."""
    if any(getattr(options, name, None) for name in _BY_OUTCOMES):
        return set(items)
    prefixes = tuple(getattr(options, "deselect", None) or ())
    kept = [item for item in items if not item.nodeid.startswith(prefixes)] if prefixes else list(items)
    selection: Any = config.pluginmanager.get_plugin("mark")
    if selection is not None:
        alone: Any = copy.copy(config)
        alone.option = options
        alone.hook = SimpleNamespace(pytest_deselected=lambda **_: None)  # it was told once already
        selection.pytest_collection_modifyitems(kept, alone)
    return set(items).difference(kept)
