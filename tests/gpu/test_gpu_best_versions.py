"""The versions to copy are worth it: near their probe where memory bounds them, and far above the plain ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_bandwidth.devices.cuda.device import CudaDevice

pytestmark = pytest.mark.usefixtures("nvidia")
BOUND_BY_MEMORY = ("transpose-wide", "kv_append-wide", "kv_decode-grouped", "q4_0_dequantize-wide")
OF_ITS_PROBE, AGAINST_STANDARD, HALVES_AGAINST_FLOATS = 0.85, 2, 5


def measured(pytester: pytest.Pytester, *more: str) -> dict[str, Any]:
    """Return the suite's rows by the names in the brackets."""
    out = Path(pytester.path / "out.json")
    suite = ("--pyargs", "pytest_bandwidth.suite", "--bandwidth-device=cuda", f"--bandwidth-json={out}")
    assert pytester.runpytest_subprocess(*suite, *more).ret == 0
    return {row["nodeid"].partition("[")[2].rstrip("]"): row for row in json.loads(out.read_text())["results"]}


@pytest.fixture(autouse=True)
def released(device: CudaDevice) -> None:
    device.release()


@pytest.mark.parametrize("title", BOUND_BY_MEMORY)
def test_it_reaches_most_of_its_probe(pytester: pytest.Pytester, title: str) -> None:
    rows = measured(pytester, "-k", title)
    assert rows
    assert {name: row["relative"] for name, row in rows.items() if row["relative"] < OF_ITS_PROBE} == {}


def test_attention_without_scores_in_memory_is_twice_as_fast(pytester: pytest.Pytester) -> None:
    rows = measured(pytester, "-k", "attention and float32")
    seconds = {name.partition("-float32")[0]: row["seconds"] for name, row in rows.items()}
    assert seconds["attention-flash2"] * AGAINST_STANDARD <= seconds["attention-standard"]


def test_tensor_cores_multiply_five_times_as_fast(pytester: pytest.Pytester) -> None:
    rows = measured(pytester, "--bandwidth-suite=full", "-k", "gemm-pipelined and m4096-n4096-k4096")
    seconds = {name.split("-")[2]: row["seconds"] for name, row in rows.items()}
    assert seconds["float16"] * HALVES_AGAINST_FLOATS <= seconds["float32"]
