"""An update's summary, line by line."""

from dataclasses import replace

import pytest

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.reports.changes import MOST_LINES, change_lines


def entry(*gbps, anchor=None, key="t"):
    runs = tuple(Run(value) for value in gbps)
    return Entry(key, gbps=gbps[-1], judged_on="gbps", anchor=None if anchor is None else Run(anchor), runs=runs)


def shown(*changes):
    return ["".join(span.text for span in line) for line in change_lines("b.yaml", changes)]


def test_new_and_changed_entries():
    before = entry(310.0)
    assert shown((None, entry(277.0, key="new")), (before, entry(310.0, 277.0)), (before, entry(277.0))) == [
        "baseline b.yaml: 1 new, 2 updated",
        "+ new  277 GB/s (1 run)",
        "~ t  310 → 277 GB/s, -10.6 % (2 runs)",
        "~ t  310 → 277 GB/s, -10.6 % (1 run), started afresh",
    ]


@pytest.mark.parametrize(
    ("anchor", "told"),
    [(100.0, ", -10.0 % since its anchor"), (90.8, ""), (91.0, ", -1.1 % since its anchor"), (80.0, ""), (None, "")],
)
def test_what_was_lost_since_the_anchor(anchor, told):
    before, after = entry(90.0, anchor=anchor), entry(90.0, 90.0, anchor=anchor)
    assert shown((before, after))[1] == f"~ t  90.0 → 90.0 GB/s, +0.0 % (2 runs){told}"


def test_an_anchor_without_the_judged_figure_tells_nothing():
    after = replace(entry(90.0, 90.0, anchor=100.0), judged_on="relative")
    assert shown((entry(90.0), after))[1] == "~ t  90.0 → 90.0 GB/s, +0.0 % (2 runs)"


def test_long_updates_are_cut():
    lines = shown(*[(None, entry(1.0))] * (MOST_LINES + 2))
    assert (len(lines), lines[-1]) == (MOST_LINES + 2, "… and 2 more")
