"""Look into baseline files and keep them: show, validate, compare, prune them, make empty ones.

Exit status 0: fine; 1: `diff` found a difference; 2: unusable input, an invalid file for `validate` included.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from pytest_bandwidth.cli.baseline_diff import diff
from pytest_bandwidth.cli.baseline_files import init, prune, validate
from pytest_bandwidth.cli.baseline_show import show
from pytest_bandwidth.devices.open import known_names


def declare(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(act: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        one = actions.add_parser(act.__name__, help=text, description=f"{text[0].upper()}{text[1:]}.")
        one.add_argument("--json", action="store_true", help="print JSON")
        one.set_defaults(act=act)
        return one

    one = action(show, "list the entries: figures, runs, noise, and the drops that are detected")
    one.add_argument("path", type=Path, metavar="PATH", help="a baseline file, or a folder of them")
    one.add_argument("keys", nargs="*", metavar="KEY", help="entries to show: a key, or a pattern with * and ?")

    one = action(validate, "check files and list every problem (exit status 2)")
    one.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="baseline files, or folders of them")

    one = action(diff, "say what changed from one file or folder to another, PTX included (exit status 1)")
    one.add_argument("old", type=Path, metavar="OLD", help="a baseline file, or a folder of them")
    one.add_argument("new", type=Path, metavar="NEW", help="another")

    one = action(prune, "remove entries")
    one.add_argument("path", type=Path, metavar="PATH", help="a baseline file, or a folder of them")
    one.add_argument("keys", nargs="*", metavar="KEY", help="entries to remove: a key, or a pattern with * and ?")
    one.add_argument(
        "--not-in",
        type=Path,
        action="append",
        default=[],
        metavar="RUN.json",
        help="remove what this full run did not measure (with KEY: only where both hold; may be repeated)",
    )
    one.add_argument("--dry-run", action="store_true", help="say what would go, change nothing")

    one = action(init, "make a file without entries for this machine's device")
    one.add_argument("path", type=Path, metavar="PATH", help="the new file, or a folder for it")
    one.add_argument("--device", default="auto", metavar="NAME", help=f"{known_names()} (default: auto)")


def run(options: argparse.Namespace) -> int:
    status: int = options.act(options)
    return status
