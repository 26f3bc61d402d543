"""An update's summary, line by line."""

from dataclasses import replace

import pytest

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.reports.terminal import MOST_CHANGES, change_lines


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


def test_of_many_new_entries_only_their_number_is_told():
    assert shown(*[(None, entry(1.0))] * (MOST_CHANGES + 2)) == [f"baseline b.yaml: {MOST_CHANGES + 2} new, 0 updated"]


def test_of_many_changes_the_largest_are_listed_and_the_rest_is_counted():
    stayed = [(entry(100.0, key=f"s{i}"), entry(100.0, 100.0, key=f"s{i}")) for i in range(2000)]
    moved = [(entry(100.0, key=f"m{i}"), entry(100.0, 90.0 - i / 10, key=f"m{i}")) for i in range(MOST_CHANGES + 2)]
    lines = shown(*stayed, *moved, (None, entry(1.0)))
    assert lines[0] == f"baseline b.yaml: 1 new, {2000 + len(moved)} updated, 2000 of them as before"
    assert [line.split()[1] for line in lines[1:3]] == [f"m{MOST_CHANGES + 1}", f"m{MOST_CHANGES}"]
    assert (len(lines), lines[-1]) == (MOST_CHANGES + 2, "… and 2 more that changed")


def test_counts_are_told_as_before_and_after():
    def counts(key, sectors):
        return Entry(key, counts={"load_sectors": sectors, "store_sectors": 24})

    assert shown((counts("t[10]", 1000), counts("t[10]", 2024)), (None, counts("t[2]", 8))) == [
        "baseline b.yaml: 1 new, 1 updated",
        "+ t[2]  32 sectors",
        "~ t[10]  1,024 → 2,048 sectors, +100.0 %",
    ]
    assert shown((counts("t", 8), counts("t", 8)))[0] == "baseline b.yaml: 0 new, 1 updated, 1 of them as before"
