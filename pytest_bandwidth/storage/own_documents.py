"""Refuse an output that would overwrite a file which this package did not write, or that has another form's ending."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pytest_bandwidth.domain.errors import UsageError

# Where a file says what wrote it.
_LOOKED_AT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class FileForm:
    """Describe files of one form: the endings that they may have, and a regular expression for how they begin."""

    endings: tuple[str, ...]
    begins: str


HTML = FileForm((".html", ".htm"), r'<!doctype html>(?s:.*)<meta name="generator" content="pytest-bandwidth">')


def refuse_foreign(option: str, target: Path, form: FileForm) -> None:
    """Raise UsageError where the file that an option names is another program's, by its ending or by what it holds.

    A file without an ending, an empty one, a pipe and a device may be written to.
    """
    ending, is_file = target.suffix, target.is_file()
    if ending and ending.lower() not in form.endings and (is_file or not target.exists()):
        raise UsageError(f"{option}: found {target} with the ending {ending}, expected {' or '.join(form.endings)}")
    if not is_file:
        return
    with target.open("rb") as file:
        held = file.read(_LOOKED_AT_BYTES).decode("latin-1")
    if held and not re.match(form.begins, held):
        raise UsageError(
            f"{option}: found {target}, which pytest-bandwidth did not write in this form, expected another file: it "
            "would be lost"
        )
