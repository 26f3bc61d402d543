"""Measure every GPU of a Ray cluster, or every node: each by a pytest of its own, which sees that card alone.

Exit status 0: fine; 1: a test failed on some card; 2: unusable input; 3: some cards did not report.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from pytest_bandwidth.cli.main import INTERRUPTED, UNUSABLE
from pytest_bandwidth.cli.output import write_output
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.units import parse_count, parse_positive
from pytest_bandwidth.reports.formats import JSON
from pytest_bandwidth.storage.atomic import HTML, FileForm, refuse_foreign

Number = TypeVar("Number", int, float)


def declare(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        f"{parser.prog} [-h] [--address A] [--per gpu|node] [--only MODEL|NODE] [--timeout S] [--retries N] "
        "[--chdir DIR] [--python PATH] [--runtime-env FILE] [-o FILE] [-- ARG ...]"
    )
    parser.epilog = "ARG: for pytest, on every card, the plugin's own options among them"
    parser.add_argument(
        "--address",
        default="auto",
        help="of the Ray cluster: auto, local, HOST:PORT or ray://HOST:PORT (default: auto)",
    )
    parser.add_argument("--per", choices=("gpu", "node"), default="gpu", help="what is measured (default: gpu)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="MODEL|NODE",
        help="only GPUs of this model, or this host, address or node id; may be repeated",
    )
    parser.add_argument("--timeout", metavar="S", default="3600", help="seconds for each card's pytest (default: 3600)")
    parser.add_argument(
        "--retries", metavar="N", default="0", help="further attempts for a card that did not report (default: 0)"
    )
    parser.add_argument(
        "--chdir", metavar="DIR", help="the checkout on every node (default: Ray ships the current folder)"
    )
    parser.add_argument("--python", metavar="PATH", help="interpreter on every node (default: the one that Ray runs)")
    parser.add_argument(
        "--runtime-env",
        type=Path,
        metavar="FILE",
        help="JSON: the environment that Ray makes on every node (pip, uv, conda, py_executable, image_uri, container)",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the fleet as JSON, or as a page (.html): a row for each card"
    )


def run(options: argparse.Namespace) -> int:
    import pytest

    from pytest_bandwidth.features.fleet.caller import FleetCaller
    from pytest_bandwidth.features.fleet.cluster import MISSING
    from pytest_bandwidth.features.fleet.runtime_env import read_runtime_env
    from pytest_bandwidth.session.publishing.run_files import check_writable

    if options.output is not None:
        check_writable("-o", options.output, a_file=True)
        refuse_foreign("-o", options.output, _form(options.output))
    if find_spec("ray") is None:
        raise UsageError(MISSING)
    environment = None
    if options.runtime_env is not None:
        environment = read_runtime_env(options.runtime_env, ships_folder=options.chdir is None)
    timeout_seconds = _parsed("--timeout", options.timeout, parse_positive)
    caller = FleetCaller(options, environment, timeout_seconds, _parsed("--retries", options.retries, parse_count))
    # The caller has no workers of its own, whatever the ini file says.
    alone = ["-n0"] if find_spec("xdist") is not None else []
    # This command is the plugin's own module, loaded before pytest could rewrite its assertions.
    alone += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
    ended = pytest.main([*alone, *options.rest], plugins=[caller])
    document = caller.document()
    if options.output is not None and document is not None:
        write_output(options.output, _rendered(document, options.output), _form(options.output))
    if ended == pytest.ExitCode.INTERRUPTED:
        return INTERRUPTED
    return UNUSABLE if ended in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR) else caller.status


def _form(output: Path) -> FileForm:
    return HTML if output.suffix.lower() in HTML.endings else JSON.file


def _rendered(document: Mapping[str, Any], output: Path) -> str:
    if _form(output) is HTML:
        from pytest_bandwidth.features.fleet.page import render_fleet

        return render_fleet(document)
    from pytest_bandwidth.features.fleet.overview import fleet_json

    return fleet_json(document)


def _parsed(option: str, text: str, parse: Callable[[str], Number]) -> Number:
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
