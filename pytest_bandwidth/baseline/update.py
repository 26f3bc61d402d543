"""Change a baseline under its lock, from what it says at that moment: runs are appended, the file is replaced whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType

from pytest_bandwidth.baseline.code_files import file_names, folder_of, write_code
from pytest_bandwidth.baseline.edit import edited
from pytest_bandwidth.baseline.files import error, locked, make_folder, not_writable, replace_file
from pytest_bandwidth.baseline.locate import check_device, device_of
from pytest_bandwidth.baseline.parse import SourceText
from pytest_bandwidth.baseline.reader import Document, read, read_text
from pytest_bandwidth.baseline.runs import ATTRIBUTES, NOTHING, SUFFIX, append_lines, path_of, run_lines, setup_of
from pytest_bandwidth.baseline.schema import entry_fields, is_measured, render_header
from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Change, Entry, settled
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BaselineError, UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import MAX_SHARE
from pytest_bandwidth.storage.atomic import real_path

Merge = Callable[[Entry | None, Entry], Entry | None]


def update(
    path: Path,
    identity: DeviceIdentity,
    updates: Sequence[Entry],
    *,
    merge_in: Callable[[Baseline], Merge] = lambda _: lambda _old, new: new,
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> list[Change]:
    """Write entries into one device's file, and return the changes. A file that does not exist is created.

    merge_in: called under the lock with the whole file as it is at that moment; returns what merges. That is called for
    each of `updates` with the entry that the file holds (None where it holds none) and the new one, and returns what
    the file shall hold, or None to leave it as it is. So what other processes wrote in the meantime is never lost. The
    result is settled (`domain.baseline.settled`) and written.
    files: code by file name; what the written entries name is kept next to the baseline (`code_files`).
    Raises BaselineError, the file untouched, where it is bad, another device's, locked too long or not writable.
    """
    path = real_path(path)  # behind a symbolic link: that file is replaced, not the link
    key, times = max(Counter(entry.key for entry in updates).items(), key=lambda one: one[1], default=("", 1))
    if times > 1:
        raise UsageError(f"found two updates of {key!r}, expected one: measurements in one test need different labels")
    make_folder(path.parent, path)
    with locked(path):
        created = not path.exists()
        document = read_text(SourceText(render_header(device_of(identity))), path) if created else read(path)
        check_device(document.baseline, identity)
        device = document.baseline.device or device_of(identity)
        changes = _changes(document.baseline, device, updates, merge_in(document.baseline))
        known = {**document.baseline.entries, **{change.key: change.after for change in changes}}
        named = file_names(filter(None, (known.get(new.key) for new in updates)))
        kept = {name: files[name] for name in sorted(named & files.keys())}
        with locked(folder_of(path)) if kept else nullcontext():
            write_code(path, kept)
            if changes or created:
                _write(path, document, device, changes)
    return changes


def _write(path: Path, document: Document, device: BaselineDevice, changes: Sequence[Change]) -> None:
    """Append the new runs, then replace the file: a writer killed between leaves runs that the next read counts."""
    text = edited(document, device, changes)
    measured = (
        (change.before, change.after, document.runs.tests.get(change.key, NOTHING))
        for change in changes
        if change.after is not None and is_measured(change.after)
    )
    runs, texts = path_of(path), run_lines(measured, document.runs.newest)
    try:
        undo = append_lines(runs, texts) if texts else None
        # git merges runs by keeping both sides' lines, where the folder sets no attributes yet.
        attributes = runs.with_name(ATTRIBUTES)
        in_repository = any((folder / ".git").exists() for folder in runs.parents)
        if runs.exists() and in_repository and not attributes.exists():
            attributes.write_text(f"*{SUFFIX} merge=union\n")
    except OSError as problem:
        raise not_writable(runs, problem) from None
    try:
        if text != document.source.text or not path.exists():
            replace_file(path, document.source.encode(text))
    except BaseException:
        if undo is not None:
            undo()
        raise


def remove(path: Path, keys: Iterable[str]) -> list[str]:
    """Remove entries; return the keys of those that the file held. Raises BaselineError as `update`."""
    path = real_path(path)
    wanted = dict.fromkeys(keys)
    if not path.is_file():
        read(path)  # says what is there
    with locked(path):
        document = read(path)
        entries = document.baseline.entries
        changes = [Change(key, entries[key], None) for key in wanted if key in entries]
        if changes:
            replace_file(path, document.source.encode(edited(document, None, changes)))
    return [change.key for change in changes]


def init(path: Path, identity: DeviceIdentity) -> Path:
    """Make a device's file without entries; return its path without links.

    Raises BaselineError where there is one, or it cannot be written.
    """
    path = real_path(path)
    make_folder(path.parent, path)
    with locked(path):
        if path.exists():
            what = "a baseline that is there"
            try:
                read(path)
            except BaselineError:
                what = "another file, or a damaged baseline, there"
            raise error(path, 1, f"found {what} already, expected no file of that name")
        replace_file(path, render_header(device_of(identity)).encode())
    return path


def _changes(baseline: Baseline, device: BaselineDevice, updates: Sequence[Entry], merge: Merge) -> list[Change]:
    changes: list[Change] = []
    for new in updates:
        old = baseline.entries.get(new.key)
        merged = merge(old, new)
        if merged is None or merged is old:
            continue
        after = settled(merged, device.peak_gbps)
        if after.utilization is not None and after.utilization > MAX_SHARE:
            found = f"found {after.utilization * 100:.4g} % of the peak for {shown(new.key)}"
            message = f"{found}, expected at most {MAX_SHARE * 100:g} %: correct the device's peak"
            raise error(baseline.path or "", device.line or 1, message)
        told = (entry_fields(after), setup_of(after), after.runs)
        if old is None or told != (entry_fields(old), setup_of(old), old.runs):
            changes.append(Change(new.key, old, after))
    return changes
