"""Make run documents in which every text is a hostile one, and mutations that break their form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import run_documents
from hostile_texts import HOSTILE

from pytest_bandwidth.outcomes.outcome import Outcome

COUNTED = {
    "accesses": 8,
    "requests": 2,
    "bytes_requested": 8,
    "sectors": 4,
    "sectors_per_request": 2.0,
    "coalescing": 0.5,
}


def hostile_document(texts: Iterable[str] = HOSTILE) -> dict[str, Any]:
    """Make one result for each text, in all of its places; where the run has one place, it holds the first text."""
    chosen = list(texts)
    templates = run_documents.outcomes(12, failing=3, unjudged=3)
    results = [_poisoned(templates[i % len(templates)], text, i).to_plain() for i, text in enumerate(chosen)]
    first = chosen[0]
    plain = run_documents.run_document([])
    return {
        **plain,
        "run_id": first,
        "environment": {
            **{f"{text[:60]}{i}": text for i, text in enumerate(chosen)},
            "commit": first,
            "started_at": first,
        },
        "device": {
            **plain["device"],
            "kind": first,
            "name": first,
            "serial": first,
            "settings": dict.fromkeys(chosen, first),
            "facts": dict.fromkeys(chosen, first),
            "peak": {"gbps": 1000.0, "source": first},
        },
        "settings": {"strict": False, first: first, "list": chosen[:20]},
        "findings": [{"code": text, "text": text} for text in chosen],
        "baseline_path": first,
        "results": results,
    }


def _poisoned(outcome: Outcome, text: str, index: int) -> Outcome:
    baseline = dict(outcome.baseline or {})
    baseline |= {
        "key": text,
        "note": text,
        "xfail": text,
        "runs": [{"gbps": 500.0, "probe_gbps": 600.0, "at": text, "commit": text}] * 3,
    }
    return replace(
        outcome,
        nodeid=f"{text}::{text}",
        key=f"{text} {index}",
        label=text,
        reason_code=text,
        reason=text,
        message=text if index % 2 else None,
        file=text,
        utilization_class=text,
        regime=text,
        regime_evidence=text,
        precision=text,
        method=text,
        stop=text,
        dropped=({"round": 1, "seconds": 1.0, "code": text, "reason": text},),
        findings=({"code": text, "text": text},),
        verdict={
            **outcome.verdict,
            "rule": text,
            "why_not": [text],
            "facts": {text: text, "changes": [[text, 1, 2], [text], text, None, 3]},
        },
        baseline=baseline,
        counts={text: 3},
        resources={"registers": 3, "local_bytes": 0, "shared_bytes": 0, text: 3},
        probe={"name": text, "bytes_moved": 1000},
        detail={
            "kernel": text,
            "loads": {**COUNTED, "pattern": text, text: [text, {text: text}]},
            "lines": [{"file": text, "line": 3, "loads": {**COUNTED, "pattern": text}}],
            "arrays": [{"name": text, "nbytes": 8, "bytes_read": 8, "bytes_written": 0}],
            "modelled_floor_seconds": {text: 1e-9},
        },
        conditions={
            "before": {"event_reasons": [text], "others": [text]},
            "after": {"sm_clock_mhz": 3, "others": [text]},
        },
        tags={"operation": text, "precision": ("fp32", "fp16")[index % 2], text: text},
    )
