"""`pytest-bandwidth`: what is asked of devices, baselines and saved runs outside a test run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from pytest_bandwidth import __version__
from pytest_bandwidth.domain.errors import BandwidthError

# Exit statuses, the same for every command.
FINE, REGRESSED, UNUSABLE = 0, 1, 2

_COMMANDS = {
    "device": "identity, peaks with their source, what a probe reaches by mix, caches, clocks, ridge points",
    "selftest": "false alarms and found drops on this machine, with a recommendation",
    "baseline": "show, validate, diff, prune or init baseline files",
    "compare": "compare saved runs",
    "report": "render a saved run (JSON) as HTML, CSV or Markdown",
    "plot": "render a chart of a saved run as SVG or PNG",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 0 fine, 1 regressed, 2 unusable input (one line on standard error)."""
    parser = argparse.ArgumentParser(prog="pytest-bandwidth", description=__doc__)
    parser.add_argument("--version", action="version", version=f"pytest-bandwidth {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in _COMMANDS.items():
        # Each command's module is small; what is heavy is imported when it runs.
        module = import_module(f"pytest_bandwidth.commands.{name}")
        module.declare(subparsers.add_parser(name, help=text, description=module.__doc__))
    options = parser.parse_args(arguments)
    try:
        status: int = import_module(f"pytest_bandwidth.commands.{options.command}").run(options)
    except (BandwidthError, OSError) as error:
        print(f"pytest-bandwidth {options.command}: {error}", file=sys.stderr)
        return UNUSABLE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
