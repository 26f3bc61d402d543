"""Look into devices, baselines and saved runs outside a test run."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

from pytest_bandwidth import __version__
from pytest_bandwidth.domain.errors import BandwidthError, BaselineError, UsageError
from pytest_bandwidth.domain.units import format_gbps
from pytest_bandwidth.domain.user_code import hooked
from pytest_bandwidth.domain.values import Parser
from pytest_bandwidth.hooks import Command
from pytest_bandwidth.registry import FeatureFailed
from pytest_bandwidth.reports.text_safe import json_for_log, printable
from pytest_bandwidth.storage.atomic import FileForm, refuse_foreign, write_whole

# Exit statuses, the same for every command (bisect has one more); the last two as a shell gives them for signals 2, 13.
FINE, REGRESSED, UNUSABLE, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141

_HERE = "pytest_bandwidth.cli"
# In the order of --help; those of features follow.
_OF_THE_CORE = (
    Command("init", "write a first test into a repository, and what pytest and git need for it", f"{_HERE}.init"),
    Command("device", "show what the device is and what it reaches", f"{_HERE}.device"),
    Command("selftest", "measure false alarms and found drops on this machine", f"{_HERE}.selftest"),
    Command("baseline", "show, validate, diff, prune or init baseline files", f"{_HERE}.baseline"),
    Command("compare", "compare saved runs", f"{_HERE}.compare"),
    Command("resources", "list registers, stack and shared memory of a library's kernels", f"{_HERE}.resources"),
    Command("bisect", "find the first commit at which a test is REGRESSED", f"{_HERE}.bisect", takes_rest=True),
    Command("report", "render a saved run (JSON) as text, HTML, CSV, Markdown or a chart", f"{_HERE}.report"),
)


class _Parser(argparse.ArgumentParser):
    """Report wrong arguments in one line, like every other error of the commands."""

    def error(self, message: str) -> NoReturn:
        self.exit(UNUSABLE, f"{self.prog}: {printable(message)} (see --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 fine, 1 regressed, 2 unusable input (one line on standard error)."""
    parser = _Parser(prog="pytest-bandwidth", description=__doc__)
    parser.add_argument("--version", action="version", version=f"pytest-bandwidth {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    try:
        known = commands()
    except (FeatureFailed, UsageError) as error:
        parser.exit(UNUSABLE, f"{parser.prog}: {_one_line(error)}\n")
    given = list(sys.argv[1:] if arguments is None else arguments)
    for one in known.values():
        parser_of_one = subparsers.add_parser(one.name, help=one.help)
        if one.name in given[:1]:  # modules of other commands are not imported
            module = import_module(one.module)
            parser_of_one.description = module.__doc__
            module.declare(parser_of_one)
    take_rest = {one.name for one in known.values() if one.takes_rest}
    end = given.index("--") if given[0:1] and given[0] in take_rest and "--" in given else len(given)
    options, unknown = parser.parse_known_args(given[:end])
    if unknown:
        hint = "; put pytest's arguments after --" if options.command in take_rest else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    options.rest = given[end + 1 :]
    if isinstance(sys.stdout, TextIOWrapper):
        # Names come from files; one that the terminal's encoding lacks must not end the command.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status: int = import_module(known[options.command].module).run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe (`| head`): discard the output that is still buffered.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except (BandwidthError, OSError) as error:
        from pytest_bandwidth.reports.wording import with_help  # kept out of start-up

        print(with_help(error, f"pytest-bandwidth {options.command}: {_one_line(error)}"), file=sys.stderr)
        return UNUSABLE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    return status


def commands() -> dict[str, Command]:
    """Return the commands of the core and of features by their names."""
    return {one.name: one for one in (*_OF_THE_CORE, *hooked("pytest_bandwidth_commands", Command))}


def _one_line(error: Exception) -> str:
    """Return the error on one line; of several problems only the first, with a note on the others."""
    if isinstance(error, OSError) and error.strerror:
        name = "" if error.filename is None else f"{error.filename}: "
        return printable(f"{name}cannot be read or written: {error.strerror}")
    if isinstance(error, BaselineError) and len(error.problems) > 1:
        first, *others = error.problems
        return printable(f"{first} (and {len(others)} more: `pytest-bandwidth baseline validate` lists them)")
    return " ".join(printable(line.strip()) for line in str(error).splitlines())


def checked(parse: Parser) -> Callable[[str], Any]:
    """Return a parser as argparse takes it: the ValueError's text becomes the command's error."""

    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


# ---- output of commands: text that fits the terminal, JSON for programs, the file that `-o` asks for -----------------

# Version of the documents that the commands print; docs/cli.md describes them.
SCHEMA = 1


def write_output(path: Path, data: str | bytes, form: FileForm) -> None:
    """Write the file atomically, and report it on standard error, since standard output is for results.

    A missing folder is made, as in a run. Raises UsageError for a file that another program wrote.
    """
    refuse_foreign("-o", path, form)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data.encode() if isinstance(data, str) else data, keep=True)
    print(f"wrote {printable(str(path))}", file=sys.stderr)


def refuse_own_input(path: Path, inputs: Iterable[Path]) -> None:
    """Raise UsageError where `-o` names one of the files that are read: writing it would lose them."""
    for given in inputs:
        if path.exists() and given.exists() and path.samefile(given):
            raise UsageError(f"-o {path}: found an input ({given}), expected another file: the input would be lost")


def terminal_width() -> int | None:
    """Return the columns of the terminal; None where the output goes to a file or a program, which need whole names."""
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
