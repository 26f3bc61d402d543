"""Render a run's document as the text of a file; each form's module is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_bandwidth.outcomes.outcome import Outcome


def render(kind: str, document: Mapping[str, Any], outcomes: Sequence[Outcome]) -> str:
    """Return the text of a file of a kind: json, csv, html or md. outcomes: the document's results."""
    if kind == "json":
        from pytest_bandwidth.reports.json import render_json

        return render_json(document)
    if kind == "csv":
        from pytest_bandwidth.reports.csv import render_csv

        return render_csv(outcomes)
    if kind == "html":
        from pytest_bandwidth.features.html.page import render_html

        return render_html(document)
    from pytest_bandwidth.reports.github import job_summary

    return job_summary(document)
