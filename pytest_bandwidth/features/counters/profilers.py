"""Find the profiler that the user installed, check it beforehand, make its command line, read its output.

No vendor's software is bundled or linked.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_bandwidth.devices.base import CLOSING_KERNEL, COUNTED_RANGE
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.features.counters import tables
from pytest_bandwidth.features.counters.dram_traffic import CountersFailed, DramTraffic

NCU, ROCPROFV3 = "ncu", "rocprofv3"
REPORT_SUFFIX = ".ncu-rep"
# The folders where the toolkits install them, which are not always on PATH.
_TOOLKIT_FOLDERS = {NCU: "/usr/local/cuda/bin", ROCPROFV3: "/opt/rocm/bin"}
# The first version whose --nvtx-include and CSV pages are like today's.
OLDEST_NCU = (2021, 1)
VERSION_SECONDS = 60.0
DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
_OWN_STATUS = Path("/proc/self/status")
_SYS_ADMIN = 1 << 21  # <linux/capability.h>: CAP_SYS_ADMIN
_VERSION = re.compile(r"^Version (\d{4})\.(\d{1,2})\.", re.MULTILINE)
_NO_MIG = ("unsupported", "disabled", "none", "")


@dataclass(frozen=True, slots=True)
class Ncu:
    """Count with Nsight Compute. executable: the user's own; metrics: of the chip."""

    executable: str
    metrics: tables.Metrics
    name: str = NCU

    def command(self, folder: Path, program: Sequence[str]) -> list[str]:
        """Return the command that counts only the kernels in the range; clocks and caches stay as they are."""
        options = ("--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(self.metrics.names))
        return [self.executable, *options, *_in_range(folder / "ncu.csv"), *program]

    def traffic(self, folder: Path) -> DramTraffic:
        """Return the sums over the range's kernels. Raises CountersFailed."""
        text = _text(folder / "ncu.csv", "ncu wrote no output: run it by hand (ncu --version)")
        return tables.ncu_traffic(text, self.metrics)


def _in_range(log: Path) -> tuple[str, ...]:
    """Return the options by which ncu profiles only the range, in any process. log: the file for its output.

    By default ncu flushes caches and fixes clocks. Here the fixture flushes caches, and the clocks are the user's.
    """
    return (
        *("--log-file", str(log), "--target-processes", "all"),
        *("--nvtx", "--nvtx-include", f"{COUNTED_RANGE}/", "--replay-mode", "kernel"),
        *("--cache-control", "none", "--clock-control", "none"),
    )


@dataclass(frozen=True, slots=True)
class Rocprofv3:
    """Count with ROCm's rocprofv3. It cannot filter by ranges: all kernels are counted."""

    executable: str
    name: str = ROCPROFV3

    def command(self, folder: Path, program: Sequence[str]) -> list[str]:
        return [
            *(self.executable, "--pmc", tables.ROCPROFV3_READ, tables.ROCPROFV3_WRITTEN),
            *("--output-format", "csv", "-d", str(folder), "-o", "counted", "--"),
            *program,
        ]

    def traffic(self, folder: Path) -> DramTraffic:
        """Return the sums over the kernels of the range. Raises CountersFailed."""
        files = sorted(folder.rglob("*counter_collection.csv"))
        if len(files) != 1:
            why = (
                "the workload's process starts others that use the GPU, so its own kernels cannot be identified"
                if files
                else "it writes none for a counter that this GPU lacks (rocprofv3 --list-avail names those that it has)"
            )
            raise CountersFailed(f"rocprofv3 wrote {len(files)} tables of counters, expected one: {why}")
        return tables.rocprofv3_traffic(_text(files[0], "rocprofv3's table cannot be read"), CLOSING_KERNEL)


Profiler = Ncu | Rocprofv3


def profiler_of(asked: str, identity: DeviceIdentity) -> Profiler:
    """Return the profiler for a GPU: the one asked for (``ncu``, ``rocprofv3``), or the vendor's with ``auto``.

    Raises CountersFailed, one line with the remedy, for problems that are found before any test runs: no GPU, another
    vendor's profiler, a profiler that is not installed or too old, counters that the driver keeps from users, a MIG
    slice, a chip without counters of DRAM.
    """
    if not identity.on_gpu:
        raise CountersFailed(f"counters are of a GPU's memory, this run measures on {identity.name}")
    wanted = ROCPROFV3 if identity.facts.get("gfx") else NCU
    if asked not in ("auto", wanted):
        raise CountersFailed(f"found {asked}, expected {wanted} for {identity.name}")
    if wanted == ROCPROFV3:
        return Rocprofv3(_found(ROCPROFV3, "install ROCm's rocprofiler-sdk"))
    metrics = tables.metrics_of(str(identity.facts.get("compute_capability")))
    slice_name = identity.settings.get("mig", "")
    if slice_name not in _NO_MIG:
        raise CountersFailed(
            f"a MIG slice ({slice_name}) shares its memory's counters with the others: count on a GPU without MIG"
        )
    return Ncu(_permitted_ncu(), metrics)


def report_command(ncu: str, report: Path, log: Path, program: Sequence[str]) -> list[str]:
    """Return the command that writes a full report. ncu: the path from `reporter_of`; log: the file for its output.

    ncu appends ``.ncu-rep`` to a name without that ending.
    """
    options = ("--set", "full", "--force-overwrite", "-o", str(report.with_suffix("")))
    return [ncu, *options, *_in_range(log), *program]


def check_report_log(log: Path) -> None:
    """Raise CountersFailed, one line with the remedy, for an error of ncu in its log or for no kernel."""
    lines = _text(log, "ncu wrote no report, and printed nothing: run it by hand (ncu --version)").splitlines()
    tables.refuse_errors(lines)
    tables.refuse_no_kernel(lines)


def reporter_of(identity: DeviceIdentity) -> str:
    """Return the path of the user's own ncu. Raises CountersFailed, one line with the remedy, as `profiler_of` does.

    ncu can write reports even for a chip without counters of DRAM, and for a MIG slice.
    """
    if not identity.on_gpu:
        raise CountersFailed(f"ncu profiles GPUs, this run measures on {identity.name}")
    if identity.facts.get("gfx"):
        raise CountersFailed("only ncu writes reports: profile this GPU with rocprof-compute, by hand")
    return _permitted_ncu()


def _found(name: str, remedy: str) -> str:
    """Return the path of the user's profiler. Raises CountersFailed where it is not installed."""
    path = shutil.which(name) or shutil.which(name, path=_TOOLKIT_FOLDERS[name])
    if path is None:
        raise CountersFailed(f"no {name} on PATH, nor in {_TOOLKIT_FOLDERS[name]}: {remedy}")
    return path


def why_not_permitted(driver_parameters: str, own_status: str) -> str | None:
    """Return why the driver will refuse its counters, with the remedy; None where it allows them or that is unknown."""
    if not re.search(r"^RmProfilingAdminOnly: *1\b", driver_parameters, re.MULTILINE):
        return None
    effective = re.search(r"^CapEff:\s*([0-9a-fA-F]{1,16})$", own_status, re.MULTILINE)
    if effective is not None and int(effective[1], 16) & _SYS_ADMIN:
        return None
    return (
        "the driver keeps its counters from users (RmProfilingAdminOnly is 1): load it with "
        "NVreg_RestrictProfilingToAdminUsers=0, or give the process CAP_SYS_ADMIN (in a container: --cap-add=SYS_ADMIN)"
    )


def _permitted_ncu() -> str:
    """Return the path of an ncu that is new enough and allowed to count. Raises CountersFailed."""
    refusal = why_not_permitted(_read(DRIVER_PARAMETERS), _read(_OWN_STATUS))
    if refusal is not None:
        raise CountersFailed(refusal)
    path = _found(NCU, "install Nsight Compute (it comes with the CUDA toolkit)")
    asked, nothing = [path, "--version"], subprocess.DEVNULL
    try:
        done = subprocess.run(
            asked, capture_output=True, text=True, errors="replace", timeout=VERSION_SECONDS, stdin=nothing, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CountersFailed(f"{path} --version does not run: {error}") from None
    version = _VERSION.search(done.stdout[: tables.MOST_CHARACTERS])
    if version is None:
        raise CountersFailed(f"{path} --version says {shown(done.stdout.strip())}, expected Nsight Compute's version")
    release = int(version[1]), int(version[2])
    if release < OLDEST_NCU:
        raise CountersFailed(
            f"{path} is of {release[0]}.{release[1]}, expected {OLDEST_NCU[0]}.{OLDEST_NCU[1]} or newer: install a "
            "newer Nsight Compute"
        )
    return path


def _read(path: Path) -> str:
    """Return a file's text; "" where the file is missing or not readable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _text(path: Path, missing: str) -> str:
    """Return a profiler's output, up to a limit. Raises CountersFailed where it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            return file.read(tables.MOST_CHARACTERS + 1)
    except OSError:
        raise CountersFailed(missing) from None
