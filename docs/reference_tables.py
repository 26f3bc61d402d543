"""Write what pages list from the code: options, marker, fixture, hooks, commands, rooms and others.

Sphinx calls `write_reference` before it reads the pages (docs/conf.py); nothing of it is kept in the repository.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import fields
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pytest_bandwidth import hooks as specifications
from pytest_bandwidth.cli.main import commands, main
from pytest_bandwidth.domain.measured.measurement import Comparison, Measurement, Ratio
from pytest_bandwidth.features.history.table import COLUMNS
from pytest_bandwidth.fixture.bandwidth import Bandwidth
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.options.options import declared
from pytest_bandwidth.options.settings import dest, flag
from pytest_bandwidth.registry import hooks
from pytest_bandwidth.suite.operations.table import markdown_table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "pytest_bandwidth"
CONTRACT = ROOT / "tests" / "product" / "contract.json"
HELP = {"-h", "--help"}


def options_table() -> str:
    """List every option: on the command line, in the ini file, and its meaning."""
    rows = []
    for name, option in sorted(declared(hooks()).items(), key=lambda named: named[1].ini_only):
        value = "" if option.placeholder is None else f"={option.placeholder}"
        rows.append(("ini only" if option.ini_only else f"`{flag(name)}{value}`", f"`{dest(name)}`", option.meaning))
    return _table(("command line", "ini file", "meaning"), rows)


def marker_table() -> str:
    """List every argument of the marker."""
    return _table(("argument", "meaning"), [(f"`{f.name}`", f.metadata["meaning"]) for f in fields(MarkerOptions)])


def fixture_entries() -> str:
    """Describe what a test can ask of `bandwidth`, of a measurement and of a comparison."""
    parts = []
    for name, owner, title in (
        ("bandwidth", Bandwidth, "The fixture"),
        ("measurement", Measurement, "A measurement"),
        ("comparison", Comparison, "A comparison"),
        ("ratio", Ratio, "A ratio"),
    ):
        parts.append(f"## {title}\n\n{inspect.getdoc(owner)}\n")
        parts += [_entry(name, member, value) for member, value in _public(owner)]
    return "\n".join(parts)


def hook_entries() -> str:
    """Describe every hook of `pytest_bandwidth.hooks`, in the order of the file, then the types that they use."""
    found = [(name, value) for name, value in vars(specifications).items() if name.startswith("pytest_bandwidth_")]
    parts = [_entry(name, "__call__", value, skipped=0) for name, value in found]
    for name in specifications._TYPES:
        value = getattr(specifications, name)
        if not inspect.isclass(value):
            parts.append(_entry(name, "__call__", value, skipped=0))
            continue
        parts.append(f"### `{name}`\n\n{inspect.getdoc(value)}\n")
        if value is not Measurement:  # above
            parts += [_entry(name, member, of) for member, of in _public(value) if inspect.getdoc(of)]
    return "\n".join(parts)


def history_table() -> str:
    """List the columns of a history."""
    return _table(("column", "type", "meaning"), [(f"`{c.name}`", c.type, c.meaning) for c in COLUMNS])


def compatibility_table() -> str:
    """List the names that users, CI files and other tools depend on, as a test compares them."""
    kept = json.loads(CONTRACT.read_text(encoding="utf-8"))
    names: dict[str, Iterable[str]] = {
        "options of pytest": kept["options"],
        "options of the ini file": kept["ini"],
        "arguments of the marker": kept["marker"],
        **{f"members of `{name}`": _members(name, members) for name, members in kept["signatures"].items()},
        **{f"`pytest-bandwidth {name}`": sorted({*options} - HELP) for name, options in kept["commands"].items()},
        "exit status": [f"{status}: {when}" for when, status in kept["exit"].items()],
        "columns of CSV": kept["csv"],
        "fields of JSON": kept["document"],
        "fields of a JSON result": kept["document"]["results"][0],
        "keys of a baseline": kept["baseline"]["file"],
        "keys of a baseline's entry": dict.fromkeys((*kept["baseline"]["entry"], *kept["traffic baseline"]["entry"])),
    }
    rows = [(what, ", ".join(f"`{name}`" for name in found)) for what, found in names.items()]
    return _table(("what", "names"), rows)


def command_helps() -> str:
    """Show what `--help` prints for every command and each of its actions."""
    parts, left = [], [(name,) for name in commands()]
    while left:
        words = left.pop(0)
        shown = _help(*words)
        parts.append(f"### `{' '.join(words)}`\n\n```text\n{shown}```\n")
        actions = re.findall(r"^    (\w+)  ", shown.partition("  ACTION\n")[2].partition("\n\n")[0], re.MULTILINE)
        left[:0] = [(*words, action) for action in actions]
    return "\n".join(parts)


def rooms_table() -> str:
    """List the rooms, the highest layer first, each with the first sentence of its docstring; then other contracts."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = [c for c in contracts if c["type"] == "layers" and c.get("containers") == [PACKAGE]]
    rows = [
        (str(number), *_room(name.strip()))
        for number, layer in reversed([*enumerate(reversed(layers["layers"]))])
        for name in layer.split("|")
    ]
    others = [
        f"- the layers {contract['name']}" if "layers" in contract else f"- {contract['name']}"
        for contract in contracts
        if contract is not layers
    ]
    return "\n".join([_table(("layer", "room", "what it does"), rows), "", "Checked as well:", "", *others])


def programs_table() -> str:
    """List the programs of tests/compat: which run on the traffic device, and what the others need."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from compat import PROGRAMS

    def shown(name: str, one: Any) -> str:
        return f"{name} (skips: `{one.skips}`)" if one.skips else name

    rows, run = [], sum(not one.skips for one in PROGRAMS.values())
    for of in dict.fromkeys(one.of for one in PROGRAMS.values()):
        named = {name: one for name, one in PROGRAMS.items() if one.of == of}
        fine = sum(not one.skips for one in named.values())
        rows.append((of, f"{fine} of {len(named)}", ", ".join(shown(name, one) for name, one in named.items())))
    total = f"{run} of {len(PROGRAMS)} run, with the results of NumPy.\n\n"
    return total + _table(("in the shape of", "run", "programs"), rows)


def write_reference(folder: Path) -> None:
    """Write the parts that pages include."""
    folder.mkdir(exist_ok=True)
    parts: dict[str, Callable[[], str]] = {
        "options.md": options_table,
        "marker.md": marker_table,
        "fixture.md": fixture_entries,
        "hooks.md": hook_entries,
        "operations.md": markdown_table,
        "programs.md": programs_table,
        "history.md": history_table,
        "compatibility.md": compatibility_table,
        "commands.md": command_helps,
        "rooms.md": rooms_table,
    }
    for name, make in parts.items():
        (folder / name).write_text(make() + "\n", encoding="utf-8")


def _help(*words: str) -> str:
    printed = StringIO()
    with patch.dict(os.environ, COLUMNS="100"), redirect_stdout(printed), suppress(SystemExit):
        main([*words, "--help"])
    return printed.getvalue()


def _room(name: str) -> tuple[str, str]:
    folder = ROOT / PACKAGE / name
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    sentence = " ".join(docstring.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".:")
    return f"`{name}{'/' if folder.is_dir() else '.py'}`", f"{sentence.replace('``', '`')}."


def _public(owner: type) -> Iterable[tuple[str, Any]]:
    for name, value in vars(owner).items():
        callable_or_property = inspect.isfunction(value) or isinstance(value, property)
        if callable_or_property and (not name.startswith("_") or name in ("__call__", "__getitem__")):
            yield name, value


def _members(name: str, members: Mapping[str, Any]) -> Iterable[str]:
    return ({"__call__": f"{name}()", "__getitem__": f"{name}[]"}.get(member, member) for member in members)


def _entry(name: str, member: str, value: Any, skipped: int = 1) -> str:
    if isinstance(value, property):
        head = f"{name}.{member}"
    else:
        signature = inspect.signature(value)
        bare = [p.replace(annotation=p.empty) for p in list(signature.parameters.values())[skipped:]]
        call = str(signature.replace(parameters=bare, return_annotation=signature.empty))
        head = {"__call__": f"{name}{call}", "__getitem__": f"{name}[{call[1:-1]}]"}.get(
            member, f"{name}.{member}{call}"
        )
    return f"### `{head}`\n\n{inspect.getdoc(value) or ''}\n"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
