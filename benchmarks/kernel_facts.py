"""Print what is known of the shipped kernels without a GPU, the versions of an operation side by side.

    python benchmarks/kernel_facts.py [--operation softmax] [--dtype float32] [--arch sm_90]

Of each kernel: registers and bytes of local memory a thread (its stack and what is spilled), as ptxas tells them; the
bytes of global loads that a thread has under way before it waits for the first, at the most; and, from an execution by
the traffic device, the share of the bytes that it loads 16 at a time, and sectors a request. Loads under way are taken
from the machine code where nvdisasm is there (a wheel: pip install nvidia-cuda-nvdisasm), else from PTX, in which the
assembler has yet to move them. How fast a kernel is, a GPU has to say. Needs NVRTC. Prints Markdown.
"""

from __future__ import annotations

import argparse
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from pytest_bandwidth.devices.kernel_source import shipped_folder
from pytest_bandwidth.devices.numpy_arrays import RandomSource, empty_array
from pytest_bandwidth.features.traffic.ptx import Program, compile_cubin, compile_ptx, execute
from pytest_bandwidth.features.traffic.ptx.counts import Execution
from pytest_bandwidth.suite.operations import OPERATIONS
from pytest_bandwidth.suite.operations.model import KernelStep, Operation

HEADER = ("operation", "kernel", "registers", "local", "under way", "by 16 bytes", "sectors a request")
MOVED_BYTES = 2**18
# PTX and SASS write an instruction alike: the opcode, then the operands. The first operand is the destination.
_INSTRUCTION = re.compile(r"^\s*(?:@!?\S+\s+)?([A-Za-z][\w.:]*)\s*(.*)$")
_REGISTER = re.compile(r"(?:%[a-z]+|\bR)\d+\b")
_SASS_BYTES = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}


class OwnArrays:
    """Make arrays that own their memory, which an execution places as a GPU would: not within a sector."""

    xp = np
    _source = RandomSource(1)

    def random(self, shape: int | Sequence[int], dtype: Any) -> Any:
        return np.array(self._source.array(shape, dtype))

    def empty(self, shape: int | Sequence[int], dtype: Any) -> Any:
        return np.array(empty_array(shape, dtype))


def bytes_under_way(code: Iterable[str]) -> int:
    """Return the most bytes of global loads between two instructions that wait for one.

    code: instructions of one kernel, as PTX or as nvdisasm writes them, and labels, which end with a colon. A copy of a
    register waits for nothing; a store may not be overtaken, and a branch back, or for certain, ends what is in a row.
    """
    most = bytes_now = 0
    pending: set[str] = set()
    labels: set[str] = set()
    for line in code:
        text = line.strip()
        if text.endswith(":"):
            labels.add(text.rstrip(":").lstrip("."))
            continue
        match = _INSTRUCTION.match(text.strip("{} \t;"))
        if match is None:
            continue
        opcode, operands = match.groups()
        target, _, rest = operands.partition("}," if operands.startswith("{") else ",")
        is_load = opcode.startswith(("ld.global", "LDG"))
        copies = opcode.startswith("mov.")
        read = set(_registers(operands if opcode.startswith(("st.", "ST")) else rest))
        jumps = opcode.split(".")[0] in ("bra", "BRA", "EXIT", "ret", "RET")
        ends = jumps and (not text.startswith("@") or any(label in labels for label in re.findall(r"[$\w]+", operands)))
        if (read & pending and not copies) or ends or opcode.startswith(("st.global", "STG", "bar", "BAR")):
            pending, bytes_now = set(), 0
        if is_load:
            bytes_now += _loaded_bytes(opcode)
            first = next(iter(_registers(target)), "")
            wide = range(_loaded_bytes(opcode) // 4) if opcode.startswith("LDG") else ()
            pending |= {*_registers(target), *(f"R{int(first[1:]) + k}" for k in wide)}
            most = max(most, bytes_now)
        elif copies and read & pending:
            pending |= set(_registers(target))
    return most


def _registers(operands: str) -> Iterator[str]:
    for found in _REGISTER.finditer(operands):
        yield found[0]
        if operands.startswith(".64", found.end()):
            yield f"R{int(found[0][1:]) + 1}"


def _loaded_bytes(opcode: str) -> int:
    words = opcode.split(".")
    if words[0] == "LDG":
        return next((_SASS_BYTES[word] for word in words if word in _SASS_BYTES), 4)
    vector = next((int(word[1]) for word in words if re.fullmatch(r"v\d", word)), 1)
    return vector * int(re.sub(r"\D", "", words[-1])) // 8


def nvdisasm() -> str | None:
    """Return the disassembler: of the path, else of its wheel."""
    found = shutil.which("nvdisasm")
    spec = find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec and not found else ():
        found = next((str(path) for path in Path(folder).glob("*/bin/nvdisasm")), found)
    return found


@functools.cache
def machine_code(file: str, arch: str, disassembler: str) -> dict[str, list[str]]:
    """Return the instructions of each kernel of a shipped file."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compile_cubin(source(file), arch=arch, filename=file).data)
        cubin.flush()
        text = subprocess.run([disassembler, "-c", cubin.name], capture_output=True, text=True, check=True).stdout
    kernels: dict[str, list[str]] = {}
    for section in re.split(r"^\.text\.", text, flags=re.MULTILINE)[1:]:
        name, _, body = section.partition(":")
        lines = (re.sub(r"/\*.*?\*/", "", line).strip() for line in body.splitlines())
        kernels[name] = [line for line in lines if line.endswith((";", ":"))]
    return kernels


def source(file: str) -> str:
    return (shipped_folder() / file).read_text(encoding="utf-8")


@functools.cache
def program(file: str, arch: str) -> Program:
    return Program(compile_ptx(source(file), arch=arch, filename=file))


@functools.cache
def resources(file: str, arch: str) -> dict[str, tuple[int, int]]:
    made = compile_cubin(source(file), arch=arch, filename=file).resources
    return {name: (kernel.registers, kernel.local_bytes) for name, kernel in made.items()}


def kernel_ptx(text: str, kernel: str) -> list[str]:
    return text.split(f".entry {kernel}(")[1].split("\n}")[0].splitlines()


def share_by_16_bytes(execution: Execution) -> float:
    """Return the share of the loaded bytes that lines ask for 16 at a time."""
    loads = [line.counts.loads for line in execution.lines if line.counts.loads.accesses]
    wide = sum(one.bytes_requested for one in loads if one.bytes_requested == 16 * one.accesses)
    return wide / max(sum(one.bytes_requested for one in loads), 1)


def rows(operation: Operation, dtype: str, arch: str, disassembler: str | None) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kernel that the operation launches."""
    case = operation.prepare(OwnArrays(), dtype, operation.shapes(MOVED_BYTES, dtype)[0])
    for step in case.steps:
        if not isinstance(step, KernelStep):
            continue
        compiled = program(step.file, arch)
        if disassembler is None:
            code = kernel_ptx(compiled.compiled.ptx, step.kernel)
        else:
            code = machine_code(step.file, arch, disassembler)[step.kernel]
        execution = execute(compiled, step.kernel, step.grid, step.block, step.args)
        registers, local = resources(step.file, arch)[step.kernel]
        loads = execution.counts.loads
        sectors = f"{loads.sectors_per_request:.1f}" if loads.requests else "-"
        share = f"{share_by_16_bytes(execution):.0%}" if loads.requests else "-"
        figures = (registers, local, bytes_under_way(code), share, sectors)
        yield (operation.title, step.kernel, *map(str, figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operation", help="only those whose name begins so")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--arch", default="sm_90")
    options = parser.parse_args()
    disassembler = nvdisasm()
    where = "PTX: no nvdisasm was found" if disassembler is None else "machine code"
    print(f"{options.arch}, {options.dtype}. Loads under way, in bytes a thread: from {where}.\n")
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    for operation in OPERATIONS:
        wanted = operation.name.startswith(options.operation or "") and options.dtype in operation.dtypes
        if wanted and "traffic" in operation.devices:
            for row in rows(operation, options.dtype, options.arch, disassembler):
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
