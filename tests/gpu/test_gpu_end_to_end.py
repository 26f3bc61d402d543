"""A user's test on the GPU, through pytest: measured, written to a baseline, judged by it, and failed when slowed."""

import json
from pathlib import Path
from typing import Any

import pytest
from gpu_work import large

from pytest_bandwidth.devices.cuda.device import CudaDevice

TRIAD = """
import numpy as np
import pytest

@pytest.mark.bandwidth(tolerance="5%")
def test_triad(bandwidth):
    n = SIZE
    work = n + n // 5 if SLOWED else n
    b, c = bandwidth.random(work, "float32"), bandwidth.random(work, "float32")
    a = bandwidth.xp.empty_like(b)
    triad = bandwidth.kernel("stream.cu", "triad_f32")
    args = (a, b, c, np.float32(3), np.int64(work))
    found = bandwidth.launch(triad, 2048, 256, args, reads=8 * n, writes=4 * n, flop=2 * n)
    bandwidth.xp.testing.assert_allclose(a, b + np.float32(3) * c, rtol=1e-6)
    assert found.device.kind == "cuda"
    assert found.samples
"""


def run(
    pytester: pytest.Pytester, size: int, *, slowed: bool, name: str, more: tuple[str, ...] = ()
) -> tuple[Any, Any]:
    (pytester.path / "test_triad.py").write_text(TRIAD.replace("SLOWED", str(slowed)).replace("SIZE", str(size)))
    out = Path(pytester.path / name)
    result = pytester.runpytest_subprocess(
        "--bandwidth-device=cuda", "--bandwidth-baseline=base.yaml", f"--bandwidth-json={out}", *more
    )
    return result, json.loads(out.read_text())


def test_update_then_compare_then_a_slowed_kernel(pytester: pytest.Pytester, device: CudaDevice) -> None:
    size = large(device) // 4
    device.release()
    result, document = run(
        pytester, size, slowed=False, name="a.json", more=("--bandwidth-update", "--bandwidth-runs=3")
    )
    assert result.ret == 0
    assert document["device"]["name"] == device.identity.name
    (row,) = document["results"]
    assert row["status"] == "SAVED"
    assert row["gbps"] > 0

    result, document = run(pytester, size, slowed=False, name="b.json")
    assert result.ret == 0, result.stdout.str()
    (row,) = document["results"]
    assert (row["status"], row["reason_code"]) == ("OK", "code-unchanged")

    # A fifth more work than declared is a drop of a sixth.
    result, document = run(pytester, size, slowed=True, name="c.json")
    result.assert_outcomes(failed=1)
    assert document["results"][0]["status"] == "REGRESSED"
