"""Measure every GPU of a Ray cluster, or each node, by its own pytest process, to which only that card is visible.

Exit status 0: fine; 1: a test failed on some card; 2: unusable input; 3: some cards did not report.
"""

from __future__ import annotations

import argparse
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pytest_bandwidth.cli.main import INTERRUPTED, UNUSABLE, checked, write_output
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import parse_count, parse_positive
from pytest_bandwidth.features.fleet.caller import FleetCaller
from pytest_bandwidth.features.fleet.cluster import MISSING
from pytest_bandwidth.features.fleet.overview import render_fleet
from pytest_bandwidth.reports.documents import render_json
from pytest_bandwidth.reports.formats import JSON
from pytest_bandwidth.session.publishing.run_files import check_writable
from pytest_bandwidth.storage.atomic import HTML, refuse_foreign

# Ray's own names, without those for shipped files: --chdir replaces them. https://docs.ray.io/en/latest/ray-core/handling-dependencies.html
ENVIRONMENTS = ("pip", "uv", "conda", "py_executable", "image_uri", "container")
FURTHER_KEYS = ("env_vars", "config")
CONTAINERS = ("image_uri", "container")


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
    parser.add_argument(
        "--timeout",
        type=checked(parse_positive),
        default=3600.0,
        metavar="S",
        help="seconds for each card's pytest (default: 3600)",
    )
    parser.add_argument(
        "--retries",
        type=checked(parse_count),
        default=0,
        metavar="N",
        help="further attempts for a card that did not report (default: 0)",
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
    form = JSON.file
    if options.output is not None:
        form = HTML if options.output.suffix.lower() in HTML.endings else JSON.file
        check_writable("-o", options.output, a_file=True)
        refuse_foreign("-o", options.output, form)
    if find_spec("ray") is None:
        raise UsageError(MISSING)
    environment = None
    if options.runtime_env is not None:
        environment = read_runtime_env(options.runtime_env, ships_folder=options.chdir is None)
    caller = FleetCaller(options, environment)
    # The caller has no workers of its own, even if the ini file asks for some.
    alone = ["-n0"] if find_spec("xdist") is not None else []
    # This command is the plugin's own module, loaded before pytest could rewrite its assertions.
    alone += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
    ended = pytest.main([*alone, *options.rest], plugins=[caller])
    if options.output is not None and caller.document is not None:
        render = render_fleet if form is HTML else render_json
        write_output(options.output, render(caller.document), form)
    if ended == pytest.ExitCode.INTERRUPTED:
        return INTERRUPTED
    return UNUSABLE if ended in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR) else caller.status


def read_runtime_env(path: Path, *, ships_folder: bool) -> dict[str, Any]:
    """Return the file's runtime_env, whose values Ray checks.

    ships_folder: whether Ray ships the current folder, which no container takes. Raises UsageError.
    """
    content: Any
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"--runtime-env {path}: cannot be read: {error.strerror}, expected JSON") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--runtime-env {path}: found no JSON ({shown(str(error))}), expected an object") from None
    if not isinstance(content, dict):
        raise UsageError(f'--runtime-env {path}: found no object, expected one like {{"pip": ["numpy"]}}')
    for name in content:
        if name not in (*ENVIRONMENTS, *FURTHER_KEYS):
            expected = ", ".join((*ENVIRONMENTS, *FURTHER_KEYS))
            raise UsageError(f"--runtime-env {path}: found {shown(name)}, expected one of {expected}")
        if ships_folder and name in CONTAINERS:
            raise UsageError(
                f"--runtime-env {path}: found {name}, which takes no folder from Ray, expected --chdir DIR with it: "
                "the checkout in the container"
            )
    return content
