"""Write a first test into a repository, for what it holds: CUDA files, or imports of Triton, PyTorch or CuPy.

It also gets pytest's option for the baselines, and git's attribute for their runs. What is there already stays.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from pytest_bandwidth.domain.code.kernel_signature import without_comments
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import listed
from pytest_bandwidth.reports.text_safe import printable
from pytest_bandwidth.storage.atomic import write_whole

# Files are read, never executed: at most so many, each of at most this size.
MOST_FILES, MOST_BYTES = 2_000, 2**18
MOST_NAMED = 5
ATTRIBUTE = "*.runs.jsonl merge=union"
OPTION = "bandwidth_baseline"
# Where pytest looks for its settings, in its order; their table has one of three names.
SETTINGS = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_TABLE = re.compile(r"^\[(?:pytest|tool:pytest|tool\.pytest(?:\.ini_options)?)\][^\r\n]*", re.MULTILINE)
_KERNEL = re.compile(
    r'(template\s*<[^{};]*>\s*)?(?:extern\s+"C"\s+)?__global__\s+void\s+(?:__launch_bounds__\s*\([^()]*\)\s*)?'
    r"(\w+)\s*\(([^(){}]*)\)\s*\{"
)
_QUALIFIER = re.compile(r"\b(?:const|volatile|__restrict__|__restrict)\b")
_PARAMETER = re.compile(r"\s*([\w\s]+?)\s*(\*?)\s*(\w+)\s*")
_FLOATS = {"float": "float32", "double": "float64", "half": "float16", "__half": "float16"}
_INTEGERS = {"int": "int32", "unsigned": "uint32", "unsigned int": "uint32", "long long": "int64", "size_t": "uint64"}
_TYPES = _FLOATS | _INTEGERS
_HEAD = '"""A first bandwidth test. Put your own function in place of this one."""\n\nimport pytest\n\n'
_TRITON = """triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")


@triton.jit
def copy_kernel(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at))


def test_copy(bandwidth):
    n = 1 << 20
    x, y = bandwidth.random(n), bandwidth.empty(n)
    if bandwidth.identity.on_gpu:  # there Triton takes PyTorch's tensors
        x, y = map(pytest.importorskip("torch").from_dlpack, (x, y))
    kernel = copy_kernel[(n // 1024,)]
    bandwidth(lambda: kernel(x, y, BLOCK=1024), reads=x, writes=y)
"""
_TORCH = """torch = pytest.importorskip("torch")


def test_softmax(bandwidth):
    x = torch.rand(256, 1024, device="cuda" if bandwidth.identity.on_gpu else "cpu")
    bandwidth(torch.softmax, x, 1, reads="args", writes="result")
"""
_CUPY = """
@pytest.mark.bandwidth(device="cuda")
def test_sum(bandwidth):
    x = bandwidth.random(1 << 26, "float32")
    bandwidth(bandwidth.xp.sum, x, reads=x)
"""
# The test, and the device to run it on first, by what the repository imports.
_TESTS = {"triton": (_TRITON, "traffic"), "torch": (_TORCH, "cpu"), "cupy": (_CUPY, "cuda")}


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, nargs="?", default=Path(), metavar="PATH", help="its folder (default: .)")


def run(options: argparse.Namespace) -> int:
    root: Path = options.path
    files = list(islice(_files(root), MOST_FILES))
    text, device = _first_test(root, files)
    test = root / ("tests" if (root / "tests").is_dir() else "") / "test_bandwidth.py"
    _write(test, None if os.path.lexists(test) else text, "the first test")
    _add_option(root)
    attributes = _held(root / ".gitattributes")
    end = "" if attributes.endswith("\n") or not attributes else "\n"
    added = None if ATTRIBUTE in attributes else f"{attributes}{end}{ATTRIBUTE}\n"
    _write(root / ".gitattributes", added, ATTRIBUTE)
    for line in _not_taken(root, files):
        print(printable(line))
    print(printable(f"next: pytest {test} --bandwidth-device={device} --bandwidth-update"))
    return 0


def _write(file: Path, text: str | None, what: str) -> None:
    """Write a file and report it. text: one character for each byte; None to leave the file unchanged."""
    if text is not None:
        write_whole(file, text.encode("latin-1"), keep=True)
    print(printable(f"wrote {file}: {what}" if text is not None else f"left {file} as it is: look for {what}"))


def _not_taken(root: Path, files: Sequence[Path]) -> Iterator[str]:
    """Yield a line for each reason why `init` wrote no test, with the files that it skipped."""
    untested: dict[str, list[str]] = {}
    for file in files:
        text, name = _text(file), file.relative_to(root).as_posix()
        if "__global__" not in text or "bandwidth.kernel(" in text:
            continue
        if file.suffix == ".py":
            untested.setdefault("kernels in Python strings: pass those to `bandwidth.kernel`", []).append(name)
        elif _test_of_kernel(name, without_comments(text)) is None:
            untested.setdefault("no kernel over arrays of numbers", []).append(name)
    for why, names in untested.items():
        yield f"not taken: {listed(names, MOST_NAMED)}: {why}"


def _first_test(root: Path, files: Sequence[Path]) -> tuple[str, str]:
    """Return the text of a test and the device to run it on first. Raises UsageError without code to test."""
    sources = [file for file in files if file.suffix == ".cu"]
    # Files that launch their kernels come last: they include headers that NVRTC lacks.
    for file in sorted(sources, key=lambda one: "<<<" in _text(one)):
        if test := _test_of_kernel(file.relative_to(root).as_posix(), without_comments(_text(file))):
            return test, "traffic"
    imported = {name for file in files if file.suffix == ".py" for name in _imports(_text(file))}
    for name, (test, device) in _TESTS.items():
        if name in imported:
            return f"{_HEAD}{test}", device
    raise UsageError(
        f"{root}: found no kernel over arrays of numbers in a .cu file and no import of {', '.join(_TESTS)}, expected "
        "one of them: write the first test by hand"
    )


def _test_of_kernel(file: str, text: str) -> str | None:
    """Return a test of the first kernel that takes arrays of numbers and numbers; None without one."""
    for template, name, parameters in _KERNEL.findall(text):
        found = [(one, _PARAMETER.fullmatch(_QUALIFIER.sub(" ", one))) for one in parameters.split(",")]
        typed = [(one, " ".join(match[1].split()), match[3]) for one, match in found if match is not None]
        if template or len(typed) < len(found) or any(kind not in _TYPES for _, kind, _ in typed):
            continue
        sizes = [kind for one, kind, _ in typed if "*" not in one and kind in _INTEGERS]
        number = "n" if len(sizes) < 2 else "1 << 8"  # several sizes span an array together
        made: dict[str, str] = {}
        arguments: list[str] = []
        for one, kind, parameter in typed:
            array, is_float = f"d_{parameter}", kind in _FLOATS
            if "*" in one:
                # Integers may be places in another array.
                made[array] = f'bandwidth.{"random" if is_float else "xp.zeros"}(n, "{_TYPES[kind]}")'
            arguments.append(array if "*" in one else f"np.{_TYPES[kind]}({2 if is_float else number})")
        written = [f"d_{parameter}" for one, _, parameter in typed if "*" in one and "const" not in one]
        if written:
            mangled = "" if 'extern "C"' in text else f', name_expressions=("{name}",)'
            read = [array for array in made if array not in written] or written
            arrays = "\n    ".join(f"{array} = {value}" for array, value in made.items())
            return f'''"""A first bandwidth test. Sizes, grid and bytes are guesses: make them those of your kernel."""

import numpy as np


def test_{name}(bandwidth):
    n = 1 << 16
    {arrays}
    kernel = bandwidth.kernel({json.dumps(file)}, "{name}"{mangled})
    bandwidth.launch(
        kernel, n // 256, 256, ({", ".join(arguments)},), reads=({", ".join(read)},), writes=({", ".join(written)},)
    )
'''
    return None


def _files(root: Path) -> Iterator[Path]:
    """Yield Python and CUDA files, those of a folder before those inside it; not of virtual environments."""
    for folder, folders, names in os.walk(root):
        hidden = {name for name in folders if name[0] == "." or Path(folder, name, "pyvenv.cfg").exists()}
        folders[:] = sorted({*folders} - hidden)
        yield from (Path(folder, name) for name in sorted(names) if name.endswith((".cu", ".py")))


def _text(file: Path) -> str:
    """Return a file's text; nothing for a file that is large, not plain, or not readable for this user."""
    try:
        return _held(file) if file.is_file() and file.stat().st_size <= MOST_BYTES else ""
    except OSError:
        return ""


def _imports(text: str) -> Iterator[str]:
    """Yield the packages that Python text imports, anywhere in it; none where it is not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the text
        try:
            nodes = list(ast.walk(ast.parse(text.encode("latin-1"))))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


def _add_option(root: Path) -> None:
    """Add the folder of baselines to pytest's settings; to a new pytest.ini if there are no settings."""
    what, new = f"{OPTION} = baselines", root / "pytest.ini"
    for file in (root / name for name in SETTINGS):
        text = _held(file)
        table = _TABLE.search(text)
        # An inline table, or dotted keys.
        unusual = "ini_options" in text and "ini_options" not in (table[0] if table else "")
        if OPTION in text or unusual:
            return _write(file, None, what)
        if table is not None:
            line = f'{OPTION} = "baselines"' if file.suffix == ".toml" else what
            end = "\r\n" if "\r\n" in text else "\n"
            return _write(file, f"{text[: table.end()]}{end}{line}{text[table.end() :]}", line)
    return _write(new, None if os.path.lexists(new) else f"[pytest]\n{what}\n", what)


def _held(file: Path) -> str:
    """Return a file's content, one character for each byte; nothing without a file."""
    return file.read_bytes().decode("latin-1") if os.path.lexists(file) else ""
