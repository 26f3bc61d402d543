"""Gather the code that an update keeps beside its baseline, and have the entries name it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.code.identity import digest
from pytest_bandwidth.domain.code.machine_code import CUBIN
from pytest_bandwidth.session.publishing.device_report import Row


@dataclass(frozen=True, slots=True)
class KeptCode:
    """Hold files of code to keep: PTX, machine code and lists of files.

    files: by name. cubins: the hash of the file of machine code that a kernel was loaded from, by the hashes of
    the kernel's PTX and of its own machine code.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    cubins: Mapping[tuple[str | None, str | None], str] = field(default_factory=dict)

    def named_by(self, entry: Entry) -> Entry:
        """Return the entry with the name of its kernel's machine code, where that is to be kept."""
        name = self.cubins.get((entry.code.get("ptx"), entry.code.get("sass")))
        return entry if name is None else replace(entry, code={**entry.code, CUBIN: name})


def kept_code(rows: Iterable[Row]) -> KeptCode:
    """Gather the code of rows."""
    files: dict[str, bytes] = {}
    cubins: dict[tuple[str | None, str | None], str] = {}
    for row in rows:
        code = row.outcome.code_identity
        if row.ptx is not None:
            files[f"{code['ptx']}.ptx"] = row.ptx.encode()
        if row.cubin is not None:
            name = cubins[code.get("ptx"), code.get("sass")] = digest(row.cubin)
            files[f"{name}.cubin"] = row.cubin
        if row.files is not None:
            files[f"{code['function']}.files"] = row.files.encode()
    return KeptCode(files, cubins)
