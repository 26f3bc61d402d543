"""Declare options and marker to pytest; find the options that were given, and read their values.

Loaded in every pytest run, so it imports no heavy module.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from pytest_bandwidth.domain.values import parsed, switch
from pytest_bandwidth.options.settings import ANCHOR, Given, Option, Settings, dest, flag, options_in
from pytest_bandwidth.registry import hooks

if TYPE_CHECKING:
    from pytest_bandwidth.judging.limits import MarkerOptions

# So many characters of a command line are kept.
LONGEST_COMMAND = 1000
# Options of pytest with which no test's body runs.
RUNS_NOTHING = ("collectonly", "showfixtures", "show_fixtures_per_test", "setuponly", "setupplan")


def add_options(parser: pytest.Parser, manager: pytest.PytestPluginManager) -> None:
    """Declare every option on the command line and in the ini file."""
    group = parser.getgroup("bandwidth", "memory-bandwidth regression tests (pytest-bandwidth)")
    for name, option in declared(manager.hook).items():
        is_switch = option.placeholder is None
        if not option.ini_only:
            how = {"action": "store_true"} if is_switch else {"metavar": option.placeholder}
            group.addoption(flag(name), dest=dest(name), default=None, help=option.meaning.replace("%", "%%"), **how)
        kind: Any = "bool" if is_switch else "string"
        parser.addini(dest(name), f"{option.meaning} (pytest-bandwidth)", type=kind, default=None)


def add_marker(config: pytest.Config) -> None:
    """Declare the marker: in full for `pytest --markers`, else only by name, which every run of pytest needs."""
    line = marker_help() if config.getoption("markers", default=False) else "bandwidth(...): see pytest --markers"
    config.addinivalue_line("markers", line)


def marker_help() -> str:
    """Describe the marker as `pytest --markers` shows it."""
    from pytest_bandwidth.judging.limits import MarkerOptions

    arguments = ", ".join(f"{one.name}=" for one in fields(MarkerOptions))
    meanings = " ".join(f"{one.name}: {one.metadata['meaning']}" for one in fields(MarkerOptions))
    return f"bandwidth({arguments}): limits and budget of a memory-bandwidth test (pytest-bandwidth). {meanings}"


def declared(hook: Any) -> dict[str, Option]:
    """Return all options by name, those of features included. hook: pytest's, or the registry's."""
    owners = (Settings, *hook.pytest_bandwidth_options())
    return {name: option for owner in owners for name, option in options_in(owner)}


def usage_error(error: Exception | str) -> pytest.UsageError:
    """Return the error that ends a run: one line per problem; the lines may quote files that others wrote."""
    from pytest_bandwidth.domain.errors import UsageError  # kept out of start-up
    from pytest_bandwidth.reports.text_safe import printable
    from pytest_bandwidth.reports.wording import with_help

    *others, last = map(printable, str(error).splitlines() or [""])
    return pytest.UsageError(*others, with_help(UsageError() if isinstance(error, str) else error, last))


def refuse_unknown(config: pytest.Config) -> None:
    """Raise pytest.UsageError, one line, for an unknown name of the ini file that looks like the plugin's.

    pytest itself only warns, and the intended option would silently keep its default.
    """
    # pytest lists its ini file's unknown names nowhere else without a warning.
    unknown: Iterable[str] = getattr(config, "_get_unknown_ini_keys", set)()
    overridden = [text.partition("=")[0] for text in config.getoption("override_ini", default=None) or ()]
    for name in sorted({*unknown, *overridden}):
        if not name.lower().startswith("bandwidth"):
            continue
        try:
            config.getini(name)
            continue  # this plugin or another one declared it
        except ValueError as error:
            if "unknown configuration value" not in str(error):
                continue
        import difflib  # kept out of start-up

        names = list(declared(config.hook))
        meant = name.lower().removeprefix("bandwidth").replace("-", "_").strip("_")
        near = difflib.get_close_matches(meant, names, n=1)
        advice = f"did you mean {dest(near[0])}?" if near else f"expected one of {', '.join(map(dest, names))}"
        raise usage_error(f"{_ini_place(config, name)}: unknown; {advice}")


def given(config: pytest.Config, read: Namespace | None = None) -> dict[str, Given]:
    """Return the options that were given, command line before ini, after changes by `pytest_bandwidth_given`.

    read: the parsed command line, before pytest stores it in `config.option`.
    A process that the plugin started writes none of the files that its options name. Raises pytest.UsageError for an
    entry of the hook that is no option.
    """
    found: dict[str, Given] = {}
    known = declared(config.hook)
    for name, option in known.items():
        if option.writes and is_own_process(config):
            continue
        value = getattr(read or config.option, dest(name), None)
        if value is not None:
            found[name] = Given(value, flag(name))
            continue
        try:
            value = config.getini(dest(name))
        except ValueError:
            text = "after the options were read, expected it in a feature, or pytest_addoption here"
            raise usage_error(f"pytest_bandwidth_options: found {flag(name)} in a conftest.py, {text}") from None
        if value not in (None, ""):
            found[name] = Given(value, _ini_place(config, dest(name)))
    try:
        config.hook.pytest_bandwidth_given(config=config, options=found)
    except Exception as error:
        from pytest_bandwidth.domain.user_code import failure  # kept out of start-up

        raise usage_error(failure("pytest_bandwidth_given", error)) from error
    for name, one in found.items():
        if name not in known:
            raise usage_error(f"pytest_bandwidth_given: found the option {name!r}, expected one of {', '.join(known)}")
        if not isinstance(one, Given):
            raise usage_error(
                f"pytest_bandwidth_given: found {name} = {one!r}, expected a Given: its text and its place"
            )
    return found


def own_command(argv: Sequence[str]) -> str:
    """Return a command line's program and this plugin's own options: others may hold secrets, as addresses may.

    >>> own_command(["/bin/pytest", "--token=x", "--bandwidth-device", "cpu", "tests"])
    'pytest … --bandwidth-device cpu …'
    """
    from pytest_bandwidth.domain.text import masked  # kept out of start-up

    kept = [Path(argv[0]).name if Path(argv[0]).name != "__main__.py" else "python -m pytest"]
    values = {flag(name) for name, option in declared(hooks()).items() if option.placeholder is not None}
    own_value = False
    for argument in argv[1:]:
        if own_value or argument.startswith("--bandwidth-"):
            kept.append(masked(argument))
        elif kept[-1] != "…":
            kept.append("…")
        own_value = argument in values
    return " ".join(kept)[:LONGEST_COMMAND]


def _ini_place(config: pytest.Config, ini_name: str) -> str:
    """Return where an ini option was given: on the command line by -o, which comes before the file."""
    overridden = config.getoption("override_ini", default=None) or ()
    if any(text.partition("=")[0] == ini_name for text in overridden):
        return f"-o {ini_name}"
    return f"{ini_name} in {config.inipath or 'the ini file'}"


_TAKEN: pytest.StashKey[dict[str, Any] | None] = pytest.StashKey()


def take(config: pytest.Config) -> bool:
    """Take the data that was handed to this run, at the first call; return whether there was any.

    Raises ValueError, one line, for a variable that no process of the plugin set for this one.
    """
    if _TAKEN in config.stash:
        return False
    config.stash[_TAKEN] = None
    if not any(name.startswith("PYTEST_BANDWIDTH_") for name in os.environ):
        return False
    from pytest_bandwidth.options.handed_over import ANCESTOR_VARIABLE, PARENT_VARIABLE, taken, unexpected

    config.stash[_TAKEN] = taken()
    for name in (PARENT_VARIABLE, ANCESTOR_VARIABLE):
        if name in os.environ and not is_own_process(config):
            raise unexpected(name)
    return is_own_process(config)


def is_own_process(config: pytest.Config) -> bool:
    """Return whether the plugin started this process, to measure for another."""
    return config.stash.get(_TAKEN, None) is not None


def handed(config: pytest.Config, name: str) -> dict[str, Any] | None:
    """Return the data that was handed to this run under a name; None without such data."""
    found: dict[str, Any] | None = (config.stash.get(_TAKEN, None) or {}).get(name)
    return found


# ---- their values ----------------------------------------------------------------------------------------------------

_READ = pytest.StashKey[dict[type, Any]]()
_PLACES = pytest.StashKey[dict[str, str]]()

Owner = TypeVar("Owner")


def settings_of(config: pytest.Config) -> Settings:
    """Return the run's settings. Raises pytest.UsageError, one line."""
    return options_of(config, Settings)


def options_of(config: pytest.Config, owner: type[Owner]) -> Owner:
    """Return the values of the options that a dataclass declares: command line before ini before default.

    The first call reads all options. Raises pytest.UsageError, one line.
    """
    found: Owner = _read(config)[owner]
    return found


def places_of(config: pytest.Config) -> dict[str, str]:
    """Return where each option was given, as messages name it."""
    _read(config)
    return config.stash[_PLACES]


def all_options(config: pytest.Config) -> dict[str, Any]:
    """Return the values of all options by name."""
    return {name: value for one in _read(config).values() for name, value in asdict(one).items()}


def _read(config: pytest.Config) -> dict[type, Any]:
    if _READ not in config.stash:
        from pytest_bandwidth.domain.errors import UsageError  # kept out of start-up

        options, values, places = declared(config.hook), {}, {}
        for name, one in given(config).items():
            places[name] = one.place
            option = options[name]
            try:
                value = bool(one.value) if option.placeholder is None else option.parse(str(one.value))
            except ValueError as error:
                raise usage_error(f"{one.place}: {error}") from None
            except UsageError as error:  # of a hook that brings devices
                raise usage_error(error) from None
            # A path in the ini file is relative to that file, as pytest's own; any other to the current folder.
            if isinstance(value, Path) and config.inipath is not None and not one.place.startswith("-"):
                value = config.inipath.parent / value
            values[name] = value
        read = {
            owner: owner(**{name: values[name] for name, _ in options_in(owner) if name in values})
            for owner in (Settings, *config.hook.pytest_bandwidth_options())
        }
        _refuse_contradictions(read[Settings], places)
        config.stash[_READ], config.stash[_PLACES] = read, places
    return config.stash[_READ]


def nothing_is_judged(config: pytest.Config) -> str | None:
    """Return the message that strict has no effect, where bandwidth tests are disabled or skipped; else None."""
    settings = settings_of(config)
    if not settings.strict or not (settings.disable or settings.skip):
        return None
    places = places_of(config)
    return (
        f"{places['disable' if settings.disable else 'skip']}: nothing is judged, so {places['strict']} has no effect"
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
                f"{places['strict']} and {places[name]} exclude each other, because nothing is judged: drop one (on "
                f"the command line, {name} is allowed with strict = true in the ini file)"
            )
    if settings.update and settings.update_new:
        raise usage_error(
            f"{places['update']} and {places['update_new']} exclude each other, because one rewrites what the other "
            "keeps: drop one"
        )
    update = places["update" if settings.update else "update_new"] if settings.writes_baseline else ""
    if settings.writes_baseline and settings.baseline is None:
        raise usage_error(f"{update} needs --bandwidth-baseline=PATH to write to")
    if settings.writes_baseline and settings.disable:
        raise usage_error(f"{update} needs measurements and {places['disable']} takes none: drop one")
    if settings.writes_baseline and settings.against is not None:
        raise usage_error(f"{update} writes a baseline and {places['against']} uses none: drop one")
    # In an ini file it is the default of the runs that update.
    if places.get("runs", "").startswith("--") and not settings.writes_baseline:
        raise usage_error(f"{places['runs']} needs --bandwidth-update or --bandwidth-update-new")
    if settings.against == ANCHOR and settings.baseline is None:
        raise usage_error(f"{places['against']}={ANCHOR} needs --bandwidth-baseline: its entries name the anchors")


def read_marker(marks: list[pytest.Mark]) -> MarkerOptions:
    """Return the marker's arguments, the closest mark first. Raises UsageError that lists the known ones."""
    from pytest_bandwidth.devices.open import checked_name  # kept out of start-up
    from pytest_bandwidth.domain.errors import UsageError
    from pytest_bandwidth.judging.limits import MarkerOptions

    # The part that judges does not import the devices.
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
