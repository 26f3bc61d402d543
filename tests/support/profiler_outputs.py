"""What profilers write, and mutations of it."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence

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
    """Give texts with one to four mutations each: characters, lines, cuts, numbers."""
    chance = random.Random(seed)
    for _ in range(count):
        text = chance.choice(texts)
        for _ in range(chance.randint(1, 4)):
            text = chance.choice(_MUTATIONS)(text, chance)
        yield text


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


def _character(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.choice('",\n=;x-0.9eE\x00\t€ n/a') + text[at + chance.randint(0, 2) :]


def _line(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    if not lines:
        return "\n"
    at = chance.randrange(len(lines))
    return "".join([*lines[:at], *chance.choice([[], [lines[at]] * 2, lines[:3]]), *lines[at + 1 :]])


def _cut(text: str, chance: random.Random) -> str:
    return text[: chance.randrange(len(text) + 1)]


def _number(text: str, chance: random.Random) -> str:
    cells = text.split('"')
    at = chance.randrange(len(cells))
    cells[at] = chance.choice(
        ["n/a", "-1", "1e99", "nan", "inf", "9" * 30, "", "1,2,3", "0x10", "Kbyte", "٣", "1.5", "12"]
    )
    return '"'.join(cells)


_MUTATIONS = (_character, _line, _cut, _number)
