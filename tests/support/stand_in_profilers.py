"""What profilers write, mutations of it, and programs that behave as `ncu` and `rocprofv3` do where there is no GPU.

The programs run what they are given, and tell. They know a kernel's traffic by the line that the emulated card writes
of it (EMULATED_CARD_LOG), and a range by NVTX itself: NVTX loads `nvtx_injection.c` into the program, as it loads a
real profiler. What is wrong with ncu is asked for by STAND_IN: not-permitted, held, hang, garbage, old.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from pytest_bandwidth.features.counters.dram_traffic import CountersFailed, DramTraffic

FIXED = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC"'
)
METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum")
L2 = ("lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum")
BASE_UNITS = {**dict.fromkeys(METRICS[:2], "byte"), METRICS[2]: "nsecond", **dict.fromkeys(L2, "sector")}
OP_UNITS = {name.replace("bytes_", "bytes_op_"): unit for name, unit in BASE_UNITS.items()}
BEFORE = (
    '==PROF== Connected to process 1234 (/usr/bin/python3.11)\n==PROF== Profiling "triad" - 0: 0%....100% - 1 pass\n'
)
AFTER = "==PROF== Disconnected from process 1234\n"
NOT_PERMITTED = (
    "==PROF== Connected to process 1234 (/usr/bin/python3.11)\n"
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0. For instructions on enabling permissions and to get more information see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM\n==PROF== Disconnected from process 1234\n"
)
HELD_BY_OTHERS = (
    "==ERROR== An error was reported by the driver:\n==ERROR== Profiling failed because a driver resource was "
    "unavailable. Ensure that no other tool (like DCGM) is concurrently collecting profiling data. See "
    "https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#faq for more details.\n"
)
NO_KERNEL = (
    "==PROF== Connected to process 1 (/usr/bin/python3)\n==PROF== Disconnected from process 1\n"
    "==WARNING== No kernels were profiled.\n"
)
UNKNOWN_METRIC = "==ERROR== Failed to find metric dram__bytes_read.sum\n"
APPLICATION_FAILED = "==ERROR== The application returned an error code (1).\n"
APPLICATION_CRASHED = "==ERROR== The application crashed.\n"

Kernel = tuple[str, Sequence[str]]
TRIAD: Kernel = (
    "triad_f32(float *, const float *)",
    ("268,435,456", "134,217,728", "95,456", "8,388,608", "4,194,304"),
)
COPY: Kernel = ("copy_f32", ("1,024", "2048", "1200.50", "32", "64"))


def wide(*kernels: Kernel, units: dict[str, str] = BASE_UNITS, before: str = BEFORE, after: str = AFTER) -> str:
    """Write the table of --page raw."""
    rows = [f"{FIXED},{_quoted(units)}", f"{','.join([chr(34) * 2] * 11)},{_quoted(units.values())}"]
    rows += [f"{_fixed(i, name)},{_quoted(values[: len(units)])}" for i, (name, values) in enumerate(kernels)]
    return before + "\n".join(rows) + "\n" + after


def _quoted(texts) -> str:
    return ",".join(f'"{text}"' for text in texts)


def _fixed(number: int, name: str) -> str:
    return f'"{number}","1234","python3","host","{name}","1","7","(128, 1, 1)","(80, 1, 1)","0","9.0"'


NEW_COLUMNS = [
    *("Correlation_Id", "Dispatch_Id", "Agent_Id", "Queue_Id", "Process_Id", "Thread_Id", "Grid_Size", "Kernel_Id"),
    *("Kernel_Name", "Workgroup_Size", "LDS_Block_Size", "Scratch_Size", "VGPR_Count", "Accum_VGPR_Count"),
    *("SGPR_Count", "Counter_Name", "Counter_Value", "Start_Timestamp", "End_Timestamp"),
]
OLD_COLUMNS = [name for name in NEW_COLUMNS if name not in ("Kernel_Id", "Accum_VGPR_Count")]
# Name, FETCH_SIZE and WRITE_SIZE in KB.
Dispatch = tuple[str, str, str]
FLUSH: Dispatch = ("fill_cache", "786432.0", "12.5")


def rocprof(*dispatches: Dispatch, columns: Sequence[str] = NEW_COLUMNS) -> str:
    """Write rocprofv3's counter_collection.csv, columns quoted as it quotes them."""
    rows = [_quoted(columns)]
    for number, (name, *values) in enumerate(dispatches, start=1):
        for counter, value in zip(("FETCH_SIZE", "WRITE_SIZE"), values, strict=True):
            told = {
                "Dispatch_Id": number,
                "Kernel_Name": f'"{name}"',
                "Counter_Name": f'"{counter}"',
                "Counter_Value": value,
                "Start_Timestamp": 1000 * number,
                "End_Timestamp": 1000 * number + 500,
            }
            rows.append(",".join(str(told.get(column, 1)) for column in columns))
    return "\n".join(rows) + "\n"


def mutated(texts: Sequence[str], count: int, seed: int = 1) -> Iterator[str]:
    """Give texts in which one to four places are cut out, doubled or replaced."""
    chance = random.Random(seed)
    for _ in range(count):
        text = chance.choice(texts)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(text) + 1)
            end = at + chance.choice((0, 1, 2, chance.randrange(100)))
            new = chance.choice((*_STRANGE, text[at:end] * 2))
            text = text[:at] + new + text[end:]
        yield text


_STRANGE = ("", "", '"', ",", "\n", "\x00", "€", "n/a", "-1", "1e99", "nan", "9" * 30, "1,2,3", "Kbyte", "٣")


def told_of(parse: Callable[[str], DramTraffic], texts: Iterable[str]) -> tuple[list[DramTraffic], list[str]]:
    """Parse texts; return the values, and what the errors said. Any other exception is the caller's."""
    values: list[DramTraffic] = []
    errors: list[str] = []
    for text in texts:
        try:
            values.append(parse(text))
        except CountersFailed as error:
            errors.append(str(error))
    return values, errors


# ---- programs --------------------------------------------------------------------------------------------------------

_KERNEL = re.compile(r"emulated card: (\w+) .*× ?\d+ (\d+) ns, DRAM (\d+) \+ (\d+) sectors")
_PUSH, _POP = "nvtx push pytest-bandwidth", "nvtx pop"
SECTOR_BYTES = 32
_UNITS = {**OP_UNITS, **BASE_UNITS}
VERSION = (
    "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c) 2018-2025 NVIDIA Corporation\n"
    "Version {} (build 36398880) (public-release)"
)
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


def ncu(arguments: list[str]) -> int:
    """Do as ncu does with --csv --page raw, or with -o."""
    how = os.environ.get("STAND_IN", "")
    if arguments == ["--version"]:
        print(VERSION.format("2020.3.1.0" if how == "old" else "2025.3.1.0"))
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
        Path(_value(options, "--log-file")).write_text(NOT_PERMITTED if how == "not-permitted" else BEFORE)
        if how != "not-permitted":
            report.write_bytes(b"a report")
        return 1 if how == "not-permitted" else status
    log = Path(_value(options, "--log-file"))
    kernels = _in_range(lines)
    metrics = _value(options, "--metrics").split(",")
    units = {name: _UNITS[name] for name in metrics}
    if how == "not-permitted":
        log.write_text(NOT_PERMITTED)
        return 1
    texts = {"held": HELD_BY_OTHERS, "garbage": '\x00\x01 garbage "ID\n"ID",\n' * 3}
    text = texts.get(how) or (wide(*kernels, units=units) if kernels else NO_KERNEL)
    log.write_text(text + _of_application(status))
    return status


def rocprofv3(arguments: list[str]) -> int:
    """Do as rocprofv3 does with --pmc: count every kernel."""
    at = arguments.index("--")
    options, program = arguments[:at], arguments[at + 1 :]
    _note(options)
    status, lines = _ran(program)
    folder = Path(_value(options, "-d")) / "host"
    folder.mkdir(parents=True)
    found = [(name, str(read / 1024), str(written / 1024)) for name, _, read, written in map(_kernel, lines) if name]
    (folder / f"{_value(options, '-o')}_counter_collection.csv").write_text(rocprof(*found))
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
        return APPLICATION_CRASHED
    return APPLICATION_FAILED if status else ""


def _in_range(lines: list[str]) -> list[Kernel]:
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
