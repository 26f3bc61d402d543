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
    """Hold PTX and machine code to keep.

    modules: both, by hash. cubins: the hash of the file of machine code that a kernel was loaded from, by the hashes of
    the kernel's PTX and of its own machine code.
    """

    modules: Mapping[str, str | bytes] = field(default_factory=dict)
    cubins: Mapping[tuple[str | None, str | None], str] = field(default_factory=dict)

    def named_by(self, entry: Entry) -> Entry:
        """Return the entry with the name of its kernel's machine code, where that is to be kept."""
        name = self.cubins.get((entry.code.get("ptx"), entry.code.get("sass")))
        return entry if name is None else replace(entry, code={**entry.code, CUBIN: name})


def kept_code(rows: Iterable[Row]) -> KeptCode:
    """Gather the code of rows."""
    modules: dict[str, str | bytes] = {}
    cubins: dict[tuple[str | None, str | None], str] = {}
    for row in rows:
        code = row.outcome.code_identity
        if row.ptx is not None:
            modules[code["ptx"]] = row.ptx
        if row.cubin is not None:
            name = cubins[code.get("ptx"), code.get("sass")] = digest(row.cubin)
            modules[name] = row.cubin
    return KeptCode(modules, cubins)
