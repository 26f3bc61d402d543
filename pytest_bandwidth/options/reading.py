"""Read what command line, ini file and marker say into frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pytest_bandwidth.devices.open import checked_name
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.values import parsed, switch
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.options.options import declared, given, owners, places_of, usage_error
from pytest_bandwidth.options.settings import ANCHOR, Settings, options_in

_READ = pytest.StashKey[dict[type, Any]]()

Owner = TypeVar("Owner")


def settings_of(config: pytest.Config) -> Settings:
    """Return the run's settings. Raises pytest.UsageError, one line."""
    return options_of(config, Settings)


def options_of(config: pytest.Config, owner: type[Owner]) -> Owner:
    """Return the values of the options that a dataclass declares: command line before ini before default.

    All options are read when one is first asked for. Raises pytest.UsageError, one line.
    """
    found: Owner = _read(config)[owner]
    return found


def all_options(config: pytest.Config) -> dict[str, Any]:
    """Return the values of all options by name."""
    return {name: value for one in _read(config).values() for name, value in asdict(one).items()}


def _read(config: pytest.Config) -> dict[type, Any]:
    if _READ not in config.stash:
        options, values = declared(config.hook), {}
        for name, one in given(config).items():
            option = options[name]
            try:
                value = bool(one.value) if option.placeholder is None else option.parse(str(one.value))
            except ValueError as error:
                raise usage_error(f"{one.place}: {error}") from None
            except UsageError as error:  # of a hook that brings devices
                raise usage_error(error) from None
            # In the ini file it is relative to that file, as pytest's own are; else to the current folder.
            if isinstance(value, Path) and config.inipath is not None and not one.place.startswith("-"):
                value = config.inipath.parent / value
            values[name] = value
        read = {
            owner: owner(**{name: values[name] for name, _ in options_in(owner) if name in values})
            for owner in owners(config.hook)
        }
        _refuse_contradictions(read[Settings], places_of(config))
        config.stash[_READ] = read
    return config.stash[_READ]


def nothing_is_judged(config: pytest.Config) -> str | None:
    """Say that the ini file's strict fails nothing in this run, where the command line leaves bandwidth tests out."""
    settings = settings_of(config)
    if not settings.strict or not (settings.disable or settings.skip):
        return None
    places = places_of(config)
    return (
        f"{places['disable' if settings.disable else 'skip']}: nothing is judged, for all that {places['strict']} says"
    )


def _refuse_contradictions(settings: Settings, places: Mapping[str, str]) -> None:
    """Raise pytest.UsageError, one line, for options that exclude each other. places: where each was given."""
    if settings.only and settings.skip:
        raise usage_error(f"{places['only']} and {places['skip']} exclude each other: drop one")
    for name in ("disable", "skip"):
        if not settings.strict or not getattr(settings, name):
            continue
        # The command line overrides the ini file.
        if not places[name].startswith("-") or places["strict"].startswith("-"):
            raise usage_error(
                f"{places['strict']} and {places[name]} exclude each other, for nothing is judged: drop one (on the "
                f"command line {name} goes with strict = true in the ini file, and is said)"
            )
    if settings.update and settings.update_new:
        raise usage_error(
            f"{places['update']} and {places['update_new']} exclude each other, for one rewrites what the other keeps: "
            "drop one"
        )
    update = places["update" if settings.update else "update_new"] if settings.writes_baseline else ""
    if settings.writes_baseline and settings.baseline is None:
        raise usage_error(f"{update} needs --bandwidth-baseline=PATH to write to")
    if settings.writes_baseline and settings.disable:
        raise usage_error(f"{update} needs measurements and {places['disable']} takes none: drop one")
    if settings.writes_baseline and settings.against is not None:
        raise usage_error(f"{update} writes a baseline and {places['against']} needs none: drop one")
    # In an ini file it is the default of the runs that update.
    if places.get("runs", "").startswith("--") and not settings.writes_baseline:
        raise usage_error(f"{places['runs']} goes with --bandwidth-update or --bandwidth-update-new")
    if settings.against == ANCHOR and settings.baseline is None:
        raise usage_error(f"{places['against']}={ANCHOR} needs --bandwidth-baseline, whose entries have anchors")


def read_marker(marks: list[pytest.Mark]) -> MarkerOptions:
    """Return the marker's arguments, the closest mark first. Raises UsageError that lists the known ones."""
    # Which devices there are is not for judging to know.
    parsers = {one.name: one.metadata["parse"] for one in fields(MarkerOptions)} | {"device": checked_name}
    found: dict[str, Any] = {}
    for mark in marks:
        if mark.args:
            raise UsageError(f"bandwidth marker: found {mark.args[0]!r}, expected keywords only: {', '.join(parsers)}")
        for name, value in mark.kwargs.items():
            if name not in parsers:
                raise UsageError(f"bandwidth marker: found {name!r}, expected one of {', '.join(parsers)}")
            is_switch = parsers[name] is switch
            if (isinstance(value, bool) and not is_switch) or not isinstance(value, (str, int, float)):
                raise UsageError(f"bandwidth marker: {name}={value!r}, expected a number or text")
            found.setdefault(name, parsed(f"bandwidth marker: {name}", str(value), parsers[name]))
    return MarkerOptions(**found)
