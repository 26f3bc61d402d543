"""Attribute the files that a process reads to the test, or the fixture, that they are read for."""

from __future__ import annotations

import os
from collections.abc import Generator
from functools import cached_property
from types import ModuleType

import pytest

from pytest_bandwidth.domain.code.file_list import FileList
from pytest_bandwidth.read_files.listing import AskingTest, ReadFiles
from pytest_bandwidth.read_files.opened import watching


class Attributing:
    """Tell when a test begins, and when a fixture is set up: pytest's hooks."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if (files := watching()) is not None:
            files.begin_test()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        files = watching()
        if files is None:
            return (yield)
        with files.fixture(fixturedef.argname, fixturedef.baseid):
            return (yield)


class FilesOfTests:
    """List the files of a run's tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @cached_property
    def _read(self) -> ReadFiles | None:
        opened = watching()
        return None if opened is None else ReadFiles(opened, self._config.getini("python_files"))

    def list_for(self, request: pytest.FixtureRequest) -> FileList | None:
        """Return what a test depends on; None where nothing noted its files. Raises FilesUnknown."""
        if self._read is None:
            return None
        item = request.node
        test = AskingTest(item.nodeid, str(item.path), request.fixturenames, self._plugins(str(item.path)))
        return self._read.list_of(test)

    def _plugins(self, test_file: str) -> list[str]:
        """Return the files of plugins; of the conftest.py files those that are above the test."""
        found = []
        for plugin in self._config.pluginmanager.get_plugins():
            file = getattr(plugin, "__file__", None) if isinstance(plugin, ModuleType) else None
            if not isinstance(file, str):
                continue
            folder, name = os.path.split(os.path.abspath(file))
            if name != "conftest.py" or test_file.startswith(os.path.join(folder, "")):
                found.append(file)
        return found
