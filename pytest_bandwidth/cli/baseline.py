"""Look into baseline files and keep them: show, validate, compare, prune them, make empty ones.

Exit status 0: fine; 1: `diff` found a difference; 2: unusable input, an invalid file for `validate` included.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from pytest_bandwidth.devices.open import known_names


def declare(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        one = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        one.add_argument("--json", action="store_true", help="print JSON")
        return one

    show = action("show", "list the entries: figures, runs, noise, and the drops that are detected")
    show.add_argument("path", type=Path, metavar="PATH", help="a baseline file, or a folder of them")
    show.add_argument("keys", nargs="*", metavar="KEY", help="entries to show: a key, or a pattern with * and ?")

    validate = action("validate", "check files and list every problem (exit status 2)")
    validate.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="baseline files, or folders of them")

    diff = action("diff", "say what changed from one file or folder to another, PTX included (exit status 1)")
    diff.add_argument("old", type=Path, metavar="OLD", help="a baseline file, or a folder of them")
    diff.add_argument("new", type=Path, metavar="NEW", help="another")

    prune = action("prune", "remove entries")
    prune.add_argument("path", type=Path, metavar="PATH", help="a baseline file, or a folder of them")
    prune.add_argument("keys", nargs="*", metavar="KEY", help="entries to remove: a key, or a pattern with * and ?")
    prune.add_argument(
        "--not-in",
        type=Path,
        action="append",
        default=[],
        metavar="RUN.json",
        help="remove what this full run did not measure (with KEY: only where both hold; may be repeated)",
    )
    prune.add_argument("--dry-run", action="store_true", help="say what would go, change nothing")

    init = action("init", "make a file without entries for this machine's device")
    init.add_argument("path", type=Path, metavar="PATH", help="the new file, or a folder for it")
    init.add_argument("--device", default="auto", metavar="NAME", help=f"{known_names()} (default: auto)")


def run(options: argparse.Namespace) -> int:
    # Each action's module is imported when it runs: each needs its own parts of the package.
    module = options.action if options.action in ("show", "diff") else "files"
    action = getattr(import_module(f"pytest_bandwidth.cli.baseline_{module}"), options.action)
    status: int = action(options)
    return status
