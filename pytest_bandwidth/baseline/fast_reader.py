"""Recognise entries in the form that updates write, many times faster than a YAML parser.

A block is taken here only where its reading as YAML is beyond doubt; anything else is left to the parser, unread.
No error is reported from here: what fails a check goes to the parser as well, which words the error.
A property test holds the two readings together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, cast

from pytest_bandwidth.baseline.schema import MAX_RUNS, RUN_SCALARS, suggestion
from pytest_bandwidth.baseline.writer import KEY_PATTERN, MAX_SIMPLE_KEY, WORD_PATTERN
from pytest_bandwidth.domain.baseline import Entry, Metric, Run, agrees
from pytest_bandwidth.domain.code.identity import DIGITS
from pytest_bandwidth.judging.counts import COUNT_NAMES

_NUMBER = r"[0-9]{1,9}\.[0-9]{1,12}"  # below `units.MAX_GBPS`
_WHOLE = r"[0-9]{1,18}"
_QUOTED = r'"[^"\\\n\t]{1,1000}"'
_TEXT = rf"{WORD_PATTERN}|{_QUOTED}"
_SIMPLE = r"[A-Za-z0-9](?:[A-Za-z0-9_.:+-]{0,98}[A-Za-z0-9_.+-])?"
_NAME = r"[a-z][a-z0-9_]{0,99}"
_RUN = (
    rf"\{{gbps: ({_NUMBER})(?:, probe_gbps: ({_NUMBER}))?(?:, relative: ({_NUMBER}))?(?:, samples: ({_WHOLE}))?"
    # What few runs hold takes one group together: each group costs every run.
    rf"(, dram_read: {_WHOLE}, dram_written: {_WHOLE})?"
    rf"(?:, gpu: ({_SIMPLE}))?(?:, commit: ([0-9a-z]{{1,64}}(?:, dirty: true)?))?"
    r"(?:, at: ([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z))?"
    rf"((?:, {_NAME}: {_SIMPLE}){{0,15}})\}}"
)
_RUN_GROUPS = 9
_WHOLES = rf"{_NAME}: {_WHOLE}(?:, {_NAME}: {_WHOLE}){{0,99}}"
_HASH = rf"[0-9a-f]{{{DIGITS}}}"
_HASHES = rf"{_NAME}: {_HASH}(?:, {_NAME}: {_HASH}){{0,99}}"
_DIRTY = ", dirty: true"
_TEXTS = rf"{_NAME}: {WORD_PATTERN}(?:, {_NAME}: {WORD_PATTERN}){{0,99}}"
_HEAD = re.compile(
    rf"  (?:({KEY_PATTERN})|\"([^\"\\\n\t]{{1,1000}})\"):\n"
    rf"(?:    bandwidth: ({_NUMBER} GB/s)\n)?"
    r"(?:    utilization: ([0-9]{1,3}(?:\.[0-9]{1,12})?%)\n)?"
    r"(?:    tolerance: ([0-9]{1,2}(?:\.[0-9]{1,12})?)%\n)?"
    r"(?:    judged_on: (relative|gbps)\n)?"
    rf"(?:    bytes_read: ({_WHOLE})\n)?"
    rf"(?:    bytes_written: ({_WHOLE})\n)?"
    rf"(?:    method: ({_TEXT})\n)?"
    rf"(?:    xfail: ({_TEXT})\n)?"
    rf"(?:    note: ({_TEXT})\n)?"
    rf"(?:    resources: \{{({_WHOLES})\}}\n)?"
    rf"(?:    settings: \{{({_TEXTS})\}}\n)?"
    rf"(?:    counts: \{{({_WHOLES})\}}\n)?"
    rf"(?:    code: \{{({_HASHES})\}}\n)?"
    rf"(?:    anchor: {_RUN}\n)?"
    rf"(?:    pattern: ({_TEXT})\n)?"  # of what the traffic device counted
    r"(    runs:\n)?",
    re.ASCII,
)
_RUN_LINE = re.compile(rf"^      - {_RUN}\n", re.MULTILINE)
# Longer texts are for the parser, which has limits of its own to apply.
_MAX_HEAD_CHARACTERS = 8000
# Far below the parser's limit on unknown keys.
_MOST_EXTRA_NAMES = 32
_NONE: Mapping[str, Any] = {}


class _Doubt(Exception):
    """Raised where a block is not for this reader."""


class CanonicalReader:
    """Read the canonical entries of one file; equal texts become one object: a file repeats few GPUs and commits."""

    def __init__(self, peak_gbps: float | None) -> None:
        self.peak_gbps = peak_gbps
        self._texts: dict[str, str] = {}
        self._extras: dict[str, dict[str, str]] = {}
        self._extra_names: set[str] = set()
        self._mappings: dict[tuple[str, Callable[[str], Any]], dict[str, Any]] = {}

    def entry(self, text: str, start: int, end: int, line: int) -> Entry | None:
        """Return the entry of the block ``text[start:end]``; None where it is not canonical or not in order."""
        match = _HEAD.match(text, start, end)
        if match is None or match.end() - start > _MAX_HEAD_CHARACTERS:
            return None
        fields = match.groups("")
        try:
            runs = self._runs(text, match.end(), end, fields[-1] != "")
            anchor = self._runs_of([fields[15 : 15 + _RUN_GROUPS]])[0] if fields[15] else None
            return self._entry(fields, runs, anchor, line)
        except _Doubt:
            return None

    def _entry(self, fields: tuple[str, ...], runs: tuple[Run, ...], anchor: Run | None, line: int) -> Entry:
        plain, quoted, bandwidth, utilization, tolerance, judged_on, bytes_read, bytes_written = fields[:8]
        key = plain or quoted
        if len(key) > MAX_SIMPLE_KEY or key != key.strip():
            raise _Doubt
        exact = median([run.gbps for run in runs]) if runs else None
        gbps = exact if not bandwidth else float(bandwidth[:-5])
        counts = self._mapping(fields[13], int)
        if not counts.keys() <= COUNT_NAMES:
            raise _Doubt
        if (gbps is None and not counts) or gbps == 0:
            raise _Doubt
        share = None if not utilization else float(utilization[:-1]) / 100
        self._check_derived(bandwidth, gbps, exact, utilization, share)
        # By position, in the order of the fields: keywords cost a tenth of the whole load.
        return Entry(
            key,
            gbps,
            share,
            None if not tolerance else float(tolerance) / 100,
            cast("Metric | None", judged_on or None),
            None if not bytes_read else int(bytes_read),
            None if not bytes_written else int(bytes_written),
            _text(fields[8]),
            _text(fields[9]),
            _text(fields[10]),
            anchor,
            self._mapping(fields[11], int),
            self._mapping(fields[12], str),
            counts,
            self._mapping(fields[14], str),
            runs,
            line,
            self._pattern(fields[-2]) if fields[-2] else _NONE,
        )

    def _pattern(self, found: str) -> Mapping[str, str]:
        text = _text(found)
        if text is None or text not in (found, found[1:-1]):
            raise _Doubt
        return {"pattern": text}

    def _check_derived(
        self, bandwidth: str, gbps: float | None, exact: float | None, utilization: str, share: float | None
    ) -> None:
        base = gbps if exact is None else exact
        checked_share = None if self.peak_gbps is None else share
        if base is None or gbps is None or (exact is None and checked_share is None):
            return
        rounding = _last_place(bandwidth, " GB/s") if bandwidth else 0.0
        if not agrees(gbps, base, rounding):
            raise _Doubt
        if checked_share is not None and self.peak_gbps is not None:
            derived = base / self.peak_gbps
            if not agrees(checked_share, derived, 0.01 * _last_place(utilization, "%") + derived * rounding / base):
                raise _Doubt

    def _runs(self, text: str, start: int, end: int, expected: bool) -> tuple[Run, ...]:
        if not expected:
            if start != end:
                raise _Doubt
            return ()
        found = _RUN_LINE.findall(text, start, end)
        # Every match is one whole line, so all lines are runs where the counts agree and no piece of a line is left.
        if not found or len(found) != text.count("\n", start, end) or text[end - 1] != "\n" or len(found) > MAX_RUNS:
            raise _Doubt
        return tuple(self._runs_of(found))

    def _runs_of(self, found: Sequence[tuple[str, ...]]) -> list[Run]:
        """Return runs of the texts that `_RUN` matched, empty where absent. One loop: most of a file is runs."""
        share, extras = self._texts.setdefault, self._extras.get
        runs = []
        for gbps, probe_gbps, relative, samples, dram, gpu, commit, at, extra in found:
            rate, probe, share_of_probe = float(gbps), probe_gbps and float(probe_gbps), relative and float(relative)
            if rate == 0 or probe == 0 or share_of_probe == 0:
                raise _Doubt
            run = Run(
                rate,
                probe or None,
                share_of_probe or None,
                int(samples) if samples else None,
                share(gpu, gpu) if gpu else None,
                share(commit, commit) if commit else None,
                at or None,
                (extras(extra) or self._extra(extra)) if extra else _NONE,
            )
            if ":" in commit:
                clean = commit.removesuffix(_DIRTY)
                run.commit, run.dirty = share(clean, clean), True
            if dram:
                counted = self._mapping(dram[2:], int)
                run.dram_read, run.dram_written = counted["dram_read"], counted["dram_written"]
            runs.append(run)
        return runs

    def _extra(self, text: str) -> Mapping[str, str]:
        """Return keys of a later version, from text such as ``, driver_version: 580.65``."""
        found = {**self._mapping(text[2:], str)}
        known = len(self._extra_names | found.keys()) <= _MOST_EXTRA_NAMES
        if not known or any(name in RUN_SCALARS or suggestion(name, RUN_SCALARS) for name in found):
            raise _Doubt
        self._extra_names |= found.keys()
        self._extras[text] = found
        return found

    def _mapping(self, text: str, type_: Callable[[str], Any]) -> Mapping[str, Any]:
        if not text:
            return _NONE
        found = self._mappings.get((text, type_))
        if found is None:
            pairs = [pair.split(": ", 1) for pair in text.split(", ")]
            found = {name: type_(value) for name, value in pairs}
            if len(found) != len(pairs):
                raise _Doubt
            self._mappings[text, type_] = found
        return found


def _last_place(text: str, unit: str) -> float:
    """Return `units.last_place` of what `_HEAD` matches, in its own unit; quick, for each entry has two."""
    return float(10.0 ** -len(text.removesuffix(unit).partition(".")[2]))


def _text(found: str) -> str | None:
    if not found.startswith('"'):
        return found or None
    text = found[1:-1].strip()
    if not text:
        raise _Doubt
    return text
