"""The JSON Schema that editors use says what the loader says, as far as a schema can say it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import jsonschema
import pytest
import write_json_schema
import yaml

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline.parse import LOADER
from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BaselineError

SCHEMA = json.loads(baseline_files.SCHEMA_FILE.read_text())
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)


class CoreLoader(LOADER):
    """Types values by the core schema of YAML 1.2, as editors do: no octal 0123, no `on`; times stay text."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


for tag, pattern, first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
):
    CoreLoader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"(?:{pattern})$"), list(first))
CoreLoader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node)))
CoreLoader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: float(loader.construct_scalar(node)))


def as_an_editor_sees_it(text):
    """Values typed as editors type them; keys are text."""
    return _plain(yaml.load(text, Loader=CoreLoader))


def _plain(value):
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def flagged(text):
    return not VALIDATOR.is_valid(as_an_editor_sees_it(text))


def test_the_schema_is_one_and_written_from_the_loaders_own_tables():
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert baseline_files.SCHEMA_FILE.read_text() == write_json_schema.text(), f"run {write_json_schema.__file__}"


# What YAML might take for something else.
TEXTS = ["events+block", "yes", "null", "0123456", "1e5", "2026-11-21", "{", "&a", "!t", "''", "~", "é"]
TEXTS += ["a: b", "x #y", "- z", "\U0001f600 \U0001f600"]


def test_every_text_comes_back_and_is_not_flagged_by_editors(tmp_path):
    entries = [
        Entry(
            f"t.py::t[{text}] @ {text}",
            5.0 + number,
            tolerance=0.031,
            bytes_read=2**63 - 1,
            xfail=text,
            note=text,
            runs=(Run(5.0 + number, 7.1e6, 0.999999, gpu=f"G{text}", commit=text, dirty=True),),
            extra={"zz_a": text},
            method=text,
            settings={text: text},
        )
        for number, text in enumerate(TEXTS)
    ]
    entries += [Entry("large", 7.1e6), Entry("tiny", 2e-10)]
    path = tmp_path / "a.yaml"
    baseline_files.update(path, DeviceIdentity("cpu", TEXTS[-1], None, "host"), entries)
    found = baseline_files.load(path).entries
    assert [replace(found[one.key], anchor=None) for one in entries] == entries
    assert not flagged(path.read_text())


@pytest.mark.parametrize(
    "text",
    [
        "tests: {}",
        "schema: 3",
        "schema: 2\ndevice: A100",
        "schema: 2\ndevice: {memory_gib: 80}",
        "schema: 2\ndevice: {name: X, kind: A TPU}",
        "schema: 2\ntolerance: 5",
        "schema: 2\ntests: [a]",
        "schema: 2\nother: {a: b}",
        *(
            f"schema: 2\ntests:\n  a: {entry}"
            for entry in ("5", "{}", "{tolerance: 3%}", "{counts: {}}", "{runs: many}", "{bandwidth: fast}")
        ),
        *(
            f"schema: 2\ntests:\n  a: {{bandwidth: 5, {field}}}"
            for field in ("of_peak: 85", "judged_on: speed", "bytes: {read: -1}", "settings: off", "later: [a]")
        ),
    ],
)
def test_both_refuse(tmp_path, text):
    path = tmp_path / "a.yaml"
    path.write_text(text + "\n")
    with pytest.raises(BaselineError):
        baseline_files.load(path)
    assert flagged(text)
