"""The terminal's lines: whatever the width tests can be told apart; evidence, pairs, and what an update changed."""

from dataclasses import replace

import pytest
import run_documents

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.device import READ_OTHERWISE
from pytest_bandwidth.reports.terminal import MOST_CHANGES, change_lines, summary_lines
from pytest_bandwidth.reports.text_safe import natural, shortest_unique, without_common_part
from pytest_bandwidth.reports.wording import help_link


def shown(outcomes, width=120, **options):
    return ["".join(span.text for span in line) for line in summary_lines(outcomes, width, **options)]


@pytest.mark.parametrize(
    ("sectors", "said"),
    [({"l2_sectors_read": 2**15, "l2_sectors_written": 0}, ", L2 sectors 32,768 read, 0 written"), ({}, "")],
)
def test_what_counters_saw_is_told_with_v(sectors, said):
    moved = {"bytes_read": 10**6, "bytes_written": 0, "ratio": 1.0, "gbps": 100.0}
    dram = {**moved, "counted_by": "ncu", "kernel_count": 1, **sectors}
    outcome = replace(run_documents.outcomes(1)[0], detail={"dram": dram})
    line = f"DRAM {outcome.short_name}: read 1 MB, wrote 0 B: 1.00× of the declared, 100 GB/s{said} (1 kernel, ncu)"
    assert line in shown([outcome], verbose=True)
    assert line not in shown([outcome])


def test_a_bottleneck_is_told_once():
    sentence = "strided reads ask for 8.0× the sectors they need"
    finding = {"code": "bottleneck", "text": sentence}
    outcome = replace(run_documents.outcomes(1)[0], bottleneck=sentence, findings=(finding,))
    assert [line for line in shown([outcome], verbose=True) if sentence in line] == [
        f"WHY {outcome.short_name}: {sentence}"
    ]


@pytest.mark.parametrize("code", READ_OTHERWISE)
def test_what_changes_how_figures_are_to_be_read_is_one_line_without_v(code):
    first, second = (
        replace(outcome, findings=({"code": code, "text": f"found {n}"},))
        for n, outcome in enumerate(run_documents.outcomes(2))
    )
    notes = [line for line in shown([first, second]) if line.startswith("NOTE")]
    assert len(notes) == 1
    assert " and 1 more: found " in notes[0]
    assert sum(line.startswith("NOTE") for line in shown([first, second], verbose=True)) == 2
    other = replace(first, findings=({"code": "other", "text": "found"},))
    assert not any(line.startswith("NOTE") for line in shown([other]))


@pytest.mark.parametrize(("nodeids", "said"), [(("a", "b"), "2 tests"), (("a", "a"), "2 measurements")])
def test_what_shares_a_reason_is_counted_as_what_it_is(nodeids, said):
    alike = [
        replace(outcome, nodeid=nodeid, status="UNDECIDED", reason_code="too-noisy", reason="noise")
        for nodeid, outcome in zip(nodeids, run_documents.outcomes(2), strict=True)
    ]
    assert f"UNDECIDED {said}: noise" in shown(alike)


def test_an_improvement_says_what_it_is_and_refers_to_no_help():
    improved = replace(run_documents.outcomes(1)[0], status="IMPROVED", reason_code="counts", reason="sectors 8 → 4")
    *_, reason, counted = shown([improved])
    assert (reason.partition("[")[0], reason.partition("]")[2]) == (
        "IMPROVED test_copy.py::test_copy",
        ": sectors 8 → 4",
    )
    assert counted == "1 measured: 1 IMPROVED"


OUTCOME = run_documents.outcomes(1)[0]
FINE = "OK  floors met"
LONG = "attention-standard-float32-batch1-heads14-n1024-d"


def fine(nodeid):
    return replace(OUTCOME, nodeid=nodeid, key=nodeid, status="OK", reason_code="floors", verdict={}, tags={})


def table(nodeids, width=80):
    lines = shown([*map(fine, nodeids)], width)
    return lines[: next(i for i, line in enumerate(lines) if " measured: " in line)]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_long_names_are_whole_on_a_line_of_their_own(width):
    verdict = FINE if width > 40 else "OK"
    nodeids = [f"t.py::test_operation[{LONG}{d}]" for d in (64, 128)] + ["t.py::test_operation[copy]"]
    lines = table(nodeids, width)
    for d in (64, 128):
        (place,) = [i for i, line in enumerate(lines) if f"{LONG}{d}" in line]
        if verdict not in lines[place]:
            assert lines[place] == f"{LONG}{d}"
            assert lines[place + 1].lstrip() != lines[place + 1]
            assert lines[place + 1].endswith(verdict)
    assert sum(line.endswith(verdict) for line in lines) == 3
    assert all(line.startswith("copy ") for line in lines if "copy" in line)


# How many columns of a terminal each parameter takes: wide, half-width, with a mark, of conjoining letters, plain.
COLUMNS = {"速い": 4, "ｱ": 1, "e\u0301": 1, "\u1112\u1161\u11ab": 2, "plain": 5}


def test_wide_characters_take_two_columns():
    _, *rows = table([f"t.py::test_[{name}]" for name in COLUMNS], 120)
    assert len(rows) == len(COLUMNS)
    starts = set()
    for row in rows:
        name = row.split()[0]
        starts.add(COLUMNS[name] + len(row[len(name) :].partition(FINE)[0]))
    assert len(starts) == 1


@pytest.mark.parametrize(
    ("names", "heading", "left"),
    [
        (["t.py::test_a[x]"], "test", ["t.py::test_a[x]"]),
        (["t.py::test_a[x]", "t.py::test_a[y]"], "test_a[…]", ["x", "y"]),
        (["t.py::T::test_a[x[1]]", "t.py::T::test_a[]"], "test_a[…]", ["x[1]", ""]),
        (["t.py::test_a[x]", "t.py::test_a"], "test", ["test_a[x]", "test_a"]),
        (["t.py::test_a[x] @ l", "t.py::test_a[x] @ m"], "test", ["test_a[x] @ l", "test_a[x] @ m"]),
        (["t.py::test_a[x]", "u.py::test_a[x]"], "test", ["t.py::test_a[x]", "u.py::test_a[x]"]),
    ],
)
def test_what_all_names_share_is_left_out(names, heading, left):
    assert without_common_part(names) == (heading, left)


def test_what_all_or_a_shortest_path_tells_apart_is_left_out():
    nodeids = ["x/a/t.py::test_a", "x/b/t.py::test_a", "y/b/t.py::test_a", "t.py::test_a", "x/a/t.py::test_b[c/d]"]
    short = ["a/t.py::test_a", "x/b/t.py::test_a", "y/b/t.py::test_a", "t.py::test_a", "t.py::test_b[c/d]"]
    assert shortest_unique(nodeids) == dict(zip(nodeids, short, strict=True))
    names = ["t[" + "9" * 5000 + "]", "t[1" + "0" * 5000 + "]", "t[007]", "t[x]", "t"]
    assert sorted(names, key=natural) == ["t", "t[007]", names[0], names[1], "t[x]"]


def test_tests_of_one_name_are_told_apart_in_table_and_notes():
    nodeids = ["a/t.py::test_a", "b/t.py::test_a"]
    rows = [replace(OUTCOME, nodeid=n, key=n, status="UNDECIDED", reason=f"because of {n[0]}") for n in nodeids]
    found = ({"code": "xpass", "text": "passes", "level": "note"},)
    rows = [replace(row, findings=found if row.key[0] == "b" else ()) for row in rows]
    lines = shown(rows, 120)
    assert [line.split()[0] for line in lines[1:3]] == nodeids
    assert "UNDECIDED a/t.py::test_a: because of a" in lines
    assert lines.count(f"    help  {help_link(OUTCOME.reason_code)}") == 2
    assert "NOTE b/t.py::test_a: passes" in lines


def test_rows_that_are_fine_are_only_counted_where_they_are_many():
    quiet = [fine(f"t.py::t{i}") for i in range(31)]
    slow = replace(OUTCOME, nodeid="t.py::slow", key="t.py::slow", status="REGRESSED", verdict={"drop": 0.1})
    lines = shown([*quiet, slow], 80)
    assert [line.split()[0] for line in lines] == ["test", "t.py::slow", "…", "32"]
    assert lines[2] == "… and 31 more that are fine (-v lists them)"
    assert sum(line.endswith(FINE) for line in shown([*quiet, slow], 80, verbose=True)) == 31
    assert len(shown(quiet[:30], 80)) == 32


ACCESS = {
    "loads": {"sectors_per_request": 32.0, "pattern": "strided (132 bytes)"},
    "stores": {"sectors_per_request": 4.0, "pattern": "coalesced"},
}


def test_a_table_of_every_column_stays_within_80_columns():
    known = {"drop": 0.106, "reference": 0.981, "figure": "relative", "detects": 0.123}
    whole = replace(
        OUTCOME, utilization=0.98, regime="compute-bound", status="UNDECIDED", reason_code="too-noisy", verdict=known
    )
    counts = replace(OUTCOME, gbps=None, utilization=None, counts={"x": 1}, detail=ACCESS, verdict=known)
    for row in (whole, counts):
        rows = [replace(row, nodeid=f"t.py::test_{LONG}[{i}]", key=str(i)) for i in range(3)]
        lines = shown(rows, 80)
        table_lines = lines[: next(i for i, line in enumerate(lines) if " measured: " in line)]
        assert max(len(line) for line in table_lines if not line.startswith((LONG, "    help  "))) <= 80
        assert any("-10.6 %" in line for line in table_lines)
    assert table_lines.count("  within the tolerance, access strided (132 bytes) / coalesced") == 3


def test_an_absurd_gain_leaves_the_table_in_shape():
    verdict = {"drop": -1e300, "reference": 1e-300, "figure": "gbps"}
    lines = shown([replace(OUTCOME, verdict=verdict)], 120)
    assert "1e+300× on 1e-300 GB/s" in lines[1]


def entry(*gbps, anchor=None, key="t"):
    runs = tuple(Run(value) for value in gbps)
    return Entry(key, gbps=gbps[-1], judged_on="gbps", anchor=None if anchor is None else Run(anchor), runs=runs)


def changed(*changes):
    return ["".join(span.text for span in line) for line in change_lines("b.yaml", changes)]


@pytest.mark.parametrize(
    ("anchor", "told"),
    [(100.0, ", -10.0 % since its anchor"), (90.8, ""), (91.0, ", -1.1 % since its anchor"), (80.0, ""), (None, "")],
)
def test_what_was_lost_since_the_anchor(anchor, told):
    before, after = entry(90.0, anchor=anchor), entry(90.0, 90.0, anchor=anchor)
    assert changed((before, after))[1] == f"~ t  90.0 → 90.0 GB/s, +0.0 % (2 runs){told}"
    # An anchor without the judged figure tells nothing.
    assert changed((before, replace(after, judged_on="relative")))[1] == "~ t  90.0 → 90.0 GB/s, +0.0 % (2 runs)"


def test_of_many_changes_the_largest_are_listed_and_the_rest_is_counted():
    moved = [(entry(100.0, key=f"m{i}"), entry(100.0, 90.0 - i / 10, key=f"m{i}")) for i in range(MOST_CHANGES + 2)]
    lines = changed(*moved, (None, entry(1.0)))
    assert lines[0] == f"baseline b.yaml: 1 new, {len(moved)} updated"
    assert [line.split()[1] for line in lines[1:3]] == [f"m{MOST_CHANGES + 1}", f"m{MOST_CHANGES}"]
    assert (len(lines), lines[-1]) == (MOST_CHANGES + 2, "… and 3 more")


def test_counts_are_told_as_before_and_after():
    def counts(key, sectors):
        return Entry(key, counts={"load_sectors": sectors, "store_sectors": 20, "atomic_sectors": 4})

    assert changed((counts("t[10]", 1000), counts("t[10]", 2024)), (None, counts("t[2]", 8))) == [
        "baseline b.yaml: 1 new, 1 updated",
        "~ t[10]  1,024 → 2,048 sectors, +100.0 %",
        "+ t[2]  32 sectors",
    ]
    plugged = [Entry("t", counts={"function_calls": calls}) for calls in (4, 5)]
    assert changed((None, plugged[1]), tuple(plugged))[1:] == [
        "~ t  4 → 5 function calls, +25.0 %",
        "+ t  5 function calls",
    ]
