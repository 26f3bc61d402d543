"""The JSON Schema that editors use says what the loader says, as far as a schema can say it."""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from baseline_strategies import baselines
from hypothesis import HealthCheck, given, settings
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from test_baseline_hostile import mutated

from pytest_bandwidth.domain.baseline import Baseline
from pytest_bandwidth.domain.errors import BaselineError
from pytest_bandwidth.storage import baseline as baseline_files
from pytest_bandwidth.storage.baseline import fields
from pytest_bandwidth.storage.baseline.source import decode

SCHEMA = json.loads(baseline_files.SCHEMA_FILE.read_text())
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)


def as_an_editor_sees_it(text: str) -> Any:
    """Values typed by YAML 1.2, as editors do, where times stay text and keys are text."""
    return _plain(YAML(typ="safe", pure=True).load(text))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return value


def flagged(text: str) -> bool:
    return not VALIDATOR.is_valid(as_an_editor_sees_it(text))


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


def test_both_know_the_same_keys() -> None:
    definitions = SCHEMA["definitions"]
    assert set(SCHEMA["properties"]) == set(fields.HEADER_KEYS)
    assert set(SCHEMA["properties"]["device"]["properties"]) == set(fields.DEVICE_SCALARS)
    assert set(definitions["entry"]["properties"]) == set(fields.ENTRY_KEYS)
    assert set(definitions["run"]["properties"]) == set(fields.RUN_SCALARS)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(baselines)
def test_what_updates_write_is_not_flagged(baseline: Baseline) -> None:
    assert not flagged(baseline_files.dumps(baseline))


def test_no_valid_file_is_flagged(tmp_path: Path) -> None:
    chance = random.Random(3)
    path = tmp_path / "a.yaml"
    valid = 0
    for _ in range(3000):
        path.write_bytes(mutated(chance))
        try:
            baseline_files.load(path)
            seen = as_an_editor_sees_it(decode(path.read_bytes()).text)
        except (BaselineError, YAMLError, ValueError):
            continue  # refused, or beyond the editor's own parser
        valid += 1
        assert VALIDATOR.is_valid(seen), path.read_text()
    assert valid > 50


@pytest.mark.parametrize(
    "text",
    [
        "entries: {}",
        "schema: 2",
        "schema: 1\ndevice: A100",
        "schema: 1\ndevice: {memory_gib: 80}",
        "schema: 1\ndevice: {name: X, kind: tpu}",
        "schema: 1\ntolerance: 5",
        "schema: 1\ntolerance: 3 percent",
        "schema: 1\nentries: [a]",
        "schema: 1\nother: {a: b}",
        *(
            f"schema: 1\nentries:\n  a: {entry}"
            for entry in (
                "5",
                "{}",
                "{tolerance: 3%}",
                "{counts: {}}",
                "{runs: []}",
                "{bandwidth: fast}",
                "{bandwidth: -5}",
                "{bandwidth: 0}",
                "{bandwidth: 5 GB}",
                "{bandwidth: [5]}",
                "{bandwidth: 5, utilization: 85}",
                "{bandwidth: 5, judged_on: speed}",
                "{bandwidth: 5, bytes_read: 1.5}",
                "{bandwidth: 5, bytes_read: -1}",
                "{bandwidth: 5, runs: {gbps: 5}}",
                "{bandwidth: 5, runs: [{gpu: x}]}",
                "{bandwidth: 5, runs: [{gbps: 5, at: noon}]}",
                "{bandwidth: 5, anchor: 5}",
                "{bandwidth: 5, settings: off}",
                "{bandwidth: 5, counts: {a: b}}",
                "{bandwidth: 5, later: [a]}",
            )
        ),
    ],
)
def test_both_refuse(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text + "\n")
    with pytest.raises(BaselineError):
        baseline_files.load(path)
    assert flagged(text)
