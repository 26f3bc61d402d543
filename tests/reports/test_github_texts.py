"""What GitHub is given: Markdown in which hostile texts stay text, and one workflow command a line."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest
import run_documents
from hostile_documents import hostile_document
from hostile_texts import HOSTILE
from markdown_it import MarkdownIt

from pytest_bandwidth.domain.outcomes.outcome import Outcome
from pytest_bandwidth.reports.github import annotations, job_summary, markdown
from pytest_bandwidth.reports.text_safe import one_line


def rendered(text: str) -> str:
    """As HTML, by CommonMark with GitHub's tables; `test_nothing_links_without_markup` covers what it adds to text."""
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text)


def test_the_summary_gives_verdict_counts_and_what_needs_attention() -> None:
    page = rendered(job_summary(run_documents.run_document(run_documents.outcomes(30, failing=2, unjudged=2))))
    shown = html.unescape(re.sub(r"<[^>]+>", " ", page))
    assert "2 of 30 measurements failed" in shown
    assert "against baselines/imaginary.yaml" in shown
    assert page.count("❌ REGRESSED") == 2
    assert "26 that passed" in shown
    assert page.index("REGRESSED") < page.index("<details>") < page.index("WITHIN")


def test_columns_that_say_nothing_are_left_out_and_counts_have_theirs() -> None:
    def heads(outcomes: list[Outcome]) -> list[str]:
        page = rendered(job_summary(run_documents.run_document(outcomes)))
        return re.findall(r"<th[^>]*>(.*?)</th>", page)

    timed, counted = run_documents.outcomes(3), [run_documents.counted("tests/test_a.py::test_counted")]
    assert heads(timed) == ["status", "test", "GB/s", "of peak", "of probe", "change", "allowed drop", "sees"]
    assert heads(counted) == ["status", "test", "sectors/request", "access"]


def test_failures_are_quoted_in_full() -> None:
    document = run_documents.run_document(run_documents.outcomes(10, failing=1))
    message = next(r["message"] for r in document["results"] if r["message"])
    shown = html.unescape(re.sub(r"<[^>]+>", "", rendered(job_summary(document))))
    assert message in shown


@pytest.mark.parametrize("text", [t for t in HOSTILE if t.strip()], ids=range(len([t for t in HOSTILE if t.strip()])))
def test_a_hostile_cell_renders_as_its_own_text(text: str) -> None:
    cut = one_line(text, 300)
    page = rendered(f"| a | b |\n| - | - |\n| {markdown(cut)} | last |\n")
    cells = re.findall(r"<td>(.*?)</td>", page, re.DOTALL)
    assert len(cells) == 2
    assert "<" not in cells[0]
    assert html.unescape(cells[0]) == cut.strip()


def test_a_hostile_run_gives_no_link_image_or_html() -> None:
    page = rendered(job_summary(hostile_document()))
    assert not re.search(r"<(?!/?(?:h2|p|ul|li|table|thead|tbody|tr|th|td|strong|details|summary)\b)[a-z!/]", page)
    assert "<a " not in page


def test_nothing_links_without_markup() -> None:
    # GitHub links these wherever they stand: addresses, mentions, references to issues.
    assert not re.search(r"://|www\.|@|(?<!&)#\d|GH-", job_summary(hostile_document()).replace("## ", ""))


def test_a_huge_run_stays_under_what_github_takes() -> None:
    document = hostile_document(["<b>" * 3000] * 900)
    assert len(job_summary(document).encode()) < 2**20


def test_every_annotation_is_one_command_on_the_tests_line() -> None:
    lines = annotations(run_documents.run_document(run_documents.outcomes(30, failing=2, unjudged=2))).splitlines()
    assert len(lines) == 4
    assert sum(line.startswith("::error file=tests/kernels/test_") for line in lines) == 2
    assert sum(line.startswith("::warning file=") for line in lines) == 2
    assert all(re.match(r"::(error|warning) file=[^,:]+,line=\d+,title=[^,:]+::\S", line) for line in lines)


def test_the_titles_of_tests_of_one_name_tell_them_apart() -> None:
    failed = next(o for o in run_documents.outcomes(10, failing=1) if o.message)
    alike = [replace(failed, nodeid=n, key=n, label=None) for n in ("x/a/t.py::test_a", "x/b/t.py::test_a")]
    other = replace(failed, nodeid="x/t.py::test_b", key="x/t.py::test_b @ one", label="one")
    titles = re.findall(r"title=(.*?)::\S", annotations(run_documents.run_document([*alike, other])))
    names = ("a/t.py%3A%3Atest_a", "b/t.py%3A%3Atest_a", "t.py%3A%3Atest_b @ one")
    assert titles == [f"REGRESSED {name}" for name in names]


def test_no_more_annotations_than_github_shows() -> None:
    text = annotations(run_documents.run_document(run_documents.outcomes(60, failing=25, unjudged=20)))
    assert text.count("::error ") == 10
    assert text.count("::warning ") == 10


def test_hostile_texts_start_no_command_of_their_own() -> None:
    for line in annotations(hostile_document(HOSTILE)).splitlines():
        assert re.match(r"::(error|warning) file=[^:,]*,(line=\d+,)?title=[^:,]*::", line)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]", annotations(hostile_document(HOSTILE)))


def test_percent_signs_and_newlines_are_escaped_as_the_toolkit_does() -> None:
    document = run_documents.run_document(run_documents.outcomes(10, failing=1))
    failed = next(r for r in document["results"] if r["message"])
    failed["message"], failed["file"] = "100 % slower", "a,b:c%.py"
    assert "file=a%2Cb%3Ac%25.py," in annotations(document)
    assert annotations(document).rstrip().endswith("::100 %25 slower")


def test_a_passing_run_annotates_nothing() -> None:
    assert annotations(run_documents.run_document(run_documents.outcomes(10))) == ""
