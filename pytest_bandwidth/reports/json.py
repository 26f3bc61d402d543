"""Build and write the JSON document: one run, everything measured. docs/json.md describes its form."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.storage.saved_run import SCHEMA


def document(
    run_id: str,
    environment: Mapping[str, Any],
    device: Mapping[str, Any],
    settings: Mapping[str, Any],
    outcomes: Sequence[Outcome],
    baseline_path: str | None,
    findings: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Return the run as one JSON-ready mapping. `results` is sorted by key, so that equal runs give equal text."""
    return {
        "schema": SCHEMA,
        "run_id": run_id,
        "environment": dict(environment),
        "device": dict(device),
        "settings": dict(settings),
        "baseline_path": baseline_path,
        "findings": [dict(f) for f in findings],
        "results": [o.to_plain() for o in sorted(outcomes, key=lambda o: (o.key, o.nodeid))],
    }


def render_json(document: Mapping[str, Any]) -> str:
    """Return strict JSON text (no NaN) that UTF-8 can hold, characters kept, keys in the document's order."""
    text = json.dumps(_finite(document), ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    # Half a pair of UTF-16, as in a file's name that is no UTF-8: Python's escape for it is JSON's own.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _finite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON has not, by null: there is no figure."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value
