"""What is wrong before Ray is used is one line, not a traceback: its import, an address, the file of --runtime-env."""

from __future__ import annotations

import json
import sys

import pytest

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.fleet.cluster import Cluster
from pytest_bandwidth.features.fleet.command import read_runtime_env


@pytest.mark.parametrize("port", ["99999", "9" * 5000])
def test_a_port_that_is_none(port):
    with pytest.raises(UsageError, match=r"--address localhost:9+: no Ray answers there"):
        Cluster(f"localhost:{port}", None)


def test_what_ray_raises_when_it_is_imported_is_told(tmp_path, monkeypatch):
    (tmp_path / "ray.py").write_text("raise KeyError('libamd_smi.so')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    with pytest.raises(UsageError, match=r"Ray is installed and cannot be imported: KeyError: 'libamd_smi\.so'; try"):
        Cluster("auto", None)


@pytest.mark.parametrize(
    ("told", "ships_folder"),
    [
        ({"pip": ["pytest-bandwidth"], "env_vars": {"A": "1"}}, True),
        ({"image_uri": "registry.example.org/kernels"}, False),
    ],
)
def test_an_environment_is_handed_on_as_it_is(tmp_path, told, ships_folder):
    file = tmp_path / "env.json"
    file.write_text(json.dumps(told))
    assert read_runtime_env(file, ships_folder=ships_folder) == told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "found no JSON"),
        ("[" * 100_000, "found no JSON"),
        ("[]", "found no object"),
        ('{"working_dir": "."}', "found 'working_dir', expected one of pip, uv"),
        ('{"container": {}}', "expected --chdir DIR with it"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_holds_no_environment_is_one_line(tmp_path, text, said):
    file = tmp_path / "env.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=said) as caught:
        read_runtime_env(file, ships_folder=True)
    assert "\n" not in str(caught.value)
