"""List registers, stack and shared memory of each kernel of libraries, cubins and fatbins.

With --baseline the status is 1 where a kernel's stack, which holds spilled registers, or its shared memory grew.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_bandwidth.cli.main import json_text, refuse_own_input, terminal_width, write_output
from pytest_bandwidth.devices.code.compiled import codes_in
from pytest_bandwidth.devices.code.cubin import UNREADABLE, resources_of
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.reports.text_safe import aligned, printable
from pytest_bandwidth.storage.atomic import FileForm

_COLUMNS = {"registers": "registers", "local_bytes": "stack and spills (B)", "shared_bytes": "shared (B)"}
# More registers alone are no loss: they may prevent spills.
_COSTS = ("local_bytes", "shared_bytes")
_LIBRARY = re.compile(r"\.(so(\.\d+)*|o|cubin|fatbin)$")
_FORM = FileForm((".json",), r'\{\s*"schema": \d+,\s*"kernels":')
Kernels = Mapping[str, Mapping[str, int]]


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", type=Path, help="a library, cubin or fatbin, or a folder of them")
    parser.add_argument("--baseline", metavar="FILE", type=Path, help="compare with what -o wrote")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write the figures as JSON")


def run(options: argparse.Namespace) -> int:
    known: Kernels = {} if options.baseline is None else _read(options.baseline)
    found: dict[str, dict[str, int]] = {}
    folder: Path = options.path
    files = (one for one in folder.rglob("*") if _LIBRARY.search(one.name)) if folder.is_dir() else (folder,)
    for file in sorted(files):
        prefix = f"{file.relative_to(options.path).as_posix()}: " if file != options.path else ""
        for kernel, figures in _kernels(file):
            one = found.setdefault(f"{prefix}{kernel}", figures)
            one.update({name: max(one[name], figures[name]) for name in _COLUMNS})  # two of one name, in two objects
    if not found:
        raise UsageError(
            f"{options.path}: found no machine code of a CUDA kernel, expected a library, cubin or fatbin: compile it"
        )
    if known and not known.keys() & found.keys():
        raise UsageError(
            f"{options.baseline}: found none of its {len(known)} kernels in {options.path}, expected those of the same "
            "library, folder and architectures: write it again with -o alone"
        )
    changes = {
        kernel: {name: (known.get(kernel, now)[name], now[name]) for name in _COLUMNS} for kernel, now in found.items()
    }
    rows = [[printable(kernel), *(_cell(*changes[kernel][name]) for name in _COLUMNS)] for kernel in sorted(found)]
    print("\n".join(aligned(["kernel", *_COLUMNS.values()], rows, left=["kernel"], width=terminal_width())))
    for kernel in sorted(known.keys() - found.keys()):
        print(f"gone: {printable(kernel)}")
    if options.output is not None:
        refuse_own_input(options.output, [options.path, *([] if options.baseline is None else [options.baseline])])
        write_output(options.output, json_text({"kernels": found}), _FORM)
    return int(any(pairs[name][1] > pairs[name][0] for pairs in changes.values() for name in _COSTS))


def _cell(then: int, now: int) -> str:
    return f"{now:,}" if then == now else f"{then:,} → {now:,}"


def _kernels(file: Path) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield each kernel's name and figures, of all architectures. Raises UsageError for what cannot be read."""
    try:
        for code in codes_in(file.read_bytes()):
            if code.arch < 0:
                raise ValueError("found code that cannot be unpacked")
            for name, resources in () if code.is_ptx else resources_of(code.data).items():
                yield name, {figure: getattr(resources, figure) for figure in _COLUMNS}
    except UNREADABLE as error:
        expected = "an intact file; `pip install backports.zstd` lets Python before 3.14 unpack zstd"
        raise UsageError(f"{file}: {error}, expected {expected}") from None


def _read(file: Path) -> Kernels:
    """Read a file that `-o` wrote. Raises UsageError for any other file."""
    try:
        kernels = json.loads(file.read_bytes())["kernels"]
        return {name: {figure: int(figures[figure]) for figure in _COLUMNS} for name, figures in kernels.items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise UsageError(f"{file}: found another form, expected a file from `pytest-bandwidth resources -o`") from None
