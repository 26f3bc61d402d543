"""Read a baseline: NAME.yaml, and from NAME.runs.jsonl the runs of each entry with a `runs` line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from os.path import exists
from pathlib import Path
from statistics import median
from typing import Any

from pytest_bandwidth.baseline.parse import MappingNode, Node, Problems, Scalar, SourceText, parse, read_source
from pytest_bandwidth.baseline.runs import NOTHING, Recorded, Runs, path_of, read_runs
from pytest_bandwidth.baseline.schema import (
    DEVICE_FIELDS,
    ENTRY_FIELDS,
    FRACTION,
    HEADER_KEYS,
    Field,
    figure,
)
from pytest_bandwidth.domain.baseline import SCHEMA, Baseline, BaselineDevice, Entry
from pytest_bandwidth.domain.errors import BaselineError
from pytest_bandwidth.domain.interpreter import gc_disabled
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import counted
from pytest_bandwidth.storage.atomic import real_path

MAX_UNKNOWN_KEYS = 256
# A bandwidth that people write may differ by this share from its runs: ``1.75 TB/s`` for 1747 GB/s.
ROUNDED = 0.005
_TESTS_LINE = re.compile(r"^tests:[ ]*(?:#[^\n]*)?$", re.MULTILINE)
_CONFLICT_MARKERS = ("\n<<<<<<< ", "\n=======\n", "\n>>>>>>> ")
# Attributes of `Entry` with the name of their field in the file.
_AS_NAMED = tuple(name for name, one in ENTRY_FIELDS.items() if one.of is None)
_FIRST_LINE = f"a baseline beginning with schema: {SCHEMA}"


@dataclass(frozen=True, slots=True)
class Document:
    """Hold a file as read: its values, its tree, and the recorded data of its tests."""

    source: SourceText
    baseline: Baseline
    root: MappingNode
    runs: Runs


def read(path: Path) -> Document:
    """Read a file and its runs. Raises BaselineError with all problems."""
    return read_text(read_source(path), path)


def read_device(path: Path) -> BaselineDevice | None:
    """Return the device of a file, by its head where that names it: a folder's other files are not read whole.

    Raises BaselineError where the file cannot be read.
    """
    source = read_source(path)
    if tests_line := _TESTS_LINE.search(source.text):
        problems = Problems(str(path))
        with suppress(BaselineError):
            head = parse(source.text[: tests_line.start()], problems)
            device = _Reader(problems, head).device
            if device is not None and not problems.found:
                return device
    return read(path).baseline.device


def read_text(source: SourceText, path: Path, *, without_runs: bool = False) -> Document:
    """Read a file's text, with the runs that lie next to the path. Raises BaselineError with all problems.

    without_runs: use the text alone.
    """
    problems = Problems(str(path))
    with gc_disabled():  # a file's objects stay: repeated scans would slow down a large file's load
        try:
            root = parse(source.text, problems)
        except BaselineError:
            # A merge conflict, for which the parser has no error of its own.
            lines = f"\n{source.text}\n"
            found = [(at, marker) for marker in _CONFLICT_MARKERS if (at := lines.find(marker)) >= 0]
            if not found:
                raise
            at, marker = min(found)
            message = f"found the merge conflict marker {shown(marker.strip(chr(10)))}, expected a finished merge"
            raise problems.last(source.text.count("\n", 0, at) + 1, message) from None
        reader = _Reader(problems, root)
        # The runs of tests that have a line `runs`.
        keys = [key.text for key, node in reader.tests if isinstance(node, MappingNode) and "runs" in node.lines]
        runs = Runs()
        if keys and not without_runs:
            file, of_tests = path_of(real_path(path)), counted(len(keys), "test")
            note = f"{file}: found no such file, expected the runs of {of_tests}: restore it from git, or update"
            of_runs = Problems(str(file))
            runs = read_runs(read_source(file), keys, of_runs) if exists(file) else Runs(note=note)
            of_runs.raise_all()
        document = Document(source, reader.baseline(runs, path), reader.root, runs)
    problems.raise_all()
    return document


class _Reader:
    """Convert the parts of one file to typed values; every problem goes to `problems`, and reading goes on."""

    def __init__(self, problems: Problems, root: Node | None) -> None:
        """Read all but the tests. Raises BaselineError where this is no baseline at all, or one of another schema."""
        self.problems = problems
        self._suggestions: dict[tuple[str, str], str | None] = {}
        if root is None:
            raise self.problems.last(1, f"found an empty file, expected {_FIRST_LINE}")
        if not isinstance(root, MappingNode):
            raise self.problems.last(root.line, f"found {_what(root)}, expected {_FIRST_LINE}")
        fields = {key.text: (key, value) for key, value in root.items}
        if "schema" not in fields:
            raise self.problems.last(root.line, f"found no schema, expected schema: {SCHEMA} as the first line")
        key, value = fields["schema"]
        schema = value.text if isinstance(value, Scalar) else ""
        if schema != str(SCHEMA):
            found, remedy = shown(schema) if schema else _what(value), ""
            if re.fullmatch(r"[0-9]{1,6}", schema) and int(schema) > SCHEMA:
                found, remedy = str(int(schema)), ": written by a newer pytest-bandwidth, upgrade"
            elif re.fullmatch(r"[1-9][0-9]{0,5}", schema):
                found, remedy = schema, ": move the file away and write a new one with --bandwidth-update"
            raise self.problems.last(key.line, f"found schema {found}, expected {SCHEMA}{remedy}")
        self.root, nodes = root, {name: node for name, (_, node) in fields.items()}
        self.device = self._device(nodes["device"]) if "device" in nodes else None
        self._tolerance = self._typed("tolerance", nodes["tolerance"], FRACTION.read) if "tolerance" in nodes else None
        self._unknown_in(root, HEADER_KEYS, "file")
        node = nodes.get("tests")
        self.tests = node.items if isinstance(node, MappingNode) else []
        if not (node is None or isinstance(node, MappingNode) or (isinstance(node, Scalar) and node.text == "")):
            self.problems.add(node.line, "tests: found no mapping, expected node ids, each with its fields below it")

    def baseline(self, runs: Runs, path: Path) -> Baseline:
        peak = self.device.peak_gbps if self.device else None
        found = (self._entry(key, node, runs.tests.get(key.text, NOTHING), peak) for key, node in self.tests)
        entries = {entry.key: entry for entry in found if entry is not None}
        return Baseline(self.device, entries, self._tolerance, str(path), note=runs.note)

    def _device(self, node: Node) -> BaselineDevice | None:
        if not isinstance(node, MappingNode):
            expected = "expected a mapping such as {name: NVIDIA H200, memory_gib: 140}"
            self.problems.add(node.line, f"device: found {_what(node)}, {expected}")
            return None
        values = self._fields(node, DEVICE_FIELDS, "device", "device.")
        if "name" not in values:
            if "name" not in node.lines:
                message = "device: found no name, expected the device's name as the run header shows it"
                self.problems.add(node.line, message)
            return None
        return BaselineDevice(
            values["name"], values.get("memory_gib"), values.get("kind"), values.get("peak"), node.line
        )

    def _entry(self, key: Scalar, node: Node, recorded: Recorded, peak_gbps: float | None) -> Entry | None:
        """Return one entry; None where a problem was found. Values that people wrote override recorded ones."""
        before = len(self.problems.found)
        if not key.text.strip() or key.text != key.text.strip():
            self.problems.add(key.line, f"found the key {shown(key.text)}, expected a node id without blanks around it")
        if not isinstance(node, MappingNode):
            self.problems.add(key.line, f"found {_what(node)}, expected fields such as bandwidth: 1747.1 GB/s")
            return None
        values = self._fields(node, ENTRY_FIELDS, "entry", "")
        if len(self.problems.found) > before:
            return None
        written = {name.text: value for name, value in node.items if isinstance(value, Scalar)}
        runs = recorded.newest()
        gbps = median([run.gbps for run in runs]) if runs else values.get("bandwidth")
        get = {**recorded.setup, **values}.get if recorded.setup else values.get
        if gbps is None and not values.get("counts"):
            expected = "expected one of them, such as bandwidth: 1747.1 GB/s"
            self.problems.add(key.line, f"found neither bandwidth nor counts, {expected}")
            return None
        share = values.get("of_peak") if peak_gbps is None or gbps is None else gbps / peak_gbps
        if runs:
            self._check_median(written, values, recorded)
        moved = values.get("bytes", {})
        as_named: dict[str, Any] = {name: value for name in _AS_NAMED if (value := get(name)) is not None}
        entry = Entry(
            key=key.text,
            gbps=gbps,
            utilization=share,
            bytes_read=moved.get("read"),
            bytes_written=moved.get("written"),
            anchor=recorded.anchor() if runs else None,
            **as_named,
            runs=runs,
            line=key.line,
            extra={name: one.text for name, one in written.items() if name not in ENTRY_FIELDS},
        )
        return entry if len(self.problems.found) == before else None

    def _check_median(self, written: Mapping[str, Scalar], values: Mapping[str, Any], recorded: Recorded) -> None:
        """Report a bandwidth outside its runs' range (a merge moves their median): its edit would have no effect."""
        gbps = values.get("bandwidth")
        all_gbps = [run.gbps for run in recorded.runs]
        least, most = min(all_gbps), max(all_gbps)
        if gbps is None or least * (1 - ROUNDED) <= gbps <= most * (1 + ROUNDED):
            return
        node = written["bandwidth"]
        self.problems.add(
            node.line,
            f"found bandwidth {shown(node.text)}, expected {figure(least)} to {figure(most)} GB/s, as in its runs: "
            "write one of these, or remove the line `runs` to set it by hand",
        )

    def _fields(self, node: MappingNode, fields: Mapping[str, Field], where: str, prefix: str) -> dict[str, Any]:
        """Return the typed values of a mapping by name, without unknown names."""
        values: dict[str, Any] = {}
        for key, value in node.items:
            name = key.text
            one = fields.get(name)
            if one is None:
                self._unknown(key, value, fields, where)
            elif one.names is None:
                values[name] = self._typed(prefix + name, value, one.form.read)
            elif not isinstance(value, MappingNode):
                message = f"{name}: found {_what(value)}, expected a mapping such as {{name: value}}"
                self.problems.add(value.line, message)
                values[name] = {}
            else:
                if one.names:  # a misspelt name would turn the gate off
                    self._unknown_in(value, one.names, name)
                values[name] = {}
                for inner, of_inner in value.items:
                    label = inner.text[:40] if inner.text.isprintable() else shown(inner.text)
                    values[name][inner.text] = self._typed(f"{name}.{label}", of_inner, one.form.read)
        return values

    def _typed(self, name: str, node: Node, read: Any) -> Any:
        if not isinstance(node, Scalar):
            self.problems.add(node.line, f"{name}: found {_what(node)}, expected a single value")
            return None
        try:
            return read(node.text)
        except ValueError as problem:
            self.problems.add(node.line, f"{name}: {problem}")
            return None

    def _unknown_in(self, node: MappingNode, known: Iterable[str], where: str) -> None:
        for key, value in node.items:
            if key.text not in known:
                self._unknown(key, value, known, where)

    def _unknown(self, key: Scalar, value: Node, known: Iterable[str], where: str) -> None:
        """Ignore a later version's scalar; report a likely misspelling, which would silently have no effect."""
        if not isinstance(value, Scalar):
            message = f"found the unknown key {shown(key.text)} in {where}, expected one of {', '.join(sorted(known))}"
            self.problems.add(key.line, message)
            return
        if (where, key.text) not in self._suggestions:
            if len(self._suggestions) >= MAX_UNKNOWN_KEYS:
                expected = f"expected one of {', '.join(sorted(known))}"
                many = f"found more than {MAX_UNKNOWN_KEYS} different unknown keys"
                raise self.problems.last(key.line, f"{many}, {expected}")
            close = get_close_matches(key.text[:40].lower(), list(known), 1, 0.8)
            self._suggestions[where, key.text] = close[0] if close else None
        meant = self._suggestions[where, key.text]
        if meant is not None:
            self.problems.add(key.line, f"found the unknown key {shown(key.text)} in {where}, expected {meant}")


def _what(node: Node) -> str:
    if isinstance(node, Scalar):
        return f"the text {shown(node.text)}" if node.text else "nothing"
    return "a mapping" if isinstance(node, MappingNode) else "a list"
