"""Tests that failed before they were judged: a report of the others' results alone would look as if all were well."""

from __future__ import annotations

UNJUDGED = "failed-unjudged"
SAID_AT_MOST = 400


def unjudged_finding(nodeid: str, said: str) -> dict[str, str]:
    """A finding about the run, as the document holds it. said: what the test failed with; its first line counts."""
    first = said.strip().partition("\n")[0][:SAID_AT_MOST]
    return {"code": UNJUDGED, "text": f"{nodeid} failed before it was judged: {first}"}
