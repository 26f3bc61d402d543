"""The file of --runtime-env: what is handed to Ray, and what is refused before a node hears of it."""

from __future__ import annotations

import json

import pytest

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.fleet.runtime_env import read_runtime_env


@pytest.mark.parametrize(
    ("told", "ships_folder"),
    [
        ({"pip": ["pytest-bandwidth"], "env_vars": {"A": "1"}}, True),
        ({"py_executable": "/srv/venv/bin/python"}, True),
        ({"image_uri": "registry.example.org/kernels"}, False),
        ({}, True),
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
        (" " * 2**21, "found no object"),
        ('{"working_dir": "."}', "found 'working_dir', expected some of pip, uv"),
        ('{"pip": [], "uv": []}', "found pip and uv, expected one of them"),
        ('{"py_executable": 7}', "found py_executable 7, expected a text"),
        ('{"uv": ["a\\u001b[31m"]}', r"found 'a\\x1b\[31m', expected no control characters"),
        ('{"env_vars": {"A": "\\u0000"}}', "expected no control characters"),
        ('{"env_vars": {"A=B": ""}}', "expected values by variable's name"),
        ('{"env_vars": []}', "expected values by variable's name"),
        ('{"container": {}}', "expected --chdir DIR with it"),
    ],
)
def test_what_ray_would_refuse_on_every_node_is_one_line(tmp_path, text, said):
    file = tmp_path / "env.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=said) as caught:
        read_runtime_env(file, ships_folder=True)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_runtime_env(tmp_path / "env.json", ships_folder=True)
