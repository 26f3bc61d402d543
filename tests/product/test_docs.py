"""What README and docs say is there, and what they show runs."""

import ast
import re
import runpy
import sys

import pytest
from documented import PAGES, ROOT
from making import HERE, copy_of_repository, run


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


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


def test_readme_lists_every_option():
    from pytest_bandwidth.options.options import declared
    from pytest_bandwidth.registry import hooks

    options = declared(hooks())
    named = [name.replace("_", "-") for name, option in options.items() if not option.ini_only]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in named if f"`{name}" not in text and f" {name}=" not in text] == []
    assert [name for name, option in options.items() if option.ini_only and f"bandwidth_{name}" not in text] == []


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
def test_readmes_tests_run(pytester):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (snippet,) = [s for s in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "def test_triad" in s]
    pytester.makepyfile(test_readme=snippet)
    result = pytester.runpytest_subprocess("--bandwidth-device=cpu", "--bandwidth-max-time=0.2")
    result.assert_outcomes(passed=2)


def test_readmes_baseline_loads(tmp_path):
    from pytest_bandwidth import baseline as baseline_files

    (snippet,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path / "b.yaml"
    file.write_text(snippet, encoding="utf-8")
    assert len(baseline_files.load(file).entries["tests/test_triad.py::test_triad"].runs) == 5


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


def test_the_site_loads_nothing_from_elsewhere(site):
    for page in site.glob("*.html"):
        loaded = re.findall(
            r"<(?:script|img|link)[^>]+(?:src|href)=\"(https?:[^\"]+)", page.read_text(encoding="utf-8")
        )
        assert loaded == [], page.name
