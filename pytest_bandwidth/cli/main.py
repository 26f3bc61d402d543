"""Look into devices, baselines and saved runs outside a test run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from types import ModuleType
from typing import NoReturn

from pytest_bandwidth import __version__
from pytest_bandwidth.domain.errors import BandwidthError, BaselineError
from pytest_bandwidth.reports.text_safe import printable

# Exit statuses, the same for every command (bisect has one more); the last two as a shell gives them for signals 2, 13.
FINE, REGRESSED, UNUSABLE, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141

_COMMANDS = {
    "device": "identity, peaks with their source, what a probe reaches by mix, caches, clocks, ridge points",
    "selftest": "false alarms and found drops on this machine, with a recommendation",
    "baseline": "show, validate, diff, prune or init baseline files",
    "compare": "compare saved runs",
    "bisect": "find the first commit at which a test is REGRESSED against a good one",
    "history": "how tests fared over the runs in a history, with the places where their level changed",
    "fleet": "measure every GPU of a Ray cluster, each in a process of its own, and merge what they found",
    "export": "write saved runs for Bencher, github-action-benchmark, Otava, OpenMetrics, or as long CSV",
    "report": "render a saved run (JSON) as text, HTML, CSV or Markdown, or a chart of it as SVG or PNG",
}
# These have a folder each.
_FOLDERS = frozenset({"baseline", "bisect", "compare", "fleet", "history", "selftest"})
# What follows -- is for another program.
_TAKE_REST = frozenset({"bisect", "fleet"})


class _Parser(argparse.ArgumentParser):
    """Say what is wrong with the arguments in one line, as every other error of the commands."""

    def error(self, message: str) -> NoReturn:
        self.exit(UNUSABLE, f"{self.prog}: {printable(message)} (--help says more)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 fine, 1 regressed, 2 unusable input (one line on standard error)."""
    parser = _Parser(prog="pytest-bandwidth", description=__doc__)
    parser.add_argument("--version", action="version", version=f"pytest-bandwidth {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in _COMMANDS.items():
        # Each command's module is small; what is heavy is imported when it runs.
        module = _module(name)
        module.declare(subparsers.add_parser(name, help=text, description=module.__doc__))
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if given[0:1] and given[0] in _TAKE_REST and "--" in given else len(given)
    options, unknown = parser.parse_known_args(given[:end])
    if unknown:
        hint = "; pytest's arguments stand after --" if options.command in _TAKE_REST else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    options.rest = given[end + 1 :]
    if isinstance(sys.stdout, TextIOWrapper):
        # Names come from files; one that the terminal's encoding lacks must not end the command.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status: int = _module(options.command).run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read this has seen enough (`| head`); what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except (BandwidthError, OSError) as error:
        print(f"pytest-bandwidth {options.command}: {_one_line(error)}", file=sys.stderr)
        return UNUSABLE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    return status


def _module(command: str) -> ModuleType:
    """Import the module of a command: a file of its name, or `command.py` in a folder of its name."""
    place = f"{command}.command" if command in _FOLDERS else command
    return import_module(f"pytest_bandwidth.cli.{place}")


def _one_line(error: Exception) -> str:
    """Return the error's first line; what was left out is said, and where it can be had."""
    if isinstance(error, OSError) and error.strerror:
        name = "" if error.filename is None else f"{error.filename}: "
        return printable(f"{name}cannot be read or written: {error.strerror}")
    if isinstance(error, BaselineError) and len(error.problems) > 1:
        first, *others = error.problems
        return printable(f"{first} (and {len(others)} more: `pytest-bandwidth baseline validate` lists them)")
    return " ".join(printable(line.strip()) for line in str(error).splitlines())
