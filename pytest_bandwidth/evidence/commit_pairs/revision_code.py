"""Ask the other revision what code its tests run: of a whole file in one process, which times and counts nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_bandwidth.domain.code.identity import LARGEST_LIST_BYTES, CodeIdentity, digest, identity_of_plain
from pytest_bandwidth.domain.code.ptx_normal_form import ptx_digest
from pytest_bandwidth.domain.code.stored_kernel import LARGEST_BYTES, cubin_of_text
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.measured.measurement import INPUTS, Measurement
from pytest_bandwidth.evidence.commit_pairs.process import Rows, Worktrees
from pytest_bandwidth.outcomes.outcome import Outcome, from_plain

NO_ROWS: Rows = MappingProxyType({})


@dataclass(slots=True)
class RevisionCode:
    """Keep what the other revision said, by file, asked once for each; and the code that it handed over.

    PTX and lists of files are kept by their hash, machine code by the hashes of the kernel's PTX and of its own machine
    code.
    """

    _files: dict[Path, Mapping[str, Rows]] = field(default_factory=dict)
    _ptx: dict[str, str] = field(default_factory=dict)
    _cubins: dict[tuple[str | None, str | None], bytes] = field(default_factory=dict)
    _lists: dict[str, str] = field(default_factory=dict)

    def of(
        self,
        worktrees: Worktrees,
        tests: Collection[str],
        device_held: Callable[[], AbstractContextManager[None]],
        tell: Callable[[str], None],
    ) -> Rows:
        """Return what it said of the test; tests: node ids of all of the file's tests that this run measures.

        Nothing where the process could not say: the pairs, or the counting, find out why.
        """
        file = worktrees.target
        if file not in self._files:
            tell(f"what code {file.name} runs at {worktrees.revision}")
            try:
                with device_held():
                    rows = worktrees.codes_at_base(tests)
                said: dict[str, dict[str | None, Outcome]] = {}
                for row in map(from_plain, rows):
                    said.setdefault(_test_of(row.nodeid), {})[row.label] = row
                self._files[file] = said
                self._keep(rows)
            except BandwidthError:
                self._files[file] = {}
        return self.known(worktrees)

    def known(self, worktrees: Worktrees) -> Rows:
        """Return what it has said of the test."""
        return self._files.get(worktrees.target, {}).get(_test_of(worktrees.nodeid), NO_ROWS)

    def _keep(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep the code that rows hand over, unless it is too large."""
        texts = {name: {text for row in rows if isinstance(text := row.get(name), str)} for name in ("ptx", "files")}
        self._ptx |= {ptx_digest(text): text for text in texts["ptx"] if len(text.encode()) <= LARGEST_BYTES}
        self._lists |= {digest(text): text for text in texts["files"] if len(text.encode()) <= LARGEST_LIST_BYTES}
        for row in rows:
            code, cubin = row.get("code_identity"), cubin_of_text(row.get("cubin"))
            if cubin is not None and isinstance(code, Mapping):
                self._cubins[code.get("ptx"), code.get("sass")] = cubin

    def files(self, name: str) -> str:
        """Return the list of files of that hash. Raises BandwidthError where the revision did not hand it over."""
        found = self._lists.get(name)
        if found is None:
            raise BandwidthError(f"found no list {name} in what the revision told, expected one of its files")
        return found

    def ptx(self, name: str) -> str:
        """Return the kernel's PTX of that hash. Raises BandwidthError where the revision did not hand it over."""
        found = self._ptx.get(name)
        if found is None:
            raise BandwidthError(
                f"found no PTX {name} in what the revision told, expected it whole, of at most "
                f"{LARGEST_BYTES // 2**20} MiB: a pytest-bandwidth of before hands none over"
            )
        return found

    def cubin(self, code: Mapping[str, str]) -> bytes | None:
        """Return the machine code of what an entry's `code` identifies; None where the revision handed none over."""
        return self._cubins.get((code.get("ptx"), code.get("sass")))


def _test_of(nodeid: str) -> str:
    """Return what follows the file, which the two trees may name from other folders."""
    return nodeid.partition("::")[2]


def runs_same_code(measurement: Measurement, row: Outcome | None) -> bool:
    """Return whether the other revision surely runs the same code in the same launch, for the same declared bytes.

    Where it is counted, on the same data, too: then its counts are the same.
    """
    declared = measurement.traffic.bytes_read, measurement.traffic.bytes_written
    counted = measurement.device.counts_only
    return row is not None and _is_same(measurement.code, declared, measurement.detail, row, counted=counted)


def are_same_code(one: Outcome, other: Outcome, *, counted: bool) -> bool:
    """Return the same of what two revisions told. counted: whether the device counts."""
    declared = one.bytes_read, one.bytes_written
    return _is_same(identity_of_plain(one.code_identity), declared, one.detail, other, counted=counted)


def _is_same(
    code: CodeIdentity, declared: tuple[int, int], detail: Mapping[str, Any], row: Outcome, *, counted: bool
) -> bool:
    then = identity_of_plain(row.code_identity)
    # Of the same PTX the compiler may make other machine code, with other resources, which are counted, too.
    if not code.is_same(then, by="ptx" if counted else "sass") or code.sass != then.sass:
        return False
    if declared != (row.bytes_read, row.bytes_written):
        return False
    inputs = detail.get(INPUTS)
    return not counted or (inputs is not None and inputs == row.detail.get(INPUTS))
