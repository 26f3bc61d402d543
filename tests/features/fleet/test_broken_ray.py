"""What is wrong before Ray is used is one line, not a traceback: its import, an address."""

from __future__ import annotations

import sys

import pytest

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.fleet.cluster import Cluster


@pytest.mark.parametrize("port", ["99999", "9" * 5000])
def test_a_port_that_is_none(port):
    with pytest.raises(UsageError, match=r"found port 9+, expected 65535 at most"):
        Cluster(f"localhost:{port}", None)


def test_what_ray_raises_when_it_is_imported_is_told(tmp_path, monkeypatch):
    (tmp_path / "ray.py").write_text("raise KeyError('libamd_smi.so')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    with pytest.raises(UsageError, match=r"Ray is installed and cannot be imported: KeyError: 'libamd_smi\.so'; try"):
        Cluster("auto", None)
