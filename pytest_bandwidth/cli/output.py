"""Write the file that `-o` asks for."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.reports.text_safe import printable
from pytest_bandwidth.storage.atomic import write_whole
from pytest_bandwidth.storage.own_documents import refuse_foreign


def write_output(path: Path, data: str | bytes, form: str) -> None:
    """Write the file whole or not at all, and say so on standard error, since standard output is for results.

    A folder that is missing is made, as a run makes it for its outputs. Raises UsageError for a file of others.
    """
    refuse_foreign("-o", path, form)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data.encode() if isinstance(data, str) else data, keep=True)
    print(f"wrote {printable(str(path))}", file=sys.stderr)


def refuse_own_input(path: Path, inputs: Iterable[Path]) -> None:
    """Raise UsageError where `-o` names one of the files that are read: writing it would lose them."""
    for given in inputs:
        if path.exists() and given.exists() and path.samefile(given):
            raise UsageError(f"-o {path}: found a file that is read ({given}), expected another: it would be lost")
