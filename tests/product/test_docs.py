"""What README, docs and what a release needs say is there, and what they show runs."""

import ast
import html
import re
import tokenize
from pathlib import Path

import pytest
import yaml
from documented import PAGES, ROOT
from repositories import HERE, copy_of_repository, run

import pytest_bandwidth
from pytest_bandwidth.domain.text import DOCUMENTATION
from pytest_bandwidth.reports.wording import help_link

# Rules of style that a program can check, in pages and in the package's docstrings and comments.
MOST_BYTES, MOST_OF_README, MEAN_WORDS, MOST_WORDS, MOST_OF_MESSAGES = 135_000, 5_000, 18, 30, 25
HABITS = re.compile(
    r"\b(?:[Tt]ells?|told|sees|knows|fares?|settles?|stands?(?!-in)|suspects?|"
    r"[Bb]eside|in turns?|at hand|the last word|of which|of what|whatever|under strict|ever after|"
    r"(?:is|are) none|none (?:is|are)|nothing of|since then|held to|ahead|thereof|likewise|be had|at rest)\b"
)
# Its term for code, which pages call a new process.
FRESH = re.compile(r"\bfresh process(?:es)?\b")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`|<!--.*?-->", re.DOTALL | re.MULTILINE)
# Their sentences are not counted: tables, headings, indented blocks. Each item of a list begins a paragraph.
NO_PROSE, BEGINS = re.compile(r"\||#|    "), re.compile(r"\s*(?:- |\d\. )")
# For those who change the plugin.
OTHER_READERS = {"architecture.md", "CONTRIBUTING.md"}
FOR_USERS = [page for page in PAGES if page.name not in OTHER_READERS]


def without_code(page):
    """The page's text, with as many lines."""
    return CODE.sub(lambda found: "x" + "\n" * found[0].count("\n"), page.read_text(encoding="utf-8"))


def anchors_of(page):
    """The anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub(lambda found: found[0].strip("`"), page.read_text("utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


OF_RELEASES = [ROOT / name for name in ("CHANGELOG.md", "RELEASING.md", "SECURITY.md")]


@pytest.mark.parametrize("page", [*PAGES, *OF_RELEASES], ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    wrong = []
    for link in re.findall(r"\]\((?!https?://)([^)\s]+)", without_code(page)):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            wrong.append(link)
    assert wrong == []


def sentences(page):
    """Each sentence of the page's prose, as its first line's number and its words."""
    text = re.sub(r"\]\([^)\n]*\)", "]", without_code(page))
    found, words = [], []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if words and (not line.strip() or BEGINS.match(line) or NO_PROSE.match(line)):
            found.append(words)
            words = []
        for word in [] if NO_PROSE.match(line) else line.split():
            words.append((number, word))
            if re.search(r"[.:!?]['\")*]*$", word):
                found.append(words)
                words = []
    return [(words[0][0], [word for _, word in words]) for words in found if len(words) > 2]


def test_readme_and_the_pages_stay_short():
    pages = [page for page in PAGES if page.name != "CONTRIBUTING.md"] + sorted((ROOT / "docs" / "gpu").glob("*.md"))
    sizes = {page.name: page.stat().st_size for page in pages}
    assert sizes["README.md"] <= MOST_OF_README
    assert sum(sizes.values()) <= MOST_BYTES, sizes


@pytest.mark.parametrize("page", FOR_USERS, ids=lambda p: p.name)
def test_a_page_has_no_habit_of_this_projects_own(page):
    lines = enumerate(without_code(page).splitlines(), 1)
    found = [(number, found[0]) for number, line in lines for rule in (HABITS, FRESH) for found in rule.finditer(line)]
    assert [f"{page.name}:{number}: {words}" for number, words in found] == []


def literals(file):
    """Each text in a file's code as its line and words, docstrings left out. Of f-strings the expressions are …."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    with_docstring = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = (node.body[:1] for node in ast.walk(tree) if isinstance(node, with_docstring))
    left_out = {id(node.value) for body in bodies for node in body if isinstance(node, ast.Expr)}
    formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    left_out |= {id(part) for node in formatted for part in node.values}
    for node in formatted:
        yield node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.lineno, node.value


def test_messages_have_no_such_habit_and_short_sentences():
    """Errors, warnings, verdicts and help: the texts with blanks in the package's code, and the pages' templates."""
    package, wrong = Path(pytest_bandwidth.__file__).parent, []
    for file in package.rglob("*.py"):
        for line, text in literals(file):
            habits = [found[0] for rule in (HABITS, FRESH) for found in rule.finditer(text) if " " in text.strip()]
            parts = re.split(r"[.:;!?]\s|\n", text) if not text.startswith("SELECT ") else []  # SQL has no sentences
            long = [part for part in parts if len(part.split()) > MOST_OF_MESSAGES]
            wrong += [f"{file}:{line}: {words}" for words in (*habits, *long)]
    for file in (*package.rglob("*.j2"), *package.rglob("*.js")):
        text = file.read_text(encoding="utf-8")
        wrong += [f"{file}: {found[0]}" for rule in (HABITS, FRESH) for found in rule.finditer(text)]
    assert wrong == []


def test_docstrings_and_comments_have_no_such_habit():
    habits = []
    for file in Path(pytest_bandwidth.__file__).parent.rglob("*.py"):
        with tokenize.open(file) as opened:
            for token in tokenize.generate_tokens(opened.readline):
                is_docstring = token.type == tokenize.STRING and token.string.startswith(('"""', 'r"""'))
                if token.type == tokenize.COMMENT or is_docstring:
                    found = HABITS.findall(token.string)
                    habits += [f"{file}:{token.start[0]}: {words}" for words in found]
    assert habits == []


@pytest.mark.parametrize("page", FOR_USERS, ids=lambda p: p.name)
def test_sentences_are_short(page):
    found = sentences(page)
    long = [(line, words) for line, words in found if len(words) > MOST_WORDS]
    assert [f"{page.name}:{line}: {len(words)} words: {' '.join(words)}" for line, words in long] == []
    assert sum(len(words) for _, words in found) <= MEAN_WORDS * max(len(found), 1)


def reason_codes():
    """What `reason_code` may be, as anchors."""
    from pytest_bandwidth.domain.measured import validity
    from pytest_bandwidth.domain.measured.measurement import OF_WORK, RUN_DELAY
    from pytest_bandwidth.domain.verdict import Rule, Status
    from pytest_bandwidth.features.counters import evidence as of_counters

    rules = {value for name, value in vars(Rule).items() if name.isupper()}
    rules |= {of_counters.RULE_DRAM, of_counters.RULE_RATIO, of_counters.RULE_UNCOUNTED}
    invalid = {*validity.OF_OWN_SAMPLES, *validity.OF_OTHERS, RUN_DELAY, "no-samples"}
    return rules | invalid | {"floor", "setting", OF_WORK.rstrip(":")} | {status.value.lower() for status in Status}


def errors():
    from pytest_bandwidth.domain import errors as module

    kinds = (value for value in vars(module).values() if isinstance(value, type))
    return {kind.__name__.lower() for kind in kinds if issubclass(kind, module.BandwidthError)} - {"bandwidtherror"}


def test_every_verdict_reason_and_error_has_its_place_in_troubleshooting():
    assert (reason_codes() | errors()) - anchors_of(ROOT / "docs" / "troubleshooting.md") == set()


def test_messages_link_to_the_documentation_that_the_package_names():
    assert f'\nDocumentation = "{DOCUMENTATION}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_changelog_describes_this_version_first():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first = re.findall(r"^## (.*)$", text, re.MULTILINE)[0]
    version = re.escape(pytest_bandwidth.__version__)
    assert re.fullmatch(rf"Unreleased|{version} - (?:unreleased|\d{{4}}-\d\d-\d\d)", first)


def test_what_releasing_names_is_there():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    releasing = (ROOT / "RELEASING.md").read_text(encoding="utf-8")
    assert f"environment `{workflow['jobs']['publish']['environment']['name']}`" in releasing
    named = re.findall(r"`([\w/.]+\.(?:yml|py|md|toml|json))`", releasing)
    assert len(named) > 5
    assert [n for n in named if not (ROOT / n).is_file() and not (ROOT / ".github" / "workflows" / n).is_file()] == []


def test_the_site_is_built_where_the_metadata_says_it_is():
    config = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text(encoding="utf-8"))
    assert config["sphinx"] == {"configuration": "docs/conf.py", "fail_on_warning": True}
    metadata = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert DOCUMENTATION.startswith("https://pytest-bandwidth.readthedocs.io/")
    groups = re.findall(r"--group (\w+)", " ".join(config["build"]["jobs"]["install"]))
    assert [group for group in groups if not re.search(rf"^{group} = \[", metadata, re.MULTILINE)] == []


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
    folders = re.findall(r"`((?:tests/|cuda_src/)?[a-z_]+/[\w/]*)`", text.replace("NAME/", ""))
    assert [f for f in folders if not (package / f).is_dir() and not (ROOT / f).is_dir()] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it: warnings are errors."""
    copy = copy_of_repository(tmp_path_factory.mktemp("repository"))
    result = run("make", *HERE, "docs", cwd=copy)
    assert result.returncode == 0, result.stdout + result.stderr
    return copy / "docs" / "_build"


def test_the_site_has_every_page_and_loads_nothing_from_elsewhere(site):
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")}
    index = (site / "index.html").read_text(encoding="utf-8")
    assert [page for page in pages if f'href="{page}.html"' not in index and page != "index"] == []
    for page in site.glob("*.html"):
        loaded = re.findall(
            r"<(?:script|img|link)[^>]+(?:src|href)=\"(https?:[^\"]+)", page.read_text(encoding="utf-8")
        )
        assert loaded == [], page.name


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
    assert [name for name in specifications._TYPES if f"\n{name}" not in text] == []


def test_every_link_of_a_message_leads_to_a_heading_of_the_site(site):
    text = (site / "troubleshooting.html").read_text(encoding="utf-8")
    ids = set(re.findall(r'<section id="([^"]+)"', text))
    linked = {help_link(code) for code in reason_codes() | errors() | {"declared-bytes", "not-measured"}}
    assert {link.removeprefix(f"{DOCUMENTATION}/troubleshooting.html#") for link in linked} - ids == set()


def test_pages_list_every_command_option_column_and_operation(site):
    from pytest_bandwidth.cli.main import commands
    from pytest_bandwidth.features.history.table import COLUMNS
    from pytest_bandwidth.suite.operations import OPERATIONS

    text = html.unescape(re.sub(r"<[^>]+>", "", (site / "cli.html").read_text(encoding="utf-8")))
    actions = [f"baseline {action}" for action in ("show", "validate", "diff", "prune", "init")]
    assert [name for name in [*commands(), *actions] if f"usage: pytest-bandwidth {name} " not in text] == []
    for option in ("--busy-processors N", "--not-in RUN.json", "--fail-on {regressed,strict}", "--runtime-env FILE"):
        assert option in text
    history, kernels = ((site / name).read_text(encoding="utf-8") for name in ("history.html", "kernels.html"))
    assert [column.name for column in COLUMNS if f">{column.name}<" not in history] == []
    assert [o.title for o in OPERATIONS if f"<td><p>{o.name}</p></td>" not in kernels] == []
