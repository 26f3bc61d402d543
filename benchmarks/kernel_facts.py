"""Print what is known of the shipped kernels without a GPU, the versions of an operation side by side.

    python benchmarks/kernel_facts.py [--operation softmax] [--dtype float32] [--arch sm_80 --arch sm_90]

Of each kernel: registers and bytes of local memory a thread (its stack and what is spilled), as ptxas tells them; the
place of the first global load among the instructions; what it uses (integer division, tensor cores, asynchronous
copies); the global loads that a thread has under way before it waits for the first, at the most, or what asynchronous
copies still write of a block's shared memory; what that makes on a multiprocessor full of such threads; sectors a
request, from an execution by the traffic device. A result that is not NumPy's is an error. How fast a kernel is, a GPU
has to say. Prints Markdown; figures of several architectures, where they differ, one after the other. Needs NVRTC.

Instructions are the machine's where nvdisasm is there (a wheel: pip install nvidia-cuda-nvdisasm), else PTX's, which
the assembler has yet to move: it may wait for some of the loads that PTX has under way together.
benchmarks/results/kernel_facts.md is the output with nvdisasm.
"""

from __future__ import annotations

import argparse
import functools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from pytest_bandwidth.features.traffic.ptx import execute
from pytest_bandwidth.features.traffic.ptx.nvrtc import CubinModule
from pytest_bandwidth.features.traffic.ptx.occupancy import occupancy_of
from pytest_bandwidth.features.traffic.ptx.races import GRANULE, AsyncCopies
from pytest_bandwidth.suite.operations.model import KernelStep, poison, wrong_results
from pytest_bandwidth.suite.selection import SIZING_DTYPE, TRAFFIC_BYTES, Selected, selected

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
import kernel_resources
from interpreted import FreshArrays, shipped

HEADER = (
    "operation",
    "kernel",
    "registers",
    "local bytes",
    "first load",
    "uses",
    "loads under way",
    "KiB in flight an SM",
    "sectors a request",
)
ARCHITECTURES, DTYPES = ("sm_80", "sm_90", "sm_120"), ("float32", "float16", "bfloat16")
WARP, KIB = 32, 1024
# PTX and SASS write an instruction alike: the opcode, then the operands. The first operand is the destination.
_INSTRUCTION = re.compile(r"^\s*(?:@!?\S+\s+)?([A-Za-z][\w.:]*)\s*(.*)$")
_REGISTER = re.compile(r"(?:%[a-z]+|\bR)\d+\b")
_SASS_BYTES = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
COPIES = "cp.async"
# By what it is called in PTX: opcodes of PTX and of SASS, which divides integers by way of a reciprocal.
_USES = {
    "division": re.compile(r"(div|rem)\.[su]\d|U?I2F\b.*\.RP"),
    "mma": re.compile(r"mma\.sync|[HI]MMA"),
    "ldmatrix": re.compile(r"ldmatrix|LDSM"),
    COPIES: re.compile(r"cp\.async\.c|LDGSTS"),
    "dp4a": re.compile(r"dp4a|IDP"),
}


class Instruction(NamedTuple):
    opcode: str
    operands: str
    has_predicate: bool


class UnderWay(NamedTuple):
    """Hold the loads that nothing has waited for: the bytes of each and its registers; and what these are copied to."""

    loads: tuple[tuple[int, frozenset[str]], ...] = ()
    copies: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        return sum(size for size, _ in self.loads)

    @property
    def pending(self) -> frozenset[str]:
        return self.copies.union(*(into for _, into in self.loads))


def read_code(code: Iterable[str]) -> Iterator[Instruction | str]:
    """Yield instructions, and labels as their names, of one kernel, as PTX or as nvdisasm writes them."""
    for line in code:
        text = line.strip()
        if text.endswith(":"):
            yield text.rstrip(":").lstrip(".")
        elif match := _INSTRUCTION.match(text.strip("{} \t;")):
            yield Instruction(match[1], match[2], text.startswith("@"))


def loads_under_way(code: Iterable[str]) -> tuple[int, int]:
    """Return the most global loads, as their number and bytes, between two instructions that wait for one.

    Of two ways to a label the one with more counts. A copy of a register waits for nothing; a store may not be
    overtaken, and a branch back ends what is in a row. Of two loads into one register only one is made: their
    predicates exclude each other.
    """
    now = most = UnderWay()
    at_label: dict[str, UnderWay] = {}
    passed: set[str] = set()
    for one in read_code(code):
        if isinstance(one, str):
            passed.add(one)
            now = max(now, at_label.get(one, UnderWay()), key=lambda way: way.size)
            continue
        opcode, operands, has_predicate = one
        target, _, rest = operands.partition("}," if operands.startswith("{") else ",")
        copies = opcode.startswith("mov.")
        read = set(_registers(operands if opcode.startswith(("st.", "ST")) else rest))
        waits = read & now.pending and not copies
        if waits or opcode.startswith(("st.global", "STG", "bar", "BAR")):
            now = UnderWay()
        if opcode.split(".")[0] in ("bra", "BRA", "EXIT", "ret", "RET"):
            labels = re.findall(r"[$\w]+", operands)
            for label in labels:
                at_label[label] = max(now, at_label.get(label, UnderWay()), key=lambda way: way.size)
            # SASS has further conditions in front of the label.
            goes_on = has_predicate or (opcode.startswith("BRA") and not operands.startswith("`"))
            if not goes_on or passed.intersection(labels):
                now = UnderWay()
        elif _is_load(opcode):
            loaded = _loaded_bytes(opcode)
            first = next(iter(_registers(target)), "")
            wide = range(loaded // 4) if opcode.startswith("LDG") else ()
            into = frozenset({*_registers(target), *(f"R{int(first[1:]) + k}" for k in wide)})
            others = tuple(load for load in now.loads if not load[1] & into)
            now = now._replace(loads=(*others, (loaded, into)))
            most = max(now, most, key=lambda way: way.size)
        elif copies and read & now.pending:
            now = now._replace(copies=now.copies.union(_registers(target)))
    return len(most.loads), most.size


def first_load(code: Iterable[str]) -> str:
    """Return the place of the first global load or asynchronous copy: ``17 of 23`` instructions, or ``none``."""
    opcodes = [one.opcode for one in read_code(code) if not isinstance(one, str)]
    while opcodes and opcodes[-1] in ("NOP", "BRA"):  # what fills the kernel's last cache line
        opcodes.pop()
    places = (n for n, opcode in enumerate(opcodes, 1) if _is_load(opcode) or _USES[COPIES].match(opcode))
    place = next(places, None)
    return "none" if place is None else f"{place} of {len(opcodes)}"


def uses(code: Iterable[str]) -> list[str]:
    """Return which of the instructions that one looks for a kernel has."""
    opcodes = {one.opcode for one in read_code(code) if not isinstance(one, str)}
    return [name for name, pattern in _USES.items() if any(map(pattern.match, opcodes))]


def _is_load(opcode: str) -> bool:
    return opcode.startswith("ld.global") or opcode.split(".")[0] == "LDG"


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


@functools.cache
def nvdisasm() -> str | None:
    """Return the disassembler: of the path, else of its wheel."""
    found = shutil.which("nvdisasm")
    spec = find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec and not found else ():
        found = next((str(path) for path in Path(folder).glob("*/bin/nvdisasm")), found)
    return found


def cubin(file: str, arch: str) -> CubinModule:
    return kernel_resources.cubin((kernel_resources.CUDA_SRC / file).read_text(encoding="utf-8"), file, arch)


@functools.cache
def machine_code(file: str, arch: str, disassembler: str) -> dict[str, list[str]]:
    """Return the instructions of each kernel of a shipped file."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as written:
        written.write(cubin(file, arch).data)
        written.flush()
        text = subprocess.run([disassembler, "-c", written.name], capture_output=True, text=True, check=True).stdout
    kernels: dict[str, list[str]] = {}
    for section in re.split(r"^\.text\.", text, flags=re.MULTILINE)[1:]:
        name, _, body = section.partition(":")
        lines = (re.sub(r"/\*.*?\*/", "", line).strip() for line in body.splitlines())
        kernels[name] = [line for line in lines if line.endswith((";", ":"))]
    return kernels


def kernel_ptx(text: str, kernel: str) -> list[str]:
    return text.split(f".entry {kernel}(")[1].split("\n}")[0].splitlines()


def code_of(file: str, kernel: str, arch: str) -> list[str]:
    """Return a kernel's instructions: the machine's, or PTX where there is no disassembler."""
    disassembler = nvdisasm()
    if disassembler is None:
        return kernel_ptx(cubin(file, arch).ptx.ptx, kernel)
    return machine_code(file, arch, disassembler)[kernel]


@contextmanager
def most_copied() -> Iterator[list[int]]:
    """Give a list that gets how many bytes asynchronous copies are writing in a block's shared memory, after each."""
    found: list[int] = [0]
    issue = AsyncCopies.issue

    def watched(self: AsyncCopies, *given: Any) -> None:
        issue(self, *given)
        found.append(int(np.count_nonzero(self._pending, axis=1).max()) * GRANULE)

    with mock.patch.object(AsyncCopies, "issue", watched):
        yield found


def compiled_facts(step: KernelStep, arch: str, copied: int) -> tuple[str, ...]:
    """Return the cells of a row that the compiler decides. copied: bytes that copies have under way in a block."""
    code, resources = code_of(step.file, step.kernel, arch), cubin(step.file, arch).resources[step.kernel]
    used = uses(code)
    number, size = loads_under_way(code)
    threads = int(np.prod(step.block))
    occupancy = occupancy_of(arch, resources, threads, 0)
    # Loops of asynchronous copies fill tiles: what is under way is no property of a line of code, but of an execution.
    under_way = f"{COPIES}: {copied} B a block" if COPIES in used else f"{number}: {size} B" if number else "-"
    of_block = copied if COPIES in used else size * threads
    flight = f"{of_block * occupancy.warps * WARP / threads / KIB:.3g}" if of_block and occupancy else "-"
    counted = (str(resources.registers), str(resources.local_bytes))
    return (*counted, first_load(code), ", ".join(used) or "-", under_way, flight)


def rows(chosen: Selected, architectures: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kernel that the operation launches. Raises ValueError for a result that is not NumPy's."""
    operation, dtype = chosen.operation, chosen.dtype
    sizes = chosen.sizes or operation.shapes(TRAFFIC_BYTES, SIZING_DTYPE)[chosen.shape]
    case = operation.prepare(FreshArrays(1), dtype, sizes)
    poison(case)
    seen = set()
    for step in case.steps:
        assert isinstance(step, KernelStep)
        compiled = shipped(step.file, architectures[0])
        with most_copied() as copied:
            loads = execute(compiled, step.kernel, step.grid, step.block, step.args).counts.loads
        if step.kernel not in seen:
            by_architecture = zip(*(compiled_facts(step, arch, max(copied)) for arch in architectures), strict=True)
            cells = (found[0] if len(set(found)) == 1 else " / ".join(found) for found in by_architecture)
            sectors = f"{loads.sectors_per_request:.1f}" if loads.requests else "-"
            yield (operation.title, step.kernel, *cells, sectors)
        seen.add(step.kernel)
    if wrong := wrong_results(case):
        raise ValueError(f"{operation.title}, {dtype}: {'; '.join(wrong)}")


def wanted(name: str, dtypes: Sequence[str]) -> Iterator[Selected]:
    """Yield each operation in each dtype once: at its first shape, or the largest of its own shapes."""
    found: dict[tuple[str, str], Selected] = {}
    for one in selected("full", "traffic"):
        key = (one.operation.title, one.dtype)
        if key not in found or found[key].sizes is not None:
            found[key] = one
    for dtype in dtypes:
        yield from (one for one in found.values() if one.dtype == dtype and one.operation.name.startswith(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operation", default="", help="only those whose name begins so")
    parser.add_argument("--dtype", action="append", help=f"default: {', '.join(DTYPES)}")
    parser.add_argument("--arch", action="append", help=f"default: {', '.join(ARCHITECTURES)}")
    options = parser.parse_args()
    architectures = options.arch or ARCHITECTURES
    where = "PTX: no nvdisasm was found" if nvdisasm() is None else "machine code"
    print(f"Compiled for {' / '.join(architectures)}. Instructions: {where}.\n")
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    for one in wanted(options.operation, options.dtype or DTYPES):
        for row in rows(one, architectures):
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
