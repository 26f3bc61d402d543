"""Write ``baseline.schema.json`` from the tables of `baseline/schema.py`: run it after a change of them."""

from __future__ import annotations

import json

from pytest_bandwidth.baseline import SCHEMA_FILE
from pytest_bandwidth.baseline.schema import json_schema


def text() -> str:
    """Return what the file says."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(text(), encoding="utf-8")
