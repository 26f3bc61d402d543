"""Refuse an output that would overwrite a file which this package did not write, or that has another form's ending."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_bandwidth.domain.errors import UsageError

# Where a file says what wrote it.
_LOOKED_AT_BYTES = 4096
# By form: the endings that its file may have, and how it begins.
_FORMS: dict[str, tuple[tuple[str, ...], str]] = {
    "json": ((".json",), r'\s*\{\s*"schema":'),
    "csv": ((".csv",), r'"operation","precision",'),
    "html": ((".html", ".htm"), r'<!doctype html>(?s:.*)<meta name="generator" content="pytest-bandwidth">'),
    "md": ((".md",), r"## "),
    "svg": ((".svg",), r"<svg "),
    "png": ((".png",), r"\x89PNG"),
    "bencher": ((".json",), r'\{\s*(\}|"(?:[^"\\]|\\.)*":\s*\{\s*"(?:bandwidth|share-of-probe|latency)":)'),
    "github-action-benchmark": ((".json",), r'\[\s*(\]|\{\s*"name":)'),
    "otava": ((".csv",), r'"time","run_id","commit","device"'),
    "openmetrics": ((".txt", ".prom", ".om"), r"# (?:TYPE pytest_bandwidth_|EOF)"),
    "csv-long": ((".csv",), r'"run_id","started_at","commit",'),
}


def refuse_foreign(option: str, target: Path, form: str) -> None:
    """Raise UsageError where the file that an option names is another program's, by its ending or by what it holds.

    A file without an ending, an empty one, a pipe and a device may be written to.
    """
    endings, _ = _FORMS[form]
    ending = target.suffix
    if ending and ending.lower() not in endings and not _is_device(target):
        raise UsageError(f"{option}: found {target} with the ending {ending}, expected {' or '.join(endings)}")
    if not target.is_file():
        return
    with target.open("rb") as file:
        held = file.read(_LOOKED_AT_BYTES).decode("latin-1")
    begins = [begin for others, begin in _FORMS.values() if endings[0] in others]
    if held and not any(re.match(begin, held) for begin in begins):
        raise UsageError(
            f"{option}: found {target}, which pytest-bandwidth did not write, expected another file: it would be lost"
        )


def _is_device(target: Path) -> bool:
    return target.exists() and not target.is_file()
