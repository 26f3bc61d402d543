"""Find which of a user's modules a module imports, by its text: whether or not it has been run so far."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache

from pytest_bandwidth.read_files.opened import Signature

# Called by any of these names, a module may import what its text does not say.
_BY_TEXT = frozenset({"import_module", "__import__", "importorskip"})
_DYNAMIC = frozenset(
    {"exec_module", "load_module", "load_source", "run_module", "run_path", "spec_from_file_location"}
    | {"iter_modules", "walk_packages", "entry_points"}
)
_BARE_ONLY = frozenset({"exec", "eval"})  # a model has a method `eval`
LARGEST_SOURCE_BYTES = 16 * 2**20
FILES_KEPT = 20_000


@dataclass(frozen=True, slots=True)
class Imports:
    """Hold what a module's text imports, and which environment variables it names.

    names: of modules, and of what may be a module inside one, as the text has them: with leading dots where they are
    relative. attributes: whatever it takes from any object. dynamic: whether it may import others.
    """

    names: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    dynamic: bool = False


@lru_cache(FILES_KEPT)
def imports_of_file(file: str, state: Signature) -> Imports:
    """Read a module's file, once in each state: to parse one takes milliseconds, and tests share most of theirs."""
    del state
    with open(file, "rb") as stream:
        return imports_of(stream.read(LARGEST_SOURCE_BYTES))


def imports_of(source: bytes) -> Imports:
    """Read a module's text; what cannot be parsed may import anything."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Imports(dynamic=True)
    names: set[str] = set()
    variables: set[str] = set()
    attributes: set[str] = set()
    dynamic, plain = False, set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            joint = "" if base.endswith(".") else "."
            names.add(base)
            names.update(f"{base}{joint}{alias.name}" for alias in node.names)
            dynamic |= any(alias.asname and alias.name in _BY_TEXT | _DYNAMIC for alias in node.names)
        elif isinstance(node, ast.Call):
            called = _called(node.func)
            text = _text(node.args[0]) if node.args else None
            if called in _BY_TEXT and text is not None:
                names.add(text)
                plain.add(id(node.func))
            elif text is not None:
                of_environ = isinstance(node.func, ast.Attribute) and _called(node.func.value) == "environ"
                if called == "getenv" or (of_environ and called in ("get", "pop", "setdefault")):
                    variables.add(text)
        elif isinstance(node, ast.Subscript) and _called(node.value) == "environ":
            variables.add(_text(node.slice) or "")
        elif isinstance(node, ast.Attribute):
            attributes.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            attributes.add(node.value)
            dynamic |= node.value in _BY_TEXT | _DYNAMIC
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and id(node) not in plain:
            dynamic |= _called(node) in _BY_TEXT | _DYNAMIC or (isinstance(node, ast.Name) and node.id in _BARE_ONLY)
    return Imports(frozenset(names - {""}), frozenset(attributes), frozenset(variables - {""}), dynamic)


def _called(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
