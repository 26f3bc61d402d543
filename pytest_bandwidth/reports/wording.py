"""Put decisions into words: every sentence that a verdict needs, in the terminal, in failures and in documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.device import COMPILER_SETTING
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.measured.measurement import OF_WORK, UNTOUCHED, Measurement, is_credible_share, is_warm
from pytest_bandwidth.domain.measured.validity import ABOVE_PROBE, OF_OTHERS
from pytest_bandwidth.domain.text import DOCUMENTATION, listed
from pytest_bandwidth.domain.units import (
    counted,
    digits,
    drop_of_log,
    format_bytes,
    format_bytes_against,
    format_gbps,
    format_percent,
    format_seconds,
)
from pytest_bandwidth.domain.verdict import Decision, Numbers, Rule, Status
from pytest_bandwidth.judging.causes import BY_COMPILER
from pytest_bandwidth.judging.decide import COMPILED, called
from pytest_bandwidth.judging.judge import Judged
from pytest_bandwidth.judging.limits import floor_of, is_of_resources
from pytest_bandwidth.outcomes.outcome import Outcome, mapping, text
from pytest_bandwidth.outcomes.run_findings import DeviceLoss
from pytest_bandwidth.reports.text_safe import clean, one_line

_RESOURCES = {"max_registers": "registers", "max_spill_bytes": "stack and spill bytes"}
_SHARE_OF_FLOOR = {
    "min_utilization": "of peak",
    "min_sol": "of the speed of light",
    "min_relative": "of the probe",
}
# A failure's message has no more lines; the documents hold the others.
MOST_LINES = 12
COUNTS_SHOWN = 3
_ALIKE_SHOWN = 4
_KINDS = ("loads", "stores", "atomics")
# From this share of a sample on, the message names a launch's overhead.
FLOOR_SHOWN = 0.05
OTHERS_SHOWN = 10
_OTHER_DATA = "the code is the baseline's, so the test's data changed"
# The subject of a verdict in two or three words, by its rule.
_DETAILS = {
    Rule.CODE_UNCHANGED: "code unchanged",
    Rule.NOT_REPRODUCED: "slow once, not reproduced",
    Rule.FLOORS: "floors met",
    Rule.STORED: "stored figures",
    Rule.COUNTS: "counts",
    Rule.LESS_WORK: "less work done",
    Rule.UNGATED: "counts missing",
    Rule.TOO_NOISY: "too noisy",
    Rule.NO_PROBE: "no probe",
    Rule.UNSTEADY: "disturbed",
    Rule.NOT_RERUN: "could not re-run",
    Rule.NO_BASELINE: "no baseline",
    Rule.NO_ENTRY: "no entry",
    Rule.EMPTY_ENTRY: "empty entry",
    Rule.CODE_ALONE: "other device's baseline",
    Rule.NOT_THERE: "no old measurement",
    Rule.NOT_WRITTEN: "not saved",
    Rule.NOTHING_VALID: "disturbed",
    Rule.LEFT_OUT: "left out",
    Rule.OUT_OF_BOUNDS: "out of bounds",
    ABOVE_PROBE: "above the probe",
}


def detail_of(status: Status, rule: str, verdict: Mapping[str, Any]) -> str:
    """Return the subject of a verdict in a few lower-case words; empty where the verdict needs none.

    verdict: numbers and facts, as documents hold them.
    """
    if rule in (Rule.OLD_KERNEL, Rule.PAIRS):
        high = verdict.get("high")
        if status is Status.OK and isinstance(high, (int, float)):
            return f"costs at most {format_percent(max(high, 0.0), 1)}"
        return "time"
    if status is Status.OK and rule == Rule.STORED:
        return "within the tolerance"
    if status in (Status.REGRESSED, Status.IMPROVED) and rule == Rule.STORED:
        return "time"
    if (floor := floor_of(rule)) is not None:
        return "limit" if is_of_resources(floor) else "floor"
    if status is Status.SAVED and rule == Rule.WRITTEN:
        return ""
    if rule in _DETAILS:
        return _DETAILS[rule]
    if rule.startswith(OF_WORK):
        return rule.removeprefix(OF_WORK).replace("-", " ")
    if about := text(mapping(verdict, "facts"), "about"):
        return about
    if status is Status.MISMATCH:
        return "setting" if rule.startswith("setting:") else rule if _is_of_setup(rule) else "impossible figure"
    return "disturbed"


def _is_of_setup(rule: str) -> bool:
    return rule in (Rule.BYTES, Rule.METHOD) or rule.startswith("setting:")


def reason_of(decision: Decision) -> str:
    """Return the decision's reason as one sentence without a full stop."""
    advice = [_noise_remedy(decision)] if decision.rule == Rule.TOO_NOISY else []
    if decision.status is Status.IMPROVED and decision.rule in (Rule.STORED, Rule.COUNTS):
        advice.append("--bandwidth-update keeps it")
    return "; ".join((sentence_of(decision), *advice, *decision.why_not))


def observation(measurement: Measurement) -> str:
    """Write what was measured: ``moved 805 MB in 2.91 ms: 277 GB/s (62 % of peak)``.

    The time of a short launch is followed by its floor.
    For counts: ``declared 524 kB read, 2.05 kB written; touched 262 kB read, 2.05 kB written``.
    """
    if measurement.device.counts_only:
        declared = {"read": measurement.traffic.bytes_read, "written": measurement.traffic.bytes_written}
        touched = _touched(measurement)
        rows = (
            (what, ", ".join(f"{format_bytes_against(n, other.get(verb, n))} {verb}" for verb, n in found.items()))
            for what, found, other in (("declared", declared, touched), ("touched", touched, declared))
        )
        return "; ".join(f"{what} {figures}" for what, figures in rows if figures)
    moved = f"moved {format_bytes(measurement.bytes_moved)}"
    if measurement.seconds is None or measurement.gbps is None:
        return moved
    took, floor = format_seconds(measurement.seconds), measurement.floor_seconds or 0.0
    if floor > FLOOR_SHOWN * measurement.seconds:
        took += f" ({format_seconds(floor)} overhead)"
    if is_warm(measurement.method):
        took += ", warm"
    seen = f"{moved} in {took}: {format_gbps(measurement.gbps)}"
    shares = []
    if measurement.peak is not None and measurement.utilization is not None:
        shares.append(f"{format_percent(measurement.utilization)} of peak")
    if (
        measurement.relative is not None
        and measurement.probe_gbps is not None
        and is_credible_share(measurement.relative)
    ):
        shares.append(f"{format_percent(measurement.relative, 1)} of the probe's {format_gbps(measurement.probe_gbps)}")
    return f"{seen} ({', '.join(shares)})" if shares else seen


def _touched(measurement: Measurement) -> dict[str, int]:
    """Return the distinct bytes read and written; empty if not counted, or counted for a part of the grid only."""
    known = {} if measurement.detail.get("sample_spread") is not None else measurement.counts
    return {verb: known[name] for verb in ("read", "written") if (name := f"distinct_bytes_{verb}") in known}


@dataclass(frozen=True, slots=True)
class Context:
    """Hold what a failure's message needs in addition to the decision.

    causes: likely ones, the most conclusive first. command: accepts the new figure when pasted into a shell; None where
    no figure can be accepted. place: ``file:line`` of the test, or of the call. label: of the measurement, if its
    test has several. against_revision: whether the test was compared with a revision in place of a baseline.
    """

    causes: tuple[str, ...] = ()
    command: str | None = None
    place: str | None = None
    label: str | None = None
    against_revision: bool = False


def failure_message(judged: Judged, context: Context = Context()) -> str:
    """Write the message of a failing test: verdict, number and limit first, then aligned facts, cause and remedy."""
    measurement, decision = judged.measurement, judged.decision
    seen = "bytes" if measurement.device.counts_only else "measured"
    rows = [] if decision.rule == Rule.COUNTS else [(seen, observation(measurement))]
    rows += _fact_rows(measurement, decision, judged.entry)
    if context.causes:
        rows.append(("likely cause", "; ".join(context.causes)))
    same_code = (_OTHER_DATA,) if decision.rule == Rule.COUNTS and decision.facts.get("same_code") else ()
    if notes := (*same_code, *decision.why_not):
        rows.append(("note", "; ".join(notes)))
    if judged.profile is not None:
        rows.append(("profile", judged.profile))
    if (remedy := remedy_of(decision, context)) is not None:
        rows.append(remedy)
    rows.append(("help", help_link(decision.rule)))
    width = max(len(label) for label, _ in rows)
    lines = [title_of(decision, context.label), *(f"    {label:{width}}  {in_a_line(text)}" for label, text in rows)]
    return "\n".join(lines if context.place is None else [*lines, f"{context.place}: {decision.status}"])


def help_link(code: str) -> str:
    """Return the address of a reason code's section in troubleshooting."""
    return f"{DOCUMENTATION}/troubleshooting.html#{code.partition(':')[0].replace('_', '-')}"


def help_line(code: str) -> str:
    return f"    help  {help_link(code)}"


def with_help(error: object, message: str) -> str:
    """Return an error's message, with the address of its kind's section in troubleshooting, if there is one."""
    kinds = (kind for kind in type(error).__mro__ if kind.__module__ == BandwidthError.__module__)
    kind = next(kinds, BandwidthError)
    return message if kind is BandwidthError else f"{message} (help: {help_link(kind.__name__.lower())})"


def message_lines(outcome: Outcome) -> list[str]:
    """Return a row's failure message, else its verdict and reason, cleaned: verdict, number and limit first."""
    message = (outcome.message or "").strip()
    if not message:
        detail = detail_of(Status(outcome.status), outcome.reason_code, outcome.verdict)
        message = f"{outcome.status} ({detail}): {outcome.reason}" if detail else f"{outcome.status}: {outcome.reason}"
        message += f"\n{help_line(outcome.reason_code)}" if Status(outcome.status).warns else ""
    first, *others = message.splitlines()[:MOST_LINES]
    return [one_line(first, 500), *(clean(line, 500) for line in others)]


def untouched_message(measurement: Measurement, context: Context) -> str | None:
    """Return why a test fails with `strict` where its kernel touches less than is declared; else None."""
    place, declared, touched = context.place, measurement.traffic, _touched(measurement)
    found = []
    for verb, size in (("read", declared.bytes_read), ("written", declared.bytes_written)):
        seen = touched.get(verb)
        if seen is not None and seen < size:
            found.append(
                f"the kernel{_at(context.label)} touches {seen:,} of the {size:,} bytes that are declared {verb}"
            )
    found += [finding.text for finding in measurement.findings if finding.code == UNTOUCHED]
    if not found:
        return None
    advice = "declare what one run has to move, or let the kernel do all of its work"
    lines = [f"{found[0]}: {advice}", help_line("declared-bytes")]
    return "\n".join(lines if place is None else [*lines, f"{place}: declared bytes"])


def title_of(decision: Decision, label: str | None = None) -> str:
    """Return the first line of a failure: ``REGRESSED @ stats: 25.5 % slower than the old code (tolerance 3 %)``."""
    detail = detail_of(decision.status, decision.rule, {"high": decision.numbers.high, "facts": decision.facts})
    named = f" ({detail})" if decision.status in (Status.UNDECIDED, Status.OK) and detail else ""
    return f"{decision.status}{_at(label)}{named}: {in_a_line(sentence_of(decision))}"


def _at(label: str | None) -> str:
    return f" @ {label}" if label else ""


def in_a_line(text: str) -> str:
    """Shorten a text that quotes what a process printed to its first line and the last one."""
    first, *quoted = text.splitlines() or [""]
    return " ".join((first, *(line.strip() for line in quoted[-1:])))


def remedy_of(decision: Decision, context: Context = Context()) -> tuple[str, str] | None:
    """Return the remedy for a verdict and its label; None where the user need not do anything."""
    status, rule = decision.status, decision.rule
    if status is Status.REGRESSED and (floor := floor_of(rule)) is not None:
        change = "raise the limit" if is_of_resources(floor) else "lower the floor"
        return "accept it", f"{change} in the test's marker"
    if "remedy" in decision.facts:
        return "accept it", decision.facts["remedy"]
    by_update = rule in _BY_UPDATE or "about" in decision.facts  # a feature's evidence, which baselines hold
    if rule in BY_COMPILER:
        update = "update the baseline" if context.command is None else f"update the baseline: {context.command}"
        compiler, version = decision.facts["name"], decision.facts["there"]
        package = f"{compiler}=={version}"
        if compiler == COMPILER_SETTING:  # each NVRTC of CUDA 12 is in a package of its own name
            package = f"nvidia-cuda-nvrtc{'-cu12' if version.startswith('12.') else ''}=={version}.*"
        return "remedy", f"pin {package}, or {update}"
    if (status in (Status.REGRESSED, Status.MISMATCH) and by_update) or rule.startswith("setting:"):
        if context.against_revision:
            return "accept it", "in code review: --bandwidth-against stores no figures"
        return ("accept it", context.command) if context.command else None
    if rule in (Rule.NO_ENTRY, Rule.EMPTY_ENTRY, Rule.UNGATED) and context.command and not context.against_revision:
        return "create it", context.command
    if rule == Rule.TOO_NOISY:
        return "remedy", _noise_remedy(decision)
    if rule in OF_OTHERS or rule == Rule.UNSTEADY:
        return "remedy", "quiet the machine and run again"
    return None


_BY_UPDATE = (
    *(Rule.OLD_KERNEL, Rule.PAIRS, Rule.STORED, Rule.COUNTS),
    *(Rule.BYTES, Rule.METHOD, Rule.LESS_WORK),
)


def sentence_of(decision: Decision) -> str:
    """Return a sentence with the finding and the limit, without advice."""
    numbers, facts, rule = decision.numbers, decision.facts, decision.rule
    tolerance, limit = format_percent(numbers.tolerance or 0.0, 1), facts.get("floor")
    if (floor := floor_of(rule)) is not None:
        return _floor_sentence(floor, decision)
    if _is_of_setup(rule):
        here, there = facts["here"], facts["there"]
        if isinstance(here, int) and isinstance(there, int):
            here, there = f"{here:,} ({format_bytes(here)})", f"{there:,} ({format_bytes(there)})"
        return f"{facts['name']} is {here}, was {there}"
    match rule:
        case Rule.WRITTEN:
            return "this run saves the entry"
        case Rule.FLOORS:
            return "every floor of the marker is met"
        case Rule.CODE_UNCHANGED:
            return _unchanged(decision)
        case Rule.OLD_KERNEL | Rule.PAIRS:
            return _by_old_code(decision)
        case Rule.STORED:
            return f"{_moved(numbers.drop or 0.0, 'the baseline')} (tolerance {tolerance})"
        case Rule.NOT_REPRODUCED:
            times = counted(len(numbers.confirmations), "re-run")
            return f"{format_percent(facts.get('first_drop', 0.0), 1)} slower here, normal in {times}"
        case Rule.TOO_NOISY:
            hidden = format_percent(numbers.detects or numbers.allowed_drop or 0.0, 1)
            return f"slowdowns below {hidden} cannot be detected, the tolerance is {tolerance}"
        case Rule.COUNTS:
            return _counts(decision)
        case Rule.LESS_WORK:
            if "text" in facts:
                return f"{facts['text']}: a part of the work is not done"
            name, then, now, declared = facts["change"]
            return f"{called(name)} {then:,} → {now:,}, of {declared:,} declared: a part of the work is not done"
        case Rule.UNGATED:
            if uncounted := facts.get("uncounted"):
                return f"counted no {' and no '.join(map(called, uncounted))}, which the entry has"
            return f"the entry has no {' and no '.join(facts.get('lacks', ()))}: these counts are not judged"
        case Rule.EMPTY_ENTRY:
            and_no_runs = " and no runs" if facts["lacks"] == "bandwidth" else ""
            return f"the baseline's entry has no {facts['lacks']}{and_no_runs}"
        case Rule.NO_PROBE:
            what = f"{limit} cannot be checked" if limit else "the share of the probe cannot be compared"
            return f"{what}: no credible probe ran with the kernel; judged_on=gbps needs none"
        case Rule.UNSTEADY:
            return (
                f"only {counted(facts.get('compared', 0), 'pair')} can be compared with {facts.get('other')}: in "
                f"{facts.get('uneven')} others the probe's GB/s differed by more than 10 % between both processes"
            )
        case Rule.NOT_RERUN:
            seen = _floor_sentence(limit, decision) if limit else _moved(numbers.drop or 0.0, "the baseline")
            return f"{seen}, and new processes could not confirm it: {facts.get('why')}"
        case Rule.NO_BASELINE:
            return "no baseline was given: measured only"
        case Rule.NO_ENTRY:
            return _without_entry(facts)
        case Rule.CODE_ALONE:
            return f"the baseline is of {facts.get('code_of')}, and it has other code for this test"
        case Rule.NOT_THERE:
            return f"there is no measurement of {facts.get('revision')} to compare with"
        case Rule.NOTHING_VALID:
            return f"{facts.get('text')} measured nothing valid"
    return str(facts.get("text", rule))


def _by_old_code(decision: Decision) -> str:
    numbers, other = decision.numbers, "the old code"
    if decision.facts.get("floor_share", 0.0) > FLOOR_SHOWN:
        other += f", overhead of {format_seconds(decision.facts['floor_seconds'])} excluded"
    drop, tolerance = numbers.drop or 0.0, format_percent(numbers.tolerance or 0.0, 1)
    if decision.status is Status.OK:
        return f"costs at most {format_percent(max(numbers.high or 0.0, 0.0), 1)}: {_moved(drop, other)}"
    if decision.status is Status.REGRESSED and drop <= (numbers.tolerance or 0.0):
        return f"{_moved(drop, other)}, and up to {format_percent(numbers.high or 0.0, 1)} (tolerance {tolerance})"
    return f"{_moved(drop, other)} (tolerance {tolerance})"


def _unchanged(decision: Decision) -> str:
    same = f"code, launch and inputs are as in {decision.facts.get('revision', 'the baseline')}"
    if decision.numbers.drop is None:
        return same
    lost = decision.numbers.drop > (decision.numbers.tolerance or 0.0)
    why = ": the device or other input data may be the cause (values of floats are not hashed)" if lost else ""
    return f"{same}; {_moved(decision.numbers.drop, 'its figures')}{why}"


def _noise_remedy(decision: Decision) -> str:
    numbers, needed = decision.numbers, decision.facts.get("runs_needed")
    quiet = "raise the tolerance or quiet the machine"
    if decision.facts.get("by") != Rule.STORED:
        noun = _NOUNS[decision.facts.get("by", Rule.PAIRS)]
        return f"{counted(numbers.runs or 0, noun)} differ by {_spread(numbers)}: {quiet}"
    if not numbers.runs:
        return "the baseline has no runs: --bandwidth-update adds some"
    if needed is not None and needed > numbers.runs:
        return f"{needed} baseline runs would be enough: --bandwidth-update -o bandwidth_runs={needed}"
    return f"the baseline's {counted(numbers.runs, 'run')} differ by {_spread(numbers)}: {quiet}"


_NOUNS = {Rule.PAIRS: "pair", Rule.OLD_KERNEL: "process"}


def _spread(numbers: Numbers) -> str:
    return format_percent(numbers.spread or 0.0, 1)


def _without_entry(facts: Mapping[str, Any]) -> str:
    path, code_of = facts.get("path"), facts.get("code_of")
    if code_of:
        return f"{path}, the baseline of {code_of}, has no code of this test"
    if others := facts.get("others"):
        has = listed([f"'{other}'" for other in others], OTHERS_SHOWN)
        return f"{path} has no entry '{facts['name']}', it has {has}"
    return f"{path} has no entry of this test"


def _counts(decision: Decision) -> str:
    changes: Sequence[tuple[str, int, int]] = decision.facts.get("changes", ())
    if not changes:
        return "no count has changed"
    if decision.status is Status.OK:
        return f"no count is worse by more than {format_percent(decision.numbers.tolerance or 0.0, 1)}"
    if decision.status is Status.IMPROVED:
        parts = []
        for name, then, now in changes:
            factor = f", {now / then:.3g}×" if then else ""
            parts.append(f"{called(name)} {then:,} → {now:,}{factor}")
        return ", ".join(parts)
    name, then, now = max(changes, key=_growth)
    if then and now / then >= 2:
        return f"{now / then:.3g}× more {called(name)} than the baseline"
    sign = "+" if now > then else "−"
    share = f" ({sign}{format_percent(abs(now / then - 1), 1)})" if then else ""
    return f"{called(name)} {then:,} → {now:,}{share}"


def _growth(change: tuple[str, int, int]) -> float:
    """Return the factor by which a count changed; if one side is 0, the other side."""
    less, more = sorted(change[1:])
    return more / less if less else float(more)


def _floor_sentence(floor: str, decision: Decision) -> str:
    if is_of_resources(floor) and decision.numbers.observed is None:
        known = "known for CUDA C++, machine code and Triton's kernels"
        return f"{floor} cannot be checked: registers and stack of this code are not known (they are {known})"
    seen, limit = decision.numbers.observed or 0.0, decision.numbers.reference or 0.0
    if is_of_resources(floor):
        return f"{seen:.0f} {_RESOURCES[floor]} a thread exceed {floor}, {limit:.0f}"
    return f"{_floor_value(floor, seen)} is below {floor}, {_floor_value(floor, limit)}"


def _floor_value(name: str, *values: float) -> str:
    if name in _SHARE_OF_FLOOR:
        return f"{', '.join(format_percent(value, 1) for value in values)} {_SHARE_OF_FLOOR[name]}"
    return f"{', '.join(map(digits, values))} GB/s"


def device_sentence(loss: DeviceLoss) -> str:
    """Write what unchanged tests lost against the baseline, and what else differs from it."""
    least, most = (format_percent(drop_of_log(bound), 1) for bound in (loss.least, loss.most))
    lost = drop_of_log(loss.median)
    below = f"{format_percent(abs(lost), 1)} {'below' if lost >= 0 else 'above'} the baseline"
    changes = f": {', '.join(loss.changes)}" if loss.changes else ""
    return f"unchanged tests run {below} (median of {loss.tests}, from {least} to {most}){changes}"


def _fact_rows(measurement: Measurement, decision: Decision, entry: Entry | None) -> list[tuple[str, str]]:
    """Return the rows of figures that a failure compares, in one unit."""
    numbers, rule = decision.numbers, decision.rule
    if (floor := floor_of(rule)) is not None:
        return [("re-runs", _floor_value(floor, *numbers.confirmations))] if numbers.confirmations else []
    if rule == Rule.COUNTS:
        return _count_rows(measurement, decision)
    if numbers.observed is None or numbers.reference is None:
        return []
    by_stored = Rule.STORED in (rule, decision.facts.get("by"))
    base = "baseline" if by_stored else "old code"
    rows = [("this code", _value(numbers, numbers.observed)), (base, _base_value(decision))]
    if rule == Rule.STORED and numbers.confirmations:
        rows.append(("re-runs", ", ".join(_value(numbers, value) for value in numbers.confirmations)))
    share = measurement.relative if numbers.figure == "gbps" and rule != Rule.STORED else None
    if share is not None and entry is not None:
        shares = [run.relative for run in entry.runs if run.relative is not None]
        if shares:
            then = sorted(shares)[len(shares) // 2]
            rows.append(("vs. probe", f"{format_percent(share, 1)}, was {format_percent(then, 1)}"))
    return rows


def _base_value(decision: Decision) -> str:
    numbers = decision.numbers
    value = _value(numbers, numbers.reference or 0.0)
    if numbers.low is not None and numbers.drop is not None:
        noun = _NOUNS.get(str(decision.facts.get("by")), "pair")
        reach = format_percent(numbers.drop - numbers.low, 1)
        other = decision.facts.get("other")
        named = f"{other}, " if other else ""
        return f"{value} ({named}{counted(numbers.runs or 0, noun)}, ± {reach})"
    runs = counted(numbers.runs, "run") if numbers.runs else "written by hand"
    return f"{value} ({runs}, spread {_spread(numbers)})"


def _count_rows(measurement: Measurement, decision: Decision) -> list[tuple[str, str]]:
    changes = sorted(decision.facts.get("changes", ()), key=_growth, reverse=True)
    rows = [(called(name), f"{now:,}, was {then:,}") for name, then, now in changes[:COUNTS_SHOWN]]
    if len(changes) > COUNTS_SHOWN:
        name, text = rows[-1]
        rows[-1] = (name, f"{text}; and {counted(len(changes) - COUNTS_SHOWN, 'more count')}")
    # The compiler's counts belong to no source line.
    count = next((name for name, _, _ in changes if name not in COMPILED), "")
    if changes and not count:
        return rows
    lines = measurement.detail.get("lines", ())
    pattern = str(decision.facts.get("pattern") or "")
    if count == "bank_conflicts":
        worst = ("at", line) if (line := busiest_line(lines, count)) is not None else None
    elif count.endswith("_requests"):
        worst = None  # it may be as coalesced as before
    else:
        kind, _, unit = count.partition("_")
        worst = worst_line(lines, pattern.split(", "), (f"{kind}s",) if unit == "sectors" else _KINDS)
    if worst is not None:
        rows.append(worst)
    elif (line := busiest_line(lines, count)) is not None:
        rows.append(("most at", line))
    return [*rows, ("baseline", pattern)] if pattern else rows


def worst_line(
    lines: Sequence[Mapping[str, Any]], before: Sequence[str], kinds: Sequence[str]
) -> tuple[str, str] | None:
    """Name the line furthest from coalesced: ``K.cu:12 loads strided (32 bytes), 32.0 sectors a request``.

    kinds: the accesses to compare. before: the baseline's patterns, ``loads strided (32 bytes)``. A line with a new
    pattern goes first and has the label ``at``. Other lines may be unchanged; their label is ``worst at``.
    """
    accesses = (
        (f"{kind} {access['pattern']}" not in before, waste, line, kind, access)
        for line in lines
        for kind in kinds
        if (access := line.get(kind) or {}).get("requests") and access.get("coalescing")
        if (waste := access["sectors"] * (1 - access["coalescing"])) > 0
    )
    worst = max(accesses, key=lambda one: one[:2], default=None)
    if worst is None:
        return None
    is_new, _, line, kind, access = worst
    per_request = f"{access['sectors_per_request']:.1f} sectors a request"
    phrase = f"{line['file']}:{line['line']} {kind} {access['pattern']}, {per_request}"
    return "at" if is_new else "worst at", phrase


def busiest_line(lines: Sequence[Mapping[str, Any]], count: str) -> str | None:
    """Name the line with most of a count: ``K.cu:12 loads, 75 % of the sectors``, or all lines with as much."""
    kind, _, unit = count.partition("_")
    is_of_kind = unit in ("sectors", "requests")
    what, whose = (f" {kind}s", unit) if is_of_kind else ("", "bank conflicts")
    if is_of_kind:
        found = [(line[f"{kind}s"][unit], line) for line in lines if line.get(f"{kind}s")]
    else:
        found = [(line.get("bank_conflicts", 0), line) for line in lines if count == "bank_conflicts"]
    most = max((one for one, _ in found), default=0)
    if not most:
        return None
    alike = [f"{line['file']}:{line['line']}" for one, line in found if one == most]
    named = ", ".join(alike[:_ALIKE_SHOWN]) + (f" and {len(alike) - _ALIKE_SHOWN} more" * (len(alike) > _ALIKE_SHOWN))
    share = f"{format_percent(most / sum(one for one, _ in found))} of the {whose}"
    return f"{named}{what}, {share}{' each' * (len(alike) > 1)}"


def _moved(drop: float, other: str) -> str:
    return f"{format_percent(abs(drop), 1)} {'slower' if drop >= 0 else 'faster'} than {other}"


def _value(numbers: Numbers, value: float) -> str:
    return format_gbps(value) if numbers.figure == "gbps" else f"{format_percent(value, 1)} of the probe"
