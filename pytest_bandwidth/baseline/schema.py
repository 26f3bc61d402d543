"""Turn the tree of text into typed baseline values: which keys there are, what each may hold, what is wrong.

`baseline.schema.json` says the same to editors; a test holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from statistics import median
from typing import Any

from pytest_bandwidth.baseline.parse import Mapping, Node, Scalar, Sequence
from pytest_bandwidth.baseline.source import Problems, TooMuch, Unreadable, listed
from pytest_bandwidth.domain.baseline import SCHEMA, BaselineDevice, Entry, Run, agrees
from pytest_bandwidth.domain.code.identity import DIGITS, is_digest
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import (
    last_place,
    parse_count,
    parse_fraction,
    parse_gbps,
    parse_positive,
    parse_share,
)
from pytest_bandwidth.judging.counts import COUNT_NAMES

MAX_RUNS = 1000
MAX_UNKNOWN_KEYS = 256
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:?\d{2})?", re.ASCII)
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}", re.ASCII)

Parser = Callable[[str], Any]


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that an unknown one was probably meant to be, None where it resembles none."""
    close = get_close_matches(name[:40].lower(), list(known), 1, 0.8)
    return close[0] if close else None


def text_of(text: str) -> str:
    """Return the words of a text value, without blanks around them. Raises ValueError where there are none."""
    if not text.strip():
        raise ValueError("found nothing, expected some text or no such key")
    return text.strip()


def line_of(text: str) -> str:
    """Return the words of a text value of one line. Raises ValueError where it has others."""
    line = text_of(text)
    if len(line.splitlines()) > 1:
        raise ValueError(f"found {shown(line)}, expected text of one line")
    return line


def _judged_on(text: str) -> str:
    if text not in ("relative", "gbps"):
        raise ValueError(f"found {shown(text)}, expected relative or gbps")
    return text


def _kind(text: str) -> str:
    if _KIND.fullmatch(text) is None:
        raise ValueError(f"found {shown(text)}, expected a kind of device, such as cuda or cpu")
    return text


def _instant(text: str) -> str:
    if not _INSTANT.fullmatch(text):
        raise ValueError(f"found {shown(text)}, expected a time such as 2026-11-21T04:00:00Z")
    return text


def _truth(text: str) -> bool:
    # As YAML 1.2 writes it.
    if text not in ("true", "True", "TRUE", "false", "False", "FALSE"):
        raise ValueError(f"found {shown(text)}, expected true or false")
    return text.lower() == "true"


def _hash(text: str) -> str:
    if not is_digest(text):
        raise ValueError(f"found {shown(text)}, expected a hash of {DIGITS} digits 0-9a-f")
    return text


RUN_SCALARS: dict[str, Parser] = {
    "gbps": parse_gbps,
    "probe_gbps": parse_gbps,
    "relative": parse_positive,
    "samples": parse_count,
    "dram_read": parse_count,
    "dram_written": parse_count,
    "gpu": line_of,
    "commit": line_of,
    "dirty": _truth,
    "at": _instant,
}
ENTRY_SCALARS: dict[str, Parser] = {
    "bandwidth": parse_gbps,
    "utilization": parse_share,
    "tolerance": parse_fraction,
    "judged_on": _judged_on,
    "bytes_read": parse_count,
    "bytes_written": parse_count,
    "method": line_of,
    "xfail": line_of,
    "note": text_of,
}
ENTRY_MAPPINGS: dict[str, Parser] = {
    "resources": parse_count,
    "settings": line_of,
    "counts": parse_count,
    "code": _hash,
}
ENTRY_KEYS = (*ENTRY_SCALARS, *ENTRY_MAPPINGS, "anchor", "runs")
DEVICE_SCALARS: dict[str, Parser] = {"name": line_of, "memory_gib": parse_count, "kind": _kind, "peak": parse_gbps}
HEADER_KEYS = ("schema", "device", "tolerance", "entries")


class SchemaReader:
    """Read the parts of one file; every problem goes to `problems`, and reading goes on."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self._suggestions: dict[tuple[str, str], str | None] = {}

    def header(self, root: Node | None) -> tuple[BaselineDevice | None, float | None, Node | None]:
        """Return device, tolerance and the still unread entries of a whole file.

        Raises Unreadable where this is no baseline at all, or one of a newer schema.
        """
        if root is None:
            raise Unreadable(1, "found an empty file, expected a baseline beginning with schema: 1")
        if not isinstance(root, Mapping):
            raise Unreadable(root.line, f"found {_what(root)}, expected a baseline beginning with schema: 1")
        fields = {key.text: (key, value) for key, value in root.items}
        self._schema(root, fields)
        device = self._device(fields["device"][1]) if "device" in fields else None
        tolerance = self._typed("tolerance", fields["tolerance"][1], parse_fraction) if "tolerance" in fields else None
        for key, value in root.items:
            if key.text not in HEADER_KEYS:
                self._unknown(key, value, HEADER_KEYS, "file")
        return device, tolerance, fields["entries"][1] if "entries" in fields else None

    def _schema(self, root: Mapping, fields: dict[str, tuple[Scalar, Node]]) -> None:
        if "schema" not in fields:
            raise Unreadable(root.line, f"found no schema, expected schema: {SCHEMA} as the first line")
        key, value = fields["schema"]
        text = value.text if isinstance(value, Scalar) else ""
        if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) < 1:
            raise Unreadable(
                key.line, f"found schema {shown(text) if text else _what(value)}, expected schema: {SCHEMA}"
            )
        if int(text) > SCHEMA:
            raise Unreadable(
                key.line,
                f"found schema {int(text)}, expected at most {SCHEMA}: written by a newer pytest-bandwidth, upgrade",
            )

    def _device(self, node: Node) -> BaselineDevice | None:
        if not isinstance(node, Mapping):
            self.problems.add(
                node.line,
                f"device: found {_what(node)}, expected a mapping such as {{name: NVIDIA H200, memory_gib: 140}}",
            )
            return None
        values = self._scalars(node, DEVICE_SCALARS, "device")
        if "name" not in values:
            if not any(key.text == "name" for key, _ in node.items):
                self.problems.add(
                    node.line, "device: found no name, expected the device's name as the run header shows it"
                )
            return None
        self._unknown_in(node, DEVICE_SCALARS, "device")
        return BaselineDevice(
            values["name"], values.get("memory_gib"), values.get("kind"), values.get("peak"), node.line
        )

    def entry(self, key: Scalar, node: Node, peak_gbps: float | None) -> Entry | None:
        """Return one entry; None where a problem was found."""
        before = len(self.problems.found)
        if not key.text.strip() or key.text != key.text.strip():
            self.problems.add(key.line, f"found the key {shown(key.text)}, expected a node id without blanks around it")
        if not isinstance(node, Mapping):
            self.problems.add(key.line, f"found {_what(node)}, expected fields such as bandwidth: 1747.1 GB/s")
            return None
        fields = {name.text: value for name, value in node.items}
        values = self._scalars(node, ENTRY_SCALARS, "entry")
        values["gbps"] = values.pop("bandwidth", None)
        for name, parser in ENTRY_MAPPINGS.items():
            if name in fields:
                values[name] = self._mapping(name, fields[name], parser)
        if "anchor" in fields:
            values["anchor"] = self._run("anchor", fields["anchor"])
        runs = self._runs(fields["runs"]) if "runs" in fields else ()
        extra = self._unknown_in(node, ENTRY_KEYS, "entry")
        if len(self.problems.found) > before:
            return None
        if values["gbps"] is None and runs:
            values["gbps"] = median(run.gbps for run in runs)
        if values["gbps"] is None and not values.get("counts"):
            self.problems.add(
                key.line, "found neither bandwidth nor counts, expected one of them, such as bandwidth: 1747.1 GB/s"
            )
            return None
        entry = Entry(key=key.text, runs=runs, line=key.line, extra=extra, **values)
        self._check_derived(
            entry, {name: value for name, value in fields.items() if isinstance(value, Scalar)}, peak_gbps
        )
        return entry if len(self.problems.found) == before else None

    def _check_derived(self, entry: Entry, written: dict[str, Scalar], peak_gbps: float | None) -> None:
        """Hold derived figures to their sources: to edit one by hand would else change nothing, unseen."""
        exact = median(run.gbps for run in entry.runs) if entry.runs else entry.gbps
        if exact is None:
            return
        bandwidth = written.get("bandwidth")
        rounding = last_place(bandwidth.text) if bandwidth is not None else 0.0
        if bandwidth is not None and entry.runs and entry.gbps is not None and not agrees(entry.gbps, exact, rounding):
            self.problems.add(
                bandwidth.line,
                f"found bandwidth {shown(bandwidth.text)}, expected {exact:.6g} GB/s, the median of its "
                f"runs ({len(entry.runs)}): write that, or remove the runs to set it by hand",
            )
            return
        utilization = written.get("utilization")
        if utilization is not None and entry.utilization is not None and peak_gbps is not None:
            share = exact / peak_gbps
            slack = last_place(utilization.text) + (share * rounding / exact)
            if not agrees(entry.utilization, share, slack):
                self.problems.add(
                    utilization.line,
                    f"found utilization {shown(utilization.text)}, expected {share * 100:.4g}% ({exact:.6g} of the "
                    f"device's peak {peak_gbps:.6g} GB/s): write that or remove the line",
                )

    def _runs(self, node: Node) -> tuple[Run, ...]:
        if not isinstance(node, Sequence):
            self.problems.add(node.line, f"runs: found {_what(node)}, expected a list with one run per line")
            return ()
        if len(node.items) > MAX_RUNS:
            self.problems.add(node.line, f"runs: found {len(node.items)} of them, expected at most {MAX_RUNS}")
            return ()
        runs = [self._run("run", item) for item in node.items]
        return tuple(run for run in runs if run is not None)

    def _run(self, name: str, node: Node) -> Run | None:
        if not isinstance(node, Mapping):
            self.problems.add(
                node.line,
                f"{name}: found {_what(node)}, expected a mapping such as {{gbps: 1747.1, probe_gbps: 1754.0}}",
            )
            return None
        values = self._scalars(node, RUN_SCALARS, name)
        if "gbps" not in values:
            if not any(key.text == "gbps" for key, _ in node.items):
                self.problems.add(
                    node.line, f"{name}: found no gbps, expected its achieved bandwidth, such as gbps: 1747.1"
                )
            return None
        return Run(extra=self._unknown_in(node, RUN_SCALARS, name), **values)

    def _mapping(self, name: str, node: Node, parser: Parser) -> dict[str, Any]:
        if not isinstance(node, Mapping):
            self.problems.add(node.line, f"{name}: found {_what(node)}, expected a mapping such as {{name: value}}")
            return {}
        if name == "counts":  # a slip of the pen would turn the gate off
            self._unknown_in(node, COUNT_NAMES, name)
        return {key.text: self._typed(f"{name}.{shown(key.text, 40)}", value, parser) for key, value in node.items}

    def _scalars(self, node: Mapping, parsers: dict[str, Parser], where: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in node.items:
            parser = parsers.get(key.text)
            if parser is not None:
                typed = self._typed(key.text if where == "entry" else f"{where}.{key.text}", value, parser)
                if typed is not None:
                    values[key.text] = typed
        return values

    def _typed(self, name: str, node: Node, parser: Parser) -> Any:
        if not isinstance(node, Scalar):
            self.problems.add(node.line, f"{name}: found {_what(node)}, expected a single value")
            return None
        try:
            return parser(node.text)
        except ValueError as problem:
            self.problems.add(node.line, f"{name}: {problem}")
            return None

    def _unknown_in(self, node: Mapping, known: Any, where: str) -> dict[str, str]:
        kept: dict[str, str] = {}
        for key, value in node.items:
            if key.text not in known:
                self._unknown(key, value, known, where)
                kept[key.text] = value.text if isinstance(value, Scalar) else ""
        return kept

    def _unknown(self, key: Scalar, value: Node, known: Any, where: str) -> None:
        """Keep a later version's scalar; report a likely slip of the pen, which would silently do nothing."""
        if not isinstance(value, Scalar):
            self.problems.add(
                key.line, f"found the unknown key {shown(key.text)} in {where}, expected one of {listed(known)}"
            )
            return
        if (where, key.text) not in self._suggestions:
            if len(self._suggestions) >= MAX_UNKNOWN_KEYS:
                raise TooMuch(
                    key.line,
                    f"found more than {MAX_UNKNOWN_KEYS} different unknown keys, expected one of {listed(known)}",
                )
            self._suggestions[where, key.text] = suggestion(key.text, known)
        meant = self._suggestions[where, key.text]
        if meant is not None:
            self.problems.add(key.line, f"found the unknown key {shown(key.text)} in {where}, expected {meant}")


def _what(node: Node) -> str:
    if isinstance(node, Scalar):
        return f"the text {shown(node.text)}" if node.text else "nothing"
    return "a mapping" if isinstance(node, Mapping) else "a list"
