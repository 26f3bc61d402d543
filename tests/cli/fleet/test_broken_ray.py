"""A Ray that is installed and cannot be imported is one line, not a traceback."""

from __future__ import annotations

import sys

import pytest

from pytest_bandwidth.cli.fleet.cluster import Cluster
from pytest_bandwidth.domain.errors import UsageError


def test_what_ray_raises_when_it_is_imported_is_told(tmp_path, monkeypatch):
    (tmp_path / "ray.py").write_text("raise KeyError('libamd_smi.so')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    with pytest.raises(UsageError, match=r"Ray is installed and cannot be imported: KeyError: 'libamd_smi\.so'; try"):
        Cluster("auto", None)
