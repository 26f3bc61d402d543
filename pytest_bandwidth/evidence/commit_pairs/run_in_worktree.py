"""Run pytest on the code of one of two trees and record what it loads: `python run_in_worktree.py PLAN ARGS…`.

The script uses only the standard library, because the two trees may differ in this package itself.

PLAN is a JSON file: `others` (the trees that nothing may come from), `tree` (the one to use instead), `environment`
(folders inside `others` that are no part of them, such as a virtual environment), `names` (modules that a finder of the
environment would take from `others`: name → folder), `current_folder_first` (as `python -m` does), `loaded_files` (the
file to write), `addresses` (a number: processes with the same number get the same addresses, if the system allows it).
The written file lists files from `others` that Python opened, and those that are mapped at the end. It also records
whether the process had the requested addresses.
"""

import contextlib
import ctypes
import functools
import importlib.machinery
import json
import mmap
import os
import random
import sys
from types import ModuleType
from typing import Any

# <sys/personality.h>
_ADDR_NO_RANDOMIZE, _ASK = 0x0040000, 0xFFFFFFFF
_PADDING_VARIABLE, _ONE_MORE_VARIABLE = "PYTEST_BANDWIDTH_PADDING", "PYTEST_BANDWIDTH_PADDING_BY_ONE"
# Environment and arguments lie above the stack. Padding rounds their size up to a multiple of this, plus a part of it.
_STACK_STEP_BYTES, _STACK_PARTS = 1 << 16, 256
_BYTES_A_TEXT = 1 + 8  # its final null byte, and the pointer to it
_HEAP_PARTS = 4096
_MOST_PAGES, _PIECE_BYTES = 1 << 16, 1 << 20

_opened: set[str] = set()
_shifts: list[mmap.mmap] = []


def _record(event: str, args: tuple[Any, ...]) -> None:
    """Record, as an audit hook, every file that Python opens for reading and every library that it loads."""
    if event == "open":
        path, flags = args[0], args[2]
        if isinstance(path, (str, bytes)) and not (isinstance(flags, int) and flags & os.O_WRONLY):
            _opened.add(os.path.abspath(os.fsdecode(path)))
    elif event == "ctypes.dlopen" and isinstance(args[0], str) and os.sep in args[0]:
        _opened.add(os.path.abspath(args[0]))


class _FromTree:
    """Find the named top-level modules in the tree, before any other finder."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        del path, target
        folder = self._names.get(name)
        return None if folder is None else importlib.machinery.PathFinder.find_spec(name, [folder])


def lay_out(number: int, mark: str, system: Any = None) -> bool:
    """Start this process again at fixed addresses: the same for all processes with this number.

    Return whether this is the restarted process.

    The system randomizes the addresses of code, stack and data for each process. The same code is up to 18 % slower at
    some addresses, because of conflicts between code and data (docs/measurements.md, "Addresses and memory"). Where the
    system refuses, for example by a container's seccomp profile, addresses stay random.

    mark: a file that exists in the restarted process; it holds the personality from before.
    """
    system, draw = ctypes.CDLL(None) if system is None else system, random.Random(number)
    pages, part, block = (draw.randrange(most) for most in (_MOST_PAGES, _STACK_PARTS, _HEAP_PARTS))
    if os.path.exists(mark):
        for name in (_PADDING_VARIABLE, _ONE_MORE_VARIABLE):
            os.environ.pop(name, None)
        with open(mark, encoding="ascii") as file:
            system.personality(ctypes.c_ulong(int(file.read())))  # children of this process get random addresses
        system.malloc(ctypes.c_size_t(16 * (1 + block)))  # never freed: it shifts all later blocks of the heap
        _shift((1 + pages) * mmap.PAGESIZE)
        return True
    kind = system.personality(ctypes.c_ulong(_ASK))
    if kind == -1 or system.personality(ctypes.c_ulong(kind | _ADDR_NO_RANDOMIZE)) == -1:
        return False
    with open(mark, "w", encoding="ascii") as file:
        file.write(str(kind))
    environment = {**os.environ, _PADDING_VARIABLE: ""}
    if (len(sys.orig_argv) + len(environment)) % 2:
        environment[_ONE_MORE_VARIABLE] = ""  # the texts, and the pointers to them, are each rounded up to 16 bytes
    texts = [*sys.orig_argv, *(f"{name}={value}" for name, value in environment.items())]
    size = sum(len(os.fsencode(text)) + _BYTES_A_TEXT for text in texts)
    environment[_PADDING_VARIABLE] = "-" * (-size % _STACK_STEP_BYTES + 16 * part)
    try:
        os.execve(sys.executable, sys.orig_argv, environment)
    except OSError:  # the environment is larger than the system allows
        system.personality(ctypes.c_ulong(kind))
    return False


def _shift(size: int) -> None:
    """Shift everything that is mapped from here on down by `size` bytes, unless address space is limited."""
    import resource

    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY or sys.maxsize < 1 << 32:
        return
    with contextlib.suppress(OSError):
        while size > 0:
            # Linux 6.7 to 6.11 aligns larger mappings to huge pages.
            piece = min(size, _PIECE_BYTES)
            _shifts.append(mmap.mmap(-1, piece, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ))
            size -= piece


def inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def moved(path: str, plan: dict[str, Any]) -> str:
    """Return the path's counterpart in the tree, if it lies in one of the others; else the path itself."""
    real = os.path.realpath(path)
    other = next((other for other in plan["others"] if inside(real, other)), None)
    if other is None or any(inside(real, folder) for folder in plan["environment"]):
        return path
    return os.path.join(plan["tree"], os.path.relpath(real, other))


# Most files are asked for twice.
_real = functools.cache(os.path.realpath)


def loaded_modules() -> dict[str, str]:
    """Return the files of all loaded modules, by name."""
    found = {}
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType):  # no getattr: it would load a lazy module
            file = object.__getattribute__(module, "__dict__").get("__file__")
        else:
            file = getattr(module, "__file__", None)
        if isinstance(file, str) and name != "__main__":
            found[name] = _real(file)
    return found


def _write_loaded_files(plan: dict[str, Any], *, laid_out: bool) -> None:
    used = {_real(path) for path in _opened}
    # Libraries that were loaded without an audit event.
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        used |= {line.split(None, 5)[5].rstrip("\n") for line in lines if line.count("/")}
    foreign = {path for path in used if any(inside(path, other) for other in plan["others"])}
    seen = foreign | {path for path in used if path.endswith((".cu", ".cuh"))}
    loaded = {"modules": loaded_modules(), "files": sorted(seen), "path": sys.path, "laid_out": laid_out}
    # Written atomically, as by storage.atomic, which this script cannot import.
    partial = f"{plan['loaded_files']}.partial"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(loaded, file)
    os.replace(partial, plan["loaded_files"])


def main(plan_file: str, arguments: list[str]) -> int:
    """Run pytest by the plan and return its exit status."""
    with open(plan_file, encoding="utf-8") as file:
        plan = json.load(file)
    number = plan.get("addresses")
    laid_out = number is not None and lay_out(number, f"{plan_file}.started_again")
    sys.path[:] = [moved(entry, plan) if entry else entry for entry in sys.path]
    if plan["current_folder_first"]:
        sys.path.insert(0, os.getcwd())
    if plan["names"]:
        sys.meta_path.insert(0, _FromTree(plan["names"]))
    sys.argv[:] = ["pytest", *arguments]
    sys.addaudithook(_record)
    try:
        import pytest

        return pytest.main()
    finally:
        _write_loaded_files(plan, laid_out=laid_out)


if __name__ == "__main__":
    # This script's own folder: the modules in it are not top-level ones. With -I and -P it is not on sys.path.
    if os.path.realpath(sys.path[0]) == os.path.dirname(os.path.realpath(__file__)):
        del sys.path[0]
    sys.exit(main(sys.argv[1], sys.argv[2:]))
