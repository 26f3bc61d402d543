"""Check and write a run's output files: each completely, or the summary contains the reason."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_bandwidth.baseline import load_all
from pytest_bandwidth.baseline.code_files import is_written_by_updates
from pytest_bandwidth.domain.errors import BandwidthError, BaselineError, UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.user_code import brought, named_failures
from pytest_bandwidth.options.errors import called_hook
from pytest_bandwidth.options.options import all_options, is_own_process, places_of, settings_of, usage_error
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.columns import columns
from pytest_bandwidth.reports.formats import Format, Reporter, formats
from pytest_bandwidth.session.publishing.gathered import own_file
from pytest_bandwidth.storage.atomic import real_path, refuse_foreign, write_whole

BUNDLE_NAME = "bandwidth_report"
_UNDECLARED = object()
_REPORTERS = pytest.StashKey[list[Reporter]]()

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunFile:
    """Hold an output file. option: the place where the user asked for it, for messages."""

    format: Format
    path: Path
    option: str


def run_files(config: pytest.Config) -> list[RunFile]:
    """Return the output files of the options of the plugin, of features and of users."""
    values, places = all_options(config), places_of(config)
    found = []
    for one in formats().values():
        name = (one.option or "").removeprefix("bandwidth_")
        if one.option is None or (name not in values and is_own_process(config)):
            continue
        place = places.get(name, f"--{one.option.replace('_', '-')}")
        path = values[name] if name in values else config.getoption(one.option, default=_UNDECLARED)
        if path is _UNDECLARED:
            raise UsageError(f"the format {one.kind!r}: found no option {place}, expected pytest_addoption to add it")
        if not isinstance(path, str | Path | None) or path == "":
            said = f"the format {one.kind!r}: found {place} as {shown(path)}"
            raise UsageError(f"{said}, expected the name of a file, or None as its default")
        found += [] if path is None else [RunFile(one, Path(path), place)]
    return found


def check_outputs(config: pytest.Config) -> None:
    """Raise UsageError if an output file cannot be written, before any test runs.

    Missing folders are made later, when files are written.
    """
    settings, folder, options = settings_of(config), config.invocation_params.dir, places_of(config)
    columns("terminal")  # raises now if a hook returns something else than columns
    files = run_files(config)
    written_by: dict[Path, str] = {}
    for file in files:
        where = real_path(folder / file.path)
        other = written_by.setdefault(where, file.option)
        if other != file.option:
            raise UsageError(f"{file.option}: found {where}, which {other} writes, expected another file")
    if settings.baseline is not None:
        _refuse_unreachable(options["baseline"], folder / settings.baseline)
        baseline = real_path(folder / settings.baseline)
        for where, option in written_by.items():
            if is_written_by_updates(where, baseline):
                raise UsageError(f"{option}: found the baseline {where}, expected a file of its own")
    for file in files:
        check_writable(file.option, folder / file.path, a_file=True)
        refuse_foreign(file.option, folder / file.path, file.format.file)
    if settings.dir is not None:
        check_writable(options["dir"], folder / settings.dir, a_file=False)
    for reporter in reporters_of(config):
        with named_failures(f"{type(reporter).__name__}.check"):
            reporter.check()


def reporters_of(config: pytest.Config) -> list[Reporter]:
    """Return the reporters of features and the user's hooks for this run; call the hooks once. Raises UsageError."""
    if _REPORTERS not in config.stash:
        found = called_hook(config, "pytest_bandwidth_reporters")
        reporters: list[Any] = brought("pytest_bandwidth_reporters", found, object, "Reporter")
        for one in reporters:
            if lacking := [name for name in ("check", "write") if not callable(getattr(one, name, None))]:
                raise UsageError(
                    f"pytest_bandwidth_reporters: found {shown(one)} without {' and '.join(lacking)}, "
                    "expected a Reporter"
                )
        config.stash[_REPORTERS] = reporters
    return config.stash[_REPORTERS]


def conftest_hooks(config: pytest.Config) -> set[str]:
    """Return the hooks of conftest.py files that the reporting process calls, each as ``FILE: HOOK``."""
    found = set()
    for name in ("columns", "formats", "reporters", "environment", "document", "finished"):
        for one in getattr(config.hook, f"pytest_bandwidth_{name}").get_hookimpls():
            if os.path.basename(one.plugin_name) == "conftest.py":
                found.add(f"{os.path.relpath(one.plugin_name, config.rootpath)}: pytest_bandwidth_{name}")
    return found


def check_before_workers(config: pytest.Config) -> None:
    """Raise pytest.UsageError for outputs and baselines that would fail in each worker of the run.

    It reads all files of the baseline, because the workers' devices are unknown here.
    """
    settings = settings_of(config)
    baseline = settings.baseline
    try:
        check_outputs(config)
        if baseline is None or settings.against is not None:
            return
        if not settings.writes_baseline and not os.path.exists(baseline):
            raise UsageError(
                f"no baseline file {baseline}: check {places_of(config)['baseline']}, "
                "or write it with --bandwidth-update"
            )
        for _ in load_all(baseline):
            pass
    except (BaselineError, UsageError) as error:
        raise usage_error(error) from None


def check_writable(option: str, target: Path, *, a_file: bool) -> None:
    """Raise UsageError if the file or folder of an option cannot be written, without making anything."""
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
    """Raise UsageError for circular links and names that are too long. A missing path is made when it is written."""
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
    """Write one device's document in every format and to every place that the user asked for.

    suffix: distinguishes the device's files if a run has several devices.
    Returns the names of the written files, and a message for each file that was not written.
    """
    settings, folder = settings_of(config), config.invocation_params.dir
    files = [file if suffix is None else replace(file, path=own_file(file.path, suffix)) for file in run_files(config)]
    if settings.dir is not None:
        bundle = settings.dir / document["run_id"]
        in_folder = [one for one in formats().values() if one.in_folder]
        files += [RunFile(one, bundle / f"{BUNDLE_NAME}.{one.kind}", "--bandwidth-dir") for one in in_folder]
    written, problems = [], []
    for file in files:
        target = folder / file.path
        try:
            refuse_foreign(file.option, target, file.format.file)
            with named_failures(f"the format {file.format.kind!r}"):
                content = file.format.render(document)
            if not isinstance(content, (str, bytes)):
                raise UsageError(f"the format {file.format.kind!r} returned {shown(content)}, expected text or bytes")
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, content.encode() if isinstance(content, str) else content, keep=True)
        except OSError as error:
            why = f"{error.strerror or error}; choose another place with {file.option}"
            problems.append(f"{file.path} was not written: {why}")
        except BandwidthError as error:
            problems.append(f"{file.path} was not written: {error}")
        else:
            written.append(str(file.path))
    for reporter in reporters_of(config):
        try:
            with named_failures(f"{type(reporter).__name__}.write"):
                names = reporter.write(document, outcomes, suffix)
            written += brought(f"{type(reporter).__name__}.write", [names], str, "names of files")
        except BandwidthError as error:
            problems.append(str(error))
    return written, problems
