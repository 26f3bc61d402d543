"""Write what commands give: text that fits the terminal, JSON documents for programs, the file that `-o` asks for."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.units import format_gbps
from pytest_bandwidth.reports.text_safe import json_for_log, printable
from pytest_bandwidth.storage.atomic import FileForm, refuse_foreign, write_whole

# Version of the documents that the commands print; docs/cli.md describes them.
SCHEMA = 1


def write_output(path: Path, data: str | bytes, form: FileForm) -> None:
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


def terminal_width() -> int | None:
    """Return the columns of the terminal; None where the output goes to a file or a program, which want names whole."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def json_text(document: Mapping[str, Any]) -> str:
    """Return JSON with the version of the form first, as a file holds it."""
    return json_for_log({"schema": SCHEMA, **document}) + "\n"


def print_json(document: Mapping[str, Any]) -> None:
    print(json_text(document), end="")


def device_words(name: str, memory_gib: int | None, peak_gbps: float | None) -> list[str]:
    """Return a device's name, and its memory and its peak where they are known."""
    memory = [] if memory_gib is None else [f"{memory_gib} GiB"]
    return [printable(name), *memory, *([] if peak_gbps is None else [f"peak {format_gbps(peak_gbps)}"])]
