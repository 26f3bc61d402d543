"""Write measurements to the baseline: those of this run, and of as many fresh whole runs as the user asked for.

A file belongs to a model: the results of all its devices in one run are written together, without outliers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import pytest

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline.locate import is_folder
from pytest_bandwidth.domain.baseline import Baseline, Entry, changing_part
from pytest_bandwidth.domain.code.identity import digest
from pytest_bandwidth.domain.code.stored_kernel import CUBIN
from pytest_bandwidth.domain.device import DeviceIdentity, Peak, identity_of
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.measured.metrics import choose_metric, median_metrics
from pytest_bandwidth.domain.text import listed
from pytest_bandwidth.domain.verdict import Rule, Status
from pytest_bandwidth.evidence.fresh_processes import further_runs
from pytest_bandwidth.evidence.git import current_commit
from pytest_bandwidth.evidence.processes.child import FreshProcessFailed
from pytest_bandwidth.judging.limits import MarkerOptions, tolerance_of
from pytest_bandwidth.judging.stored import reference_of
from pytest_bandwidth.measuring.progress import write_line
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.outcomes.entries import entries_of, joined, merged
from pytest_bandwidth.outcomes.outcome import Outcome, Plain
from pytest_bandwidth.outcomes.run_findings import OUTLIER, model_of
from pytest_bandwidth.reports.terminal import TerminalLine, change_lines
from pytest_bandwidth.reports.text_safe import printable
from pytest_bandwidth.session.publishing.gathered import DeviceReport, DeviceResults, Remark, Row
from pytest_bandwidth.session.run import commit_of_run, invocation_of, now, uncommitted_code
from pytest_bandwidth.storage.atomic import real_path

# How many entries a message lists.
MOST_NAMED = 3


def _kept_code(rows: Iterable[Row]) -> tuple[Mapping[str, bytes], Mapping[tuple[str | None, str | None], str]]:
    """Return, by name, the files of code to keep (PTX, machine code, lists of files), and the index of machine code.

    The index maps the hashes of a kernel's PTX and machine code to the hash of the file that it was loaded from.
    """
    files: dict[str, bytes] = {}
    cubins: dict[tuple[str | None, str | None], str] = {}
    for row in rows:
        code = row.outcome.code_identity
        if row.ptx is not None:
            files[f"{code['ptx']}.ptx"] = row.ptx.encode()
        if row.cubin is not None:
            name = cubins[code.get("ptx"), code.get("sass")] = digest(row.cubin)
            files[f"{name}.cubin"] = row.cubin
        if row.files is not None:
            files[f"{code['function']}.files"] = row.files.encode()
    return files, cubins


def _as_written(report: DeviceReport, outcome: Outcome) -> Outcome:
    """Return the outcome with its final verdict: SAVED stays only if the update wrote the entry."""
    if outcome.status != Status.SAVED.value:
        return outcome
    status, rule = Status.UNDECIDED, Rule.NOT_WRITTEN
    if outcome.nodeid in report.results.failed:
        reason = "not saved: the test failed"
    elif report.left_out:  # others of its model wrote the entry
        status, rule, reason = Status.SAVED, Rule.LEFT_OUT, f"left out of the baseline's update: {report.left_out}"
    elif (part := changing_part(outcome.key)) is not None:
        reason = f"not saved: its id contains {part}"
    elif report.why_not:
        reason = f"not saved: {report.why_not}"
    else:
        return outcome
    verdict = {**outcome.verdict, "status": status.value, "rule": rule}
    return replace(outcome, status=status.value, reason_code=rule, reason=reason, verdict=verdict)


def update_baselines(
    config: pytest.Config,
    settings: Settings,
    reports: Sequence[DeviceReport],
    *,
    interrupted: bool = False,
) -> None:
    """Write each model's file; record the results in the devices' reports.

    interrupted: whether the run was interrupted; then the files stay as they are.
    """
    models: dict[tuple[str, str, int | None], list[DeviceReport]] = {}
    for one in reports:
        one.further = one.results.further or ()
        models.setdefault(model_of(one.device), []).append(one)
    if interrupted:
        _interrupted(reports)
    elif len(models) > 1 and settings.baseline is not None and not is_folder(settings.baseline):
        names = ", ".join(name for _, name, _ in models)
        _not_updated(
            reports,
            f"found {settings.baseline}, one file, and the devices {names}, expected a folder with a file for each",
        )
    else:
        for of_model in models.values():
            _update_model(config, settings, of_model, alone=len(reports) == 1)
    for one in reports:
        one.rows = tuple(replace(row, outcome=_as_written(one, row.outcome)) for row in one.results.rows)


def _update_model(config: pytest.Config, settings: Settings, reports: Sequence[DeviceReport], *, alone: bool) -> None:
    known_commit = commit_of_run(config.rootpath, settings.commit)
    # If git does not answer in time, the code may differ from the commit, so it counts as dirty.
    dirty = current_commit(config.rootpath) is not None and uncommitted_code(config.rootpath, settings.baseline) != []
    evidence: list[Mapping[str, Entry]] = []
    written: list[DeviceReport] = []
    for one in reports:
        saved = [o for o in one.results.succeeded if o.status == Status.SAVED.value]
        updated = [o for o in saved if changing_part(o.key) is None]
        # Tests whose ids are different in each run.
        if changing := [o.key for o in saved if changing_part(o.key) is not None]:
            text = (
                f"not saved, because the id contains {changing_part(changing[0])}, which changes in every run: "
                f"{listed([*map(printable, changing)], MOST_NAMED)}; give the parameters ids (ids=…)"
            )
            one.remarks.append(Remark("problem", text, "not-updated"))
        if not updated:
            continue
        if one.unlike is not None and one.unlike.code == OUTLIER:
            one.left_out = "it is an outlier"
            text = f"{one.name} was left out of the baseline's update: {one.left_out}"
            one.remarks.append(Remark("note", text))
            continue
        identity = identity_of(one.device)
        try:
            one.further = further = _further(config, settings, one.results, identity, alone=alone)
        except (BandwidthError, OSError) as error:
            _not_updated([one], str(error))
            continue
        except KeyboardInterrupt:  # pytest does not handle it any more, and the summary must still be shown
            _interrupted([one, *reports])
            return
        entries = entries_of(identity, updated, further, known_commit, now(), dirty=dirty)
        one.remarks += _fewer_runs(entries, 1 + len(further))
        evidence.append(entries)
        written.append(one)
    if not evidence:
        return
    identity = identity_of(written[0].device)
    rows = [row for one in written for row in one.results.rows]
    try:
        path, changes = update_baseline(settings, identity, evidence, rows)
    except (BandwidthError, OSError) as error:
        _not_updated(written, str(error))
        return
    for one in written:
        one.baseline = path
    written[-1].changes = changes


def _fewer_runs(entries: Mapping[str, Entry], taken: int) -> Iterator[Remark]:
    """Yield notes on entries with discarded runs, or with DRAM counts in only some runs. Counts have no runs."""
    runs = {printable(key): len(entry.runs) for key, entry in entries.items()}
    if short := [f"{key} kept {kept} of {taken}" for key, kept in runs.items() if 0 < kept < taken]:
        named = listed(short, MOST_NAMED)
        text = f"some runs were discarded (disturbed or failed): {named}; run --bandwidth-update again to add runs"
        yield Remark("note", text)
    known = {printable(key): sum(run.dram_read is not None for run in one.runs) for key, one in entries.items()}
    if some := [f"{key} {count} of {runs[key]}" for key, count in known.items() if 0 < count < runs[key]]:
        text = f"DRAM traffic was not counted in every run of this update: {listed(some, MOST_NAMED)}"
        yield Remark("note", f"{text}; the entry keeps the counts of the other runs")


def _interrupted(reports: Sequence[DeviceReport]) -> None:
    """Mark the run as interrupted in the first report, and record in each why its baseline was not updated."""
    reports[0].interrupted = True
    for one in reports:
        one.why_not = one.why_not or "the run was interrupted"


def _not_updated(reports: Sequence[DeviceReport], why: str) -> None:
    """Add the reason to the summary once, and to each device's document; rows get a short reason."""
    text = f"the baseline was not updated: {why}"
    for one in reports:
        one.why_not = "the update failed"
        one.remarks.append(Remark("problem" if one is reports[0] else "finding", text, "not-updated"))


def _further(
    config: pytest.Config, settings: Settings, results: DeviceResults, identity: DeviceIdentity, *, alone: bool
) -> Sequence[Sequence[Plain]]:
    """Return the further runs of the device's worker; without them, take further runs now, on the run's only device.

    Raises BandwidthError.
    """
    if results.trouble is not None:
        raise FreshProcessFailed(results.trouble)
    if results.further is not None:
        return results.further
    if not alone and settings.runs > 1:
        raise UsageError(
            f"found several devices, and no further runs of {results.device['name']}, expected --dist=each with "
            "--bandwidth-runs: only its own worker is sure to reach a device"
        )
    plain = results.device["peak"]
    peak = None if plain is None else Peak(plain["gbps"] * 1e9, plain["source"])
    return further_runs(settings, invocation_of(config), identity, peak, partial(write_line, config))


def update_baseline(
    settings: Settings,
    identity: DeviceIdentity,
    evidence: Sequence[Mapping[str, Entry]],
    rows: Sequence[Row] = (),
) -> tuple[str, list[TerminalLine]]:
    """Write the entries of one model's devices to its file; return its path, and lines about the changes.

    rows: of the tests, with their marker options and the code to keep.
    Raises BandwidthError; then the file is unchanged.
    """
    if settings.baseline is None:
        raise ValueError("an update needs a baseline to write to")
    files, cubins = _kept_code(rows)
    entries = []
    for key in dict.fromkeys(chain.from_iterable(evidence)):
        entry = joined([of_device[key] for of_device in evidence if key in of_device], identity.on_host)
        # The file name of its kernel's machine code, if that is kept.
        name = cubins.get((entry.code.get("ptx"), entry.code.get("sass")))
        entries.append(entry if name is None else replace(entry, code={**entry.code, CUBIN: name}))
    asked = {row.outcome.key: row.asked for row in rows}
    path = baseline_files.find_file(settings.baseline, identity)
    changes = baseline_files.update(
        path,
        identity,
        entries,
        merge_in=lambda baseline: partial(_merge, baseline, settings, identity, asked),
        files=files,
    )
    changed = [(change.before, change.after) for change in changes if change.after is not None]
    return str(real_path(path)), change_lines(str(path), changed)


def _merge(
    baseline: Baseline,
    settings: Settings,
    identity: DeviceIdentity,
    asked: Mapping[str, MarkerOptions],
    old: Entry | None,
    new: Entry,
) -> Entry:
    """Merge new runs into a file's entry, by the tolerance and the reference that its test is judged with."""
    if settings.update_new and not settings.update and old is not None:
        return old
    of_marker = asked.get(new.key, MarkerOptions())
    tolerance = tolerance_of(of_marker.tolerance, old, baseline, settings.tolerance)
    if old is None or not new.runs:  # there are no figures to compare
        return merged(old, new, tolerance, None)
    judged = replace(old, judged_on=old.judged_on or new.judged_on)
    figure = choose_metric(of_marker.judged_on, judged, median_metrics(new.runs), None)
    return merged(old, new, tolerance, reference_of(old, figure, identity.on_host))
