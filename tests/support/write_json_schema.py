"""Write ``baseline.schema.json`` from the tables of `baseline/schema.py`: run it after a change of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_bandwidth.baseline import SCHEMA_FILE
from pytest_bandwidth.baseline.schema import DEVICE_FIELDS, ENTRY_FIELDS, FRACTION, SINGLE, Field
from pytest_bandwidth.domain.baseline import SCHEMA


def text() -> str:
    """Return what the file says."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema by which editors complete and check a file."""

    def of(fields: Mapping[str, Field]) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": SINGLE, "properties": {n: _of(f) for n, f in fields.items()}}

    device = {"description": "The device that the figures are of.", **of(DEVICE_FIELDS), "required": ["name"]}
    # `runs` alone may be valid: the bandwidth then comes from the runs file, which an editor does not read.
    some_counts = {"required": ["counts"], "properties": {"counts": {"minProperties": 1}}}
    entry = {**of(ENTRY_FIELDS), "anyOf": [{"required": ["bandwidth"]}, {"required": ["runs"]}, some_counts]}
    tests = {"type": "object", "propertyNames": {"pattern": r"^\S(.*\S)?$"}, "additionalProperties": entry}
    forms = [FRACTION, *(one.form for one in (*DEVICE_FIELDS.values(), *ENTRY_FIELDS.values()))]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "pytest-bandwidth baseline",
        "description": "What earlier runs of each bandwidth test showed on one device.",
        "type": "object",
        "required": ["schema"],
        "additionalProperties": SINGLE,
        "properties": {
            "schema": {"description": "Version of this layout.", "enum": [SCHEMA, str(SCHEMA)]},
            "device": device,
            "tolerance": _of(Field(FRACTION, "Tolerance of tests that give none.")),
            "tests": {
                "description": "By node id, then ' @ label' where a test measures several things.",
                "oneOf": [tests, {"enum": [None, ""]}],
            },
        },
        "definitions": {"single": {"type": ["string", "number", "boolean", "null"]}}
        | {form.name: dict(form.schema) for form in forms},
    }


def _of(one: Field) -> dict[str, Any]:
    form = {"$ref": f"#/definitions/{one.form.name}"}
    if one.names is None:
        return {"description": one.about, **form}
    return {"description": one.about, "type": "object", "additionalProperties": form}


if __name__ == "__main__":
    SCHEMA_FILE.write_text(text(), encoding="utf-8")
