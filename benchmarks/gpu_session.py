"""Take a GPU through all that it has to decide, in parts of at most eight minutes; nothing red ends a part.

    python benchmarks/gpu_session.py [first] [suite] [selftest] [--device cuda:0] [--out gpu-results]
        [--part-seconds 480] [--first='…'] [--suite='…'] [--selftest='…']

first     what every figure rests on: the hold, the flush at each size, clocks, the probes' grids, wide kernels; then
          the other tests of tests/gpu, then the quick suite once
suite     the quick suite in new processes: baselines/DEVICE.yaml and docs/gpu/DEVICE.md (benchmarks/gpu.py)
selftest  how often identical code would raise an alarm here, and how many drops are found

Without a part all three run. It takes any Python with pytest-bandwidth (installed from a wheel, say), CuPy and pytest,
and no network. --first, --suite and --selftest hand further arguments to the first part's quick suite, to gpu.py and to
the self-test. Each step's output, report and documents stay in --out, as does summary.txt. The exit status is 1 where a
step failed or its part's time ran out, and 2 without a GPU: then nothing is written.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpu import FAILED, FINE, UNUSABLE, ask_child

REPOSITORY = Path(__file__).resolve().parent.parent
PARTS = ("first", "suite", "selftest")
PART_SECONDS = 8 * 60
TAIL_LINES = 12
# In the order of what they decide: where the hold is red no figure means what it says.
FIRST_TESTS = ("test_gpu_hold.py", "test_gpu_cache.py", "test_gpu_clocks.py", "test_gpu_probes.py")


@dataclass(frozen=True)
class Step:
    """Name a command of one part; its output goes to NAME.log. beside: what it imports lies there."""

    name: str
    command: tuple[str, ...]
    beside: Path | None = None


@dataclass(frozen=True)
class Plan:
    """Say what a session does: on which device, where its results go, how long a part may take.

    more: further arguments, by part; the first part's are its quick suite's.
    """

    device: str
    out: Path
    part_seconds: float = PART_SECONDS
    more: Mapping[str, Sequence[str]] = field(default_factory=dict)


def steps_of(part: str, plan: Plan) -> list[Step]:
    """Return a part's steps, in order."""
    device, out, more = plan.device, plan.out, plan.more.get(part, ())
    if part == "first":
        first = [f"tests/gpu/{name}" for name in FIRST_TESTS]
        others = ["tests/gpu", *(f"--ignore={name}" for name in first)]
        suite = ("--pyargs", "pytest_bandwidth.suite", f"--bandwidth-device={device}", f"--bandwidth-dir={out}", "-v")
        return [
            *(_tests(Path(name).stem, (name,), out) for name in first),
            _tests("test_gpu_others", others, out),
            _tests("quick-suite", (*suite, *more), out),
        ]
    if part == "suite":
        seconds, kept = f"--seconds={plan.part_seconds - 30:g}", f"--documents={out / 'documents'}"
        script = (sys.executable, "benchmarks/gpu.py", "--device", device, "--no-selftest", seconds, kept)
        return [Step("gpu", (*script, *more), REPOSITORY / "benchmarks")]
    return [Step("selftest", (sys.executable, "-m", "pytest_bandwidth.cli", "selftest", "--device", device, *more))]


def _tests(name: str, arguments: Sequence[str], out: Path) -> Step:
    shown = ("-rsfEP", "--durations=20", f"--junitxml={out / name}.xml", "-p", "no:cacheprovider")
    return Step(name, (sys.executable, "-m", "pytest", *arguments, *shown))


def run_step(step: Step, out: Path, seconds: float) -> str:
    """Run a step for so long at most; return how it ended: fine, or why it is not."""
    if seconds <= 0:
        return "not begun: the part's time was over"
    # Else the folder comes before what is installed, and the wheel is not what runs.
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    if step.beside is not None:
        paths = (str(step.beside), os.environ.get("PYTHONPATH"))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with (out / f"{step.name}.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            step.command, cwd=REPOSITORY, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"ended after {seconds:.0f} s: the part's time was over"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return "fine" if status == FINE else f"exit status {status}"


def run_parts(parts: Sequence[str], plan: Plan) -> int:
    """Run the parts' steps, whatever becomes of each, and keep a summary; return the exit status."""
    out = plan.out
    out.mkdir(parents=True, exist_ok=True)
    summary: list[str] = []
    failed = False
    for part in parts:
        end = time.monotonic() + plan.part_seconds
        for step in steps_of(part, plan):
            print(f"{part}: {step.name} …", flush=True)
            begun = time.monotonic()
            how = run_step(step, out, end - begun)
            failed |= how != "fine"
            log = out / f"{step.name}.log"
            tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:] if log.is_file() else []
            print("\n".join(f"    {line}" for line in tail))
            summary.append(f"{part:9} {step.name:18} {time.monotonic() - begun:6.0f} s  {how}")
            (out / "summary.txt").write_text("\n".join(summary) + "\n", encoding="utf-8")
    print("\n".join(summary))
    print(f"everything is in {out}")
    return FAILED if failed else FINE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="first, suite, selftest (default: all)")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "gpu-results")
    parser.add_argument("--part-seconds", type=float, default=PART_SECONDS, help="a part's time (default: 480)")
    parser.add_argument("--first", default="", metavar="ARGS", help="further arguments of the first part's quick suite")
    parser.add_argument("--suite", default="", metavar="ARGS", help="further arguments of benchmarks/gpu.py")
    parser.add_argument("--selftest", default="", metavar="ARGS", help="further arguments of the self-test")
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"no part {unknown[0]!r}: expected {', '.join(PARTS)}")
    described = ask_child(options.device)
    if isinstance(described, str):
        print(f"no GPU to measure, nothing written: {described}", file=sys.stderr)
        return UNUSABLE
    print(f"{described['name']}: {described['facts']}", flush=True)
    more = {part: shlex.split(getattr(options, part)) for part in PARTS}
    return run_parts(options.parts or PARTS, Plan(options.device, options.out.resolve(), options.part_seconds, more))


if __name__ == "__main__":
    sys.exit(main())
