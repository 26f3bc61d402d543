"""Put bugs into a copy of the cuda device, one at a time, and see which tests on the emulated card turn red.

    python benchmarks/card_mutations.py                            # some minutes
    python benchmarks/card_mutations.py --bug "no flush" --bug "events swapped"

Needs what the emulated card needs (tests/emulated_card/README.md). The tests run with the copy first where Python looks
for packages, in processes that have it too. Without a bug it has to pass them all; that is tried first. Prints
Markdown, and ends with 1 where a bug was not found.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
PACKAGE = ROOT / "pytest_bandwidth"
HANGS_SECONDS = 600
RED = re.compile(r"^(?:FAILED|ERROR) \S*?(test_\w+\.py::\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Bug:
    """Hold an edit, `good` to `bad` in a file of the package, and the tests that are meant to notice it."""

    name: str
    file: str
    good: str
    bad: str
    tests: tuple[str, ...]

    def put_into(self, package: Path) -> None:
        """Edit the copy of the package. Raises LookupError where the source is no longer as the edit knows it."""
        path = package / self.file
        text = path.read_text(encoding="utf-8")
        if (found := text.count(self.good)) != 1:
            raise LookupError(f"{self.name}: found {self.good!r} {found} times in {self.file}, expected it once")
        path.write_text(text.replace(self.good, self.bad), encoding="utf-8")


CUDA = "devices/cuda"
BUGS = (
    Bug(
        "no flush",
        f"{CUDA}/runtime.py",
        "if size == 0:",
        "if size >= 0:",
        ("gpu/test_gpu_cache.py::test_a_warm_cache_is_faster_and_the_flush_prevents_it",),
    ),
    Bug(
        "wrong stream",
        f"{CUDA}/timing.py",
        "target = runtime.stream(stream)",
        "target = runtime.stream(None)",
        ("gpu/test_gpu_streams.py::test_a_named_stream_gives_the_same_figure",),
    ),
    Bug(
        "hold never released",
        f"{CUDA}/timing.py",
        "                runtime.unblock(ticket)\n",
        "                pass\n",
        ("gpu/test_gpu_hold.py::test_an_ordinary_callable_is_held",),
    ),
    Bug(
        "events swapped",
        f"{CUDA}/runtime.py",
        "get_elapsed_time(start, end)",
        "get_elapsed_time(end, start)",
        ("gpu/test_gpu_hold.py::test_an_ordinary_callable_is_held",),
    ),
    Bug(
        "bytes halved",
        "devices/arguments.py",
        "found, size = int(array.device.id), bytes_in_memory(array)",
        "found, size = int(array.device.id), bytes_in_memory(array) // 2",
        ("card/test_figures.py::test_a_copy_has_the_bandwidth_of_the_cards_memory",),
    ),
    Bug(
        "probe not matched",
        f"{CUDA}/runtime.py",
        "mix = nearest_mix(traffic)",
        "mix = nearest_mix(Traffic(1, 1))",
        ("gpu/test_gpu_traps.py::test_every_mix_has_a_probe_that_moves_as_much",),
    ),
    Bug(
        "clock unit",
        f"{CUDA}/health.py",
        "nanoseconds[long_enough]) * 1e3)",
        "nanoseconds[long_enough]))",
        ("gpu/test_gpu_clocks.py::test_warm_up_takes_time_and_the_clock_is_counted",),
    ),
    Bug(
        "ECC ignored",
        f"{CUDA}/health.py",
        "errors - earlier) > 0:",
        "errors - earlier) < 0:",
        ("card/test_life_of_a_baseline.py::test_an_ailing_card_is_told_and_its_figures_count_for_nothing",),
    ),
    Bug(
        "error swallowed",
        f"{CUDA}/runtime.py",
        "            self._note_if_sticky(error)\n            if status_of(error) in CAPTURING:",
        "            return\n            if status_of(error) in CAPTURING:",
        ("gpu/test_gpu_kernels.py::test_an_illegal_access_loses_the_device_once_and_for_all",),
    ),
    Bug(
        "lock not taken",
        "measuring/measurer.py",
        "if self.settings.disable else self._lock",
        "if True else self._lock",
        ("card/test_taking_turns.py::test_a_run_names_the_process_that_it_waited_for",),
    ),
)


def copy_of_package(folder: Path) -> Path:
    """Copy the package and the kernels that it ships; return the copy of the package."""
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "cuda_src", folder / "cuda_src")
    return folder / PACKAGE.name


def red_tests(tests: Sequence[str], package: Path) -> list[str]:
    """Run tests with a copy of the package; return which fail. Raises SystemExit where they cannot be run."""
    red: list[str] = []
    # Those in gpu/ run on the card as they are; those in card/ start processes of their own on it.
    for on_card in (True, False):
        some = sorted({test for test in tests if test.startswith("gpu/") is on_card})
        if some:
            red += _red(some, package, on_card=on_card)
    return red


def _red(tests: Sequence[str], package: Path, *, on_card: bool) -> list[str]:
    from emulated_card.environment import card_environment  # found once `main` has said where

    with tempfile.TemporaryDirectory() as state:
        environment = card_environment(Path(state), {}) if on_card else dict(os.environ)
        paths = [str(package.parent), environment.get("PYTHONPATH")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        plain = ("-p", "no:cacheprovider", "-p", "no:xdist", "-q", "-rfE", "--tb=no")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *plain, *(str(TESTS / test) for test in tests)],
            cwd=package.parent,  # which `-m` puts before all other folders
            env=environment,
            capture_output=True,
            text=True,
            timeout=HANGS_SECONDS,
            check=False,
        )
    red = RED.findall(done.stdout)
    if done.returncode not in (0, 1) or (done.returncode == 1) is not bool(red):
        raise SystemExit(f"{', '.join(tests)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    if " skipped" in done.stdout:
        raise SystemExit(f"{', '.join(tests)} skipped, expected an emulated card:\n{done.stdout}")
    return red


def red_with(bug: Bug) -> list[str]:
    """Return which of the bug's tests fail with it."""
    with tempfile.TemporaryDirectory() as folder:
        package = copy_of_package(Path(folder))
        bug.put_into(package)
        return red_tests(bug.tests, package)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bug", action="append", choices=[bug.name for bug in BUGS], help="only this one; may repeat")
    options = parser.parse_args()
    bugs = [bug for bug in BUGS if not options.bug or bug.name in options.bug]
    sys.path.insert(0, str(TESTS))  # for emulated_card
    for bug in bugs:  # before anything runs
        with tempfile.TemporaryDirectory() as folder:
            bug.put_into(copy_of_package(Path(folder)))
    with tempfile.TemporaryDirectory() as folder:
        red = red_tests([test for bug in bugs for test in bug.tests], copy_of_package(Path(folder)))
    if red:
        raise SystemExit(f"red without any bug: {', '.join(red)}")
    print("| bug | red | s |\n|---|---|---|")
    survived = 0
    for bug in bugs:
        begun = time.monotonic()
        red = red_with(bug)
        survived += not red
        shown = ", ".join(f"`{test}`" for test in dict.fromkeys(test.partition("[")[0] for test in red))
        print(f"| {bug.name} | {shown or '**nothing**'} | {time.monotonic() - begun:.1f} |", flush=True)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
