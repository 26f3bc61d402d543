"""Find the profiler that the user installed, say beforehand what would fail, write its command line, read its output.

Nothing of a vendor's is bundled or linked.
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
# Where the toolkits install them, which is not always on PATH.
_BESIDE_PATH = {NCU: "/usr/local/cuda/bin", ROCPROFV3: "/opt/rocm/bin"}
# The first whose --nvtx-include and CSV pages are as today's.
OLDEST_NCU = (2021, 1)
VERSION_SECONDS = 60.0
DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
_OWN_STATUS = Path("/proc/self/status")
_SYS_ADMIN = 1 << 21  # <linux/capability.h>: CAP_SYS_ADMIN
_VERSION = re.compile(r"^Version (\d{4})\.(\d{1,2})\.", re.MULTILINE)
_NO_MIG = ("unsupported", "disabled", "none", "")


@dataclass(frozen=True, slots=True)
class Ncu:
    """Count by Nsight Compute. executable: the user's own; metrics: the chip's."""

    executable: str
    metrics: tables.Metrics
    name: str = NCU

    def command(self, folder: Path, program: Sequence[str]) -> list[str]:
        """Count the kernels inside of the range alone; neither clocks nor caches are touched."""
        told = ("--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(self.metrics.names))
        return [self.executable, *told, *_in_range(folder / "ncu.csv"), *program]

    def traffic(self, folder: Path) -> DramTraffic:
        """Return the sums over the range's kernels. Raises CountersFailed."""
        text = _text(folder / "ncu.csv", "ncu wrote no output: run it by hand (ncu --version)")
        return tables.ncu_traffic(text, self.metrics)


def _in_range(log: Path) -> tuple[str, ...]:
    """Return the options by which ncu looks at the range alone, in whatever process. log: for what it says.

    By default ncu flushes caches and fixes clocks: the fixture's own cold caches hold, and the user's clocks.
    """
    return (
        *("--log-file", str(log), "--target-processes", "all"),
        *("--nvtx", "--nvtx-include", f"{COUNTED_RANGE}/", "--replay-mode", "kernel"),
        *("--cache-control", "none", "--clock-control", "none"),
    )


@dataclass(frozen=True, slots=True)
class Rocprofv3:
    """Count by ROCm's rocprofv3. It knows no ranges that it would filter by: all kernels are counted."""

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
                "the workload's process starts others that use the GPU, and it cannot be told whose kernels count"
                if files
                else "it writes none for a counter that this GPU lacks (rocprofv3 --list-avail names those that it has)"
            )
            raise CountersFailed(f"rocprofv3 wrote {len(files)} tables of counters, expected one: {why}")
        return tables.rocprofv3_traffic(_text(files[0], "rocprofv3's table cannot be read"), CLOSING_KERNEL)


Profiler = Ncu | Rocprofv3


def profiler_of(asked: str, identity: DeviceIdentity) -> Profiler:
    """Return the profiler for a GPU: the one asked for (``ncu``, ``rocprofv3``), or the vendor's with ``auto``.

    Raises CountersFailed, one line with the remedy, for what can be told before anything runs: no GPU, another
    vendor's profiler, none installed, too old a one, counters that the driver keeps from users, a MIG slice, a chip
    without counters of DRAM.
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
    """Return what writes a report of all that ncu, as `reporter_of` found it, can say; log: for what it says meanwhile.

    ncu adds the ending ``.ncu-rep`` to a name that has none.
    """
    told = ("--set", "full", "--force-overwrite", "-o", str(report.with_suffix("")))
    return [ncu, *told, *_in_range(log), *program]


def check_report_log(log: Path) -> None:
    """Raise CountersFailed, one line with the remedy, for an error that ncu noted or for no kernel."""
    lines = _text(log, "ncu wrote no report, and says nothing: run it by hand (ncu --version)").splitlines()
    tables.refuse_errors(lines)
    tables.refuse_no_kernel(lines)


def reporter_of(identity: DeviceIdentity) -> str:
    """Return the path of the user's own ncu. Raises CountersFailed, one line with the remedy, as `profiler_of` does.

    A chip without counters of DRAM, and a MIG slice, have reports all the same.
    """
    if not identity.on_gpu:
        raise CountersFailed(f"ncu profiles GPUs, this run measures on {identity.name}")
    if identity.facts.get("gfx"):
        raise CountersFailed("reports are ncu's: profile this GPU by rocprof-compute, by hand")
    return _permitted_ncu()


def _found(name: str, remedy: str) -> str:
    """Return the path of the user's profiler. Raises CountersFailed where there is none."""
    path = shutil.which(name) or shutil.which(name, path=_BESIDE_PATH[name])
    if path is None:
        raise CountersFailed(f"no {name} on PATH, nor in {_BESIDE_PATH[name]}: {remedy}")
    return path


def why_not_permitted(driver_parameters: str, own_status: str) -> str | None:
    """Return why the driver will refuse its counters, with the remedy; None where it will not, or does not say."""
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
    """Return the path of an ncu that may count, and is new enough. Raises CountersFailed."""
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
    """Return a file's text; none where it is not there, or not ours to read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _text(path: Path, missing: str) -> str:
    """Return a profiler's output. Raises CountersFailed where there is none, or it has no end."""
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            return file.read(tables.MOST_CHARACTERS + 1)
    except OSError:
        raise CountersFailed(missing) from None
