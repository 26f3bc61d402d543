"""Declare the options and the marker to pytest, with their help. `settings` reads them.

Loaded in every pytest run, so it imports nothing of weight.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields

import pytest

# Options of pytest after which no test's body runs.
RUNS_NOTHING = ("collectonly", "showfixtures", "show_fixtures_per_test", "setuponly", "setupplan")
_FIELD = re.compile(r"^ *(\w+(?:, \w+)*): ", re.MULTILINE)
# Name, placeholder (None: a switch), help.
OPTIONS: tuple[tuple[str, str | None, str], ...] = (
    ("baseline", "PATH", "YAML baseline, or a folder that holds one per device (default: measure only)"),
    ("device", "NAME", "auto, cuda, cuda:N, cpu, tinygrad:METAL or traffic (default: auto)"),
    ("tolerance", "P", "smallest slowdown to catch, unless marker or baseline set one (default: 5%)"),
    ("update", None, "write what was measured to the baseline"),
    ("update-new", None, "write only what has no entry in the baseline yet"),
    ("runs", "N", "whole runs, each in a new process, when updating (default: 5)"),
    ("against", "REV", "compare with the same tests at this git revision (or `anchor`), in new processes; no baseline"),
    ("device-tolerance", "P", "fail the run where unchanged tests lost more than this, as the device's median"),
    ("strict", None, "UNDECIDED fails too"),
    ("only", None, "run bandwidth tests only"),
    ("skip", None, "skip bandwidth tests"),
    ("disable", None, "run the bodies of bandwidth tests once, untimed"),
    ("max-time", "S", "budget of one measurement in seconds (default: 1)"),
    ("min-samples", "N", "samples of one measurement, time permitting (default: 30)"),
    ("precision", "P", "stop at this precision of the median (default: 0.5%)"),
    ("traffic-timeout", "S", "traffic device: seconds that one launch, or compiling it, may take (default: 60)"),
    ("suite", "NAME", "quick or full, for pytest --pyargs pytest_bandwidth.suite (default: quick)"),
    ("counters", "NAME", "count what DRAM moves, once after each test: auto, ncu, rocprofv3 or off (default: off)"),
    ("profile", "DIR", "run what is REGRESSED once under ncu --set full, with its report in this folder"),
    ("html", "FILE", "write the HTML summary"),
    ("json", "FILE", "write everything measured as one JSON document"),
    ("csv", "FILE", "write the table as CSV"),
    ("dir", "DIR", "write DIR/RUN_ID/bandwidth_report.{json,csv,html}"),
    ("history", "PATH", "append the run to the history in this folder or bucket (pytest-bandwidth history shows it)"),
)
# Settled for a machine or a repository, not for a run: ini only.
INI_ONLY: tuple[tuple[str, str | None, str], ...] = (
    ("confirm", "N", "new processes that measure a slow test again, where no old code can run (default: 3)"),
    ("pairs", "N", "comparisons with old code before the first look; up to thrice as many (default: 4)"),
    ("settle", "WHICH", "compare changed code with its old code: changed, or never (default: changed)"),
    ("settle-time", "S", "seconds of a run that old code may take, all tests together (default: 900)"),
    ("commit", "HASH", "the commit that is checked out, where there is no .git (default: what CI says)"),
    ("peak", "GB/s", "peak bandwidth of the device, e.g. 2039 GB/s, where the tables are wrong"),
    ("busy-processors", "N", "processors that others may use of a host before its figures are UNDECIDED"),
    ("utilization-classes", "P P P", "shares above which a utilization is excellent, good, fair (80% 60% 35%)"),
    ("build", "COMMAND", "builds another revision in its worktree, such as pip install -e . --no-build-isolation"),
    ("lock-timeout", "S", "seconds to wait for another process that measures on the device (default: 600)"),
    ("private", None, "leave host name, user name and absolute paths out of documents, reports and the history"),
)


def dest(name: str) -> str:
    """Return the name of an option in the ini file and in pytest's own namespace."""
    return f"bandwidth_{name.replace('-', '_')}"


def add_marker(config: pytest.Config) -> None:
    """Declare the marker: in full where `pytest --markers` asks, else by name, as every run of pytest needs it."""
    line = marker_help() if config.getoption("markers", default=False) else "bandwidth(...): see pytest --markers"
    config.addinivalue_line("markers", line)


def marker_help() -> str:
    """Describe the marker as `pytest --markers` shows it, from the fields of MarkerOptions and their meanings."""
    from pytest_bandwidth.judging.limits import MarkerOptions

    meanings = described(MarkerOptions)
    arguments = ", ".join(f"{field.name}=" for field in fields(MarkerOptions))
    return f"bandwidth({arguments}): limits and budget of a memory-bandwidth test (pytest-bandwidth). " + " ".join(
        f"{field.name}: {meanings[field.name]}" for field in fields(MarkerOptions) if field.name in meanings
    )


def described(owner: type) -> dict[str, str]:
    """Read what a class's docstring says of its fields: lines that begin with ``name: `` or ``name, name: ``.

    Python has none under -OO.
    """
    marks = list(_FIELD.finditer(owner.__doc__ or ""))
    found: dict[str, str] = {}
    for mark, following in zip(marks, (*marks[1:], None), strict=False):
        text = (owner.__doc__ or "")[mark.end() : following.start() if following else None]
        found.update(dict.fromkeys(mark[1].split(", "), " ".join(text.split())))
    return found


def add_options(parser: pytest.Parser) -> None:
    """Declare every option on the command line and in the ini file."""
    group = parser.getgroup("bandwidth", "memory-bandwidth regression tests (pytest-bandwidth)")
    for name, metavar, text in OPTIONS:
        flag, help_text = f"--bandwidth-{name}", text.replace("%", "%%")
        if metavar is None:
            group.addoption(flag, dest=dest(name), action="store_true", default=None, help=help_text)
        else:
            group.addoption(flag, dest=dest(name), default=None, metavar=metavar, help=help_text)
    for name, metavar, text in (*OPTIONS, *INI_ONLY):
        if metavar is None:
            parser.addini(dest(name), f"{text} (pytest-bandwidth)", type="bool", default=None)
        else:
            parser.addini(dest(name), f"{text} (pytest-bandwidth)", type="string", default=None)


def usage_error(error: object) -> pytest.UsageError:
    """Return the error that ends a run: a line for each of its problems, which may quote files of others."""
    from pytest_bandwidth.reports.text_safe import printable  # kept out of start-up

    return pytest.UsageError(*map(printable, str(error).splitlines()))


def refuse_unknown(config: pytest.Config) -> None:
    """Raise pytest.UsageError, one line, for a name of the ini file that looks like the plugin's and is nobody's.

    pytest itself only warns, and what the name was to set would silently stay at its default.
    """
    # pytest tells its ini file's names nowhere else without a warning.
    unknown: Iterable[str] = getattr(config, "_get_unknown_ini_keys", set)()
    overridden = [text.partition("=")[0] for text in config.getoption("override_ini", default=None) or ()]
    for name in sorted({*unknown, *overridden}):
        if not name.lower().startswith("bandwidth") or _is_known(config, name):
            continue
        import difflib  # kept out of start-up

        names = [option for option, _, _ in (*OPTIONS, *INI_ONLY)]
        near = difflib.get_close_matches(
            name.lower().removeprefix("bandwidth").replace("_", "-").strip("-"), names, n=1
        )
        meant = f"did you mean {dest(near[0])}?" if near else f"expected one of {', '.join(map(dest, names))}"
        raise usage_error(f"{_place(config, name)}: unknown; {meant}")


def _is_known(config: pytest.Config, name: str) -> bool:
    """Return whether this plugin or another one declared the name."""
    try:
        config.getini(name)
    except ValueError as error:
        return "unknown configuration value" not in str(error)
    return True


def given(config: pytest.Config) -> dict[str, tuple[object, str]]:
    """Return value and place of each option that was given, command line before ini."""
    found: dict[str, tuple[object, str]] = {}
    for name, _, _ in (*OPTIONS, *INI_ONLY):
        value = config.getoption(dest(name), default=None)
        if value is not None:
            found[name] = value, f"--bandwidth-{name}"
            continue
        value = config.getini(dest(name))
        if value not in (None, ""):
            found[name] = value, _place(config, dest(name))
    return found


def is_asked_for(early_config: pytest.Config) -> bool:
    """Return whether an option is given, where pytest has read its command line and not yet taken it over."""
    known = vars(early_config.known_args_namespace)
    names = [dest(name) for name, _, _ in (*OPTIONS, *INI_ONLY)]
    return any(known.get(name) is not None or early_config.getini(name) not in (None, "") for name in names)


def _place(config: pytest.Config, ini_name: str) -> str:
    """Return where an ini option was given: on the command line by -o, which comes before the file."""
    overridden = config.getoption("override_ini", default=None) or ()
    if any(text.partition("=")[0] == ini_name for text in overridden):
        return f"-o {ini_name}"
    return f"{ini_name} in {config.inipath or 'the ini file'}"
