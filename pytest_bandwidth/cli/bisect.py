"""Find the first commit at which a test is REGRESSED against a good one, as `git bisect` does.

Each commit is judged by pairs of fresh processes, of its code and of the good one's, in temporary folders: the working
tree is neither used nor touched. Equal code takes no measurement. What follows -- goes to pytest.
"""

from __future__ import annotations

import argparse

from pytest_bandwidth.domain.errors import UsageError

SECONDS = 600.0
MOST_SECONDS = 86_400.0


def declare(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [-h] [--timeout S] [--json] GOOD BAD TEST [-- ARG ...]"
    parser.epilog = "ARG: for pytest, such as --bandwidth-device=traffic"
    parser.add_argument("good", metavar="GOOD", help="a commit at which the test is as fast as it should be")
    parser.add_argument("bad", metavar="BAD", help="a later commit at which it is not")
    parser.add_argument("test", metavar="TEST", help="one test as pytest names it: tests/test_copy.py::test_copy[1024]")
    parser.add_argument(
        "--timeout", type=float, default=SECONDS, metavar="S", help="seconds that one process may take (default: 600)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    from pytest_bandwidth.cli import bisect_search  # pytest and all that measures is kept out of start-up

    if not options.test.partition("::")[2]:
        raise UsageError(f"TEST is {options.test[:80]!r}, expected one as pytest names it: tests/test_x.py::test_y")
    if not 0 < options.timeout <= MOST_SECONDS:
        raise UsageError(f"--timeout {options.timeout:g}: expected more than 0 and at most {MOST_SECONDS:g} seconds")
    return bisect_search.run(options)
