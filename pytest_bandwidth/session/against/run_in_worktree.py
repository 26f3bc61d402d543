"""Run pytest on the code of one of two trees and record what it loads: `python run_in_worktree.py PLAN ARGS…`.

A script on the standard library alone: the package that it lies in may itself be what the two trees differ in.

PLAN is a JSON file: `others` (the trees that nothing may come from), `tree` (the one to use instead), `environment`
(folders inside `others` that are no part of them, such as a virtual environment), `names` (modules that a finder of the
environment would take from `others`: name → folder), `current_folder_first` (as `python -m` does), `loaded_files` (the
file to write). What was loaded from `others` is found out twice, by what Python was asked to open and by what is mapped
in the end.
"""

import importlib.machinery
import json
import os
import sys
from typing import Any

_opened: set[str] = set()


def _record(event: str, args: tuple[Any, ...]) -> None:
    """Note, as an audit hook, every file that Python opens for reading, and every library that it loads."""
    if event == "open":
        path, flags = args[0], args[2]
        if isinstance(path, (str, bytes)) and not (isinstance(flags, int) and flags & os.O_WRONLY):
            _opened.add(os.path.abspath(os.fsdecode(path)))
    elif event == "ctypes.dlopen" and isinstance(args[0], str) and os.sep in args[0]:
        _opened.add(os.path.abspath(args[0]))


class _FromTree:
    """Find the named top-level modules in the tree, before any other finder is asked."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        del path, target
        folder = self._names.get(name)
        return None if folder is None else importlib.machinery.PathFinder.find_spec(name, [folder])


def inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def moved(path: str, plan: dict[str, Any]) -> str:
    """Return the path's counterpart in the tree where it lies in one of the others; the path itself elsewhere."""
    real = os.path.realpath(path)
    other = next((other for other in plan["others"] if inside(real, other)), None)
    if other is None or any(inside(real, folder) for folder in plan["environment"]):
        return path
    return os.path.join(plan["tree"], os.path.relpath(real, other))


def loaded_modules() -> dict[str, str]:
    """Return the files of all loaded modules, by name."""
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return {
        name: os.path.realpath(file) for name, file in files.items() if isinstance(file, str) and name != "__main__"
    }


def mapped_files() -> set[str]:
    """Return the files in this process's memory map (Linux): libraries that no hook of Python sees."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
            return {line.split(None, 5)[5].rstrip("\n") for line in lines if line.count("/")}
    except OSError:
        return set()


def _write_loaded_files(plan: dict[str, Any]) -> None:
    opened = {os.path.realpath(path) for path in _opened}
    used = opened | mapped_files()
    foreign = {path for path in used if any(inside(path, other) for other in plan["others"])}
    seen = foreign | {path for path in used if path.endswith((".cu", ".cuh"))}
    loaded = {"modules": loaded_modules(), "files": sorted(seen), "path": sys.path}
    # Whole or not at all, as by storage.atomic, which is no module to this script.
    partial = f"{plan['loaded_files']}.partial"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(loaded, file)
    os.replace(partial, plan["loaded_files"])


def main(plan_file: str, arguments: list[str]) -> int:
    """Run pytest as the plan says and return its exit status."""
    with open(plan_file, encoding="utf-8") as file:
        plan = json.load(file)
    sys.path[:] = [moved(entry, plan) if entry else entry for entry in sys.path]
    if plan["current_folder_first"]:
        sys.path.insert(0, os.getcwd())
    if plan["names"]:
        sys.meta_path.insert(0, _FromTree(plan["names"]))
    sys.argv[:] = ["pytest", *arguments]
    sys.addaudithook(_record)
    try:
        import pytest

        return pytest.console_main()
    finally:
        _write_loaded_files(plan)


if __name__ == "__main__":
    # This script's own folder, where the package's modules are no top-level ones; -I and -P leave it out already.
    if os.path.realpath(sys.path[0]) == os.path.dirname(os.path.realpath(__file__)):
        del sys.path[0]
    sys.exit(main(sys.argv[1], sys.argv[2:]))
