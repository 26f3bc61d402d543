"""The HTML summary as text: self-contained, escaped, bounded, the same for the same run. tests/browser opens it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from typing import Any

import pytest
import run_documents
from hostile import hostile_document
from html_pages import Page

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.features.html import page as html_module
from pytest_bandwidth.features.html.page import render_html
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports import pages
from pytest_bandwidth.reports.columns import Column, columns


@pytest.fixture(scope="module")
def failing() -> Page:
    return page_of(run_documents.outcomes(40, failing=3, unjudged=4))


def page_of(outcomes: list[Any], **changes: Any) -> Page:
    return Page(render_html(run_documents.run_document(outcomes, **changes)))


def opened(outcome: Outcome) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the panel of a run's only result, and its labelled values."""
    page = page_of([outcome])
    (panel,) = page.data["panels"]
    return panel, facts_of(panel)


def test_much_data_is_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    document = run_documents.run_document(run_documents.outcomes(3))
    plain = Page(render_html(document)).data
    monkeypatch.setattr(pages, "MOST_UNCOMPRESSED", 100)
    packed = re.search(r'<script type="application/json" id="data">([\w+/=]*)</script>', render_html(document))
    assert packed is not None
    assert json.loads(gzip.decompress(base64.b64decode(packed[1]))) == plain


def facts_of(panel: dict[str, Any]) -> dict[str, str]:
    """All labelled values of a panel."""
    return {label: value for group in ("verdict", "measured", "work") for label, value in panel.get(group, [])}


def test_what_a_frameworks_operators_move_is_a_table_of_the_row() -> None:
    exp = {"name": "exp </script>", "bytes_moved": 16, "bytes_read": 8, "bytes_written": 8, "flop": 4}
    made = {"name": "r_2", "bytes_moved": 2000, "bytes_read": None, "bytes_written": None, "flop": None}
    operators = [
        {**exp, "arithmetic_intensity": 0.25, "bound": "memory"},
        {**made, "arithmetic_intensity": None, "bound": None},
    ]
    explained = {"framework": "JAX", "bytes_moved": 2016, "least_bytes": 8, "compiled_bytes": 20, "is_compiled": True}
    detail = {"explained": {**explained, "intermediates": [8], "operator_count": 202, "operators": operators}}
    panel, _ = opened(replace(run_documents.outcomes(1)[0], detail=detail))
    (table,) = panel["tables"]
    assert table == {
        "title": "JAX: in all 2.02 kB; compiled, 20 B; 8 B if fused",
        "head": ["operator", "read", "written", "moved", "FLOP/byte", "bound by"],
        "rows": [["exp </script>", "8 B", "8 B", "16 B", "0.25", "memory"], ["r_2", "–", "–", "2 kB", "–", "–"]],
        "more": 200,
    }


def test_a_changed_kernels_code_is_shown_with_its_lines() -> None:
    first, second, *_ = run_documents.outcomes(3)
    code = {"ptx": "1" * 32, "sass": "2" * 32, "launch": "3" * 32}
    diff = "@@ line 1 → 1 @@\n- ld.global.v4.f32 </script>\n+ ld.global.f32 \u202e"
    baseline = {**(first.baseline or {}), "code": code}
    changed = replace(
        first, baseline=baseline, code_identity={**code, "ptx": "4" * 32, "sass": "5" * 32}, code_diff=diff
    )
    same = replace(second, baseline=baseline, code_identity=code)
    panel, facts = opened(changed)
    assert (panel["code"], facts["code"]) == (diff.replace("\u202e", "\\u202e"), "changed since the baseline")
    panel, facts = opened(same)
    assert ("code" in panel, facts["code"]) == (False, "the baseline's")


def test_a_column_without_a_hint_is_left_out_of_the_legend(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Column("rows", "rows/s", lambda _: 7, outputs=("html",))
    monkeypatch.setattr(
        "pytest_bandwidth.features.html.page.columns", lambda of: [*columns(of), *([rows] if of == "html" else [])]
    )
    text = render_html(run_documents.run_document(run_documents.outcomes(2)))
    legend = text.partition('<dl class="reading">')[2].partition("</dl>")[0]
    assert "achieved bandwidth" in legend
    assert "rows/s" not in legend


def policy_of(page: Page) -> str:
    policies = [m["content"] for m in page.named("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert len(policies) == 1
    return policies[0] or ""


def check_inert(page: Page) -> None:
    """Check that nothing is loaded from anywhere, and nothing runs but scripts."""
    for tag, attributes in page.elements:
        found = [name for name in attributes if name.startswith("on") or name in ("src", "style", "action", "srcdoc")]
        assert found == [], tag
        assert (attributes.get("href") or "#").startswith("#")
    assert not page.named("link")


def test_every_script_and_style_runs_by_its_hash_and_nothing_else_may(failing: Page) -> None:
    check_inert(failing)
    policy = policy_of(failing)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag, content in failing.raw:
        if content.startswith('{"panels"'):
            continue
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy, tag


def test_failures_come_first_and_link_to_their_rows_and_each_verdict_is_explained(failing: Page) -> None:
    ids = [row["id"] for row in failing.named("tr") if (row.get("id") or "").startswith("t-")]
    links = [a["href"] for a in failing.named("a") if (a.get("href") or "").startswith("#t-")]
    assert links == [f"#{name}" for name in ids[:3]]
    assert len(ids) == len(set(ids)) == 40
    shown = failing.visible()
    reading = shown[shown.index("How to read this", shown.index("Environment")) :]
    assert all(f" {status} " in reading for status in Status)


def test_panels_carry_what_a_reviewer_needs(failing: Page) -> None:
    panel = failing.data["panels"][0]
    facts = facts_of(panel)
    assert facts["allowed drop"] == "5.0 %"
    assert facts["runs"] == "5"
    assert facts["samples"] == "40 kept, 1 dropped"
    assert facts["dropped for"] == "throttled"
    assert facts["registers"] == "32"
    assert "likely cause  registers 32 → 96" in panel["message"].replace("\xa0", " ")
    assert panel["source"].startswith("tests/kernels/test_copy.py:")
    assert panel["conditions"][0] == ["SM clock", "1410 MHz", "1380 MHz"]


def test_floors_are_shown_in_shares_of_the_peak_and_limits_of_registers_are_no_bandwidth() -> None:
    outcome = run_documents.outcomes(1)[0]
    missed = {**outcome.verdict, "rule": "floor:min_utilization", "reference": 0.8, "confirmations": [0.41, 0.42]}
    _, facts = opened(replace(outcome, status="REGRESSED", verdict=missed))
    assert (facts["floor"], facts["new processes"]) == ("80.0 %", "41.0 %, 42.0 %")
    judged = {"rule": "floor:max_registers", "observed": 72, "reference": 64}
    _, facts = opened(replace(outcome, status="REGRESSED", verdict=judged))
    assert (facts["compared"], facts["limit"]) == ("72.0", "64.0")


@pytest.mark.parametrize(
    ("verdict", "label"),
    [
        ({"rule": "stored"}, "baseline"),
        ({"rule": "too-noisy", "facts": {"by": "stored"}}, "baseline"),
        ({"rule": "old-kernel"}, "old code"),
        ({"rule": "too-noisy", "facts": {"by": "pairs"}}, "old code"),
    ],
)
def test_what_was_compared_stands_against_what_it_was_compared_with(verdict: dict[str, Any], label: str) -> None:
    outcome = run_documents.outcomes(1)[0]
    judged = {**outcome.verdict, "facts": {}, "figure": "gbps", "observed": 90.0, "reference": 100.0, **verdict}
    _, facts = opened(replace(outcome, verdict=judged))
    assert (facts["compared"], facts[label]) == ("90.0 GB/s", "100 GB/s")


UNJUDGED = run_documents.outcomes(20, unjudged=4)


@pytest.mark.parametrize(
    ("outcomes", "settings", "said", "lists_failures"),
    [
        (run_documents.outcomes(12, failing=3), {}, "3 of 12 measurements failed 3 regressed", True),
        (UNJUDGED, {"strict": True}, "4 of 20 measurements failed", True),
        ([], {}, "Nothing was measured", False),
    ],
)
def test_the_verdict_is_a_sentence_with_counts(
    outcomes: list[Any], settings: dict[str, Any], said: str, lists_failures: bool
) -> None:
    page = page_of(outcomes, settings=settings)
    shown = page.visible()
    assert said in shown
    assert "Imaginary GPU" in shown
    assert ("What failed" in shown) == lists_failures
    assert bool(page.named("table")) == bool(outcomes)


def test_counted_traffic_is_shown_without_empty_columns() -> None:
    page = page_of([run_documents.counted()])
    sorted_by = [b["data-sort"] for b in page.named("button") if b.get("data-sort")]
    assert sorted_by == ["status", "name", "bytes_moved", "sectors_per_request", "access"]
    panel = page.data["panels"][0]
    arrays, accesses = panel["tables"]
    head, rows = accesses["head"], accesses["rows"]
    assert head[:5] == ["access", "place", "source", "accesses", "requests"]
    shown = [dict(zip(head, row, strict=True)) for row in rows]
    assert [row["source"] for row in shown] == ["float x = a[8 * i];", "–"]
    assert [(r["access"], r["place"], r["sectors per request"], r["pattern"]) for r in shown] == [
        ("load", "copy.cu:7", "32", "strided (32 bytes)"),
        ("store", "copy.cu:8", "4", "coalesced"),
    ]
    facts = facts_of(panel)
    assert facts["blocks run"] == "4 of 4"
    assert arrays["rows"][0] == ["a", "4.1 kB", "0 B"]
    assert facts["modelled floor"] == "Imaginary GPU 8.2 ns"


def test_a_failure_shows_its_first_line_and_the_facts() -> None:
    document = run_documents.run_document(run_documents.outcomes(10, failing=1))
    message = next(r["message"] for r in document["results"] if r["message"])
    first, *others = [" ".join(line.split()) for line in message.splitlines()]
    shown = " ".join(Page(render_html(document)).visible().replace("\xa0", " ").split())
    place = shown.index(first.removeprefix("REGRESSED: "))
    assert shown.index("What failed") < place < shown.index(others[0], place) < shown.index(others[-1], place)


def test_without_charts_the_page_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_module, "charts_available", lambda: False)
    text = render_html(run_documents.run_document(run_documents.outcomes(12, failing=1)))
    page = Page(text)
    assert "pip install 'pytest-bandwidth[report]'" in page.visible()
    assert not page.named("figure")
    assert len(text) < 100_000


def test_the_same_run_gives_the_same_page_and_a_test_the_same_anchor() -> None:
    document = run_documents.run_document(run_documents.outcomes(10, failing=1))
    assert render_html(document) == render_html(json.loads(json.dumps(document)))
    one = page_of(run_documents.outcomes(3))
    other = page_of(run_documents.outcomes(6, seed=5))
    ids = [{row["id"] for row in page.named("tr") if row.get("id")} for page in (one, other)]
    assert ids[0] < ids[1]
    twice = [row["id"] for row in page_of(run_documents.outcomes(1) * 2).named("tr") if row.get("id")]
    assert twice == [twice[0], f"{twice[0]}-2"]


def test_weight_stays_in_bounds() -> None:
    outcomes = run_documents.outcomes(200, failing=5, unjudged=10, samples=60)
    assert len(render_html(run_documents.run_document(outcomes)).encode()) <= 1.5e6


def test_hostile_texts_add_no_element_and_no_attribute() -> None:
    usual = page_of(run_documents.outcomes(12, failing=3, unjudged=3))
    page = Page(render_html(hostile_document()))
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in usual.elements} | {"li", "ul"}
    check_inert(page)
    assert len(page.named("script")) == len(usual.named("script")) == 3
    assert re.search(r"script-src 'sha256-[^;]*' 'sha256-[^;]*'; style-src 'sha256-[^;]*'; base-uri", policy_of(page))


def test_the_page_can_be_written_as_utf8_and_text_that_reorders_is_shown_as_escapes() -> None:
    texts = ["\ud800 lone", "\U000e0041 tag", "\x00 nul", "\x85 control", "\u202egnp.tset"]
    text = render_html(hostile_document(texts))
    text.encode("utf-8")
    assert "\x00" not in text
    assert "\x85" not in text
    shown = Page(text).visible()
    assert "\u202e" not in shown
    assert "\\u202egnp.tset" in shown


RESULT = run_documents.outcomes(1)[0].to_plain()
DEVICE = {"kind": "cuda", "name": "Imaginary GPU", "timed_on": "gpu", "serial": "1"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, "expected a mapping"),
        ({"schema": 2}, "found schema 2, expected 1"),
        ({"results": {}}, "the document.results is {}, expected a list"),
        ({"results": [3]}, "results[0] is 3, expected a mapping"),
        ({"results": [{"nodeid": "a"}]}, "results[0] has no key, expected one"),
        ({"results": [RESULT | {"gbps": "1747"}]}, "results[0].gbps is '1747', expected a number"),
        ({"device": []}, "the document.device is [], expected a mapping"),
        ({"device": {"name": 3}}, "the document.device has no kind, expected one"),
        (
            {"device": DEVICE | {"peak": {"gbps": "fast", "source": ""}}},
            "device.peak.gbps is 'fast', expected a number",
        ),
        ({"findings": ["x"]}, "the document.findings[0] is 'x', expected a mapping"),
    ],
)
def test_a_document_of_another_form_is_named_as_such(change: dict[str, Any] | None, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        render_html(None if change is None else {**run_documents.run_document(run_documents.outcomes(1)), **change})


def test_figures_that_the_table_shows_apart_sort_apart_and_those_that_are_not_finite_count_as_absent() -> None:
    document = run_documents.run_document(run_documents.outcomes(3))
    for result, gbps in zip(document["results"], (852.4999, 852.5001, float("nan")), strict=True):
        result["gbps"] = gbps
    document["results"][2]["relative"] = float("inf")
    sort = Page(render_html(document)).data["sort"]
    assert sorted(one for one in sort["bandwidth_gb_s"] if one is not None) == [852.4999, 852.5001]
    assert "nan" not in json.dumps(sort).lower()
    assert "infinity" not in json.dumps(sort).lower()
