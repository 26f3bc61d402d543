"""Start neighbours: processes that disturb what is measured beside them, as those of a shared machine do.

    python tests/support/neighbours.py steady make test     # the command beside them; ends with its status

They have the priority of what starts them, end with it however it ends, and after SECONDS at the latest.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 7200.0
# What compilers and an editor's helpers take.
SHORT_SECONDS = (0.03, 0.25)
PAUSE_SECONDS = (0.05, 0.5)
STREAMED_BYTES = 64 << 20
COMPILE = "import sys\nfor name in sys.argv[1:]:\n    compile(open(name, 'rb').read(), name, 'exec')\n"
# Compiled in what a short process takes, most of them.
SOURCE_BYTES = (10_000, 60_000)

# Says whether a neighbour is to go on.
Wanted = Callable[[], bool]


def steady(wanted: Wanted) -> None:
    """Compute without a pause."""
    while wanted():
        sum(range(20_000))


def memory(wanted: Wanted) -> None:
    """Copy more than caches hold, over and over."""
    source, target = bytearray(b"\1") * STREAMED_BYTES, bytearray(b"\2") * STREAMED_BYTES
    while wanted():
        memoryview(target)[:] = source


def bursts(wanted: Wanted) -> None:
    """Start processes of `SHORT_SECONDS` each, one after the other with pauses."""
    while wanted():
        os.waitpid(_started(steady, time.monotonic() + random.uniform(*SHORT_SECONDS)), 0)
        time.sleep(random.uniform(*PAUSE_SECONDS))


def builds(wanted: Wanted) -> None:
    """Compile sources of Python's library, a process each, without pauses, as a build does."""
    library = Path(os.__file__).parent.glob("*.py")
    least, most = SOURCE_BYTES
    sources = [str(path) for path in library if least <= path.stat().st_size <= most]
    while wanted():
        command = [sys.executable, "-I", "-S", "-c", COMPILE, random.choice(sources)]
        os.waitpid(_started(lambda _, command=command: os.execv(command[0], command)), 0)


# By name: what a neighbour does, and whether there is one for each processor or one alone.
KINDS: dict[str, tuple[Callable[[Wanted], None], bool]] = {
    "steady": (steady, True),
    "memory": (memory, False),
    "bursts": (bursts, True),
    "builds": (builds, True),
}


def _started(work: Callable[[Wanted], object], until: float = math.inf) -> int:
    """Do the work in a child process, wanted until then and while this one lives; return its id."""
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            work(lambda: os.getppid() == parent and time.monotonic() < until)
        finally:
            os._exit(0)
    return child


def serve(kind: str, seconds: float, parent: int) -> None:
    """Run the neighbours until the time is up or the process `parent` has ended."""
    until = time.monotonic() + seconds
    work, for_each_processor = KINDS[kind]
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for _ in range(processors if for_each_processor else 1):
        _started(work, until)
    print(kind, flush=True)
    while time.monotonic() < until and os.getppid() == parent:
        time.sleep(0.05)  # a process is not told of its parent's end


@contextmanager
def beside(kind: str, seconds: float = SECONDS) -> Iterator[int | None]:
    """Have neighbours of a kind of `KINDS` while the block runs, none for "none"; give their parent's process id."""
    if kind == "none":
        yield None
        return
    # Single-threaded, since it forks, and without what this process has loaded.
    command = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), "--serve", str(os.getpid())]
    command += [f"--seconds={seconds}", kind]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            if server.stdout.readline().strip() != kind:
                raise RuntimeError(f"the neighbours of kind {kind} did not start")
            yield server.pid
        finally:
            server.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["none", *KINDS])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long they stay at most (default: 7200)")
    parser.add_argument("--serve", type=int, metavar="PID", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what to run beside them")
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.kind, options.seconds, options.serve)
        return 0
    if not options.command:
        parser.error("found no command, expected one to run beside them")
    with beside(options.kind, options.seconds):
        return subprocess.run(options.command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
