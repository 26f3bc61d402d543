"""The fast reading of canonical text gives exactly what the YAML parser gives: the same values or the same errors."""

from __future__ import annotations

from typing import Any

import pytest
from baseline_strategies import baselines, odd_lines
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_bandwidth.baseline.blocks import divide
from pytest_bandwidth.baseline.fast_reader import CanonicalReader
from pytest_bandwidth.baseline.reader import read_text, read_undivided
from pytest_bandwidth.baseline.source import SourceText
from pytest_bandwidth.baseline.writer import render
from pytest_bandwidth.domain.baseline import Baseline, Entry, Run
from pytest_bandwidth.domain.errors import BaselineError

EXAMPLES = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The fast reading meets a text's problems in another order, and stops at other places when YAML itself is broken.
FULL = Baseline(
    None,
    {
        key: Entry(
            key, 1747.1, tolerance=0.03, judged_on="relative", bytes_read=4, bytes_written=2**40, method="events+block",
            note="a note", anchor=Run(1747.1), settings={"mig": "off"}, counts={"load_sectors": 3},
            extra={"pattern": "loads coalesced, stores strided (32 bytes)"},
            runs=(Run(1747.1, 1754.0, 0.9961, 212, "GPU-8a", "0123456", "2026-11-21T04:00:00Z", {"numpy": "2.0.0"}),),
        )
        for key in ("tests/test_a.py::test_a[1-x] @ label", "tests/test_b.py::test_b")
    },
)  # fmt: skip


def outcome(read: Any, text: str) -> tuple[str, Any]:
    try:
        baseline = read(SourceText(text), "file.yaml").baseline
    except BaselineError as error:
        return "error", error.problems
    return "baseline", (baseline, [entry.line for entry in baseline.entries.values()])


def agree(text: str) -> str:
    fast, slow = outcome(read_text, text), outcome(read_undivided, text)
    assert fast == slow
    return fast[0]


@EXAMPLES
@given(baselines)
def test_rendered_baselines_read_the_same(baseline: Baseline) -> None:
    assert agree(render(baseline)) == "baseline"


@EXAMPLES
@given(baselines)
def test_rendering_loses_only_digits_beyond_the_sixth(baseline: Baseline) -> None:
    text = render(baseline)
    again = read_text(SourceText(text), "").baseline
    assert render(again) == text
    assert list(again.entries) == list(baseline.entries)
    for key, entry in baseline.entries.items():
        found = again.entries[key]
        assert found.gbps == pytest.approx(entry.gbps, rel=1e-5)
        assert [run.relative for run in found.runs] == [
            None if run.relative is None else pytest.approx(run.relative, rel=1e-5) for run in entry.runs
        ]
        for name in (
            "judged_on",
            "bytes_read",
            "bytes_written",
            "method",
            "xfail",
            "note",
            "settings",
            "counts",
            "extra",
        ):
            assert getattr(found, name) == getattr(entry, name)
        assert [run.commit for run in found.runs] == [run.commit for run in entry.runs]


@EXAMPLES
@given(baselines, st.lists(st.tuples(st.integers(0, 60), odd_lines), min_size=1, max_size=6))
def test_files_edited_by_hand_read_the_same(baseline: Baseline, inserted: list[tuple[int, str]]) -> None:
    lines = render(baseline).splitlines()
    for at, line in inserted:
        lines.insert(at % (len(lines) + 1), line)
    agree("\n".join(lines) + "\n")


SPOILERS = [
    "\n",
    " ",
    ":",
    "#",
    '"',
    "'",
    "{",
    "}",
    ",",
    "-",
    "0",
    "9",
    ".",
    "%",
    "x",
    "[",
    "&",
    "*",
    "|",
    ": ",
    " #",
    "\n  ",
    "\t",
    "é",
]


@EXAMPLES
@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from(SPOILERS), st.integers(0, 2)), min_size=1, max_size=4))
def test_spoiled_canonical_files_read_the_same(spoilt: list[tuple[float, str, int]]) -> None:
    text = render(FULL)
    for where, what, removed in spoilt:
        at = int(where * len(text))
        text = text[:at] + what + text[at + removed :]
    agree(text)


def test_every_single_character_change_reads_the_same() -> None:
    text = render(FULL)
    # All of the first of two entries that hold the same, and the second's key.
    start, end = text.index("entries:"), text.index("test_b.py::test_b") + len("test_b.py::test_b") + 8
    valid = 0
    for at in range(start, end):
        for what in ("", "\n", ":", " ", '"', "#", "0"):
            valid += agree(text[:at] + what + text[at + 1 :]) == "baseline"
    assert valid > 500  # the changes do not just break every file


@pytest.mark.parametrize(
    "line", ["entries:#", "entries: #", "entries:  # x", "entries: ", "entries :", "'entries':", "entries: 0"]
)
def test_the_line_above_the_entries_reads_the_same(line: str) -> None:
    agree(render(FULL).replace("entries:", line))


def test_what_updates_write_takes_the_fast_path() -> None:
    text = render(FULL)
    layout = divide(text)
    assert layout is not None
    reader = CanonicalReader(None)
    found = [reader.entry(text, start, end, 1) for start, end in layout.blocks]
    assert found == list(FULL.entries.values())


@pytest.mark.parametrize(
    "line",
    [
        "    bandwidth: 0.0 GB/s",
        "    bandwidth: 1747.1 GB/s # comment",
        "    bandwidth: 1747.1  GB/s",
        "    bandwidth: 1747 GB/s",
        "    bandwidth: 1e3 GB/s",
        "    unknown: 1",
        "    settings: {a: b, a: c}",
        '    note: " "',
        '    note: "a\\n"',
        "    runs:\n      - {gbps: 1.0, commit: a, samples: 3}",
        "    runs:\n      - {gbps: 1.0, sampels: 3}",
        "    runs:\n      - {gbps: 1.0, later: 3, later: 4}",
    ],
)
def test_the_fast_path_leaves_doubtful_blocks_to_the_parser(line: str) -> None:
    block = f"  a:\n{line}\n"
    assert CanonicalReader(None).entry(block, 0, len(block), 1) is None


def test_what_updates_write_of_the_traffic_device_needs_no_parser() -> None:
    """Some 8,000 such entries went past what the parser takes: an update wrote a file that no run could read."""
    for pattern in ("loads coalesced, stores strided (32 bytes)", "none"):
        entry = Entry(
            "tests/test_a.py::test_a[1]", method="ptx", counts={"load_sectors": 3}, extra={"pattern": pattern}
        )
        text = render(Baseline(None, {entry.key: entry}))
        layout = divide(text)
        assert layout is not None
        ((start, end),) = layout.blocks
        found = CanonicalReader(None).entry(text, start, end, 3)
        assert found is not None
        assert (found.counts, found.extra) == (entry.counts, entry.extra)
        assert agree(text) == "baseline"
