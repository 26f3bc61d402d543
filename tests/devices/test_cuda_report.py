"""benchmarks/gpu.py: what it makes of documents, and that it writes nothing where there is no GPU."""

import importlib.util
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_model import skip_beside_a_gpu

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("gpu_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_script"] = module
    spec.loader.exec_module(module)
    return module


def result(name: str, gbps: float | None, **more: Any) -> dict[str, Any]:
    return {"nodeid": name, "label": None, "gbps": gbps, "relative": 0.9, "utilization": 0.8, **more}


def test_device_names_become_file_names(script: Any) -> None:
    assert script.slug("NVIDIA A100-SXM4-80GB") == "nvidia-a100-sxm4-80gb"
    assert script.slug("../../etc/passwd") == "etc-passwd"
    assert script.slug("…") == "device"


def test_spread_is_the_sd_of_logarithms_between_processes(script: Any) -> None:
    documents = [{"results": [result("t", gbps)]} for gbps in (100.0, 101.0, 99.0)]
    (row,) = script.spreads(documents)
    assert (row.gbps, row.processes) == (100.0, 3)
    logs = [math.log(g) for g in (100.0, 101.0, 99.0)]
    mean = sum(logs) / 3
    assert row.gbps_sd == pytest.approx(math.sqrt(sum((x - mean) ** 2 for x in logs) / 2))
    assert row.relative_sd == 0


def test_only_what_every_process_measured_is_listed(script: Any) -> None:
    first = {"results": [result("a", 1.0), result("b", 1.0), result("c", None)]}
    second = {"results": [result("a", 1.0), result("c", 1.0)]}
    assert [row.key for row in script.spreads([first, second])] == ["a"]


def test_labels_are_part_of_the_key(script: Any) -> None:
    assert script.key_of(result("t", 1.0, label="x")) == "t @ x"


def test_the_page_shows_figures_and_gaps(script: Any) -> None:
    device = {"name": "NVIDIA X", "memory_gib": 80, "settings": {"ecc": "on"}, "facts": {"driver_version": "580"}}
    documents = [{"results": [result("t[1|2]", 123.456, relative=None, utilization=None)]}] * 2
    comparison = [{"work": "copy", "timed_by": "us", "gbps": 99.94}]
    page = script.report(device, script.spreads(documents), comparison, "fine", "cmd")
    assert "peak unknown" in page
    assert "- driver_version: 580" in page
    assert "| t[1\\|2] | 123.5 | – | – | 0.00 % | – |" in page
    assert "| copy | us | 99.9 |" in page


def test_fewer_processes_than_a_spread_needs_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--processes", "3"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "at least 10" in done.stderr


def test_without_a_gpu_nothing_is_written(tmp_path: Path) -> None:
    skip_beside_a_gpu()
    command = [sys.executable, str(SCRIPT), "--baselines", str(tmp_path / "b"), "--docs", str(tmp_path / "d")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "nothing written" in done.stderr
    assert "driver" in done.stderr
    assert list(tmp_path.iterdir()) == []
