"""Write the generated parts of docs/architecture.md: ``python docs/architecture_tables.py docs/architecture.md``.

The rooms by import-linter's layers in pyproject.toml, each with the first sentence of its docstring, and the names of
the other contracts; then the hooks, each with the first sentence of its docstring.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, PREFIX = "pytest_bandwidth", "pytest_bandwidth_"
BEGIN = "<!-- rooms: python docs/architecture_tables.py docs/architecture.md -->"
END = "<!-- end of rooms -->"
BEGIN_SEAMS, END_SEAMS = "<!-- seams -->", "<!-- end of seams -->"


def rooms() -> str:
    """Return the table of rooms, the highest layer first, and a line for each other contract."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = [c for c in contracts if c["type"] == "layers" and c.get("containers") == [PACKAGE]]
    lines = ["| layer | room | what it does |", "|---|---|---|"]
    for number, layer in enumerate(reversed(layers["layers"])):
        names = [name.strip() for name in layer.split("|")]
        lines[2:2] = [f"| {' | '.join((str(number), *_room(name)))} |" for name in names]
    others = [
        f"the layers {contract['name']}" if "layers" in contract else contract["name"]
        for contract in contracts
        if contract is not layers
    ]
    return "\n".join([*lines, "", "Checked as well:", "", *(f"- {line}" for line in others)])


def seams() -> str:
    """Return the table of hooks, in the order of their file."""
    tree = ast.parse((ROOT / PACKAGE / "hooks.py").read_text(encoding="utf-8"))
    hooks = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith(PREFIX)]
    rows = [f"| `hooks.py::{hook.name}` | {_sentence(ast.get_docstring(hook) or '')} |" for hook in hooks]
    return "\n".join(["| hook | what it is for |", "|---|---|", *rows])


def rewrite(text: str) -> str:
    """Return the page with fresh text between the marker lines. Raises ValueError where those are missing."""
    return _between(_between(text, BEGIN, rooms(), END), BEGIN_SEAMS, seams(), END_SEAMS)


def _between(text: str, begin: str, fresh: str, end: str) -> str:
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"found no {end if found else begin} in the text, expected both marker lines")
    return f"{before}{begin}\n{fresh}\n{end}{after}"


def _room(name: str) -> tuple[str, str]:
    folder = ROOT / PACKAGE / name
    is_folder = folder.is_dir()
    file = folder / "__init__.py" if is_folder else folder.with_suffix(".py")
    said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return f"`{name}{'/' if is_folder else '.py'}`", _sentence(said)


def _sentence(said: str) -> str:
    """Return the docstring's first paragraph up to its first full stop."""
    paragraph = " ".join(said.partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].rstrip(".:").replace("``", "`").replace("|", "\\|") + "."


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(rewrite(page.read_text(encoding="utf-8")), encoding="utf-8")
