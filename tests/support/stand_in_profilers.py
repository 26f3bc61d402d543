"""Programs that behave as `ncu` and `rocprofv3` do, for machines without a GPU: they run what they are given, and tell.

They know a kernel's traffic by the line that the emulated card writes of it (EMULATED_CARD_LOG), and a range by NVTX
itself: NVTX loads `nvtx_injection.c` into the program, as it loads a real profiler. What is wrong with them is asked
for by STAND_IN: not-permitted, held, hang, garbage, nothing, not-available, old.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import profiler_outputs

_KERNEL = re.compile(r"emulated card: (\w+) .*× ?\d+ (\d+) ns, DRAM (\d+) \+ (\d+) sectors")
_PUSH, _POP = "nvtx push pytest-bandwidth", "nvtx pop"
SECTOR_BYTES = 32
_UNITS = {**profiler_outputs.OP_UNITS, **profiler_outputs.BASE_UNITS}
VERSION = (
    "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c) 2018-2025 NVIDIA Corporation\n"
    "Version {} (build 36398880) (public-release)"
)
RELEASES = {"old": "2020.3.1.0"}
HERE = Path(__file__).resolve()


def install(folder: Path, *names: str) -> None:
    """Put the programs into a folder, which is to stand on PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        program = folder / name
        program.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(HERE.parent)!r})\n"
            f"sys.path.insert(1, {str(HERE.parents[2])!r})\n"
            f"import stand_in_profilers\nsys.exit(stand_in_profilers.{name}(sys.argv[1:]))\n"
        )
        program.chmod(0o755)


def built_injection(folder: Path, compiler: str) -> Path:
    """Build what NVTX loads for a profiler, whose path goes into NVTX_INJECTION64_PATH."""
    library = folder / "nvtx_injection.so"
    source = HERE.with_name("nvtx_injection.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Werror", "-o", library, source], check=True)
    return library


def ncu(arguments: list[str]) -> int:
    """Do as ncu does with --csv --page raw, or with -o."""
    how = os.environ.get("STAND_IN", "")
    if arguments == ["--version"]:
        print(VERSION.format(RELEASES.get(how, "2025.3.1.0")))
        return 0
    program = arguments[next(at for at, word in enumerate(arguments) if word == sys.executable) :]
    options = arguments[: len(arguments) - len(program)]
    _note(options)
    if how == "hang":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        time.sleep(600)
    status, lines = _ran(program)
    if "-o" in options:
        report = Path(f"{_value(options, '-o')}.ncu-rep")
        Path(_value(options, "--log-file")).write_text(
            profiler_outputs.NOT_PERMITTED if how == "not-permitted" else profiler_outputs.BEFORE
        )
        if how != "not-permitted":
            report.write_bytes(b"a report")
        return 1 if how == "not-permitted" else status
    log = Path(_value(options, "--log-file"))
    kernels = _in_range(lines)
    metrics = _value(options, "--metrics").split(",")
    units = {name: _UNITS[name] for name in metrics}
    if how == "not-permitted":
        log.write_text(profiler_outputs.NOT_PERMITTED)
        return 1
    if how == "nothing":
        return 0
    texts = {
        "held": profiler_outputs.HELD_BY_OTHERS,
        "garbage": '\x00\x01 garbage "ID\n"ID",\n' * 3,
        "not-available": profiler_outputs.wide(*[(name, ["n/a"] * 5) for name, _ in kernels], units=units),
    }
    text = texts.get(how) or (profiler_outputs.wide(*kernels, units=units) if kernels else profiler_outputs.NO_KERNEL)
    log.write_text(text + _of_application(status))
    return status


def rocprofv3(arguments: list[str]) -> int:
    """Do as rocprofv3 does with --pmc: count every kernel, and write nothing, without an error, where it knows none."""
    how = os.environ.get("STAND_IN", "")
    at = arguments.index("--")
    options, program = arguments[:at], arguments[at + 1 :]
    _note(options)
    if how == "hang":
        time.sleep(600)
    status, lines = _ran(program)
    if how == "nothing":
        return 0
    folder = Path(_value(options, "-d")) / "host"
    folder.mkdir(parents=True)
    found = [(name, str(read / 1024), str(written / 1024)) for name, _, read, written in map(_kernel, lines) if name]
    text = "garbage" if how == "garbage" else profiler_outputs.rocprof(*found)
    (folder / f"{_value(options, '-o')}_counter_collection.csv").write_text(text)
    return status


def _note(options: list[str]) -> None:
    """Tell the test which options came."""
    if "STAND_IN_NOTES" in os.environ:
        with Path(os.environ["STAND_IN_NOTES"]).open("a", encoding="utf-8") as notes:
            notes.write(f"{os.getpid()} {' '.join(options)}\n")


def _ran(program: list[str]) -> tuple[int, list[str]]:
    """Run a program of pytest's, which is to capture nothing; return its status, and its lines of errors."""
    done = subprocess.run(
        [*program, "-s"], stderr=subprocess.PIPE, text=True, env={**os.environ, "EMULATED_CARD_LOG": "1"}, check=False
    )
    sys.stderr.write(done.stderr)
    return done.returncode, done.stderr.splitlines()


def _of_application(status: int) -> str:
    """Return what ncu says of an application's end. A negative status: that a signal ended it."""
    if status < 0:
        return profiler_outputs.APPLICATION_CRASHED
    return profiler_outputs.APPLICATION_FAILED if status else ""


def _in_range(lines: list[str]) -> list[profiler_outputs.Kernel]:
    found, inside = [], False
    for line in lines:
        inside = (inside or line.endswith(_PUSH)) and not line.endswith(_POP)
        name, nanoseconds, read, written = _kernel(line)
        if inside and name:
            sectors = (read // SECTOR_BYTES, written // SECTOR_BYTES)
            found.append((name, [f"{value:,}" for value in (read, written, nanoseconds, *sectors)]))
    return found


def _kernel(line: str) -> tuple[str, int, int, int]:
    """Return name, nanoseconds and bytes of a kernel's line; an empty name for any other."""
    match = _KERNEL.search(line)
    if match is None:
        return "", 0, 0, 0
    return match[1], int(match[2]), int(match[3]) * SECTOR_BYTES, int(match[4]) * SECTOR_BYTES


def _value(options: list[str], name: str) -> str:
    return options[options.index(name) + 1]
