"""Identify the code that was measured, to find whether two measurements ran the same machine code in the same launch.

A regression is a property of code. Where the code is unchanged, nothing has regressed, even if the run took longer.
Code without a more precise identification is identified by the files that its process read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

# Hexadecimal digits of a hash: 128 bits.
DIGITS = 32
_HASH = re.compile(rf"[0-9a-f]{{{DIGITS}}}", re.ASCII)


@dataclass(frozen=True, slots=True)
class CodeIdentity:
    """Hold hashes of the code that ran; None where they are unknown.

    ptx: a kernel's PTX in its normal form (`ptx_normal_form`). sass: its machine code for this device, with its
    constants. launch: grid, block, shared memory, each argument's type and size, scalars' values. arguments: only the
    arguments of a kernel's launch.
    function: a callable's code: the identity that the test gives, its bytecode, or the files that its process read.
    inputs: the contents of the integer and boolean arrays that it reads; None without such arrays.
    """

    ptx: str | None = None
    sass: str | None = None
    launch: str | None = None
    function: str | None = None
    arguments: str | None = None
    inputs: str | None = None

    def known(self) -> dict[str, str]:
        """Return the known hashes, by name."""
        return {name: value for name in NAMES if (value := getattr(self, name)) is not None}

    def is_same(self, then: CodeIdentity, *, by: str) -> bool:
        """Return whether both are certainly the same code in the same launch, on the same indices.

        by: "sass" where a kernel is timed: its machine code and its PTX have to be the same. "ptx" where only its PTX
        is executed.
        """
        known = self._all_parts(by)
        return known is not None and known == then._all_parts(by)

    def fingerprint(self, *, by: str) -> str | None:
        """Return a hash that is equal only for the same code; None where `is_same` is never true."""
        known = self._all_parts(by)
        return None if known is None else digest(*known)

    def _all_parts(self, by: str) -> tuple[str, ...] | None:
        """Return all hashes that distinguish it from other code; None where they do not suffice.

        Machine code is compared together with its PTX: parts of it may be left out only where the PTX is the same.
        """
        of_kernel = getattr(self, by)
        if self.launch is None or (of_kernel is None and self.function is None):
            return None
        machine_code = (self.sass or "") if by == "sass" else ""
        return self.ptx or "", machine_code, self.function or "", self.launch, self.inputs or ""

    def compared_with(self, then: CodeIdentity, *, by: str) -> Literal["same", "changed"] | None:
        """Return whether this is `then`'s code, or certainly another; None if that is unknown. by: as in `is_same`."""
        if self.is_same(then, by=by):
            return "same"
        return "changed" if self.changes_since(then) else None

    def changes_since(self, then: CodeIdentity) -> tuple[str, ...]:
        """Describe what certainly changed since `then`; empty where nothing did, or where one side is unknown."""
        changed = self._changed(then)
        changes = []
        if changed & _OF_SOURCE:
            changes.append(CODE_CHANGED if "ptx" in changed else FUNCTION_CHANGED)
        elif (rebuilt := self.rebuilt_since(then)) is not None:
            changes.append(rebuilt)
        if "launch" in changed:
            of_arguments = None if then.arguments is None or self.arguments is None else "arguments" in changed
            of_call = self.function is not None and self.ptx is None and self.sass is None
            changes.append(CALL_CHANGED if of_call else _LAUNCH_CHANGES[of_arguments])
        if "inputs" in changed:
            changes.append(INPUTS_CHANGED)
        return tuple(changes)

    def rebuilt_since(self, then: CodeIdentity) -> str | None:
        """Describe a change of machine code that the toolchain made, without a known change of source; else None."""
        changed = self._changed(then)
        if "sass" not in changed or changed & _OF_SOURCE:
            return None
        same = "the same PTX's" if then.ptx is not None and then.ptx == self.ptx else "the kernel's"
        return f"{same} machine code changed: the compiler, its options, or the addresses of constants"

    def _changed(self, then: CodeIdentity) -> set[str]:
        """Return the names of the hashes that are known on both sides and differ."""
        here, there = self.known(), then.known()
        return {name for name in here.keys() & there.keys() if here[name] != there[name]}


CODE_CHANGED, FUNCTION_CHANGED = "the kernel's code changed", "the code changed"
# Hashes that change with the source. Machine code also changes without it.
_OF_SOURCE = {"ptx", "function"}
INPUTS_CHANGED = "the contents of an index array changed"
SHAPE_CHANGED = "the launch changed: grid, block or shared memory"
CALL_CHANGED = "the call changed: types, sizes or values of its arguments, or of variables that it captured"
# By whether its arguments changed; None where the baseline has no hash of them.
_LAUNCH_CHANGES = {
    None: "the launch changed: grid, block, shared memory, or the arguments' types, sizes or values",
    True: "the launch's arguments changed: their types, sizes or values",
    False: SHAPE_CHANGED,
}
NAMES = tuple(one.name for one in fields(CodeIdentity))


UNKNOWN_CODE = CodeIdentity()


@dataclass(frozen=True, slots=True)
class MeasuredCode:
    """Hold the identity of the measured code, and the parts of a kernel that an update stores.

    ptx: its PTX in its normal form. cubin: the file of machine code that it was loaded from. unknown: why it cannot be
    identified. files: the text of the list of files that identifies it (`FileList`).
    """

    identity: CodeIdentity = UNKNOWN_CODE
    ptx: str | None = None
    unknown: str | None = None
    cubin: bytes | None = None
    files: str | None = None


def identity_of_plain(plain: Mapping[str, object]) -> CodeIdentity:
    """Return the identity from the mapping of `CodeIdentity.known`. Unknown names are ignored."""
    return CodeIdentity(**{name: value for name in NAMES if isinstance(value := plain.get(name), str)})


def digest(*parts: str | bytes) -> str:
    """Hash texts and bytes in order, each with its length, so that no two lists are hashed as the same bytes."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        found.update(b"%d:" % len(data))
        found.update(data)
    return found.hexdigest()[:DIGITS]


LARGEST_LIST_BYTES = 8 * 2**20
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def is_installed(path: str) -> bool:
    """Return whether a file belongs to an installed distribution, also in an environment below the root folder."""
    return not _INSTALLED.isdisjoint(path.split(os.sep))


@dataclass(frozen=True, slots=True)
class FileList:
    """Hold hashes of files by path, and versions of distributions and hashes of environment variables by name.

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
        """List the files and versions that changed since `then`, each by name."""
        changes = []
        for path in sorted(self.files.keys() | then.files.keys()):
            old, new = then.files.get(path), self.files.get(path)
            if old != new:
                changes.append(f"{path} {'is new' if old is None else 'is gone' if new is None else 'changed'}")
        for name in sorted(self.versions.keys() | then.versions.keys()):
            old, new = then.versions.get(name), self.versions.get(name)
            if old != new:
                changes.append(f"{name} {old or 'not installed'} → {new or 'not installed'}")
        return tuple(changes)


def file_list_of(text: str) -> FileList:
    """Return the list from its text. Raises ValueError for anything else."""
    plain = json.loads(text)
    if not isinstance(plain, dict) or plain.keys() != {"files", "versions"}:
        raise ValueError("found no list of files")
    files, versions = plain["files"], plain["versions"]
    if not (_are_texts(files) and _are_texts(versions) and all(map(_HASH.fullmatch, files.values()))):
        raise ValueError("found no list of files")
    return FileList(files, versions)


def _are_texts(plain: object) -> bool:
    return isinstance(plain, dict) and all(isinstance(one, str) for pair in plain.items() for one in pair)
