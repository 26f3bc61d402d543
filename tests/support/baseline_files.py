"""Draw baselines, and files that are almost baselines (Hypothesis strategies); write their files as updates do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st

from pytest_bandwidth.baseline.runs import NOTHING, Recorded, path_of, run_lines, setup_of
from pytest_bandwidth.baseline.schema import render_entry, render_header
from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry, Run, settled
from pytest_bandwidth.domain.text import INVISIBLE
from pytest_bandwidth.domain.units import MAX_GBPS

_visible = st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), min_size=1, max_size=30).filter(
    lambda text: not INVISIBLE.search(text)
)
texts = st.one_of(
    st.sampled_from(
        [
            "events+block",
            "yes",
            "null",
            "0123456",
            "1e5",
            "2026-11-21",
            "a: b",
            "x #y",
            "- z",
            "{",
            "é",
            "&a",
            "!t",
            "''",
            "~",
        ]
    ),
    _visible.map(str.strip).filter(lambda text: text and "\n" not in text and "\r" not in text),
)
names = st.sampled_from(["a", "b_c", "load_sectors", "mig", "ecc", "x1"])
keys = st.one_of(
    st.builds(
        "tests/test_{}.py::test_{}{}".format, names, names, st.sampled_from(["", "[1-x]", " @ label", "[a b, c:d] @ l"])
    ),
    texts.filter(lambda text: "\t" not in text),
)
figures = st.one_of(
    st.floats(1e-3, 1e5), st.floats(1e-12, MAX_GBPS), st.sampled_from([1747.1, 1754.0, 2000.0, 0.999999, 1e-9])
)
counts = st.integers(0, 2**63 - 1)
instants = st.sampled_from(["2026-11-21T04:00:00Z", "1970-01-01T00:00:00Z"])
# What a line of runs holds, unlike a note, has no other blanks than the usual.
lines = texts.filter(str.isprintable)
hashes = st.text("0123456789abcdef", min_size=32, max_size=32)
unknown_names = names.map(lambda name: f"zz_{name}")


def optional(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.one_of(st.none(), strategy)


runs = st.builds(
    Run,
    gbps=figures,
    probe_gbps=optional(figures),
    relative=optional(st.floats(1e-3, 10)),
    samples=optional(counts),
    dram_read=optional(counts),
    dram_written=optional(counts),
    gpu=optional(lines),
    commit=optional(st.one_of(st.sampled_from(["0123456", "3f2c1ab", "12345e6", "0000000"]), lines)),
    at=optional(instants),
    extra=st.dictionaries(unknown_names, lines, max_size=1),
    dirty=st.booleans(),
)


def entries_with(key: st.SearchStrategy) -> st.SearchStrategy:
    return st.builds(
        Entry,
        key=key,
        gbps=figures,
        utilization=optional(st.floats(0, 9.9)),
        tolerance=optional(st.floats(0, 0.999)),
        judged_on=optional(st.sampled_from(["relative", "gbps"])),
        bytes_read=optional(counts),
        bytes_written=optional(counts),
        method=optional(lines),
        xfail=optional(texts),
        note=optional(texts),
        resources=st.dictionaries(names, counts, max_size=3),
        settings=st.dictionaries(st.one_of(names, lines), lines, max_size=3),
        counts=st.dictionaries(names, counts, max_size=3),
        code=st.dictionaries(
            st.one_of(st.sampled_from(["ptx", "sass", "launch", "function"]), names), hashes, max_size=3
        ),
        runs=st.lists(runs, max_size=4).map(tuple),
        extra=st.dictionaries(unknown_names, texts, max_size=1),
    )


devices = st.builds(
    BaselineDevice,
    name=texts,
    memory_gib=optional(st.integers(1, 512)),
    kind=optional(st.sampled_from(["cuda", "cpu", "traffic"])),
    peak_gbps=optional(st.floats(1, 1e5)),
)


def _baseline(device: BaselineDevice | None, tolerance: float | None, entries: list[Entry]) -> Baseline:
    peak = device.peak_gbps if device else None
    found = {}
    for entry in entries:
        complete = settled(entry, peak)
        if complete.utilization is None or complete.utilization <= 10:
            found[complete.key] = complete
    return Baseline(device, found, tolerance)


baselines = st.builds(
    _baseline, optional(devices), optional(st.floats(0, 0.999)), st.lists(entries_with(keys), max_size=5)
)


def render(baseline: Baseline) -> str:
    """Render a whole file."""
    peak = baseline.device.peak_gbps if baseline.device else None
    entries = (render_entry(settled(entry, peak)) for entry in baseline.entries.values())
    return render_header(baseline.device, baseline.tolerance) + "".join(entries)


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write the file and, where entries have any, its runs; an entry's anchor is a run of an update before them."""
    first, second = [], []
    for entry in map(settled, baseline.entries.values()):
        if entry.anchor is None:
            second.append((None, entry, NOTHING))
        else:
            before = replace(entry, runs=(entry.anchor,))
            first.append((None, before, NOTHING))
            after = replace(entry, runs=(*before.runs, *entry.runs))
            second.append((before, after, Recorded(setup=setup_of(entry))))
    lines = (*run_lines(first), *run_lines(second))
    path.write_text(render(baseline), encoding="utf-8")
    path_of(path).write_text("".join(f"{text}\n" for text in lines), encoding="utf-8")
