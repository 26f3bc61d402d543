"""Act where a compiled module is imported: once it is loaded and before its code runs, or behind that."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType


def nothing(_: object) -> None:
    """Do nothing."""


class Watched(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Find and load a module by its name; `loaded` gets its library's path, `run` the module."""

    def __init__(
        self, module: str, loaded: Callable[[Path], None] = nothing, run: Callable[[ModuleType], None] = nothing
    ) -> None:
        self._module, self._loaded, self._run = module, loaded, run
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            self._real, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__file__ is not None
        self._loaded(Path(module.__file__))
        self._real.exec_module(module)
        self._run(module)
