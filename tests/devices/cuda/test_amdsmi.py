"""AMD SMI: what each reading becomes, and that all that is not told is None. The real module, an invented driver."""

import ctypes
import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_bandwidth.devices.cuda.management import (
    AMD_SLOWDOWNS,
    MISSING,
    AmdSmiGpu,
    GpuIdentity,
    GpuReading,
    open_amdsmi,
)
from pytest_bandwidth.domain.device import Conditions

NOT_SUPPORTED = 2
LIBRARY = re.compile(r"_libraries\['libamd_smi\.so'\]\.(\w+)")
UNTOLD = {8: 2**8 - 1, 16: 2**16 - 1, 32: 2**32 - 1, 64: 2**64 - 1}
RESIDENCIES = ("prochot", "socket_thm", "vr_thm", "hbm_thm", "ppt")


@pytest.fixture(scope="module", autouse=True)
def amdsmi(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import the real amdsmi with a stub library, whose functions all return "not supported"."""
    folder = tmp_path_factory.mktemp("rocm")
    spec = importlib.util.find_spec("amdsmi")
    compiler = shutil.which("gcc")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("amdsmi is not installed: pip install amdsmi")
    if compiler is None:
        pytest.skip("no gcc to build a library for amdsmi: install gcc")
    wrapper = Path(spec.submodule_search_locations[0]) / "amdsmi_wrapper.py"
    names = sorted(set(LIBRARY.findall(wrapper.read_text())))
    (folder / "lib").mkdir()
    source = folder / "library.c"
    source.write_text("".join(f"int {name}(void) {{ return {NOT_SUPPORTED}; }}\n" for name in names))
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", folder / "lib" / "libamd_smi.so", source], check=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ROCM_HOME", str(folder))
        importlib.import_module("amdsmi")


def answer(monkeypatch: pytest.MonkeyPatch, name: str, function: Callable[..., None]) -> None:
    """Let a function of the library succeed: the given one gets what the arguments after the GPU's handle point to."""
    wrapper = importlib.import_module("amdsmi.amdsmi_wrapper")

    def succeed(*args: Any) -> int:
        function(*(getattr(argument, "_obj", argument) for argument in args[1:]))
        return 0

    assert hasattr(wrapper, name)
    monkeypatch.setattr(wrapper, name, succeed)


def fill(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> None:
    """Let a function of the library succeed, and fill these fields of its structure; ``a__b`` is a field of a field."""

    def write(*targets: Any) -> None:
        for path, value in fields.items():
            *outer, last = path.split("__")
            at = targets[-1]
            for part in outer:
                at = getattr(at, part)
            if not hasattr(at, last):
                raise AttributeError(f"{type(at).__name__} has no {last}")
            setattr(at, last, value)

    answer(monkeypatch, name, write)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> AmdSmiGpu:
    """A GPU of which nothing is told."""
    wrapper = sys.modules["amdsmi.amdsmi_wrapper"]
    monkeypatch.setattr(wrapper, "amdsmi_init", lambda _: 0)
    answer(monkeypatch, "amdsmi_get_processor_handle_from_bdf", lambda _: None)
    found = open_amdsmi("0000:c1:00.0")
    assert isinstance(found, AmdSmiGpu), found
    return found


def test_a_gpu_of_which_nothing_is_told(gpu: AmdSmiGpu) -> None:
    assert gpu.identity() == GpuIdentity()
    assert gpu.reading() == GpuReading()
    assert gpu.compute_processes() is None
    assert gpu.activity(0) is None


def test_identity(gpu: AmdSmiGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(monkeypatch, "amdsmi_get_gpu_asic_info", market_name=b"AMD Instinct MI300X", num_of_compute_units=304)
    fill(monkeypatch, "amdsmi_get_gpu_driver_info", driver_version=b"6.12.12")
    fill(monkeypatch, "amdsmi_get_clock_info", max_clk=2100)
    fill(monkeypatch, "amdsmi_get_gpu_vram_info", vram_bit_width=8192)
    fill(monkeypatch, "amdsmi_get_power_cap_info", power_cap=750_000_000)
    fill(monkeypatch, "amdsmi_get_gpu_ecc_enabled", value=7)
    fill(monkeypatch, "amdsmi_get_gpu_virtualization_mode", value=4)
    fill(monkeypatch, "amdsmi_get_pcie_info", pcie_static__pcie_interface_version=5, pcie_metric__pcie_width=UNTOLD[16])
    known = gpu.identity()
    assert (known.name, known.driver_version) == ("AMD Instinct MI300X", "6.12.12")
    assert (known.max_sm_clock_mhz, known.max_memory_clock_mhz, known.memory_bus_width_bits) == (2100, 2100, 8192)
    assert (known.power_limit_w, known.ecc, known.virtual) == (750.0, "on", "passthrough")
    assert (known.pcie_generation, known.pcie_width) == (5, None)


@pytest.mark.parametrize(
    ("compute", "memory", "expected"),
    [("SPX", "NPS1", "unsupported"), ("CPX", None, "CPX"), ("SPX", "NPS4", "SPX NPS4")],
)
def test_partitions(
    gpu: AmdSmiGpu, monkeypatch: pytest.MonkeyPatch, compute: str, memory: str | None, expected: str
) -> None:
    for kind, name in (("compute", compute), ("memory", memory)):
        if name is not None:

            def write(text: Any, _length: Any, name: str = name) -> None:
                text.value = name.encode()

            answer(monkeypatch, f"amdsmi_get_gpu_{kind}_partition", write)
    assert gpu.identity().mig == expected


def test_a_reading(gpu: AmdSmiGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(monkeypatch, "amdsmi_get_clock_info", clk=1850)
    fill(monkeypatch, "amdsmi_get_temp_metric", value=71)
    fill(monkeypatch, "amdsmi_get_gpu_total_ecc_count", correctable_count=9, uncorrectable_count=2)
    fill(monkeypatch, "amdsmi_get_power_info", current_socket_power=UNTOLD[16], average_socket_power=412)
    assert gpu.reading() == GpuReading(Conditions(1850, 1850, 71, 412, ()), 2)


@pytest.mark.parametrize("limit", RESIDENCIES)
def test_what_held_clocks_down_between_two_readings(
    gpu: AmdSmiGpu, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """A power cap is normal under load; what the card saved itself by is a finding."""
    counters = dict.fromkeys((f"{name}_residency_acc" for name in RESIDENCIES), 1000)
    fill(monkeypatch, "amdsmi_get_gpu_metrics_info", **counters)
    assert gpu.reading().conditions.event_reasons == ()  # held down at some time since the driver was loaded
    fill(monkeypatch, "amdsmi_get_gpu_metrics_info", **{**counters, f"{limit}_residency_acc": 1001})
    (reason,) = gpu.reading().conditions.event_reasons
    assert (limit != "ppt") == (reason in AMD_SLOWDOWNS)
    assert gpu.reading().conditions.event_reasons == ()


def processes(monkeypatch: pytest.MonkeyPatch, *found: tuple[int, bytes, int, int]) -> None:
    """Let the driver list them: process id, name, bytes, compute units."""

    def write(count: ctypes.c_uint32, listed: Any) -> None:
        count.value = len(found)
        for at, (pid, name, memory, units) in enumerate(found):
            listed[at].pid, listed[at].name, listed[at].mem, listed[at].cu_occupancy = pid, name, memory, units

    answer(monkeypatch, "amdsmi_get_gpu_process_list", write)
    fill(monkeypatch, "amdsmi_get_gpu_asic_info", num_of_compute_units=304)


def test_processes_and_their_share_of_the_compute_units(gpu: AmdSmiGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    processes(monkeypatch, (4711, b"train", 2**33, 152), (12, b"", 2**20, 0), (13, b"small", 2**20, 1))
    assert gpu.compute_processes() == {4711: 2**33, 12: 2**20, 13: 2**20}
    assert gpu.activity(0) == {13: 1, 4711: 50}
    assert (gpu.process_name(4711), gpu.process_name(12), gpu.process_name(1)) == ("train", None, None)
    processes(monkeypatch)
    assert gpu.activity(0) == {}


def test_shares_that_the_driver_does_not_tell(gpu: AmdSmiGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    processes(monkeypatch, (4711, b"train", 2**33, UNTOLD[32]))
    assert gpu.activity(0) is None


def test_reasons_why_amd_smi_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = open_amdsmi("0000:c1:00.0")
    assert reason.startswith("AMD SMI: ")
    assert "\n" not in reason
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert open_amdsmi("0000:c1:00.0") == MISSING
    for name in [name for name in sys.modules if name.partition(".")[0] == "amdsmi"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv("ROCM_HOME", str(tmp_path))
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    reason = open_amdsmi("0000:c1:00.0")
    assert reason.startswith("AMD SMI does not load: ")
    assert "libamd_smi.so" in reason
    assert capsys.readouterr().out == ""
