"""Declare the run's options, each once: what it is for, how its value is read, and what it is where nobody gives it.

Loaded in every pytest run, so it imports nothing of weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

from pytest_bandwidth.domain import values
from pytest_bandwidth.domain.values import Parser

# In place of a revision: the commit of each entry's first runs.
ANCHOR = "anchor"


class Given(NamedTuple):
    """Hold the value of an option as it was given, and where: ``--bandwidth-json``, or the ini file.

    A relative path starts at the folder where pytest was started, where the place begins with a dash; else at that of
    the ini file.
    """

    value: object
    place: str


class Option(NamedTuple):
    """Describe an option.

    placeholder: of its value in the help; None for a switch. ini_only: settled for a machine or a repository, not for a
    run. writes: whether it names a file that the run writes, which a process that the plugin starts leaves alone.
    """

    placeholder: str | None
    meaning: str
    parse: Parser
    ini_only: bool
    writes: bool


def option(
    placeholder: str, meaning: str, parse: Parser, *, ini_only: bool = False, writes: bool = False
) -> Mapping[str, Option]:
    """Describe an option, as metadata of a field of a frozen dataclass: its name is the field's."""
    return {"option": Option(placeholder, meaning, parse, ini_only, writes)}


def switch(meaning: str, *, ini_only: bool = False) -> Mapping[str, Option]:
    """Describe an option without a value, as `option` does."""
    return {"option": Option(None, meaning, bool, ini_only, False)}


def options_in(owner: type) -> Iterator[tuple[str, Option]]:
    """Yield the options that a dataclass declares, with their names."""
    for one in fields(owner):
        yield one.name, one.metadata["option"]


def flag(name: str) -> str:
    """Return an option's name on the command line."""
    return f"--bandwidth-{name.replace('_', '-')}"


def dest(name: str) -> str:
    """Return an option's name in the ini file and in pytest's own namespace."""
    return f"bandwidth_{name}"


def _device_name(text: str) -> str:
    """Parse the name of a device that is known."""
    from pytest_bandwidth.devices.open import checked_name  # kept out of start-up

    return checked_name(text)


@dataclass(frozen=True)
class Settings:
    """Hold the run's options. Seconds and fractions; None where an option was not given."""

    baseline: Path | None = field(
        default=None,
        metadata=option(
            "PATH",
            "compare with this YAML file, or with the device's file in this folder (default: measure only)",
            values.path,
        ),
    )
    device: str = field(
        default="auto",
        metadata=option(
            "NAME", "measure on auto, cuda, cuda:N, cpu, tinygrad:METAL or traffic (default: auto)", _device_name
        ),
    )
    tolerance: float = field(
        default=0.05,
        metadata=option(
            "P",
            "smallest slowdown that must be caught, unless marker or baseline set one (default: 5%)",
            values.fraction,
        ),
    )
    update: bool = field(default=False, metadata=switch("write what was measured to the baseline"))
    update_new: bool = field(default=False, metadata=switch("write only tests without an entry to the baseline"))
    runs: int = field(
        default=5,
        metadata=option(
            "N", "run each test N times when updating, each time in a new process (default: 5)", values.count(1)
        ),
    )
    against: str | None = field(
        default=None,
        metadata=option(
            "REV", "compare with the same tests at this git revision (or `anchor`), without a baseline", str
        ),
    )
    device_tolerance: float | None = field(
        default=None,
        metadata=option(
            "P",
            "fail the run if unchanged tests lost more than this, as their median",
            values.positive_fraction,
        ),
    )
    strict: bool = field(default=False, metadata=switch("fail UNDECIDED tests, and entries that no test measured"))
    only: bool = field(default=False, metadata=switch("run bandwidth tests only"))
    skip: bool = field(default=False, metadata=switch("skip bandwidth tests"))
    disable: bool = field(default=False, metadata=switch("run the bodies of bandwidth tests once, untimed"))
    max_time: float = field(
        default=1.0, metadata=option("S", "stop a measurement after S seconds (default: 1)", values.seconds)
    )
    min_samples: int = field(
        default=30,
        metadata=option("N", "take N samples for a measurement, time permitting (default: 30)", values.count(1)),
    )
    precision: float = field(
        default=0.005,
        metadata=option("P", "stop when the median is as precise as this (default: 0.5%)", values.positive_fraction),
    )
    traffic_timeout: float = field(
        default=60.0,
        metadata=option(
            "S",
            "stop a launch, or its compilation, on the traffic device after S seconds (default: 60)",
            values.seconds,
        ),
    )
    suite: str = field(
        default="quick",
        metadata=option(
            "NAME",
            "size of pytest --pyargs pytest_bandwidth.suite: quick or full (default: quick)",
            values.one_of("quick", "full"),
        ),
    )
    json: Path | None = field(
        default=None,
        metadata=option("FILE", "write everything that was measured as one JSON document", values.path, writes=True),
    )
    csv: Path | None = field(default=None, metadata=option("FILE", "write the table as CSV", values.path, writes=True))
    dir: Path | None = field(
        default=None,
        metadata=option("DIR", "write DIR/RUN_ID/bandwidth_report.{json,csv,html}", values.path, writes=True),
    )
    confirm: int = field(
        default=3,
        metadata=option(
            "N",
            "measure a slow test again in N new processes if no old code can run (default: 3)",
            values.count(0),
            ini_only=True,
        ),
    )
    pairs: int = field(
        default=4,
        metadata=option(
            "N",
            "compare with old code N, 2 N or at most 3 N times (default: 4)",
            values.count(4),
            ini_only=True,
        ),
    )
    settle: str = field(
        default="changed",
        metadata=option(
            "WHICH",
            "compare changed code with its old code: changed, or never (default: changed)",
            values.one_of("changed", "never"),
            ini_only=True,
        ),
    )
    settle_time: float = field(
        default=900.0,
        metadata=option(
            "S",
            "spend at most S seconds of a run on old code (default: 900)",
            values.seconds,
            ini_only=True,
        ),
    )
    commit: str | None = field(
        default=None,
        metadata=option(
            "HASH",
            "the commit that is checked out, if there is no .git (default: the one that CI names)",
            values.commit,
            ini_only=True,
        ),
    )
    peak: float | None = field(
        default=None,
        metadata=option(
            "GB/s",
            "peak bandwidth of the device, such as 2039 GB/s, if it is unknown or wrong",
            values.gbps,
            ini_only=True,
        ),
    )
    busy_processors: float | None = field(
        default=None,
        metadata=option(
            "N",
            "let other processes use N processors of a host before its figures are UNDECIDED",
            values.processors,
            ini_only=True,
        ),
    )
    utilization_classes: tuple[float, float, float] | None = field(
        default=None,
        metadata=option(
            "P P P",
            "shares above which a utilization is excellent, good, fair (80% 60% 35%)",
            values.classes,
            ini_only=True,
        ),
    )
    build: str | None = field(
        default=None,
        metadata=option(
            "COMMAND",
            "build another revision by this command, such as pip install -e . --no-build-isolation",
            str,
            ini_only=True,
        ),
    )
    lock_timeout: float = field(
        default=600.0,
        metadata=option(
            "S",
            "wait up to S seconds for another process that measures on the device (default: 600)",
            values.seconds,
            ini_only=True,
        ),
    )
    private: bool = field(
        default=False,
        metadata=switch(
            "leave host name, user name and absolute paths out of documents, reports and the history", ini_only=True
        ),
    )

    @property
    def writes_baseline(self) -> bool:
        return self.update or self.update_new
