"""`pytest-bandwidth device`: identity, peak with its source, probes by mix, caches, clocks, ridge points."""

import json
from importlib import import_module

import pytest

MIXES = ("read only", "write only", "copy (1:1)", "2 reads, 1 write")


@pytest.fixture(autouse=True)
def small_probes(monkeypatch):
    """Arrays that a small machine has room for, and few samples; what is printed depends on neither."""
    module = import_module("pytest_bandwidth.cli.device")
    monkeypatch.setattr(module, "PROBE_BYTES", 3 * 2**20)
    monkeypatch.setattr(module, "SAMPLES", 3)
    monkeypatch.setattr(module, "WARM_SECONDS", 0.001)
    return module


def test_the_host(command):
    said = command("device", "--device", "cpu")
    assert said.status == 0
    lines = said.out.splitlines()
    assert lines[0].startswith("cpu: ")
    assert lines[1].split() == ["peak", "unknown"]
    for mix in MIXES:
        (line,) = [line for line in lines if line.startswith(f"  {mix} ")]
        assert line.endswith("GB/s")
    ridges = [line for line in lines if line.startswith("  ridge ")]
    assert [line.split()[1] for line in ridges] == ["fp64", "fp32"]
    assert all(line.endswith("FLOP/byte (by the rates measured here)") for line in ridges)
    named = {line.split()[0] for line in lines[1:]}
    assert {"l1_bytes", "l2_bytes", "processors", "threads"} & named
    plain = json.loads(command("device", "--device", "cpu", "--json").out)
    assert set(plain["probe_gbps"]) == set(MIXES)
    assert (plain["kind"], plain["ridge_points"]["fp32"] > 0) == ("cpu", True)


def test_what_counts_has_no_rates(command):
    pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC")
    said = command("device", "--device", "traffic")
    assert said.status == 0
    assert "GB/s" not in said.out
    assert "ridge" not in said.out
