"""Keep the evidence of a baseline: ``NAME.runs.jsonl``, one immutable line for each process that ran.

Lines may be in any order, and duplicated, as git's union merge leaves them: their ids contain the time of writing. A
line holds each test's figures, and its set-up (code, settings …) where that differs from the test's earlier line.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pytest_bandwidth import __version__
from pytest_bandwidth.baseline.parse import Problems, SourceText
from pytest_bandwidth.baseline.schema import ENTRY_FIELDS, RECORDED, refuse_invisible
from pytest_bandwidth.domain.baseline import NEWEST_RUNS_KEPT, PROBE_VERSION, SCHEMA, Entry, Run
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.metrics import anchor_of
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import MAX_GBPS, format_moment

SUFFIX = ".runs.jsonl"
# Configures how git merges files of runs.
ATTRIBUTES = ".gitattributes"
MAX_LINES = 100_000
MAX_TEXT = 1024
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)
# The time in nanoseconds, a random number, and the number of the process.
_ID = re.compile(r"([0-9a-f]{16}-[0-9a-f]{6})\.([0-9]{1,9})", re.ASCII)
_CONFLICT = re.compile(r"(<{7}|>{7}|\|{7}) .*|={7}")
_COUNTS = ("samples", "dram_read", "dram_written")


@dataclass(slots=True)
class Recorded:
    """Gather the lines' data of one test. updates: the update of each run.

    first: index of the first run that counts, for an update may start afresh. moved: index of the first run whose DRAM
    counts are valid. setup: the newest, by field of `Entry`.
    """

    runs: list[Run] = field(default_factory=list)
    updates: list[str] = field(default_factory=list)
    first: int = 0
    moved: int = 0
    setup: Mapping[str, Any] = field(default_factory=dict)

    def newest(self) -> tuple[Run, ...]:
        """Return the runs that count, newest last."""
        begin = max(self.first, len(self.runs) - NEWEST_RUNS_KEPT)
        old = self.runs[begin : max(begin, self.moved)]
        return (*(replace(run, dram_read=None, dram_written=None) for run in old), *self.runs[begin + len(old) :])

    def anchor(self) -> Run | None:
        """Return the anchor: the result of the first update that counts."""
        first = self.updates[self.first] if self.first < len(self.updates) else None
        runs = [run for run, of in zip(self.runs[self.first :], self.updates[self.first :], strict=True) if of == first]
        return anchor_of(runs)


NOTHING = Recorded()


def path_of(baseline: Path) -> Path:
    """Return the file of a baseline's runs."""
    return baseline.with_suffix(SUFFIX)


@dataclass(frozen=True, slots=True)
class Runs:
    """Hold the recorded data of tests, by key. newest: the last update.

    note: a message where the file is missing, or its last line was not written whole.
    """

    tests: Mapping[str, Recorded] = field(default_factory=dict)
    newest: str = ""
    note: str | None = None


def read_runs(source: SourceText, keys: Collection[str], problems: Problems) -> Runs:
    """Return the recorded data of the tests with these keys.

    Raises BaselineError for too many lines; other problems go to `problems`.
    """
    lines = source.text.split("\n")
    torn = lines.pop()
    if len(lines) > MAX_LINES:
        raise problems.last(1, f"found {len(lines)} lines, expected at most {MAX_LINES}: remove old ones")
    note = None
    if torn and _parsed(torn) is None:
        note = f"{problems.file}: its last line was not written whole and is ignored; the next update removes it"
    elif torn:
        lines.append(torn)
    found: dict[tuple[str, int], _Line] = {}
    for number, text in enumerate(lines, 1):
        if not text or text.isspace():
            continue
        try:
            line = _line(text, number)
        except ValueError as problem:
            problems.add(number, f"{problem}: remove the line, or restore it from git")
            continue
        found.setdefault((line.update, line.process), line)
    tests: dict[str, Recorded] = {key: Recorded() for key in keys}
    for _, line in sorted(found.items(), key=lambda item: item[0]):
        try:
            line.record_in(tests)
        except ValueError as problem:
            problems.add(line.number, f"{problem}: remove the line, or restore it from git")
    return Runs(tests, max(found)[0] if found else "", note)


def _parsed(text: str) -> dict[str, Any] | None:
    """Parse a line; return None if it holds no JSON object."""
    try:
        plain = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return plain if isinstance(plain, dict) else None


def _refuse(name: str) -> None:
    raise ValueError(name)


@dataclass(slots=True)
class _Line:
    number: int
    update: str
    process: int
    common: tuple[Any, ...]
    tests: Mapping[str, Any]

    def record_in(self, tests: Mapping[str, Recorded]) -> None:
        """Add a run to each wanted test. Raises ValueError for invalid figures."""
        gpu, commit, at, facts, dirty = self.common
        update = self.update
        for key, of_test in self.tests.items():
            recorded = tests.get(key)
            if recorded is None:
                continue
            if type(of_test) is not dict:
                raise ValueError(f"found {shown(of_test)} of {shown(key)}, expected its figures")
            get = of_test.get
            if "new" in of_test:
                recorded.moved = len(recorded.runs)
                if of_test["new"] == "runs":
                    recorded.first = len(recorded.runs)
            if "setup" in of_test:
                recorded.setup = _setup(of_test["setup"])
            gbps, probe, relative, samples = get("gbps"), get("probe_gbps"), get("relative"), get("samples")
            if gbps is None:
                continue
            read, written = get("dram_read"), get("dram_written")
            for number in (gbps, probe, relative):
                if number is not None and not (type(number) is float and 0 < number <= MAX_GBPS):
                    raise ValueError(f"found the figure {shown(number)} of {shown(key)}, expected a positive bandwidth")
            for number in (samples, read, written):
                if number is not None and not (type(number) is int and 0 <= number < 2**63):
                    raise ValueError(f"found the count {shown(number)} of {shown(key)}, expected a whole number")
            recorded.runs.append(Run(gbps, probe, relative, samples, gpu, commit, at, facts, dirty, read, written))
            recorded.updates.append(update)


def _line(text: str, number: int) -> _Line:
    """Parse the line of a process. Raises ValueError for any other text."""
    if _CONFLICT.fullmatch(text):
        raise ValueError(f"found the merge conflict marker {shown(text)}, expected both sides' lines alone")
    plain = _parsed(text)
    if plain is None:
        raise ValueError(f"found {shown(text)}, expected a process's runs as JSON")
    schema, identifier, at, dirty = (plain.get(name) for name in ("schema", "id", "at", "dirty"))
    if schema != SCHEMA:
        raise ValueError(f"found schema {shown(schema)}, expected {SCHEMA}")
    match = _ID.fullmatch(identifier) if isinstance(identifier, str) else None
    if match is None:
        raise ValueError(f"found the id {shown(identifier)}, expected one such as 18a5c3d2e4f60718-3f2c1a.0")
    if at is not None and not (isinstance(at, str) and _INSTANT.fullmatch(at)):
        raise ValueError(f"found at {shown(at)}, expected a time such as 2026-11-21T04:00:00Z")
    if dirty not in (None, True, False):
        raise ValueError(f"found dirty {shown(dirty)}, expected true or false")
    tests: Any = plain.get("tests")
    facts: Any = plain.get("facts", {})
    for name, mapping in (("facts", facts), ("tests", tests)):
        if not isinstance(mapping, dict):
            raise ValueError(f"found {name} {shown(mapping)}, expected a mapping")
    facts = {_text("facts", name): _text("facts", text) for name, text in facts.items()}
    gpu, commit = (None if plain.get(name) is None else _text(name, plain[name]) for name in ("gpu", "commit"))
    common = (gpu, commit, at, facts, bool(dirty))
    return _Line(number, match[1], int(match[2]), common, tests)


def _setup(plain: object) -> dict[str, Any]:
    """Return a test's set-up, each field by the schema's form. Raises ValueError."""
    if not isinstance(plain, dict):
        raise ValueError(f"found the setup {shown(plain)}, expected a mapping")
    found: dict[str, Any] = {}
    for name in plain.keys() & set(RECORDED):
        one, value = ENTRY_FIELDS[name], plain[name]
        if one.names is None:
            found[name] = one.form.read(_text(name, value))
        elif isinstance(value, dict):
            found[name] = {_text(name, inner): one.form.read(_text(name, text)) for inner, text in value.items()}
        else:
            raise ValueError(f"found {name} {shown(value)}, expected a mapping")
    return found


def _text(name: str, value: object) -> str:
    text = str(value) if type(value) is int and 0 <= value < 2**63 else value
    if not isinstance(text, str) or not text or len(text) > MAX_TEXT or not text.isprintable():
        raise ValueError(f"found {name} {shown(value)}, expected visible text of one line")
    return text


def setup_of(entry: Entry) -> dict[str, Any]:
    """Return a test's set-up in the form of a line."""
    found = {name: getattr(entry, name) for name in RECORDED}
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in found.items() if value}


def run_lines(changes: Iterable[tuple[Entry | None, Entry, Recorded]], newest: str = "") -> list[str]:
    """Return the lines of one update: each process's results of all tests, with their common data once.

    changes: the file's entry, or None; the new entry; the recorded data. newest: the last update before this one, which
    gets a later id even if the clock was set back. Raises UsageError for text that no baseline may hold.
    """
    lines: dict[tuple[Any, ...], list[tuple[dict[str, str], dict[str, Any]]]] = {}
    now = format_moment(datetime.now(timezone.utc))
    for before, after, recorded in changes:
        for shared, own_facts, of_test in _new_runs(before, after, recorded, now):
            there = lines.setdefault(shared, [])
            for facts, tests in there:
                # Tests with other facts are from another process.
                if after.key not in tests and all(facts.get(name, text) == text for name, text in own_facts.items()):
                    break
            else:
                facts, tests = {}, {}
                there.append((facts, tests))
            facts.update(own_facts)
            tests[after.key] = of_test
    nanoseconds = min(max(time.time_ns(), int(newest[:16] or "0", 16) + 1), 16**16 - 1)
    update = f"{nanoseconds:016x}-{os.urandom(3).hex()}"
    found: list[str] = []
    for shared, there in sorted(lines.items(), key=lambda item: item[0][0]):
        _, gpu, commit, dirty, at = shared
        for facts, tests in there:
            plain = {"schema": SCHEMA, "id": f"{update}.{len(found)}", "at": at}
            plain |= {"plugin": __version__, "probe": PROBE_VERSION, "commit": commit, "dirty": dirty or None}
            plain |= {"gpu": gpu, "facts": facts or None, "tests": tests}
            known = {name: value for name, value in plain.items() if value is not None}
            text = json.dumps(known, ensure_ascii=False, separators=(",", ":"))
            refuse_invisible(text)
            try:
                _line(text, 0).record_in({key: Recorded() for key in tests})
            except ValueError as problem:  # such as a control character, which JSON escapes
                raise UsageError(str(problem)) from None
            found.append(text)
    return found


def _new_runs(
    before: Entry | None, after: Entry, recorded: Recorded, now: str
) -> Iterator[tuple[tuple[Any, ...], Mapping[str, str], dict[str, Any]]]:
    """Yield the entry's runs that the file lacks: the data common to the process's tests, its facts, the figures."""
    old = before.runs if before is not None else ()
    # kept: so many of the newest old runs begin the new ones. moved: whether their DRAM counts differ.
    kept, moved = 0, False
    for count in range(min(len(old), len(after.runs)), 0, -1):
        staying, begun = old[len(old) - count :], after.runs[:count]
        if _figures(staying) == _figures(begun):
            kept = count
            moved = any(one.dram_read != other.dram_read for one, other in zip(staying, begun, strict=True))
            break
    continues = before is not None and bool(old) and (kept > 0 or before.anchor == after.anchor)
    new, setup = after.runs[kept:], setup_of(after)
    # The runs of an entry without a `runs` line were not read: the file may hold another set-up.
    head: dict[str, Any] = {} if setup == recorded.setup and recorded is not NOTHING else {"setup": setup}
    if not after.runs and recorded.newest():
        head["new"] = "runs"
    if not new and head:
        yield (0, None, None, False, now), {}, head
    for number, run in enumerate(new):
        figures: dict[str, Any] = {"gbps": float(run.gbps)}
        figures |= {n: float(v) for n in ("probe_gbps", "relative") if (v := getattr(run, n)) is not None}
        figures |= {n: v for n in _COUNTS if (v := getattr(run, n)) is not None}
        if number == 0 and (not continues or moved):
            figures["new"] = "dram" if continues else "runs"
        yield (number, run.gpu, run.commit, run.dirty, run.at), run.extra, figures | (head if number == 0 else {})


def _figures(runs: Iterable[Run]) -> list[tuple[Any, ...]]:
    return [
        (run.gbps, run.probe_gbps, run.relative, run.samples, run.gpu, run.commit, run.dirty, run.at) for run in runs
    ]


def append_lines(path: Path, texts: Sequence[str]) -> Callable[[], None]:
    """Write lines at the end of a file of runs, to disk; return a function that removes them again.

    Removes a last line that was not written whole. Call it under the baseline's lock. On OSError it keeps no new line.
    """
    existed = path.exists()
    with open(path, "ab+") as stream:
        stream.seek(0)
        data = stream.read()
        end = size = len(data)
        tail = data[data.rfind(b"\n") + 1 :]
        whole = not tail or _parsed(tail.decode("utf-8", "replace")) is not None
        if not whole:
            end -= len(tail)
            stream.truncate(end)

        def undo() -> None:
            if existed:
                os.truncate(path, min(size, end))
            else:
                path.unlink(missing_ok=True)

        try:
            stream.write((("\n" if tail and whole else "") + "".join(f"{text}\n" for text in texts)).encode())
            stream.flush()
            os.fsync(stream.fileno())
        except OSError:
            undo()
            raise
    return undo
