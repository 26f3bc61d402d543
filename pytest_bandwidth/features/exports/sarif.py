"""Write what failed or could not be judged as SARIF 2.1.0, which GitHub's code scanning shows in a pull request.

A result stands at the kernel's line where the failure names one and the checkout has one file of that name; else at the
test. https://docs.github.com/en/code-security/reference/code-scanning/sarif-files/sarif-support
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any, Literal
from urllib.parse import quote

from pytest_bandwidth.baseline.locate import slug
from pytest_bandwidth.devices.base import TEXT_NAME
from pytest_bandwidth.domain.address import DOCUMENTATION
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.measurement import NOTE
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.evidence.git import git, tree_of
from pytest_bandwidth.features.exports import SARIF_SCHEMA
from pytest_bandwidth.outcomes.outcome import Outcome, Plain
from pytest_bandwidth.outcomes.run_findings import FAILED_BEFORE, HELP, HIDDEN, UNJUDGED
from pytest_bandwidth.reports.documents import render_json
from pytest_bandwidth.reports.summary import by_attention, severity_in
from pytest_bandwidth.reports.text_safe import one_line
from pytest_bandwidth.reports.values import text
from pytest_bandwidth.reports.wording import detail_of, help_link, message_lines
from pytest_bandwidth.storage.saved_run import RunDocument, read_document

_TROUBLESHOOTING = f"{DOCUMENTATION}/troubleshooting.html"
_LEVELS: Mapping[str, Literal["error", "warning"]] = {"bad": "error", "warn": "warning"}
# The row of a failure's message that names a source line (`wording`), and its likely cause.
_AT = re.compile(r"\s+(?:most )?at\s+(\S.*?):(\d{1,9})\b")
_CAUSE = re.compile(r"\s+likely cause\s+(\S.*)")
# `scale.cu:6: ` of a test's failure and of a fault, `scale.cu(6): error` of the compiler.
_PLACE = re.compile(r"([^\s:;,()]+\.\w+)(?::(\d{1,9}): |\((\d{1,9})\): )")
LONGEST_SEARCHED = 4000
LONGEST_RULE = 255  # SARIF's limit of an id, as GitHub checks it
_Place = tuple[str, int]
_FileOf = Callable[[str, str], str | None]


@dataclass(frozen=True, slots=True)
class _Result:
    """Hold one result. test: its name; own: the test's place; at: the kernel's, from the top of the checkout."""

    rule: str
    short: str
    help: str
    level: Literal["error", "warning", "note"]
    message: str
    test: str
    own: _Place
    at: _Place | None = None
    kernel: str = ""

    def to_plain(self) -> Plain:
        place = self.at or self.own
        # Without a line, so that it stays the same result where lines move. GitHub adds a hash of the line's text.
        known = "\0".join((self.test, self.rule, self.kernel, place[0]))
        return {
            "ruleId": self.rule,
            "level": self.level,
            # GitHub shows a related location that the message links to.
            "message": {"text": f"{self.message}\n[test](1): {self.test}"},
            "locations": [_location(place)],
            "relatedLocations": [{"id": 1, "message": {"text": self.test}, **_location(self.own)}],
            "partialFingerprints": {
                "bandwidth/v1": hashlib.sha256(known.encode("utf-8", "surrogatepass")).hexdigest()[:32]
            },
        }

    def rule_plain(self) -> Plain:
        said = {"text": self.short}
        return {
            "id": self.rule,
            "shortDescription": said,
            "fullDescription": said,
            "help": {"text": f"{self.short}: {self.help}", "markdown": f"[{self.short}]({self.help})"},
            "helpUri": self.help,
        }


def render_sarif(document: Mapping[str, Any]) -> str:
    """Return a SARIF log of one run: an error where a test fails, a warning where it could not be judged.

    What else a test's result says is a note. Kernels' files are looked up in the checkout of the current folder.
    Raises UsageError where the document is not one.
    """
    run = read_document(document)
    results = list(_results(run))
    rules = {one.rule: one.rule_plain() for one in reversed(results)}
    driver = {
        "name": "pytest-bandwidth",
        "informationUri": DOCUMENTATION,
        "version": text(run.environment, "plugin") or "unknown",
        "rules": [rules[name] for name in sorted(rules)],
    }
    one_run = {
        "tool": {"driver": driver},
        # GitHub takes one run of a tool for each category.
        "automationDetails": {"id": f"pytest-bandwidth/{slug(run.device.name)}/"},
        "originalUriBaseIds": {"%SRCROOT%": {"description": {"text": "the top of the repository"}}},
        "columnKind": "utf16CodeUnits",
        "results": [one.to_plain() for one in results],
    }
    return render_json({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [one_run]})


def _results(run: RunDocument) -> Iterator[_Result]:
    """Yield the run's results, the worst first."""
    file_of = _files_of_checkout()
    root = text(run.environment, "root") or ""

    def own(file: str, line: int | None) -> _Place:
        return normpath(f"{root}/{file}").lstrip("/") or ".", max(line or 1, 1)

    for note in run.findings:
        if note.code == UNJUDGED:
            yield _unjudged(note.text, own, file_of)
        elif note.code == HIDDEN:
            test = note.text.partition(" failed by ")[0]
            place = own(test.partition("::")[0], None)
            link = f"{_TROUBLESHOOTING}#surprises"
            yield _Result(HIDDEN, "failed, and was not reported as failed", link, "error", note.text, test, place)
    for outcome in by_attention(run.outcomes, strict=run.strict):
        place = own(outcome.file or outcome.nodeid.partition("::")[0], outcome.line)
        if outcome.xfail is None and (level := _LEVELS.get(severity_in(outcome, strict=run.strict))):
            yield _judged(outcome, level, place, file_of)
        for finding in outcome.findings:
            if finding.get("level") == NOTE:
                code, said = finding.get("code", NOTE)[:LONGEST_RULE], one_line(finding.get("text", ""), 500)
                yield _Result(code, code.replace("-", " "), _TROUBLESHOOTING, "note", said, outcome.key, place)


def _judged(outcome: Outcome, level: Literal["error", "warning"], own: _Place, file_of: _FileOf) -> _Result:
    rule, lines = outcome.reason_code[:LONGEST_RULE], message_lines(outcome)
    found = next(filter(None, map(_AT.match, lines)), None)
    file = None if found is None else file_of(found[1], own[0])
    at = None if found is None or file is None else (file, int(found[2]))
    causes = [f"likely cause: {cause[1]}" for cause in map(_CAUSE.match, lines) if cause]
    detail = detail_of(Status(outcome.status), rule, outcome.verdict)
    short = f"{outcome.status}: {detail}" if detail else outcome.status
    kernel = text(outcome.detail, "kernel") or ""
    message = "\n".join([lines[0], *causes])
    return _Result(rule, short, help_link(rule), level, message, outcome.key, own, at, kernel)


def _unjudged(said: str, own: Callable[[str, int | None], _Place], file_of: _FileOf) -> _Result:
    """Make a result of a test that failed before it was judged: by a fault, or by what the compiler said."""
    test, _, failure = said.partition(FAILED_BEFORE)
    file = test.partition("::")[0]
    place, at = own(file, None), None
    # The first is the user's line that failed, in the test's file most often; the second is the kernel's.
    for name, line, of_compiler in _PLACE.findall(failure[:LONGEST_SEARCHED])[:2]:
        found, number = file_of(name, place[0]), int(line or of_compiler)
        if found == place[0] and at is None:
            place = own(file, number)
        at = at if found is None else (found, number)
    kind = HELP.search(failure)
    rule = UNJUDGED if kind is None else kind[1]
    link = _TROUBLESHOOTING if kind is None else help_link(rule)
    message = one_line(HELP.sub("", failure).removeprefix("Failed: "), 500)
    return _Result(rule, "failed before it was judged", link, "error", message, test, place, at)


def _location(place: _Place) -> Plain:
    file, line = place
    uri = {"uri": quote(file, errors="replace"), "uriBaseId": "%SRCROOT%"}
    return {"physicalLocation": {"artifactLocation": uri, "region": {"startLine": line}}}


def _files_of_checkout() -> _FileOf:
    """Return what finds the file that a failure names, as a path from the checkout's top.

    That is the test's own file, or the only one of that name in the checkout; None without one.
    """
    known: dict[str, list[str]] = {}
    try:
        listed = git(tree_of(Path.cwd()), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    except UsageError:
        listed = ""
    for path in filter(None, listed.split("\0")):
        known.setdefault(PurePosixPath(path).name, []).append(path)

    def find(named: str, test_file: str) -> str | None:
        name = PurePosixPath(named).name
        if name == PurePosixPath(test_file).name:
            return test_file
        # A source text in a test is called so.
        found = [] if name == TEXT_NAME else known.get(name, [])
        return found[0] if len(found) == 1 else None

    return find
