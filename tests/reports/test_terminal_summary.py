"""The terminal's table: regimes, their evidence with -v, and precisions as pairs."""

from dataclasses import replace

import pytest
import run_documents

from pytest_bandwidth.domain.device import READ_OTHERWISE
from pytest_bandwidth.reports.terminal import summary_lines


def shown(outcomes, **options) -> list[str]:
    return ["".join(span.text for span in line) for line in summary_lines(outcomes, 120, **options)]


def test_each_row_says_what_bounds_it():
    memory, compute = (
        replace(outcome, regime=regime, regime_evidence=f"evidence of {regime}")
        for outcome, regime in zip(run_documents.outcomes(2), ("memory-bound", "compute-bound"), strict=True)
    )
    lines = shown([memory, compute])
    assert "bound by" in lines[0]
    assert sorted(word for line in lines[1:] for word in line.split() if word in ("memory", "compute")) == [
        "compute",
        "memory",
    ]
    assert not any("evidence" in line for line in lines)
    verbose = shown([memory, compute], verbose=True)
    assert f"WHY {memory.short_name}: memory-bound: evidence of memory-bound" in verbose


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


def test_precisions_are_shown_as_pairs_with_their_ratios():
    single = run_documents.outcomes(1)[0]
    tags = {"operation": "copy", "version": "plain", "n": 1024}
    single = replace(single, gbps=200.0, seconds=4e-3, tags={**tags, "precision": "fp32"})
    half = replace(single, key="half", gbps=300.0, seconds=1.5e-3, tags={**tags, "precision": "fp16"})
    lines = shown([single, half])
    begin = lines.index("FP32 against FP16")
    assert lines[begin + 1] == "  copy plain n=1024: 200 → 300 GB/s (1.50×), 0.38× the time"
    assert "FP32 against FP16" not in shown([single])


def test_many_pairs_are_counted_and_all_listed_with_v():
    pairs = []
    for n in range(20):
        for precision in ("fp32", "fp16"):
            tags = {"operation": "copy", "precision": precision, "n": n}
            pairs.append(replace(run_documents.outcomes(1)[0], key=f"{n} {precision}", tags=tags))
    lines = shown(pairs)
    assert sum(line.startswith("  copy n=") for line in lines) == 12
    assert "  … and 8 more pairs (-v lists them)" in lines
    assert sum(line.startswith("  copy n=") for line in shown(pairs, verbose=True)) == 20


def test_hostile_names_of_pairs_are_harmless():
    single = run_documents.outcomes(1)[0]
    tags = {"operation": "\x1b[31mcopy\u202e", "n": 4}
    both = [replace(single, key=p, tags={**tags, "precision": p}, regime="\x1b[2J") for p in ("fp32", "fp16")]
    assert all(line.isprintable() for line in shown(both, verbose=True))


def test_the_remedy_against_others_on_the_host_is_told_once():
    beside = [
        replace(
            outcome,
            status="UNDECIDED",
            reason_code="others",
            is_valid=False,
            reason=f"others kept {i}.5 processors busy",
            conditions={"before": {}, "after": {"others_processors": i + 0.5}},
        )
        for i, outcome in enumerate(run_documents.outcomes(3))
    ]
    assert sum("bandwidth_busy_processors" in line for line in shown(beside)) == 1
    on_gpu = [replace(outcome, conditions={"before": {}, "after": {"others_processors": None}}) for outcome in beside]
    throttled = [replace(outcome, reason_code="throttled") for outcome in beside]
    assert not any("bandwidth_busy_processors" in line for line in shown([*on_gpu, *throttled]))


def test_the_last_line_of_a_failed_process_is_told():
    reason = "5 % below; a fresh process ended with exit status 4; its last lines:\n  many\n  no such option"
    outcome = replace(run_documents.outcomes(1)[0], status="UNDECIDED", reason_code="not-rerun", reason=reason)
    (line,) = [line for line in shown([outcome]) if line.startswith("UNDECIDED")]
    assert line.endswith("exit status 4; its last lines: no such option")


def test_a_changed_kernel_of_several_regressions_is_told_once():
    both = [
        replace(outcome, status="REGRESSED", baseline={"code": {"ptx": "a" * 32}}, code_identity={"ptx": "b" * 32})
        for outcome in run_documents.outcomes(2)
    ]
    told = [line for line in shown(both) if line.startswith("CAUSE ")]
    assert len(told) == 1
    assert " and 1 more: the same kernel's code changed (aaaaaaaa → bbbbbbbb), the likely cause of 2 of 2" in told[0]
    assert not any(line.startswith("CAUSE ") for line in shown(both[:1]))
