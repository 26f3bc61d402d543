"""Find likely causes of a drop: what differs between the measurement and its baseline entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.code.identity import SHAPE_CHANGED, identity_of_plain
from pytest_bandwidth.domain.code.stored_kernel import LaunchShape, shape_changes, shape_of
from pytest_bandwidth.domain.device import COMPILER_SETTING, COMPILERS
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.units import format_gbps, format_percent
from pytest_bandwidth.domain.verdict import Rule, Status

if TYPE_CHECKING:
    from pytest_bandwidth.judging.judge import Judged

_RESOURCES = {
    "registers": "registers {then} → {now}",
    "local_bytes": "spills {then} → {now} B a thread",
    "shared_bytes": "shared memory {then} → {now} B a block",
    "occupancy_percent": "occupancy {then} → {now} %",
}
# Facts of devices that runs record, since they may explain a later drop: versions, and settings of the machine.
VERSION_FACTS = ("driver_version", "cuda_driver", "cuda_runtime", "hip_driver", "hip_runtime", COMPILER_SETTING)
SETTING_FACTS = (
    *("power_limit_w", "default_sm_clock_mhz", "max_sm_clock_mhz", "max_memory_clock_mhz"),
    *("governor", "transparent_hugepages"),
)
_UNITS = {"w": " W", "mhz": " MHz"}
_RECORDED = ("registers", "local_bytes", "shared_bytes", "max_threads_per_block", "occupancy_percent")
BY_COMPILER = tuple(f"setting:{name}" for name in COMPILERS)
CODE_ALONE = "the code: old and new ran alternately on this machine"
# The probe counts as unchanged if its bandwidth changed by at most this share.
PROBE_UNCHANGED = 0.03


def recorded_resources(resources: Mapping[str, Any] | None) -> dict[str, int]:
    """Return the part of an outcome's `resources` that a baseline stores, as whole numbers by name.

    Occupancy is in percent. The launch is stored by its shape.
    """
    known = dict(resources or {})
    if known.get("occupancy") is not None:
        known["occupancy_percent"] = round(100 * known["occupancy"])
    found = {name: known[name] for name in _RECORDED if known.get(name) is not None}
    grid, block = known.get("grid"), known.get("block")
    if grid is None or block is None or (len(grid), len(block)) != (3, 3):
        return found
    return found | LaunchShape(tuple(grid), tuple(block), known.get("dynamic_shared_bytes") or 0).recorded()


def likely_causes(judged: Judged) -> tuple[str, ...]:
    """Return what differs from the reference of a failing verdict, the most likely cause first."""
    measurement, entry, sectors = judged.measurement, judged.entry, judged.old_sectors
    rule, facts = judged.decision.rule, judged.decision.facts
    # A marker's limit has no reference to differ from; another compiler makes other code of the same source.
    if entry is None or "remedy" in facts or rule in BY_COMPILER:
        return ()
    of_feature = "about" in facts
    # The old code ran in this process too, so the compiler's resources of both are comparable.
    old = judged.old_resources if rule == Rule.OLD_KERNEL or of_feature else None
    # Old and new code alternated on this machine: only the code can be the cause.
    code_alone = rule in (Rule.OLD_KERNEL, Rule.PAIRS)
    # For counts the probe's time is no cause.
    timed = not of_feature and rule != Rule.COUNTS and judged.decision.status is not Status.MISMATCH
    resources = recorded_resources(asdict(measurement.resources) if measurement.resources else None)
    causes = list(measurement.code.changes_since(identity_of_plain(entry.code)))
    before, shape = shape_of(entry.resources), shape_of(resources)
    if before is not None and shape is not None and (changes := shape_changes(before, shape)):
        # The launch's shape by its figures, where both are recorded.
        causes = [one for one in causes if one != SHAPE_CHANGED] + [f"the launch changed: {', '.join(changes)}"]
    if sectors is not None and sectors["then"] != sectors["now"]:
        causes.append(f"sectors of 32 bytes {sectors['then']:,} → {sectors['now']:,} a block")
    for name, text in _RESOURCES.items():
        then, now = (entry.resources if old is None else old).get(name), resources.get(name)
        if then is not None and now is not None and then != now:
            limit = measurement.resources.occupancy_limit if measurement.resources else None
            by = f", limited by {limit}" if limit and name == "occupancy_percent" else ""
            causes.append(text.format(then=then, now=now) + by)
    recorded = entry.runs[-1].extra if entry.runs else {}
    versions = changed_facts(recorded, {**measurement.device.facts, **measurement.software})
    if code_alone or old is not None:
        rebuilt = measurement.code.rebuilt_since(identity_of_plain(entry.code)) is not None
        compiler = versions.get(COMPILER_SETTING) if rebuilt else None
        found = (*causes, *filter(None, [compiler]))
        return found or ((CODE_ALONE,) if code_alone else ())
    causes += versions.values()
    if timed and (probe := _probe_sentence(measurement, entry)) is not None:
        causes.append(probe)
    return tuple(causes)


def changed_facts(recorded: Mapping[str, object], now: Mapping[str, object]) -> dict[str, str]:
    """Describe, by name, which facts and versions that a run recorded have changed."""
    changed = {}
    for name, value in now.items():
        then = recorded.get(name)
        if then is not None and str(then) != str(value):
            words, _, unit = name.rpartition("_")  # a fact's name ends with its unit
            label = (words if unit in _UNITS else name).replace("_", " ")
            changed[name] = f"{label} {then} → {value}{_UNITS.get(unit, '')}"
    return changed


def _probe_sentence(measurement: Measurement, entry: Entry) -> str | None:
    then = [run.probe_gbps for run in entry.runs if run.probe_gbps is not None]
    now = measurement.probe_gbps
    if not then or now is None:
        return None
    before = median(then)
    probe = f" ({name})" if (name := measurement.rounds.probe_name) else ""
    seen = f"the probe{probe} reached {format_gbps(before)} then, {format_gbps(now)} now"
    if now < before * (1 - PROBE_UNCHANGED):
        fallen = 1 - now / before
        known = median(run.gbps for run in entry.runs)
        # Where the device explains less than half of the loss, the kernel is named first.
        mostly_kernel = measurement.gbps is not None and fallen < (1 - measurement.gbps / known) / 2
        blame = "the kernel, more than the device, which is" if mostly_kernel else "the device is"
        return f"{blame} {format_percent(fallen, 1)} slower, too: {seen}"
    if now > before * (1 + PROBE_UNCHANGED):
        return f"the kernel, while the device is faster now: {seen}"
    return f"the kernel, not the device: {seen}"
