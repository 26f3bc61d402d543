"""The compiler's process, asked by hand: what it answers, and that it outlives what it refuses."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import Any

from children import HANGS_SECONDS

from pytest_bandwidth.features.traffic.ptx.nvrtc import _SERVER

TWICE = """
template <typename T> __global__ void twice(T* x) { *x *= 2; }
extern "C" __global__ void plain(int* x) { unused(x); }
"""
GOOD = TWICE.replace("unused(x);", "*x = ONE;")


def answers(requests: list[dict[str, Any]], environment: dict[str, str]) -> list[dict[str, Any]]:
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    command = [sys.executable, str(_SERVER)]
    made = subprocess.run(command, input=lines, env=environment, capture_output=True, text=True, timeout=HANGS_SECONDS)
    assert made.returncode == 0, made.stderr
    return [json.loads(line) for line in made.stdout.splitlines()]


def request(text: str = GOOD, **changes: Any) -> dict[str, Any]:
    options = ["--gpu-architecture=compute_80", "-DONE=1"]
    return {
        "text": text,
        "filename": "k.cu",
        "headers": {},
        "names": [],
        "options": options,
        "ptx": True,
        "alarm": 60,
        **changes,
    }


def test_each_request_is_answered_in_order_those_refused_too(counted: dict[str, str]) -> None:
    machine_code = ["--gpu-architecture=sm_80", "-DONE=1"]
    about, ptx, cubin, broken, unknown, option, again = answers(
        [
            {},
            request(names=["twice<float>"]),
            request(options=machine_code, ptx=False),
            request(TWICE),
            request(names=["thrice<float>"]),
            request(options=["--no-such-option"]),
            request('#include "one.h"\n' + GOOD, headers={"one.h": "#undef ONE\n#define ONE 7"}),
        ],
        counted,
    )
    assert about["version"].count(".") == 1
    assert "sm_80" in about["architectures"]
    assert about["folders"]
    assert set(ptx["lowered"]) == {"twice<float>"}
    assert f".entry {ptx['lowered']['twice<float>']}(" in ptx["ptx"]
    assert base64.b64decode(cubin["cubin"]).startswith(b"\x7fELF")
    assert broken["failed"] == "NVRTC_ERROR_COMPILATION"
    assert 'k.cu(3): error: identifier "unused" is undefined' in broken["log"]
    assert {*unknown} <= {"refused", "failed", "log"}
    assert {*option} <= {"refused", "failed", "log"}
    assert ", 7;" in again["ptx"]


def test_an_installation_without_nvrtc_is_told(counted: dict[str, str], tmp_path: Any) -> None:
    bindings = tmp_path / "cuda" / "bindings"
    bindings.mkdir(parents=True)
    (tmp_path / "cuda" / "__init__.py").touch()
    (bindings / "__init__.py").write_text("raise ImportError('no bindings here')\n")
    [answer] = answers([{}], {**counted, "PYTHONPATH": str(tmp_path)})
    assert answer == {"unavailable": "no bindings here"}
