"""Write the generated part of docs/architecture.md: ``python docs/architecture_tables.py docs/architecture.md``.

The rooms by import-linter's layers in pyproject.toml, each with the first sentence of its docstring; then the names of
the other contracts.
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
PACKAGE = "pytest_bandwidth"
BEGIN = "<!-- rooms: python docs/architecture_tables.py docs/architecture.md -->"
END = "<!-- end of rooms -->"


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


def rewrite(text: str) -> str:
    """Return the page with fresh text between the marker lines. Raises ValueError where those are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"found no {BEGIN if not begin else END} in the text, expected both marker lines")
    return f"{before}{BEGIN}\n{rooms()}\n{END}{after}"


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
