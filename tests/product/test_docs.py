"""What README and docs say is there, and what they show runs."""

import ast
import re
import runpy
import sys

import pytest
from documented import PAGES, ROOT
from making import HERE, copy_of_repository, run

# Rules of style that a program can check, in what users read. Code is left out.
MOST_BYTES, MOST_OF_README, MOST_WORDS = 145_000, 5_000, 18
HABITS = re.compile(
    r"\b(?:[Tt]ells?|told|[Bb]eside|in turns?|at hand|the last word|settles?|stands?(?!-in)|of which|fares?|"
    r"ever after|is none|are none|since then|held to|ahead)\b"
)
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`|<!--.*?-->", re.DOTALL | re.MULTILINE)
# Written by benchmarks/gpu_page.py, or for those who change the plugin.
OTHER_READERS = {"architecture.md", "CONTRIBUTING.md"}
FOR_USERS = [page for page in PAGES if page.name not in OTHER_READERS]


def without_code(page):
    """The page's text, with as many lines."""
    return CODE.sub(lambda found: "x" + "\n" * found[0].count("\n"), page.read_text(encoding="utf-8"))


def anchors_of(page):
    """The anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub(lambda found: found[0].strip("`"), page.read_text("utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    wrong = []
    for link in re.findall(r"\]\((?!https?://)([^)\s]+)", page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            wrong.append(link)
    assert wrong == []


def test_readme_and_the_pages_stay_short():
    sizes = {page.name: page.stat().st_size for page in PAGES if page.name != "CONTRIBUTING.md"}
    assert sizes["README.md"] <= MOST_OF_README
    assert sum(sizes.values()) <= MOST_BYTES, sizes


@pytest.mark.parametrize("page", FOR_USERS, ids=lambda p: p.name)
def test_a_page_has_no_habit_of_this_projects_own(page):
    lines = enumerate(without_code(page).splitlines(), 1)
    assert [f"{page.name}:{number}: {found[0]}" for number, line in lines for found in HABITS.finditer(line)] == []


@pytest.mark.parametrize("page", FOR_USERS, ids=lambda p: p.name)
def test_sentences_are_short(page):
    parts = re.split(r"\n\s*\n|\n(?=- |\d\. )", without_code(page))
    paragraphs = [part for part in parts if not part.lstrip().startswith(("|", "#"))]
    sentences = [s.split() for p in paragraphs for s in re.split(r"(?<=[.:!?])\s", re.sub(r"\]\([^)]*\)", "]", p))]
    lengths = [len(words) for words in sentences if len(words) > 2]
    assert sum(lengths) <= MOST_WORDS * max(len(lengths), 1)


def reason_codes():
    """What `reason_code` may be, as anchors."""
    from pytest_bandwidth.domain.measured import rounds, validity
    from pytest_bandwidth.domain.verdict import Rule, Status
    from pytest_bandwidth.features.counters import judging as of_counters

    rules = {value for name, value in vars(Rule).items() if name.isupper()}
    rules |= {of_counters.RULE_DRAM, of_counters.RULE_RATIO, of_counters.RULE_UNCOUNTED}
    invalid = {*validity.OF_OWN_SAMPLES, *validity.OF_OTHERS, rounds.RUN_DELAY, "no-samples"}
    return rules | invalid | {"floor", "setting"} | {status.value.lower() for status in Status}


def test_every_verdict_and_reason_has_its_place_in_troubleshooting():
    assert reason_codes() - anchors_of(ROOT / "docs" / "troubleshooting.md") == set()


def test_links_of_messages_lead_to_troubleshooting():
    sources = (file.read_text(encoding="utf-8") for file in (ROOT / "pytest_bandwidth").rglob("*.py"))
    linked = {anchor for text in sources for anchor in re.findall(r"troubleshooting(?:\.\w+)?#([\w-]+)", text)}
    assert linked - anchors_of(ROOT / "docs" / "troubleshooting.md") == set()


def names_in(file):
    """Return what a module defines at its top, and ``Class.member`` for what its classes do."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        for name in defined(node):
            found |= {name, *(f"{name}.{m}" for member in getattr(node, "body", []) for m in defined(member))}
    return found


def defined(node):
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    imported = [alias.asname or alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
    return [*imported, *([node.name] if hasattr(node, "name") else [t.id for t in targets if isinstance(t, ast.Name)])]


def test_what_the_architecture_names_exists():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "pytest_bandwidth"
    named = re.findall(r"`([\w/]+\.py)::([\w.]+)`", text)
    assert len(named) > 30
    assert [f"{file}::{name}" for file, name in named if name not in names_in(package / file)] == []
    folders = re.findall(
        r"`((?:tests/|cuda_src/)?[a-z_]+/[\w/]*)`", text.partition("<!-- end of rooms -->")[2].replace("NAME/", "")
    )
    assert [f for f in folders if not (package / f).is_dir() and not (ROOT / f).is_dir()] == []


def test_the_architectures_table_is_the_codes():
    if sys.version_info < (3, 11):
        pytest.importorskip("tomli")
    tables = runpy.run_path(str(ROOT / "docs" / "architecture_tables.py"))
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert tables["rewrite"](text) == text, "run: python docs/architecture_tables.py docs/architecture.md"
    with pytest.raises(ValueError, match="expected both marker lines"):
        tables["rewrite"]("a page without them")


def test_json_page_names_every_field():
    from dataclasses import fields

    from pytest_bandwidth.outcomes.outcome import Outcome

    text = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    assert [f.name for f in fields(Outcome) if f"`{f.name}`" not in text] == []


def test_cli_page_names_every_command():
    from pytest_bandwidth.cli.main import commands

    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert [name for name in commands() if f"| `{name} " not in text] == []


def test_make_knows_what_readme_names():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`make (\w+)`", (ROOT / "README.md").read_text(encoding="utf-8"))):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_script_that_make_runs_exists():
    for script in re.findall(r"benchmarks/\w+\.py", (ROOT / "Makefile").read_text(encoding="utf-8")):
        assert (ROOT / script).is_file(), script


@pytest.mark.slow
def test_the_test_of_the_cuda_page_runs(pytester):
    text = (ROOT / "docs" / "cuda.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    pytester.makepyfile(test_cuda=snippet)
    result = pytester.runpytest_subprocess("--bandwidth-device=cpu", "--bandwidth-max-time=0.2")
    result.assert_outcomes(passed=1)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it: warnings are errors."""
    copy = copy_of_repository(tmp_path_factory.mktemp("repository"))
    result = run("make", *HERE, "docs", cwd=copy)
    assert result.returncode == 0, result.stdout + result.stderr
    return copy / "docs" / "_build"


def test_the_site_has_every_page(site):
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")}
    index = (site / "index.html").read_text(encoding="utf-8")
    assert [page for page in pages if f'href="{page}.html"' not in index and page != "index"] == []


def test_the_reference_is_the_codes(site):
    from dataclasses import fields

    from pytest_bandwidth import hooks as specifications
    from pytest_bandwidth.fixture.bandwidth import Bandwidth
    from pytest_bandwidth.judging.limits import MarkerOptions
    from pytest_bandwidth.options.options import declared
    from pytest_bandwidth.options.settings import dest, flag
    from pytest_bandwidth.registry import hooks

    text = re.sub(r"<[^>]+>", "", (site / "reference.html").read_text(encoding="utf-8"))
    options = declared(hooks())
    assert [name for name, option in options.items() if not option.ini_only and flag(name) not in text] == []
    assert [name for name in options if dest(name) not in text] == []
    assert [f.name for f in fields(MarkerOptions) if f.name not in text] == []
    offered = [name for name in vars(Bandwidth) if not name.startswith("_")]
    assert [name for name in offered if f"bandwidth.{name}" not in text] == []
    assert [name for name in vars(specifications) if name.startswith("pytest_bandwidth_") and name not in text] == []


def test_pages_list_every_column_and_operation(site):
    from pytest_bandwidth.features.history.store import COLUMNS
    from pytest_bandwidth.suite.operations import OPERATIONS

    history, kernels = ((site / name).read_text(encoding="utf-8") for name in ("history.html", "kernels.html"))
    assert [column.name for column in COLUMNS if f">{column.name}<" not in history] == []
    assert [o.title for o in OPERATIONS if f"<td><p>{o.name}</p></td>" not in kernels] == []


def test_the_site_loads_nothing_from_elsewhere(site):
    for page in site.glob("*.html"):
        loaded = re.findall(
            r"<(?:script|img|link)[^>]+(?:src|href)=\"(https?:[^\"]+)", page.read_text(encoding="utf-8")
        )
        assert loaded == [], page.name
