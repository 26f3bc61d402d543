"""Judge code that is the baseline's: nothing has regressed. What it lost is the device's, or what runs beside it."""

from __future__ import annotations

import math
from dataclasses import replace

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.code.identity import identity_of_plain
from pytest_bandwidth.domain.device import MEMORY_CLOCK, SLOWDOWN
from pytest_bandwidth.domain.judging.by_code.paired import EVEN_PROBES
from pytest_bandwidth.domain.judging.causes import SETTING_FACTS, recorded_changes
from pytest_bandwidth.domain.judging.drop import drop_sentence, moved
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.units import format_gbps
from pytest_bandwidth.domain.verdict import Status, Verdict

# The code of verdicts that rest on it.
SAME_CODE = "same-code"
NOTHING_DIFFERS = "nothing that runs record differs from the newest"
# Of arrays of floats no contents are known.
OTHER_DATA = "other input data, which no run records, may be a cause"
# Others that use less of a host's processors than this are no reason to name.
LEAST_PROCESSORS = 0.1
_FINE = (Status.WITHIN, Status.IMPROVED, Status.INSUFFICIENT)


def is_same_code(measurement: Measurement, entry: Entry | None) -> bool:
    """Return whether the measurement surely ran what the entry's newest runs ran.

    A kernel that is timed is known by its machine code, one that is counted by the PTX that is executed.
    """
    return entry is not None and measurement.code.is_same(identity_of_plain(entry.code), by=_by(measurement))


def may_have_changed(measurement: Measurement, entry: Entry | None) -> bool:
    """Return whether the entry's newest runs tell their code, and the measurement's is not known to be the same.

    Code that told itself then and does not now is another. What another toolchain made of the same PTX is none: old
    code, which is built today as well, cannot tell of it. Compiler options do the same, of which old code has its own.
    """
    if entry is None or is_same_code(measurement, entry):
        return False
    now, then = measurement.code, identity_of_plain(entry.code)
    if then.ptx is not None and (now.ptx, now.launch, now.inputs) == (then.ptx, then.launch, then.inputs):
        return now.rebuilt_since(then) is not None and not recorded_changes(measurement, entry)
    return bool(now.changes_since(then)) or then.fingerprint(by="sass") is not None


def _by(measurement: Measurement) -> str:
    return "ptx" if measurement.device.counts_only else "sass"


def at_first_look(verdict: Verdict, measurement: Measurement, entry: Entry) -> Verdict:
    """Return the verdict of a first look at unchanged code: UNCHANGED unless it is a suspect, or the device is down."""
    if verdict.status in _FINE:
        return _unchanged(verdict, f"the code is the baseline's, {moved(verdict, 'it')}")
    return _blamed(verdict, measurement, entry)


def in_fresh_processes(verdict: Verdict, measurement: Measurement, entry: Entry) -> Verdict:
    """Return the verdict on unchanged code that fresh processes looked at: a drop that they confirm is DEVICE.

    UNCHANGED where they do not show it, or where the device got faster and the kernel lost nothing; where none could
    run, UNCONFIRMED as ever.
    """
    if verdict.status is Status.DEVICE or (verdict.status is Status.UNCONFIRMED and verdict.confirmations):
        return _unchanged(verdict, f"the code is the baseline's; {verdict.reason}")
    return _blamed(verdict, measurement, entry)


def of_counts(verdict: Verdict, measurement: Measurement, entry: Entry) -> Verdict:
    """Return the verdict on unchanged code that was counted: UNCHANGED where every count is what it was."""
    if verdict.status is Status.REGRESSED:
        return replace(verdict, reason=f"{verdict.reason}; the code is the baseline's, so the test's data are others")
    both = entry.counts.keys() & measurement.counts.keys()
    if verdict.status is Status.WITHIN and all(entry.counts[name] == measurement.counts[name] for name in both):
        return _unchanged(verdict, "code and counts are the baseline's")
    return verdict


def _unchanged(verdict: Verdict, reason: str) -> Verdict:
    return replace(verdict, status=Status.UNCHANGED, code=SAME_CODE, reason=reason, runs_advised=None)


def _blamed(verdict: Verdict, measurement: Measurement, entry: Entry) -> Verdict:
    """Return DEVICE in place of REGRESSED, with what differs now; any other verdict as it is."""
    if verdict.status is not Status.REGRESSED:
        return verdict
    reason = f"the code is the baseline's, and {drop_sentence(verdict)}; {what_differs(measurement, entry)}"
    return replace(verdict, status=Status.DEVICE, code=SAME_CODE, reason=reason)


def what_differs(measurement: Measurement, entry: Entry) -> str:
    """Say what is not as in the entry's runs: the toolchain's code, card, probe, clocks, others, settings, versions.

    Of code only what its toolchain made of it: what people changed in it has been held to the old. Never the device
    alone: what arrays of floats hold is not known.
    """
    device = measurement.device
    of_device: list[str] = []
    known = {run.gpu for run in entry.runs} - {None}
    if device.on_gpu and known and device.serial not in known:
        of_device.append(f"another card, {device.serial}")
    if (probe := _another_probe(measurement, entry)) is not None:
        of_device.append(probe)
    of_device += [finding.text for finding in measurement.findings if finding.code in (MEMORY_CLOCK, SLOWDOWN)]
    others = measurement.conditions_after.others_processors or 0.0
    if others >= LEAST_PROCESSORS:
        of_device.append(f"others keep {others:.1f} processors busy")
    changes = recorded_changes(measurement, entry)
    of_device += [text for name, text in changes.items() if name in SETTING_FACTS]
    versions = [text for name, text in changes.items() if name not in SETTING_FACTS]
    found = [*of_device, *versions]
    pairs = ": pairs with the old versions would tell whether they are why" if versions and not of_device else ""
    rebuilt = measurement.code.rebuilt_since(identity_of_plain(entry.code))
    said = [rebuilt, f"what differs is {', '.join(found)}{pairs}" if found else None]
    return f"{'; '.join(filter(None, said)) or NOTHING_DIFFERS}; {OTHER_DATA}"


def _another_probe(measurement: Measurement, entry: Entry) -> str | None:
    now = measurement.probe_gbps
    then = next((run.probe_gbps for run in reversed(entry.runs) if run.probe_gbps), None)
    if not now or then is None or abs(math.log(now / then)) <= EVEN_PROBES:
        return None
    return f"a probe at {format_gbps(now)}, {format_gbps(then)} beside the newest run"
