"""Documents whose form is broken anywhere: every renderer either renders or says in one line what is wrong."""

from __future__ import annotations

import copy
import json
import os
from typing import Any

import pytest
import run_documents
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.html import page as html
from pytest_bandwidth.features.html.page import render_html
from pytest_bandwidth.reports import pages
from pytest_bandwidth.reports.documents import render_csv
from pytest_bandwidth.reports.github import annotations, job_summary
from pytest_bandwidth.storage.saved_run import read_document

BASE: dict[str, Any] = json.loads(
    json.dumps(
        run_documents.run_document(
            [*run_documents.outcomes(4, failing=1, unjudged=2), run_documents.counted(), run_documents.improved()],
            findings=[{"code": "device", "text": "slow"}],
        )
    )
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 10**30, 10**400, -(10**400), 5e-324, 1e-300, 1e300, -1e300, 1e74, 1e-74]),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["REGRESSED", "SUSPECT", "floor:min_utilization", "floor:min_gbps", "relative", "\ud800", "</script>"]
    ),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document that a value could stand in; of long lists the first three."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value[:3]):
            found += places(inner, (*path, index))
    return found


PLACES = places(BASE)
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "150"))


@pytest.fixture(autouse=True)
def _light_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    # The chart library is the same for every document; half a second of hashing it would be spent on each.
    monkeypatch.setattr(html, "javascript_bundle", lambda: "window.vegaEmbed = undefined;")
    assert pages.charts_available()


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.sampled_from(PLACES), JSON), min_size=1, max_size=3))
def test_any_value_in_any_place_is_rendered_or_refused(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    document = copy.deepcopy(BASE)
    for path, value in changes:
        put(document, path, value)
    refusal, page = attempt(document)
    if refusal is not None:
        assert "\n" not in refusal
        assert len(refusal) < 400
        return
    page.encode("utf-8")
    job_summary(document).encode("utf-8")
    annotations(document).encode("utf-8")
    render_csv(read_document(document).outcomes).encode("utf-8")


def attempt(document: Any) -> tuple[str | None, str]:
    """The refusal, or the page."""
    try:
        return None, render_html(document)
    except UsageError as error:
        return str(error), ""


def put(document: Any, path: tuple[Any, ...], value: Any) -> None:
    """Replaces what stands at a path; where an earlier change took the path away, nothing happens."""
    *parents, last = path
    for step in parents:
        try:
            document = document[step]
        except (KeyError, IndexError, TypeError):
            return
    if isinstance(document, dict) or (isinstance(document, list) and isinstance(last, int) and last < len(document)):
        document[last] = value
