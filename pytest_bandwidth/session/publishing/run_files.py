"""Check and write the files that a run was asked for: each whole, or it is said why not."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.options.errors import called_hook, named_failures
from pytest_bandwidth.options.options import places_of
from pytest_bandwidth.options.reading import settings_of
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.render import render
from pytest_bandwidth.session.publishing.device_report import apart
from pytest_bandwidth.storage.atomic import real_path, write_whole
from pytest_bandwidth.storage.own_documents import refuse_foreign

if TYPE_CHECKING:
    from pytest_bandwidth.reports.reporter import Reporter

BUNDLE_NAME = "bandwidth_report"
KINDS = ("json", "csv", "html")
_REPORTERS = pytest.StashKey["list[Reporter]"]()

Document = Mapping[str, Any]


def check_outputs(config: pytest.Config) -> None:
    """Raise UsageError where what a run is asked to write cannot be, so that no test runs in vain.

    Folders that are missing are made when files are written.
    """
    settings, folder, options = settings_of(config), config.invocation_params.dir, places_of(config)
    written_by: dict[Path, str] = {}
    for name in KINDS:
        if getattr(settings, name) is not None:
            where = real_path(folder / getattr(settings, name))
            other = written_by.setdefault(where, options[name])
            if other != options[name]:
                raise UsageError(f"{options[name]}: found {where}, which {other} writes, expected another file")
    if settings.baseline is not None:
        _refuse_unreachable(options["baseline"], folder / settings.baseline)
        baseline = real_path(folder / settings.baseline)
        for where, option in written_by.items():
            if where == baseline or (where.parent == baseline and where.suffix in (".yaml", ".yml")):
                raise UsageError(f"{option}: found the baseline {where}, expected a file of its own")
    for name in (*KINDS, "dir", "profile"):
        path: Path | None = getattr(settings, name)
        if path is None:
            continue
        check_writable(options[name], folder / path, a_file=name in KINDS)
        if name in KINDS:
            refuse_foreign(options[name], folder / path, name)
    for reporter in reporters_of(config):
        with named_failures(f"{type(reporter).__name__}.check"):
            reporter.check()


def reporters_of(config: pytest.Config) -> list[Reporter]:
    """Return the reporters that features and the user's hooks add to this run, asked once. Raises UserHookFailed."""
    if _REPORTERS not in config.stash:
        found = called_hook(config, "pytest_bandwidth_reporters")
        config.stash[_REPORTERS] = [reporter for reporters in found for reporter in reporters]
    return config.stash[_REPORTERS]


def check_writable(option: str, target: Path, *, a_file: bool) -> None:
    """Raise UsageError where the file or folder that an option names cannot be written; nothing is made."""
    if a_file and os.path.isdir(target):
        raise UsageError(f"{option}: found the folder {target}, expected a file to write")
    _refuse_unreachable(option, target)
    nearest = target.parent if a_file else target
    while not os.path.exists(nearest) and nearest != nearest.parent:
        nearest = nearest.parent
    if not os.path.isdir(nearest):
        raise UsageError(f"{option}: found the file {nearest}, expected a folder to write in")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(f"{option}: found the folder {nearest}, where this user may not write, expected another")


def _refuse_unreachable(option: str, target: Path) -> None:
    """Raise UsageError for links in a circle and names too long; what is not there is made when it is written."""
    try:
        os.stat(target)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    except OSError as problem:
        raise UsageError(
            f"{option}: found {target}, which cannot be opened ({problem.strerror}), expected another"
        ) from None


def write_files(
    config: pytest.Config, document: Document, outcomes: Sequence[Outcome], suffix: str | None
) -> tuple[list[str], list[str]]:
    """Write one device's document in every form and to every place that was asked for.

    suffix: names the device's files where a run has several.
    Returns what was written and, one line each, what was not.
    """
    settings, folder = settings_of(config), config.invocation_params.dir
    targets: list[tuple[str, Path]] = [
        (kind, path if suffix is None else apart(path, suffix))
        for kind in KINDS
        if (path := getattr(settings, kind)) is not None
    ]
    if settings.dir is not None:
        bundle = settings.dir / document["run_id"]
        targets += [(kind, bundle / f"{BUNDLE_NAME}.{kind}") for kind in KINDS]
    written, problems = [], []
    for kind, path in targets:
        target = folder / path
        try:
            refuse_foreign(f"--bandwidth-{kind}", target, kind)
            text = render(kind, document, outcomes)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, text.encode(), keep=True)
        except (OSError, BandwidthError, TypeError, ValueError) as error:  # a hook may have put anything into it
            problems.append(f"{path} was not written: {error}")
        else:
            written.append(str(path))
    for reporter in reporters_of(config):
        try:
            with named_failures(f"{type(reporter).__name__}.write"):
                written += reporter.write(document, outcomes, suffix)
        except BandwidthError as error:
            problems.append(str(error))
    return written, problems
