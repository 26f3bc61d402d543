"""Identify code by the files that its process read, where nothing tells it more finely."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_bandwidth.domain.code.identity import digest, is_digest

LARGEST_LIST_BYTES = 8 * 2**20
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def is_installed(path: str) -> bool:
    """Return whether a file is a distribution's: in any environment, also in one below the root folder."""
    return not _INSTALLED.isdisjoint(path.split(os.sep))


@dataclass(frozen=True, slots=True)
class FileList:
    """Hold the hashes of files by path, and the versions of what is installed by name.

    Paths are relative to the root folder, so that a list is the same in another folder.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """Return the list as text, a line for each file and version: the same list gives the same text."""
        return json.dumps({"files": dict(self.files), "versions": dict(self.versions)}, indent=0, sort_keys=True)

    def name(self) -> str:
        """Return a hash of the list."""
        return digest(self.text())

    def changes_since(self, then: FileList) -> tuple[str, ...]:
        """Say which files changed since `then`, and which versions, each by name."""
        said = []
        for path in sorted(self.files.keys() | then.files.keys()):
            old, new = then.files.get(path), self.files.get(path)
            if old != new:
                said.append(f"{path} {'is new' if old is None else 'is gone' if new is None else 'changed'}")
        for name in sorted(self.versions.keys() | then.versions.keys()):
            old, new = then.versions.get(name), self.versions.get(name)
            if old != new:
                said.append(f"{name} {old or 'not installed'} → {new or 'not installed'}")
        return tuple(said)


def file_list_of(text: str) -> FileList:
    """Return the list back from its text. Raises ValueError for anything else."""
    plain = json.loads(text)
    if not isinstance(plain, dict) or plain.keys() != {"files", "versions"}:
        raise ValueError("found no list of files")
    files, versions = plain["files"], plain["versions"]
    if not (_are_texts(files) and _are_texts(versions) and all(map(is_digest, files.values()))):
        raise ValueError("found no list of files")
    return FileList(files, versions)


def _are_texts(plain: object) -> bool:
    return isinstance(plain, dict) and all(isinstance(one, str) for pair in plain.items() for one in pair)
