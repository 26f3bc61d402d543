"""A store of fsspec's on this machine's disk, at ``faulty:///folder``, whose calls can be made to fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.local import LocalFileSystem


class FaultyStore(LocalFileSystem):
    """Call what `faults` has by a method's name, with the path that the method was given, before the method itself."""

    protocol = ("faulty",)
    cachable = False
    faults: ClassVar[dict[str, Callable[[str], None]]] = {}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        # Older releases know no protocol but their own.
        return str(LocalFileSystem._strip_protocol(str(path).removeprefix("faulty://")))

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> list[Any]:
        self._fault("ls", path)
        return super().ls(path, detail=detail, **kwargs)

    def get_file(self, path1: str, path2: str, *args: Any, **kwargs: Any) -> Any:
        self._fault("get_file", path1)
        return super().get_file(path1, path2, *args, **kwargs)

    def put_file(self, path1: str, path2: str, *args: Any, **kwargs: Any) -> Any:
        self._fault("put_file", path2)
        return super().put_file(path1, path2, *args, **kwargs)

    def rm_file(self, path: str) -> None:
        self._fault("rm_file", path)
        super().rm_file(path)

    def _fault(self, name: str, path: str) -> None:
        if name in self.faults:
            self.faults[name](path)


fsspec.register_implementation("faulty", FaultyStore, clobber=True)
