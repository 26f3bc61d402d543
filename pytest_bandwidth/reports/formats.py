"""Describe the files that a run's document is written to: the formats of the core and of hooks, and reporters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pytest_bandwidth.domain.user_code import hooked
from pytest_bandwidth.registry import later
from pytest_bandwidth.storage.atomic import FileForm

if TYPE_CHECKING:
    from pytest_bandwidth.outcomes.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Format:
    """Describe a kind of file that a run's document is written as.

    kind: its name, and the ending of its file. render: returns the file's content for a document (docs/json.md), or
    raises UsageError; for a format that draws, the second argument names the chart, or is None.
    option: the pytest option that names the file, by its name for `Config.getoption`; None without one.
    begins: a regular expression for the start of its files: other programs' files are not overwritten.
    further_endings: other endings that its file may have. in_folder: whether `--bandwidth-dir` writes it.
    draws: whether it shows one chart of the run.
    """

    kind: str
    render: Callable[..., str | bytes]
    begins: str
    option: str | None = None
    further_endings: tuple[str, ...] = ()
    in_folder: bool = False
    draws: bool = False

    def __post_init__(self) -> None:
        re.compile(self.begins)  # an error is the hook's, not that of a later run, when the file exists

    @property
    def file(self) -> FileForm:
        """Return the form of its files."""
        return FileForm((f".{self.kind}", *self.further_endings), self.begins)


class Reporter(Protocol):
    """Make files of a run's results; a feature or a user adds one (`pytest_bandwidth_reporters`)."""

    def check(self) -> None:
        """Raise UsageError before any test runs, if the reporter cannot write."""

    def write(self, document: Mapping[str, Any], outcomes: Sequence[Outcome], suffix: str | None) -> list[str]:
        """Write the results of one device; return the names of the files written. Raises BandwidthError.

        document: as `--bandwidth-json` writes it. suffix: a part of file names that is different for each of the run's
        devices; None for a single device.
        """


def _csv(document: Mapping[str, Any]) -> str:
    from pytest_bandwidth.reports.documents import render_csv
    from pytest_bandwidth.storage.saved_run import read_document

    return render_csv(read_document(document).outcomes)


JSON = Format("json", later("reports.documents:render_json"), r'\s*\{\s*"schema":', "bandwidth_json", in_folder=True)
CORE = (
    JSON,
    Format("csv", _csv, r'"operation","precision",', "bandwidth_csv", in_folder=True),
    Format("md", later("reports.github:job_summary"), r"## "),
)


def formats() -> dict[str, Format]:
    """Return every format by its kind; a user's format replaces another of its kind."""
    return {one.kind: one for one in (*CORE, *hooked("pytest_bandwidth_formats", Format))}
