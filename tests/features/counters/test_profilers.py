"""What can be told before a profiler runs, and the command line that it is given."""

from pathlib import Path

import pytest
from stand_in_profilers import FLUSH, NO_KERNEL, NOT_PERMITTED, TRIAD, rocprof, wide

from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.features.counters import profilers
from pytest_bandwidth.features.counters.dram_traffic import CountersFailed
from pytest_bandwidth.features.counters.profilers import (
    check_report_log,
    profiler_of,
    report_command,
    reporter_of,
    why_not_permitted,
)

H200 = DeviceIdentity(
    "cuda", "NVIDIA H200", 2**37, "GPU-1", {"mig": "disabled"}, {"compute_capability": "9.0"}, timed_on="gpu"
)
MI300 = DeviceIdentity(
    "cuda", "AMD Instinct MI300X", 2**37, "PCI-1", {"mig": "unsupported"}, {"gfx": "gfx942"}, timed_on="gpu"
)
HOST = DeviceIdentity("cpu", "AMD EPYC", 2**34, "host")
VERSION = (
    "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c) 2018-2025 NVIDIA Corporation\n"
    "Version 2025.3.1.0 (build 36398880) (public-release)\n"
)
ADMIN_ONLY = "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n"
USER, ADMIN = "Name:\tpython\nCapEff:\t0000000000000000\n", "CapEff:\t000001ffffffffff\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Install programs, alone on PATH, each of which prints a text."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(profilers, "_TOOLKIT_FOLDERS", {name: str(tmp_path / "none") for name in ("ncu", "rocprofv3")})
    monkeypatch.setattr(profilers, "DRIVER_PARAMETERS", tmp_path / "params")

    def installed(name: str, says: str = "") -> Path:
        path = tmp_path / name
        (tmp_path / "says").write_text(f"{says}\n")
        path.write_text(f'#!/bin/sh\nwhile read -r line; do echo "$line"; done < {tmp_path / "says"}\n')
        path.chmod(0o755)
        return path

    return installed


def refused(asked: str, identity: DeviceIdentity) -> str:
    with pytest.raises(CountersFailed) as caught:
        profiler_of(asked, identity)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("asked", ["auto", "ncu"])
def test_the_users_own_ncu_counts_the_range_alone(install, tmp_path: Path, asked: str) -> None:
    path = install("ncu", VERSION)
    command = profiler_of(asked, H200).command(tmp_path, ["python", "-m", "pytest"])
    assert (command[0], command[-3:]) == (str(path), ["python", "-m", "pytest"])
    told = " ".join(command)
    assert "--nvtx --nvtx-include pytest-bandwidth/ --replay-mode kernel" in told
    assert "--cache-control none --clock-control none" in told
    assert "--metrics dram__bytes_read.sum,dram__bytes_write.sum,gpu__time_duration.sum,lts__t_sectors" in told
    profiler = profiler_of(asked, H200)
    with pytest.raises(CountersFailed, match="ncu wrote no output"):
        profiler.traffic(tmp_path)
    (tmp_path / "ncu.csv").write_text(wide(TRIAD))
    assert profiler.traffic(tmp_path).bytes_read == 268_435_456


@pytest.mark.parametrize("asked", ["auto", "rocprofv3"])
def test_rocprofv3_is_for_amd(install, tmp_path: Path, asked: str) -> None:
    install("rocprofv3")
    profiler = profiler_of(asked, MI300)
    command = profiler.command(tmp_path, ["python"])
    assert command[1:4] == ["--pmc", "FETCH_SIZE", "WRITE_SIZE"]
    assert command[-2:] == ["--", "python"]
    (tmp_path / "host").mkdir()
    with pytest.raises(CountersFailed, match="rocprofv3 wrote 0 tables of counters"):
        profiler.traffic(tmp_path / "host")
    (tmp_path / "host" / "counted_counter_collection.csv").write_text(rocprof(FLUSH, ("triad", "1", "2"), FLUSH))
    assert profiler.traffic(tmp_path / "host").bytes_written == 2048
    (tmp_path / "host" / "other_counter_collection.csv").write_text("")
    with pytest.raises(CountersFailed, match="wrote 2 tables of counters, expected one: the workload's process starts"):
        profiler.traffic(tmp_path / "host")


def test_what_is_refused_before_anything_runs(install) -> None:
    assert "no ncu on PATH" in refused("auto", H200)
    assert "install Nsight Compute" in refused("ncu", H200)
    assert "no rocprofv3 on PATH" in refused("auto", MI300)
    assert "found ncu, expected rocprofv3 for AMD Instinct MI300X" in refused("ncu", MI300)
    assert "found rocprofv3, expected ncu for NVIDIA H200" in refused("rocprofv3", H200)
    assert "this run measures on AMD EPYC" in refused("auto", HOST)
    install("ncu", VERSION.replace("2025.3", "2020.3"))
    assert "is of 2020.3, expected 2021.1 or newer" in refused("auto", H200)
    for told in ("garbage", "Version 99999999999999999999.1."):
        install("ncu", told)
        assert f"--version says '{told}', expected Nsight Compute's version" in refused("auto", H200)
    install("ncu").write_text("#!/nowhere\n")
    assert "--version does not run" in refused("auto", H200)
    mig = DeviceIdentity(
        "cuda", "NVIDIA H200 MIG 1g.18gb", 2**34, "MIG-1", {"mig": "1g.18gb"}, H200.facts, timed_on="gpu"
    )
    assert "a MIG slice (1g.18gb)" in refused("auto", mig)
    orin = DeviceIdentity("cuda", "Orin", 2**34, "GPU-2", {}, {"compute_capability": "8.7"}, timed_on="gpu")
    assert "no counters of DRAM" in refused("auto", orin)


def test_a_report_needs_no_counters_of_dram(install, tmp_path: Path) -> None:
    path = install("ncu", VERSION)
    orin = DeviceIdentity(
        "cuda", "Orin", 2**34, "GPU-2", {"mig": "1g.5gb"}, {"compute_capability": "8.7"}, timed_on="gpu"
    )
    reporter = reporter_of(orin)
    command = report_command(reporter, tmp_path / "test.ncu-rep", tmp_path / "log", ["python"])
    assert command[:6] == [str(path), "--set", "full", "--force-overwrite", "-o", str(tmp_path / "test")]
    assert (command[-1], command[command.index("--log-file") + 1]) == ("python", str(tmp_path / "log"))
    for identity, said in ((HOST, "this run measures on AMD EPYC"), (MI300, "only ncu writes reports")):
        with pytest.raises(CountersFailed, match=said):
            reporter_of(identity)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (None, "ncu wrote no report, and printed nothing"),
        (NOT_PERMITTED, "NVreg_RestrictProfilingToAdminUsers=0"),
        (NO_KERNEL, "ncu saw no kernel in the range"),
    ],
)
def test_what_ncu_noted_says_why_there_is_no_report(tmp_path: Path, log: str | None, said: str) -> None:
    if log is not None:
        (tmp_path / "log").write_text(log)
    with pytest.raises(CountersFailed, match=said):
        check_report_log(tmp_path / "log")


def test_counters_that_the_driver_keeps_are_told_beforehand_by_its_own_word(
    install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = why_not_permitted(ADMIN_ONLY, USER)
    assert refusal is not None
    assert "NVreg_RestrictProfilingToAdminUsers=0" in refusal
    assert why_not_permitted(ADMIN_ONLY, "garbage") == refusal
    assert why_not_permitted(ADMIN_ONLY, ADMIN) is None
    assert why_not_permitted(ADMIN_ONLY.replace(": 1", ": 0"), USER) is None
    assert why_not_permitted("", USER) is None
    install("ncu", VERSION)
    (tmp_path / "params").write_text(ADMIN_ONLY)
    (tmp_path / "status").write_text(USER)
    monkeypatch.setattr(profilers, "_OWN_STATUS", tmp_path / "status")
    assert "RmProfilingAdminOnly is 1" in refused("auto", H200)
