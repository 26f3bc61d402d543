"""Each cheat fails by a code that names what it does, and right work that looks suspicious passes."""

import subprocess
import sys

import pytest
from red_team import SHORT, lay_out, unexpected

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(("device", "module"), [("cpu", "on_host"), ("traffic", "on_traffic")])
def test_candidates_end_as_their_table_says(tmp_path, monkeypatch, device, module):
    pytest.importorskip("numba")
    if device == "traffic":
        pytest.importorskip(
            "cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'"
        )
    monkeypatch.setenv("PYTHONPATH", lay_out(tmp_path, module))
    command = [sys.executable, "-m", "pytest", f"--bandwidth-device={device}", *SHORT]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert unexpected(tmp_path, done.stdout) == {}, done.stdout[-3000:] + done.stderr[-1000:]
