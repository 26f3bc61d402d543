"""What GitHub is given: Markdown in which hostile texts stay text, and one workflow command a line."""

import html
import re
from dataclasses import replace

import pytest
import run_documents
from hostile import HOSTILE, hostile_document
from markdown_it import MarkdownIt

from pytest_bandwidth.outcomes.run_findings import unjudged_finding
from pytest_bandwidth.reports.github import annotations, job_summary, markdown
from pytest_bandwidth.reports.text_safe import one_line


def rendered(text):
    """As HTML, by CommonMark with GitHub's tables; links that GitHub makes of text are looked for in the Markdown."""
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text)


def test_the_summary_gives_verdict_counts_and_what_needs_attention():
    page = rendered(job_summary(run_documents.run_document(run_documents.outcomes(30, failing=2, unjudged=2))))
    shown = html.unescape(re.sub(r"<[^>]+>", " ", page))
    assert "2 of 30 measurements failed" in shown
    assert "against baselines/imaginary.yaml" in shown
    assert page.count("❌ REGRESSED") == 2
    assert "26 that passed" in shown
    assert page.index("REGRESSED") < page.index("<details>") < page.index("✅ OK")


def test_columns_that_say_nothing_are_left_out_and_counts_have_theirs():
    def heads(outcomes):
        page = rendered(job_summary(run_documents.run_document(outcomes)))
        return re.findall(r"<th[^>]*>(.*?)</th>", page)

    timed, counted = run_documents.outcomes(3), [run_documents.counted("tests/test_a.py::test_counted")]
    assert heads(timed) == ["status", "test", "GB/s", "of peak", "of probe", "change", "allowed drop", "detects"]
    assert heads(counted) == ["status", "test", "sectors/request", "access"]


def test_a_failure_is_quoted_in_full_and_annotated_with_escapes_of_the_toolkit():
    document = run_documents.run_document(run_documents.outcomes(10, failing=1))
    message = next(r["message"] for r in document["results"] if r["message"])
    page = rendered(job_summary(document))
    first, *others = message.splitlines()
    assert first.startswith("REGRESSED: ")
    assert f"</strong> {first}</summary>" in html.unescape(page)
    (pre,) = re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)
    assert html.unescape(pre).splitlines() == others, "each line as it is, aligned"
    assert page.index("<table>") < page.index("<pre>") < page.index("that passed")
    failed = next(r for r in document["results"] if r["message"])
    failed["message"], failed["file"] = "100 % slower, so\n50 %, a:b", "a,b:c%.py"
    assert "file=a%2Cb%3Ac%25.py," in annotations(document)
    assert ",title=100 %25 slower%2C so::" in annotations(document)
    assert annotations(document).rstrip().endswith("%0A50 %25, a:b")


@pytest.mark.parametrize("text", [t for t in HOSTILE if t.strip()], ids=range(len([t for t in HOSTILE if t.strip()])))
def test_a_hostile_cell_renders_as_its_own_text(text):
    cut = one_line(text, 300)
    page = rendered(f"| a | b |\n| - | - |\n| {markdown(cut)} | last |\n")
    cells = re.findall(r"<td>(.*?)</td>", page, re.DOTALL)
    assert len(cells) == 2
    assert "<" not in cells[0]
    assert html.unescape(cells[0]) == cut.strip()


def test_a_hostile_or_huge_run_gives_no_link_image_html_or_command_and_stays_under_githubs_limit():
    summary = job_summary(hostile_document())
    page = rendered(summary)
    assert not re.search(r"<(?!/?(?:h2|p|ul|li|pre|table|thead|tbody|tr|th|td|strong|details|summary)\b)[a-z!/]", page)
    assert "<a " not in page
    # GitHub links these wherever they stand: addresses, mentions, references to issues.
    assert not re.search(r"://|www\.|@|(?<!&)#\d|GH-", summary.replace("## ", ""))
    document = hostile_document(["<b>" * 3000] * 900)
    assert len(job_summary(document).encode()) < 2**20
    for line in annotations(hostile_document(HOSTILE)).splitlines():
        assert re.match(r"::(error|warning) file=[^:,]*,(line=\d+,)?title=[^:,]*::", line)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]", annotations(hostile_document(HOSTILE)))


def test_every_annotation_is_one_command_on_the_tests_line():
    lines = annotations(run_documents.run_document(run_documents.outcomes(30, failing=2, unjudged=2))).splitlines()
    assert len(lines) == 4
    assert sum(line.startswith("::error file=tests/kernels/test_") for line in lines) == 2
    assert sum(line.startswith("::warning file=") for line in lines) == 2
    assert all(re.match(r"::(error|warning) file=[^,:]+,line=\d+,title=[^,:]+::\S", line) for line in lines)
    assert annotations(run_documents.run_document(run_documents.outcomes(10))) == "", "a passing run annotates nothing"


def test_a_fault_is_annotated_at_its_tests_file():
    document = run_documents.run_document(run_documents.outcomes(3))
    fault = "KernelFault: scale.cu:6: thread 3 of block 0 reads past `in`, 4 bytes"
    document["findings"] = [unjudged_finding("tests/test_a.py::test_scale[a::b]", fault)]
    (line,) = annotations(document).splitlines()
    properties, _, text = line.removeprefix("::error ").partition("::")
    title = fault.replace(":", "%3A").replace(",", "%2C")
    assert properties == f"file=tests/test_a.py,title={title}"
    assert text == "tests/test_a.py::test_scale[a::b]"


def test_the_ten_that_github_shows_are_the_worst():
    rows = [
        replace(o, status="REGRESSED", verdict={"drop": 0.01 * number}, message=f"REGRESSED: {number} %")
        for number, o in enumerate(run_documents.outcomes(25))
    ]
    counted = replace(
        rows[0], verdict={"facts": {"changes": [["load_sectors", 100, 126]]}}, message="REGRESSED: sectors"
    )
    floor = replace(rows[1], verdict={"observed": 77.5, "reference": 100.0}, message="REGRESSED: floor")
    shown = re.findall(
        r"title=REGRESSED%3A (.*?)::", annotations(run_documents.run_document([counted, floor, *rows[2:]]))
    )
    assert shown == [
        "24 %25",
        "23 %25",
        "floor",
        "22 %25",
        "21 %25",
        "sectors",
        *(f"{n} %25" for n in range(20, 16, -1)),
    ]
