"""Declare each of the run's options once: its purpose, the parser of its value, and its default.

Loaded in every pytest run, so it imports no heavy module.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_bandwidth.domain import values
from pytest_bandwidth.domain.values import Parser
from pytest_bandwidth.registry import later

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda base: base


# In place of a revision: the commit of each entry's first runs.
ANCHOR = "anchor"


class Given:
    """Hold the value of an option as it was given, and its place: ``--bandwidth-json``, or the ini file.

    If the place begins with a dash, a relative path starts at the folder where pytest was started; otherwise at the ini
    file's folder.
    """

    def __init__(self, value: object, place: str) -> None:
        self.value, self.place = value, place


class Option:
    """Describe an option.

    placeholder: its value's name in the help; None for a switch. ini_only: for a machine or a repository, not for one
    run. writes: whether it names a file that the run writes; processes that the plugin starts do not write it.
    """

    def __init__(self, placeholder: str | None, meaning: str, parse: Parser, ini_only: bool, writes: bool) -> None:
        self.placeholder, self.meaning, self.parse = placeholder, meaning, parse
        self.ini_only, self.writes = ini_only, writes


def option(
    placeholder: str,
    meaning: str,
    parse: Parser,
    default: object = None,
    *,
    ini_only: bool = False,
    writes: bool = False,
) -> Any:
    """Declare an option as a field of a frozen dataclass: its name is the field's."""
    return field(default=default, metadata={"option": Option(placeholder, meaning, parse, ini_only, writes)})


def switch(meaning: str, *, ini_only: bool = False) -> Any:
    """Declare an option without a value, as `option` does."""
    return field(default=False, metadata={"option": Option(None, meaning, bool, ini_only, False)})


@dataclass_transform(frozen_default=True)
class Options:
    """Become a frozen dataclass at the first instance: every run of pytest declares options, and few read them."""

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init__(self, **values: Any) -> None:
        dataclass(frozen=True)(type(self)).__init__(self, **values)


def options_in(owner: type) -> Iterator[tuple[str, Option]]:
    """Yield the options that a class declares, with their names."""
    for name, one in getattr(owner, "__dataclass_fields__", vars(owner)).items():
        if isinstance(one, Field):
            yield name, one.metadata["option"]


def flag(name: str) -> str:
    """Return an option's name on the command line."""
    return f"--bandwidth-{name.replace('_', '-')}"


def dest(name: str) -> str:
    """Return an option's name in the ini file and in pytest's own namespace."""
    return f"bandwidth_{name}"


class Settings(Options):
    """Hold the run's options. Seconds and fractions; None where an option was not given."""

    baseline: Path | None = option(
        "PATH",
        "compare with this YAML file, or with the device's file in this folder (default: measure only)",
        values.path,
    )
    device: str = option(
        "NAME",
        "measure on auto, cuda, cuda:N, cpu, tinygrad:METAL, traffic or traffic:sm_90 (default: auto)",
        later("devices.open:checked_name"),
        "auto",
    )
    tolerance: float = option(
        "P",
        "smallest slowdown that must be caught, unless marker or baseline set one (default: 5%)",
        values.fraction,
        0.05,
    )
    update: bool = switch("write what was measured to the baseline")
    update_new: bool = switch("write only tests without an entry to the baseline")
    runs: int = option(
        "N", "run each test N times when updating, each time in a new process (default: 5)", values.count(1), 5
    )
    against: str | None = option(
        "REV", "compare with the same tests at this git revision (or `anchor`), without a baseline", str
    )
    device_tolerance: float | None = option(
        "P", "fail the run if the median loss of unchanged tests is more than this", values.positive_fraction
    )
    strict: bool = switch("fail UNDECIDED tests, and entries that no test measured")
    only: bool = switch("run bandwidth tests only")
    skip: bool = switch("skip bandwidth tests")
    disable: bool = switch("run the bodies of bandwidth tests once, untimed")
    max_time: float = option("S", "stop a measurement after S seconds (default: 1)", values.seconds, 1.0)
    min_samples: int = option(
        "N", "take N samples for a measurement, time permitting (default: 30)", values.count(1), 30
    )
    precision: float = option(
        "P", "stop when the median is as precise as this (default: 0.5%)", values.positive_fraction, 0.005
    )
    timer: str = option(
        "NAME",
        "time work on an NVIDIA GPU by events, or by cupti: its kernels alone (default: events)",
        values.one_of("events", "cupti"),
        "events",
    )
    traffic_timeout: float = option(
        "S",
        "stop a launch, or NVRTC, on the traffic device after S seconds (default: 60)",
        values.seconds,
        60.0,
    )
    suite: str = option(
        "NAME",
        "size of pytest --pyargs pytest_bandwidth.suite: quick or full (default: quick)",
        values.one_of("quick", "full"),
        "quick",
    )
    json: Path | None = option(
        "FILE", "write everything that was measured as one JSON document", values.path, writes=True
    )
    csv: Path | None = option("FILE", "write the table as CSV", values.path, writes=True)
    dir: Path | None = option("DIR", "write DIR/RUN_ID/bandwidth_report.{json,csv,html}", values.path, writes=True)
    confirm: int = option(
        "N",
        "measure a slow test again in N new processes if no old code can run (default: 3)",
        values.count(0),
        3,
        ini_only=True,
    )
    pairs: int = option(
        "N", "compare with old code N, 2 N or at most 3 N times (default: 4)", values.count(4), 4, ini_only=True
    )
    settle: str = option(
        "WHICH",
        "compare changed code with its old code: changed, or never (default: changed)",
        values.one_of("changed", "never"),
        "changed",
        ini_only=True,
    )
    settle_time: float = option(
        "S", "spend at most S seconds of a run on old code (default: 900)", values.seconds, 900.0, ini_only=True
    )
    commit: str | None = option(
        "HASH",
        "the commit that is checked out, if there is no .git (default: the one that CI names)",
        values.commit,
        ini_only=True,
    )
    peak: float | None = option(
        "GB/s", "peak bandwidth of the device, such as 2039 GB/s, if it is unknown or wrong", values.gbps, ini_only=True
    )
    busy_processors: float | None = option(
        "N",
        "let other processes use N processors of a host before its figures are UNDECIDED",
        values.processors,
        ini_only=True,
    )
    utilization_classes: tuple[float, float, float] | None = option(
        "P P P",
        "shares above which a utilization is excellent, good, fair (80% 60% 35%)",
        values.classes,
        ini_only=True,
    )
    build: str | None = option(
        "COMMAND",
        "build another revision by this command, such as pip install -e . --no-build-isolation",
        str,
        ini_only=True,
    )
    lock_timeout: float = option(
        "S",
        "wait up to S seconds for another process that measures on the device (default: 600)",
        values.seconds,
        600.0,
        ini_only=True,
    )
    private: bool = switch(
        "leave host name, user name and absolute paths out of documents, reports and the history", ini_only=True
    )

    @property
    def writes_baseline(self) -> bool:
        return self.update or self.update_new
