"""Change points by a process beside this one, which imports ruptures and SciPy while this one reads a history.

A thread would not do: the import holds Python's lock for most of its time.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

from pytest_bandwidth.cli.history.change_points import change_points, needs_ruptures
from pytest_bandwidth.session.fresh.parent_death import as_parent, end_with_parent

# This process's own path: with -m the folder where the user stands would come first, and its modules would be run.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; from pytest_bandwidth.cli.history.change_points_beside import main; main()"
)

# A test's values, and whether they are counts.
Asked = tuple[Sequence[float], bool]
Search = Callable[[Sequence[Asked]], list[list[int]]]


@contextlib.contextmanager
def change_points_beside() -> Iterator[Search]:
    """Gives a call that finds the change points of several tests at once, each as `change_points` would."""
    if "ruptures" in sys.modules:
        yield _search
        return
    command = [sys.executable, "-c", _PROGRAM, *sys.path]
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, env=as_parent(), stdin=pipe, stdout=pipe, stderr=nothing, text=True) as process:

        def search(asked: Sequence[Asked]) -> list[list[int]]:
            if not any(needs_ruptures(values, exact=exact) for values, exact in asked):
                return _search(asked)
            text = process.communicate(json.dumps(asked))[0]
            # Whatever went wrong there is done here, or said here.
            return json.loads(text) if process.returncode == 0 else _search(asked)

        try:
            yield search
        finally:
            process.kill()


def _search(asked: Sequence[Asked]) -> list[list[int]]:
    return [change_points(values, exact=exact) for values, exact in asked]


def main() -> None:
    """Reads the values from standard input, and prints their change points, both as JSON."""
    end_with_parent()
    # Now, while the values are still being read. Where it is missing, the search will say so.
    with contextlib.suppress(ImportError):
        importlib.import_module("ruptures")
    json.dump(_search(json.load(sys.stdin)), sys.stdout)
