"""docs/json.md and docs/cli.md name every field that programs may find."""

import json
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from baseline_files import write_baseline
from run_documents import GPU, outcome, run_of, save, saved

from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry, Run
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.storage.saved_run import NESTED_FORMS, DocumentForm

DOCS = Path(__file__).resolve().parents[2] / "docs"
KEY = "tests/test_a.py::test_copy"
# Names that a device, a suite or a file chooses.
OPEN_ENDED = ("tags", "counts", "settings", "facts", "header")


def named_in(text):
    return set(re.findall(r"`([a-z_0-9]+)`", text))


def json_page():
    return (DOCS / "json.md").read_text(encoding="utf-8")


def forms_of(form):
    """The dataclass and all that its annotations hold, at any depth."""
    found = {form}
    stack = list(get_type_hints(form).values())
    while stack:
        hint = stack.pop()
        if is_dataclass(hint):
            found |= forms_of(hint)
        stack.extend(get_args(hint))
    return found


FORMS = set().union(*map(forms_of, (DocumentForm, Outcome, *NESTED_FORMS.values())))


def keys_of(value):
    """Every key of a document whose name is fixed, at any depth."""
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    if isinstance(value, dict):
        return set(value).union(*(keys_of(one) for name, one in value.items() if name not in OPEN_ENDED))
    return set()


@pytest.mark.parametrize("form", sorted(FORMS, key=lambda form: form.__name__), ids=lambda form: form.__name__)
def test_json_page_names_every_field_of_every_form(form):
    # Where an entry stands in its file is no part of a document.
    unwritten = {Entry: {"line"}}.get(form, set())
    assert {field.name for field in fields(form)} - named_in(json_page()) - unwritten == set()


def test_a_written_document_holds_nothing_that_the_page_does_not_name():
    written = json.loads(json.dumps(run_of(outcome(KEY, 800.0))))
    assert written["results"][0]["conditions"]["after"]
    del written["settings"]
    assert keys_of(written) - named_in(json_page()) == set()


@pytest.fixture
def files(tmp_path):
    def baseline(name, *gbps):
        entry = Entry(KEY, gbps=gbps[0], runs=tuple(Run(g, probe_gbps=900.0) for g in gbps), judged_on="relative")
        path = tmp_path / name
        write_baseline(path, Baseline(BaselineDevice(GPU.name), {KEY: entry}))
        return path

    (tmp_path / "bad.yaml").write_text("tests: 3\n", encoding="utf-8")
    return {
        "A": baseline("a.yaml", 800.0),
        "B": baseline("b.yaml", 700.0, 701.0),
        "BAD": tmp_path / "bad.yaml",
        "RUN1": saved(tmp_path / "1.json", {KEY: 800.0}),
        "RUN2": save(tmp_path / "2.json", run_of(outcome(KEY, 500.0))),
        "OTHER": saved(tmp_path / "3.json", {KEY: 800.0}, name="Other GPU"),
        "NEW": tmp_path / "new.yaml",
    }


VERDICT = {field.name for form in forms_of(NESTED_FORMS["verdict"]) for field in fields(form)}
DEVICE = {"name", "memory_gib", "kind", "peak_gbps"}


@pytest.mark.parametrize(
    ("row", "arguments", "elsewhere"),
    [
        ("baseline show`", "baseline show A", DEVICE),
        ("baseline validate`", "baseline validate A BAD", ()),
        ("baseline diff`", "baseline diff A B", ()),
        ("baseline prune`", f"baseline prune A {KEY} --dry-run", ()),
        ("baseline init`", "baseline init NEW --device cpu", DEVICE),
        ("compare`, one device", "compare RUN1 RUN2", DEVICE | VERDICT),
        ("compare`, several", "compare RUN1 OTHER", DEVICE),
    ],
)
def test_cli_page_names_every_field(command, files, row, arguments, elsewhere):
    said = command(*(files.get(word, word) for word in arguments.split()), "--json")
    assert said.err == ""
    found = json.loads(said.out)
    assert found.pop("schema") == 1
    page = (DOCS / "cli.md").read_text(encoding="utf-8").partition("## JSON")[2]
    line = next(line for line in page.splitlines() if line.startswith(f"| `{row}"))
    assert keys_of(found) - named_in(line) - set(elsewhere) == set()
