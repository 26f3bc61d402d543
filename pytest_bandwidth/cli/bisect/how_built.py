"""Find how commits are built: in pytest's ini file as it is at one commit, or among the arguments for pytest."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from iniconfig import IniConfig, ParseError

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.evidence.commit_pairs.building import Build, build_of
from pytest_bandwidth.evidence.git import git

_NAME = "bandwidth_build"
# In the order that pytest looks for them, with the section of each.
_FILES = (
    ("pytest.toml", "pytest"),
    (".pytest.toml", "pytest"),
    ("pytest.ini", "pytest"),
    (".pytest.ini", "pytest"),
    ("pyproject.toml", "tool.pytest"),
    ("tox.ini", "pytest"),
    ("setup.cfg", "tool:pytest"),
)


def how_built(top: Path, commit: str, test_file: Path, args: Sequence[str]) -> Build | None:
    """Return how commits are built; None where neither `args` (`-o bandwidth_build=…`) nor the ini file says.

    The ini file is the first one of pytest's from the test's folder up to the top of the tree. Raises UsageError where
    it cannot be read.
    """
    folder, said = _said_in_ini(top, commit, test_file.parent)
    for option, value in zip(("", *args), args, strict=False):
        given = value if option in ("-o", "--override-ini") else value.removeprefix("--override-ini=")
        if given.startswith(f"{_NAME}="):
            said = given.partition("=")[2]
    return build_of(said or None, folder)


def _said_in_ini(top: Path, commit: str, start: Path) -> tuple[Path, str]:
    """Return the folder of the ini file, and what it says, if anything."""
    for folder in (start.resolve(), *start.resolve().parents):
        if not folder.is_relative_to(top):
            break
        for name, section in _FILES:
            path = (folder / name).relative_to(top)
            try:
                text = git(top, "cat-file", "blob", f"{commit}:{path.as_posix()}")
            except UsageError:  # not there
                continue
            try:
                found = _toml(text, section) if name.endswith(".toml") else _ini(text, section)
            except (ParseError, ValueError) as error:
                raise UsageError(f"{path} at {commit[:10]}: {error}, expected pytest's ini file") from None
            if found is not None or name in ("pytest.ini", ".pytest.ini"):
                return folder, str((found or {}).get(_NAME, ""))
    return start, ""


def _ini(text: str, section: str) -> Mapping[str, str] | None:
    found = IniConfig("", data=text)
    return dict(found[section].items()) if section in found else None


def _toml(text: str, section: str) -> Mapping[str, Any] | None:
    # pytest needs one of the two.
    found: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli").loads(text)
    for key in section.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    if isinstance(found, dict) and isinstance(found.get("ini_options"), dict):
        found = found["ini_options"]
    return found if isinstance(found, dict) else None
