"""What a release needs: the changelog's section, the pages' links, and the form for issues."""

import re

import yaml
from documented import ROOT

import pytest_bandwidth

WORKFLOWS = ROOT / ".github" / "workflows"
RELEASING = (ROOT / "RELEASING.md").read_text(encoding="utf-8")


def test_the_changelog_describes_this_version_first():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first = re.findall(r"^## (.*)$", text, re.MULTILINE)[0]
    version = re.escape(pytest_bandwidth.__version__)
    assert re.fullmatch(rf"Unreleased|{version} - (?:unreleased|\d{{4}}-\d\d-\d\d)", first)


def test_what_releasing_names_is_there():
    workflow = yaml.safe_load((WORKFLOWS / "release.yml").read_text(encoding="utf-8"))
    assert f"environment `{workflow['jobs']['publish']['environment']['name']}`" in RELEASING
    named = re.findall(r"`([\w/.]+\.(?:yml|py|md|toml|json))`", RELEASING)
    assert len(named) > 5
    assert [n for n in named if not (ROOT / n).is_file() and not (WORKFLOWS / n).is_file()] == []


def test_the_site_is_built_where_the_metadata_says_it_is():
    config = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text(encoding="utf-8"))
    assert config["sphinx"] == {"configuration": "docs/conf.py", "fail_on_warning": True}
    metadata = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^Documentation = "https://pytest-bandwidth\.readthedocs\.io/', metadata, re.MULTILINE)
    groups = re.findall(r"--group (\w+)", " ".join(config["build"]["jobs"]["install"]))
    assert [group for group in groups if not re.search(rf"^{group} = \[", metadata, re.MULTILINE)] == []
