"""Each cheat fails by a code that names what it does, and right work that looks suspicious passes."""

import subprocess
import sys

import pytest
from red_team import SHORT, lay_out, unexpected

pytestmark = pytest.mark.processes


ON_HOST = ("calls", "inputs", "later", "partial_work", "right", "right_compiled", "stale", "tampering")


@pytest.mark.parametrize(("device", "modules"), [("cpu", ON_HOST), ("traffic", ("kernels",))])
def test_candidates_end_as_their_table_says(tmp_path, monkeypatch, device, modules):
    pytest.importorskip("numba")
    if device == "traffic":
        pytest.importorskip(
            "cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'"
        )
    for name in ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "1")  # threads that wait for more of so little work take three times as long
    monkeypatch.setenv("PYTHONPATH", lay_out(tmp_path, *modules))
    command = [sys.executable, "-m", "pytest", f"--bandwidth-device={device}", *SHORT]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert unexpected(tmp_path, done.stdout) == {}, done.stdout[-3000:] + done.stderr[-1000:]
