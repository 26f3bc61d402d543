"""Identify a test by the files that its process read: its module, that module's imports, and files opened for it."""

from __future__ import annotations

import ast
import fnmatch
import hashlib
import json
import os
import platform
import stat
import sys
import sysconfig
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, cast

import pytest

from pytest_bandwidth.devices.kernel_source import included_names
from pytest_bandwidth.domain.code.identity import DIGITS, FileList, digest, is_installed
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.read_files.opened import Noted, OpenedFiles, Signature, signature_of, watching

LARGEST_FILE_BYTES = 256 * 2**20
MOST_FILES = 20_000
_PIECE_BYTES = 2**20
_MOST_ITEMS = 1000
_PACKAGE = str(Path(__file__).resolve().parents[1])
_SUITE = os.path.join(_PACKAGE, "suite", "")
# Folders of generated or installed files, without the user's code.
_LEFT_OUT = frozenset(
    {"__pycache__", ".git", ".hg", ".svn", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox"}
    | {"node_modules", "site-packages", "dist-packages"}
)
_SOURCES = (".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl", ".c", ".cc", ".cpp", ".hip", ".cl", ".metal")
_LIBRARIES = (".so", ".dylib", ".pyd", ".dll")
# They name folders of compilers' caches, whose code is identified by other means. Inductor sets its own.
_CACHES = ("CUPY_CACHE_DIR", "NUMBA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
# Variables that differ between folders and processes of the same run.
_OWN_VARIABLES = ("PWD", "OLDPWD", "TMPDIR", *_CACHES)


class FilesUnknown(Exception):
    """Raised where files cannot identify a test's code; the text gives the reason."""


@dataclass(slots=True)
class ReadFiles:
    """List the files of tests. patterns: pytest's patterns for the names of test modules."""

    opened: OpenedFiles
    patterns: Sequence[str]
    # The files that a module's text names, valid until it or the number of loaded modules changes.
    _edges: dict[str, tuple[Signature | None, int, list[str]]] = field(default_factory=dict)
    _relevant: dict[str, bool] = field(default_factory=dict)
    _hashes: dict[str, tuple[Signature, str]] = field(default_factory=dict)
    _orphans: tuple[frozenset[str], frozenset[str]] | None = None
    _tree: list[str] | None = None

    def list_of(self, nodeid: str, test_file: str, fixtures: Collection[str], plugins: Iterable[str]) -> FileList:
        """Return the files that a test depends on. Raises FilesUnknown.

        plugins: files of the user's that pytest loaded for it: each conftest.py above it, and plugins.
        """
        loaded = _Loaded(self.opened, self._is_users)
        starts = map(self.opened.normal, (test_file, *plugins))
        modules, dynamic = self._reached([*starts, *self._unreached(loaded)], loaded)
        if dynamic:
            modules |= set(self._whole_tree())
        noted = Noted()
        noted.add(self.opened.of_test)
        for (name, base), of_fixture in self.opened.by_fixture.items():
            if name in fixtures and nodeid.startswith(base):
                noted.add(of_fixture)
        for file in modules:
            for name in loaded.names.get(file, ()):
                noted.add(self.opened.by_module.get(name, Noted()))
        if noted.starts is not None:
            raise FilesUnknown(f"the test starts {shown(noted.starts)}: files that it reads are not recorded")
        files = modules | {file for file in noted.files if self._is_relevant(file)}
        if any(file.endswith(_LIBRARIES) for file in files):
            files |= self._mapped(loaded)
        files |= self._included(files)
        if len(files) > MOST_FILES:
            raise FilesUnknown(f"found {len(files)} files, expected at most {MOST_FILES}")
        hashes = {self._key(file, loaded): self._hash(file) for file in sorted(files)}
        named = {name for file in modules if file.endswith(".py") for name in self._imports_of(file).variables}
        variables = {
            f"${name}": digest(value)[:8] if (value := os.environ.get(name)) is not None else "unset"
            for name in named
            if not name.startswith("PYTEST_") and name not in _OWN_VARIABLES
        }
        versions = {**_installed_versions(), **variables}
        return FileList({key: found for key, found in hashes.items() if found}, versions)

    def _reached(self, starts: Iterable[str], loaded: _Loaded) -> tuple[set[str], bool]:
        """Return `starts` and the files of all modules that they import, and whether any may import others."""
        found: set[str] = set()
        attributes: set[str] = set()
        # Imported modules of packages: the import made their names attributes of the package.
        inside: dict[str, set[str]] = {}
        waiting = {file for file in starts if self._is_users(file)}
        dynamic = False
        while waiting:
            file = waiting.pop()
            found.add(file)
            reached = [*self._named_by(file, loaded), *loaded.used_by(file)]
            if file.endswith(".py"):
                imports = self._imports_of(file)
                dynamic |= imports.dynamic
                attributes |= imports.attributes
            for name, module in loaded.inside(file):
                inside.setdefault(name, set()).add(module)
            waiting.update(one for one in reached if one not in found and self._is_users(one))
            if not waiting:
                taken = {one for name in inside.keys() & attributes for one in inside[name]}
                waiting = {one for one in taken - found if self._is_users(one)}
        return found, dynamic

    def _unreached(self, loaded: _Loaded) -> frozenset[str]:
        """Return the user's loaded modules that no test module imports: they may belong to any test."""
        known = frozenset(loaded.names)
        if self._orphans is None or self._orphans[0] != known:
            tests = (*self.patterns, "conftest.py")
            roots = [file for file in known if any(fnmatch.fnmatch(os.path.basename(file), one) for one in tests)]
            reached, _ = self._reached(roots, loaded)
            self._orphans = known, frozenset(known - reached)
        return self._orphans[1]

    def _named_by(self, file: str, loaded: _Loaded) -> list[str]:
        """Return the files that a module's text names, and those of the packages that it lies in."""
        state = signature_of(file), len(sys.modules)
        known = self._edges.get(file)
        if known is None or known[:2] != state:
            found, folder = [], os.path.dirname(file)
            while os.path.exists(package := os.path.join(folder, "__init__.py")):
                found.append(package)
                folder = os.path.dirname(folder)
            if file.endswith(".py"):
                names = self._imports_of(file).names
                found += [one for name in names for one in self._resolved(name, file, loaded)]
            known = self._edges[file] = *state, [one for one in dict.fromkeys(found) if one != file]
        return known[2]

    def _imports_of(self, file: str) -> Imports:
        state = signature_of(file)
        return Imports() if state is None else imports_of_file(file, state)

    def _resolved(self, name: str, importer: str, loaded: _Loaded) -> Iterator[str]:
        """Yield the files of a module and of the packages that it lies in, as far as they are the user's."""
        bare = name.lstrip(".")
        level, parts = len(name) - len(bare), bare.split(".") if bare else []
        if level:
            folder = os.path.dirname(importer)
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            yield from _modules_at(os.path.join(folder, "__init__"))
            for part in parts:
                folder = os.path.join(folder, part)
                yield from _modules_at(folder)
            return
        for count in range(1, len(parts) + 1):
            module = ".".join(parts[:count])
            if module in sys.modules:
                file = loaded.files.get(module)
                if file is not None:
                    yield file
                elif count == 1 and _file_of(sys.modules[module]) is not None:
                    return  # an installed package, or Python's
                continue
            for entry in list(sys.path):
                folder = self.opened.normal(entry or os.curdir)
                if _is_own(folder):
                    yield from _modules_at(os.path.join(folder, *parts[:count]))

    def _is_users(self, file: str) -> bool:
        return _is_own(file) and self._is_relevant(file)

    def _is_below(self, file: str) -> bool:
        return file.startswith(os.path.join(self.opened.root, ""))

    def _is_relevant(self, file: str) -> bool:
        known = self._relevant.get(file)
        if known is None:
            inside = os.path.relpath(file, self.opened.root).split(os.sep) if self._is_below(file) else ()
            named = [self.opened.normal(folder) for name in _CACHES if (folder := os.environ.get(name))]
            caches = [os.path.join(folder, "") for folder in named]
            # A compiler's folder that holds the root folder as well is no cache.
            caches = [folder for folder in caches if not os.path.join(self.opened.root, "").startswith(folder)]
            left_out = (*_installed(), *caches)
            known = self._relevant[file] = _LEFT_OUT.isdisjoint(inside) and not file.startswith(left_out)
        return known

    def _key(self, file: str, loaded: _Loaded) -> str:
        if self._is_below(file):
            return file[len(self.opened.root) :].lstrip(os.sep).replace(os.sep, "/")
        names = loaded.names.get(file)
        return f"{min(names) if names else os.path.basename(file)} (outside the root folder)"

    def _whole_tree(self) -> list[str]:
        if self._tree is None:
            found: list[str] = []
            for folder, folders, files in os.walk(self.opened.root):
                inside = [name for name in folders if name not in _LEFT_OUT]
                folders[:] = [one for one in inside if not os.path.exists(os.path.join(folder, one, "pyvenv.cfg"))]
                found += (os.path.join(folder, name) for name in files)
                if len(found) > 10 * MOST_FILES:
                    raise FilesUnknown(f"found more than {10 * MOST_FILES} files below the root folder")
            self._tree = found
        code = (".py", *_LIBRARIES)
        return [file for file in self._tree if file.endswith(code) and self._is_relevant(file)]

    def _included(self, files: set[str]) -> set[str]:
        """Return the files below the root that sources include: all whose path ends with an included name."""
        found: set[str] = set()
        waiting = [file for file in files if file.endswith(_SOURCES)]
        while waiting:
            names: set[str] = set()
            with suppress(OSError), open(waiting.pop(), "rb") as stream:
                names = included_names(stream.read(LARGEST_SOURCE_BYTES).decode("utf-8", "replace"))
            for name in names:
                ending = f"{os.sep}{os.path.normpath(name).lstrip(f'.{os.sep}')}"
                self._whole_tree()
                here = [one for one in self._tree or () if one.endswith(ending) and one not in found | files]
                found.update(here)
                waiting += here
        return found

    def _mapped(self, loaded: _Loaded) -> set[str]:
        """Return the libraries below the root that are mapped and are no module's own file: others may link to them."""
        try:
            lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        except OSError:
            return set()
        mapped = {line.split(None, 5)[5] for line in lines if line.count("/")}
        of_others = set(loaded.names) | {one for noted in self.opened.by_fixture.values() for one in noted.libraries}
        below = {file for file in mapped if self._is_below(file) and file.endswith(_LIBRARIES)}
        return {file for file in below - of_others if self._is_relevant(file)}

    def _hash(self, file: str) -> str | None:
        """Return a hash of a file's contents; None for a missing file or a folder. Raises FilesUnknown."""
        first, now = self.opened.first_seen.get(file), signature_of(file)
        if now is None and first is None:
            return None
        known = self._hashes.get(file)
        if known is not None and known[0] == now and first in (None, now):
            return known[1]
        short = shown(os.path.relpath(file, self.opened.root))
        if now is None or first not in (None, now):
            raise FilesUnknown(f"{short} was replaced or removed after it was read")
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
            kind = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(kind):
                os.close(descriptor)
                if stat.S_ISDIR(kind):
                    return None
                raise FilesUnknown(f"{short} is not a regular file")
            with open(descriptor, "rb", buffering=0) as stream:
                if now[0] > LARGEST_FILE_BYTES:
                    raise FilesUnknown(f"{short} is larger than {LARGEST_FILE_BYTES // 2**20} MiB")
                found = hashlib.sha256()
                for piece in iter(partial(stream.read, _PIECE_BYTES), b""):
                    found.update(piece)
        except OSError as error:
            raise FilesUnknown(f"{short} cannot be read ({error.strerror})") from None
        if signature_of(file) != now:
            raise FilesUnknown(f"{short} was replaced while it was read")
        self._hashes[file] = now, found.hexdigest()[:DIGITS]
        return self._hashes[file][1]


class _Loaded:
    """Hold the user's modules that are loaded: files by name, and names by file."""

    def __init__(self, opened: OpenedFiles, is_users: Callable[[str], bool]) -> None:
        self.files: dict[str, str] = {}
        self.names: dict[str, list[str]] = {}
        for name, module in list(sys.modules.items()):
            file = _file_of(module)
            if not isinstance(file, str) or is_installed(file) or file.startswith(_installed()):
                continue
            path = opened.normal(file)
            # The module that Python was started with; in multiprocessing's spawned processes it is __mp_main__.
            if name not in ("__main__", "__mp_main__") and is_users(path):
                self.files[name] = path
                self.names.setdefault(path, []).append(name)

        self._inside: dict[str, list[str]] = {}
        for name in self.files:
            self._inside.setdefault(name.rpartition(".")[0], []).append(name)

    def used_by(self, file: str) -> list[str]:
        """Return the files of modules that are in a module's namespace, or that define its objects."""
        found: set[str] = set()
        for own in self.names.get(file, ()):
            there = _names_in(sys.modules[own])
            values = [
                value
                for name, value in list(there.items())
                if not (name.startswith("__") and name.endswith("__")) and f"{own}.{name}" not in self.files
            ]
            found.update(_modules_of(values))
        return [self.files[name] for name in found if name in self.files]

    def inside(self, file: str) -> list[tuple[str, str]]:
        """Return the loaded modules of a package, each by its last name and its file."""
        found = []
        for own in self.names.get(file, ()) if os.path.basename(file) == "__init__.py" else ():
            found += [(name.rpartition(".")[2], self.files[name]) for name in self._inside.get(own, ())]
        return found


def _names_in(module: ModuleType) -> dict[str, Any]:
    """Return a module's namespace without attribute access, which would load a lazy module."""
    return cast(dict[str, Any], object.__getattribute__(module, "__dict__"))


def _file_of(module: object) -> object:
    """Return a loaded module's file."""
    if isinstance(module, ModuleType):
        return _names_in(module).get("__file__")
    return getattr(module, "__file__", None)  # an object that replaced the module


def _modules_of(values: Iterable[Any], depth: int = 2) -> Iterator[str]:
    for value in list(values)[:_MOST_ITEMS]:
        if value is None or isinstance(value, (str, bytes, int, float, BuiltinFunctionType)):
            continue
        if isinstance(value, ModuleType):
            yield value.__name__
        elif isinstance(value, FunctionType):
            yield str(value.__globals__.get("__name__"))
            if depth and "__wrapped__" in vars(value):
                yield from _modules_of([vars(value)["__wrapped__"]], depth - 1)
        elif isinstance(value, partial):
            yield from _modules_of([value.func], depth)
        elif isinstance(value, type):
            yield value.__module__
            functions = [one for one in list(vars(value).values()) if isinstance(one, FunctionType)]
            yield from (str(one.__globals__.get("__name__")) for one in functions)
        elif isinstance(value, (dict, list, tuple, set, frozenset)):
            if depth:
                yield from _modules_of(value.values() if isinstance(value, dict) else value, depth - 1)
        else:
            yield type(value).__module__


def _modules_at(path: str) -> Iterator[str]:
    candidates = (f"{path}.py", os.path.join(path, "__init__.py"), *(path + suffix for suffix in EXTENSION_SUFFIXES))
    return (file for file in candidates if os.path.exists(file))


@cache
def _installed() -> tuple[str, ...]:
    """Return the folders of Python and of installed packages."""
    paths = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return tuple({os.path.join(path, "") for path in paths if path})


@cache
def _is_own(file: str) -> bool:
    """Return whether a file may be the user's: neither Python's nor installed, nor the plugin's own."""
    if is_installed(file) or file.startswith(_installed()):
        return False
    real = os.path.realpath(file)
    return real.startswith(_SUITE) or not real.startswith(os.path.join(_PACKAGE, ""))


@cache
def _installed_versions() -> Mapping[str, str]:
    """Return the versions of Python and of all installed distributions, by name.

    A distribution from a folder or an address also gets a hash of its files' hashes: its version may stay.
    """
    found = {"python": f"{platform.python_implementation()} {platform.python_version()}"}
    for folder in dict.fromkeys(sys.path):
        try:
            names = [name for name in os.listdir(folder or os.curdir) if name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue
        for name in names:
            distribution, _, version = name.rpartition(".")[0].partition("-")
            path = os.path.join(folder, name)
            with suppress(OSError, ValueError, AttributeError):
                with open(os.path.join(path, "direct_url.json"), encoding="utf-8") as stream:
                    origin = json.load(stream)
                if origin.get("dir_info", {}).get("editable"):
                    continue  # a checkout that is on the path: its files identify it
                with open(os.path.join(path, "RECORD"), encoding="utf-8") as stream:
                    lines = [line for line in stream if ".dist-info/" not in line and "__pycache__" not in line]
                version = f"{version} {digest(*sorted(lines))[:8]}"
            found.setdefault(distribution, version)
    return found


class Attributing:
    """Notify `OpenedFiles` when a test begins and when a fixture is set up, by pytest's hooks."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if (files := watching()) is not None:
            files.begin_test()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        files = watching()
        if files is None:
            return (yield)
        with files.fixture(fixturedef.argname, fixturedef.baseid):
            return (yield)


def files_of_test(read: ReadFiles | None, request: pytest.FixtureRequest) -> FileList | None:
    """Return the files that a test depends on; None where files were not noted. Raises FilesUnknown."""
    if read is None:
        return None
    test_file, plugins = str(request.node.path), []
    for plugin in request.config.pluginmanager.get_plugins():
        file = getattr(plugin, "__file__", None) if isinstance(plugin, ModuleType) else None
        if not isinstance(file, str):
            continue
        folder, name = os.path.split(os.path.abspath(file))
        # Only those conftest.py files that are in folders above the test.
        if name != "conftest.py" or test_file.startswith(os.path.join(folder, "")):
            plugins.append(file)
    return read.list_of(request.node.nodeid, test_file, request.fixturenames, plugins)


# ---- which of a user's modules a module imports, by its text: whether or not it has been run so far ------------------

# By functions of these names a module may import modules that its import statements do not name.
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
    """Hold the imports of a module's text, and the environment variables that it names.

    names: of modules, and of possible submodules, as in the text: with leading dots where they are relative.
    attributes: all that it reads from any object. dynamic: whether it may import others.
    """

    names: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    dynamic: bool = False


@lru_cache(FILES_KEPT)
def imports_of_file(file: str, _state: Signature) -> Imports:
    """Read a module's file, once in each state: parsing takes milliseconds, and tests share most modules."""
    with open(file, "rb") as stream:
        return imports_of(stream.read(LARGEST_SOURCE_BYTES))


def imports_of(source: bytes) -> Imports:
    """Read a module's text; a text that cannot be parsed may import any module."""
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
