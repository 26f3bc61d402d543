"""Decode a module: its variables into memory, and each kernel, at first use, into basic blocks of steps.

Opcodes are looked up, names are resolved to registers, calls are inlined.
Inlined calls need no stack, and their threads reconverge like others. Recursion and calls through pointers cannot be
inlined; they are not modelled.

Of all ready blocks, the one with the smallest rank runs first. Ranks follow the control flow, and the blocks of a loop
have consecutive ranks: so diverged threads reconverge at the first block that all of them reach.
"""

from __future__ import annotations

import heapq
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from graphlib import TopologicalSorter
from itertools import count

import numpy as np

from pytest_bandwidth.domain.code.kernel_signature import lacks_initialiser, source_name
from pytest_bandwidth.domain.errors import KernelError, NotOnThisDevice, OutOfMemory
from pytest_bandwidth.features.traffic.ptx import parsing, program
from pytest_bandwidth.features.traffic.ptx.actions import ACTIONS
from pytest_bandwidth.features.traffic.ptx.lanes import three
from pytest_bandwidth.features.traffic.ptx.memory import FIRST_VARIABLE_REGION, Region, RegionKind
from pytest_bandwidth.features.traffic.ptx.nvrtc import PtxModule
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES, Match
from pytest_bandwidth.features.traffic.ptx.opcodes.table import TABLE
from pytest_bandwidth.features.traffic.ptx.operands import (
    Context,
    Here,
    RegisterFile,
    Scope,
    element_bytes,
    layout_of,
    parameters_of,
)
from pytest_bandwidth.features.traffic.ptx.wmma import WMMA

MAX_STEPS = 500_000
_ACTIONS = {**ACTIONS, **WMMA}
_NO_ROW = Match(TABLE.forms[0], {}, (), ())


class Program:
    """Hold a module that is ready to run; kernels are decoded at first use.

    kernels: parameters of each kernel by its name in the PTX. variables: regions of __device__ and __constant__
    variables by their names in the PTX, which keep their values from launch to launch until `reset`. digests: of the
    values that a test gave to variables.
    Raises KernelError for PTX that it cannot read, OutOfMemory for variables that are too large.
    """

    def __init__(self, compiled: PtxModule) -> None:
        self.compiled = compiled
        with _naming(compiled.file):
            self._module = parsing.parse_ptx(compiled.ptx)
        self._functions = {f.name: f for f in self._module.functions if f.is_entry and f.is_defined}
        self.kernels: Mapping[str, tuple[program.Parameter, ...]] = {
            n: parameters_of(f) for n, f in self._functions.items()
        }
        self.reset()
        self._symbols = {
            name: program.Symbol(name, region.base, region.nbytes) for name, region in self.variables.items()
        }
        self._decoded: dict[str, program.Kernel] = {}

    def reset(self) -> Program:
        """Give variables the values that they have when loaded."""
        placed = enumerate((v for v in self._module.variables if v.space in ("global", "const")), FIRST_VARIABLE_REGION)
        self.variables = {one.name: _region(number, one, self.compiled.source) for number, one in placed}
        self.digests: dict[str, str] = {}
        return self

    def resolve(self, name: str) -> str:
        """Return a kernel's PTX name from its PTX name, its C++ name, or a name expression.

        Raises KernelError with the existing names.
        """
        name = self.compiled.lowered.get(name, name)
        if name in self.kernels:
            return name
        alike = [mangled for mangled in self.kernels if source_name(mangled) == name]
        if len(alike) == 1:
            return alike[0]
        known = ", ".join(sorted(source_name(mangled) for mangled in self.kernels)) or "none"
        found = "several kernels" if alike else "no kernel"
        # The compiler keeps only the instances of a template.
        is_written = re.search(rf"__global__[^;{{}}]*\b{re.escape(name)}\s*\(", self.compiled.source)
        hint = f"; a template needs its arguments, as in {name}<float>" if is_written and not alike else ""
        raise KernelError(f"{self.compiled.filename} has {found} named {name!r}; it has: {known}{hint}")

    def kernel(self, name: str) -> program.Kernel:
        """Decode a kernel. Raises KernelError for unknown names, NotOnThisDevice for opcodes that are not modelled."""
        resolved = self.resolve(name)
        if resolved not in self._decoded:
            made = self.compiled
            function = self._functions[resolved]
            with _naming(made.file):
                found = decode(self._module, function, self._symbols, made.filename, made.foreign_folder)
            self._decoded[resolved] = found
        return self._decoded[resolved]


@contextmanager
def _naming(file: str) -> Iterator[None]:
    """Add the PTX file's name, if it has one, to errors."""
    try:
        yield
    except (KernelError, RecursionError) as error:
        said = str(error) if isinstance(error, KernelError) else "the PTX is nested deeper than this device reads"
        raise KernelError(f"{file}: {said}" if file else said) from None


def _region(number: int, variable: parsing.Variable, source: str) -> Region:
    size, dtype = element_bytes(variable.type) * (variable.count or 0), DTYPES[variable.type]
    try:
        data = np.zeros((1, -(-size // 16) * 16), np.uint8)
    except (MemoryError, ValueError):
        raise OutOfMemory(f"variable {variable.name} takes {size} bytes, more than there are here") from None
    elements = data.view(f"u{dtype.itemsize}")
    for place, item in enumerate(variable.initial):
        if not isinstance(item, parsing.Number):
            raise NotOnThisDevice(f"variable {variable.name} holds an address, which the traffic device does not model")
        value = item.value
        bits = np.array(value, dtype).view(elements.dtype) if isinstance(value, float) else value
        elements[0, place] = int(bits) & ((1 << (dtype.itemsize * 8)) - 1)
    kind: RegionKind = "const" if variable.space == "const" else "global"
    name = program.readable_name(variable.name)
    is_set = kind == "global" or bool(variable.initial) or not lacks_initialiser(source, name)
    return Region(name, kind, number, data[:, :size], writable=kind == "global", is_set=is_set)


# ---- kernels ---------------------------------------------------------------------------------------------------------


def decode(
    module: parsing.Module,
    function: parsing.Function,
    symbols: Mapping[str, program.Symbol],
    filename: str,
    foreign_folder: str | None = None,
) -> program.Kernel:
    """Decode a kernel. Raises NotOnThisDevice, naming the opcode and its line, for opcodes outside the table."""
    return _Decoder(module, function, symbols, filename.rsplit("/", 1)[-1], foreign_folder).kernel()


class _Decoder:
    """Convert the statements of a kernel, and of the functions that it calls, to steps and labels."""

    def __init__(
        self,
        module: parsing.Module,
        function: parsing.Function,
        symbols: Mapping[str, program.Symbol],
        main_file: str,
        foreign_folder: str | None,
    ) -> None:
        file = RegisterFile()
        self._shared, self._local, self._dynamic_offset, self._local_bytes = layout_of(module, function)
        self._context = Context(
            kernel=function.name,
            file=file,
            symbols={**symbols, **self._shared, **self._local},
            parameters={parameter.name: parameter for parameter in parameters_of(function)},
            location=(main_file, 0),
            carry=file.new(),
        )
        self._function = function
        self._functions = {f.name: f for f in module.functions if f.is_defined}
        self._files = module.files
        self._main_file = main_file
        self._main = next((number for number, path in module.files.items() if path.rsplit("/", 1)[-1] == main_file), 1)
        self._own = {self._main}
        if foreign_folder is not None:
            self._own |= {n for n, path in module.files.items() if not path.startswith(foreign_folder)}
        self._inlined: dict[tuple[int, int], tuple[int, int]] = {}
        self._items: list[program.Step | parsing.Label] = []
        self._numbers = count(1)
        self._calls: list[tuple[str, str | None]] = [(function.name, None)]

    def kernel(self) -> program.Kernel:
        self._block(self._function.body, None)
        self._items.append(program.Exit(site=self._context.site("exit", 0)))
        tuning = self._function.tuning
        exact = tuning.get("reqntid")
        limit = tuning.get("maxntid") or exact
        file = self._context.file
        blocks = basic_blocks(self._items)
        return program.Kernel(
            name=self._function.name,
            parameters=tuple(self._context.parameters.values()),
            sites=tuple(self._context.sites),
            blocks=blocks,
            register_count=file.count,
            constants=file.constants,
            specials=file.specials,
            arguments=file.arguments,
            shared=tuple(self._shared.values()),
            dynamic_shared_offset=self._dynamic_offset,
            local=tuple(self._local.values()),
            local_bytes=self._local_bytes,
            granule_bytes=self._context.granules,
            max_threads=int(np.prod(limit)) if limit else None,
            exact_block=three(exact) if exact else None,
            waits_for_grid=self._context.waits_for_grid,
            cluster=three(tuning.get("reqnctapercluster", ())),
            before_wait=_before_wait(blocks, self._context.sites),
            asynchronous=any(isinstance(item, program.BarrierStep | program.BulkCopy) for item in self._items),
        )

    def _block(self, block: parsing.Block, parent: Scope | None) -> None:
        scope = Scope(block, parent, f"block{next(self._numbers)}")
        for statement in block.statements:
            if isinstance(statement, parsing.Instruction):
                self._instruction(statement, scope)
            elif isinstance(statement, parsing.Location):
                self._context.location = self._source_line(statement)
            elif isinstance(statement, parsing.Label):
                self._items.append(parsing.Label(scope.labels[statement.name]))
            elif isinstance(statement, parsing.Registers):
                scope.declare(statement, self._context.file)
            elif isinstance(statement, parsing.Block):
                self._block(statement, scope)
            elif isinstance(statement, parsing.Variable) and statement.space == "param":
                scope.parameters[statement.name] = f"param{next(self._numbers)}"

    def _source_line(self, location: parsing.Location) -> tuple[str, int]:
        """Return the line in the user's files: for inlined functions of headers or libraries the line of the call, at
        any depth.
        """
        if location.line == 0:  # NVRTC marks merged code with line 0
            return self._context.location
        here = (location.file, location.line)
        outside = None if location.inlined_file is None else (location.inlined_file, location.inlined_line or 0)
        if location.file not in self._own and outside is not None:
            self._inlined[here] = self._inlined.get(outside, outside)
        elif location.file in self._own:
            self._inlined.pop(here, None)
        file, line = self._inlined.get(here, here)
        path = self._main_file if file == self._main else self._files.get(file, self._main_file)
        return path.rsplit("/", 1)[-1], line

    def _instruction(self, instruction: parsing.Instruction, scope: Scope) -> None:
        if len(self._items) > MAX_STEPS:
            name = self._function.name
            raise NotOnThisDevice(f"kernel {name} has more than {MAX_STEPS} instructions once its calls are inlined")
        match = TABLE.find(instruction.opcode)
        here = Here(self._context, instruction, match or _NO_ROW, scope)
        if match is None:
            here.refuse()
        meaning = match.form.meaning
        try:
            if callable(meaning):
                self._items.append(_computation(here))
            elif meaning == "call":
                self._call(here)
            elif meaning == "return":
                label, placed = self._calls[-1][1], here.placed()
                # To the end of an inlined call, or out of the kernel.
                left = program.Exit(**placed) if label is None else program.Branch(**placed, labels=(label,))
                self._items.append(left)
            else:
                self._items.extend(_ACTIONS[meaning](here))
        except (KeyError, IndexError, ValueError):  # unexpected or unknown operands
            here.refuse(" with such operands")

    # Calls: the callee's statements replace the call; its parameters become registers.

    def _call(self, here: Here) -> None:
        groups = [operand for operand in here.operands if isinstance(operand, parsing.Group)]
        target = next((operand.text for operand in here.operands if isinstance(operand, parsing.Name)), "")
        if target == "__assertfail":  # assert() calls it when its condition is false
            self._items.append(program.Exit(**here.placed(), trap=True))
            return
        if target == "vprintf":  # printf() calls it
            self._items.append(program.Print(**here.placed()))
            return
        callee = self._functions.get(target)
        if callee is None or here.instruction.guard:
            here.refuse(f" of {target}")
        if any(name == target for name, _ in self._calls):
            here.refuse(f" of {target}, which is recursive")
        self._items.append(program.Nothing(site=here.site()))
        returned = groups[0] if callee.returned else parsing.Group(())
        passed = groups[-1] if callee.parameters else parsing.Group(())
        end, location = f"return{next(self._numbers)}", self._context.location
        outer = Scope(parsing.Block(()), None, end)
        for formal, actual in zip(
            (*callee.returned, *callee.parameters), (*returned.items, *passed.items), strict=True
        ):
            slot = here.scope.parameters.get(actual.text) if isinstance(actual, parsing.Name) else None
            if slot is None:
                here.refuse(f" of {target}")
            outer.parameters[formal.name] = slot
        self._calls.append((target, end))
        self._block(callee.body, outer)
        self._calls.pop()
        self._context.location = location
        self._items.append(parsing.Label(end))


def _computation(here: Here) -> program.Compute:
    match, meaning = here.match, here.match.form.meaning
    assert callable(meaning)
    first, *operands = here.operands
    names = first.each if isinstance(first, parsing.Name) and first.second is not None else (first,)
    targets = [here.write(name, kind) for name, kind in zip(names, match.results, strict=False)]
    if "cc" in match.results:
        targets.append(program.Write(here.context.carry))
    kinds = [kind for kind in match.sources if kind != "cc"]
    if len(operands) > len(kinds) or (len(operands) < len(kinds) and not kinds[len(operands)].endswith("?")):
        here.refuse()
    reads = [here.read(operand, kind.rstrip("?")) for operand, kind in zip(operands, kinds, strict=False)]
    if "cc" in match.sources:
        reads.append(program.Read(here.context.carry, DTYPES["cc"]))
    choice = {**match.choice, "pair": "q"} if len(names) == 2 else match.choice
    return program.Compute(**here.placed(), function=meaning(choice), sources=tuple(reads), targets=tuple(targets))


# ---- basic blocks, their order, and live registers -------------------------------------------------------------------


def _before_wait(blocks: Sequence[program.BasicBlock], sites: Sequence[program.Site]) -> tuple[int, ...]:
    """Return the sites of accesses to global memory that a thread may reach before the wait for the previous kernel;
    () for a kernel without such a wait.
    """
    waits = {number for number, site in enumerate(sites) if site.opcode == "griddepcontrol.wait"}
    found: set[int] = set()
    pending, seen = [0] if waits else [], set()
    while pending:
        number = pending.pop()
        if number in seen:
            continue
        seen.add(number)
        for step in blocks[number].steps:
            if step.site in waits:
                break
            if isinstance(step, program.Memory) and step.space in ("global", "generic"):
                found.add(step.site)
        else:
            pending += [n for n in (*blocks[number].branch, blocks[number].following) if n is not None]
    return tuple(sorted(found))


def basic_blocks(items: Iterable[program.Step | parsing.Label]) -> tuple[program.BasicBlock, ...]:
    blocks = _cut(items)
    successors = [(*block.branch, *(() if block.following is None else (block.following,))) for block in blocks]
    order = _ordered(range(len(blocks)), {number: set(targets) for number, targets in enumerate(successors)}, 0)
    ranks = {number: rank for rank, number in enumerate(order)}
    live = _needed([_uses(block) for block in blocks], successors)
    names = ([getattr(step, "name", "") for step in block.steps] for block in blocks)
    shuffles = _needed([("shuffle" in each, 0) for each in names], successors)
    return tuple(
        replace(
            block,
            rank=ranks[number],
            live=live[number],
            polls=any(map(_polls, block.steps)),
            meets=any(map(_meets, block.all_steps)),
            shuffles=bool(shuffles[number]),
        )
        for number, block in enumerate(blocks)
    )


def _cut(items: Iterable[program.Step | parsing.Label]) -> list[program.BasicBlock]:
    """Cut blocks at jumps, exits and barriers, and before labels."""
    bodies: list[tuple[list[program.Step], program.Step | None]] = [([], None)]
    places: dict[str, int] = {}
    for item in items:
        steps, end = bodies[-1]
        if isinstance(item, parsing.Label):
            if steps or end is not None:
                bodies.append(([], None))
            places[item.name] = len(bodies) - 1
        elif isinstance(item, program.Branch | program.Exit | program.Barrier):
            if end is not None:
                bodies.append(([], None))
            bodies[-1] = (bodies[-1][0], item)
            bodies.append(([], None))
        else:
            steps.append(item)
    blocks = []
    for number, (steps, end) in enumerate(bodies):
        branch = tuple(places[label] for label in end.labels) if isinstance(end, program.Branch) else ()
        leaves = end is not None and not isinstance(end, program.Barrier) and end.guard is None
        following = None if leaves or number + 1 == len(bodies) else number + 1
        blocks.append(program.BasicBlock(tuple(steps), end, branch, following))
    return blocks


def _polls(step: program.Step) -> bool:
    if isinstance(step, program.BarrierStep):
        return step.operation == "test"
    return step.fresh if isinstance(step, program.Load) else isinstance(step, program.Atomic) and bool(step.targets)


def _meets(step: program.Step) -> bool:
    if isinstance(step, program.WarpStep):
        return step.name != "active mask"
    return (
        step.is_named if isinstance(step, program.Barrier) else isinstance(step, program.WarpBarrier | program.Arrive)
    )


def _needed(uses: Sequence[tuple[int, int]], successors: Sequence[Sequence[int]]) -> list[int]:
    """Find the registers that may be read before they are written, from each block's start (backward data flow).

    uses: by block the registers that it reads before writing them, and those that it writes, as bit sets.
    """
    needed = [0] * len(uses)
    changed = True
    while changed:
        changed = False
        for number in range(len(uses) - 1, -1, -1):
            read, written = uses[number]
            new = read | (reduce(operator.or_, (needed[successor] for successor in successors[number]), 0) & ~written)
            if new != needed[number]:
                needed[number], changed = new, True
    return needed


def _uses(block: program.BasicBlock) -> tuple[int, int]:
    read = written = 0
    for step in block.all_steps:
        guards = () if step.guard is None else (step.guard,)
        read |= sum({1 << source.register for source in (*step.sources, *guards)}) & ~written
        if not guards:  # a guarded write may leave the old value
            written |= sum({1 << target.register for target in step.targets if target is not None})
    return read, written


def _ordered(nodes: Sequence[int], edges: Mapping[int, set[int]], entry: int) -> list[int]:
    """Sort topologically, each loop's blocks together: strongly connected components in order, without back edges."""
    parts = _strong_components(nodes, edges)
    part_of = {node: index for index, part in enumerate(parts) for node in part}
    sorter = TopologicalSorter(dict.fromkeys(range(len(parts)), ()))
    heads: dict[int, int] = {}
    for node in nodes:
        for target in edges[node] & part_of.keys():
            own, reached = part_of[node], part_of[target]
            if reached != own:
                # A loop's head is its first block in the text with a predecessor outside.
                heads[reached] = min(target, heads.get(reached, target))
                sorter.add(reached, own)
    heads[part_of[entry]] = entry
    sorter.prepare()
    ready: list[tuple[int, int]] = []
    order: list[int] = []
    while sorter.is_active():
        for index in sorter.get_ready():
            heapq.heappush(ready, (min(parts[index]), index))
        _, index = heapq.heappop(ready)
        part, head = parts[index], heads.get(index, min(parts[index]))
        order += part if len(part) == 1 else _ordered(part, {node: edges[node] - {head} for node in part}, head)
        sorter.done(index)
    return order


def _strong_components(nodes: Sequence[int], edges: Mapping[int, set[int]]) -> list[list[int]]:
    """Return the strongly connected components: nodes that reach the same nodes."""
    places = {node: place for place, node in enumerate(nodes)}
    within = [[places[target] for target in edges[node] if target in places] for node in nodes]
    parts: dict[int, list[int]] = {}
    for node, reached in zip(nodes, _needed([(1 << place, 0) for place in places.values()], within), strict=True):
        parts.setdefault(reached, []).append(node)
    return list(parts.values())
