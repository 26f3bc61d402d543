"""Act where a compiled module is imported: before it is loaded, before its code runs, and behind that."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True)
class Watched:
    """Name a module, and what to do where it is imported; `loaded` gets its library's path, `run` the module."""

    module: str
    found: Callable[[], None] = lambda: None
    loaded: Callable[[Path], None] = lambda _: None
    run: Callable[[ModuleType], None] = lambda _: None


def watch(watched: Watched) -> None:
    sys.meta_path.insert(0, _Finder(watched))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._watched.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None and spec.origin is not None:
            spec.loader = _Loader(spec.loader, Path(spec.origin), self._watched)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, real: importlib.abc.Loader, library: Path, watched: Watched) -> None:
        self._real, self._library, self._watched = real, library, watched

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        self._watched.found()
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._watched.loaded(self._library)
        self._real.exec_module(module)
        self._watched.run(module)
