"""Decide where each register of a decoded kernel lives in the C code, and write how it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from emulated_card.kernels.build import NotSupported
from emulated_card.kernels.module import variable_at
from pytest_bandwidth.features.traffic.ptx.lanes import SPECIALS
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES, Match
from pytest_bandwidth.features.traffic.ptx.opcodes.table import TABLE
from pytest_bandwidth.features.traffic.ptx.program import Atomic, Compute, Kernel, Load, Read, Step, WarpStep, Write

_AXES = {"x": 0, "y": 1, "z": 2}


def match_of(kernel: Kernel, step: Step) -> Match:
    match = TABLE.find(kernel.sites[step.site].opcode)
    assert match is not None
    return match


def not_translated(kernel: Kernel, step: Step) -> NotSupported:
    site = kernel.sites[step.site]
    return NotSupported(f"{site.opcode} (PTX line {site.ptx_line}), which the emulated card does not translate")


def is_copy(match: Match, step: Compute) -> bool:
    """Tell whether a step only moves bits: mov, and the parameters of the entry and of inlined calls."""
    return match.form.base in ("ld", "st", "cp") or (
        match.form.base == "mov" and len(step.sources) == 1 and len(step.targets) == 1
    )


def results_of(kernel: Kernel, step: Step) -> list[tuple[Write | None, np.dtype[Any]]]:
    """Pair each target with the type of what it gets."""
    if isinstance(step, Load | Atomic):
        return [(target, step.dtype) for target in step.targets]
    if isinstance(step, WarpStep) and step.name == "ldmatrix":
        return [(target, np.dtype("u4")) for target in step.targets]
    if isinstance(step, WarpStep) and step.name == "mma":
        sums = step.sources[-1].dtype  # C's type is D's
        return [(target, sums) for target in step.targets]
    match = match_of(kernel, step)
    if isinstance(step, Compute) and is_copy(match, step):
        return [(step.targets[0], step.sources[0].dtype)]
    if match.form.base == "mov":
        whole = DTYPES[match.choice["mtype"]]
        part = np.dtype(f"u{whole.itemsize // len(step.targets)}") if len(step.targets) > 1 else whole
        return [(target, part) for target in step.targets]
    kinds = [kind.rstrip("?") for kind in match.results]
    return [(target, DTYPES[kind]) for target, kind in zip(step.targets, kinds, strict=False)]


def c_type(dtype: np.dtype[Any]) -> str:
    """Return the type that an operand of an expression has; halves are bits."""
    if dtype.kind == "b":
        return "uint32_t"
    if dtype.kind == "f" and dtype.itemsize > 2:
        return "float" if dtype.itemsize == 4 else "double"
    return f"{'int' if dtype.kind == 'i' else 'uint'}{dtype.itemsize * 8}_t"


def storage(dtype: np.dtype[Any]) -> str:
    return "uint32_t" if dtype.kind == "b" else f"uint{dtype.itemsize * 8}_t"


@dataclass(frozen=True)
class Registers:
    """storage: C type of each register that is ever written. shared: those that outlive their basic block.

    at_start: those of them that may be read before they are written. uniform: the one step that computes each register
    which has the same value in all threads of a block; these are computed when a warp begins, outside of its blocks.
    """

    kernel: Kernel
    storage: dict[int, str]
    shared: frozenset[int]
    at_start: frozenset[int]
    uniform: dict[int, Compute]

    @classmethod
    def of(cls, kernel: Kernel) -> Registers:
        found: dict[int, str] = {}
        for block in kernel.blocks:
            for step in block.all_steps:
                for target, dtype in results_of(kernel, step):
                    if target is not None:
                        found[target.register] = storage(dtype if target.widen is None else target.widen)
        live = 0
        for block in kernel.blocks:
            live |= block.live
        uniform = _uniform(kernel)
        written = frozenset(found) - uniform.keys()
        return cls(
            kernel,
            found,
            frozenset(r for r in written if live >> r & 1),
            frozenset(r for r in written if kernel.blocks[0].live >> r & 1),
            uniform,
        )

    def dies(self, register: int) -> bool:
        """Tell whether a register is used in one basic block alone."""
        return register in self.storage and register not in self.shared and register not in self.uniform

    def outside(self, register: int) -> str | None:
        """Return the bits of a register that the kernel never writes: constant, parameter, special; None for others."""
        kernel = self.kernel
        if register in kernel.constants:
            return _constant(kernel.constants[register])
        if register in kernel.arguments:
            return f"p{register}"
        if register in kernel.specials:
            return _special(kernel.specials[register])
        if register in self.uniform:
            return f"u{register}"
        return None if register in self.storage else "0u"

    def typed(self, bits: str, read: Read) -> str:
        """Return an operand of its own type, from the bits of its register."""
        dtype = read.dtype
        if dtype.kind == "b":
            return f"({bits} ^ 1u)" if read.negated else bits
        if dtype.kind == "f" and dtype.itemsize > 2:
            return f"f{dtype.itemsize * 8}_of({f'(uint{dtype.itemsize * 8}_t)' if read.narrow else ''}{bits})"
        return f"({c_type(dtype)}){bits}"


def stored(expression: str, dtype: np.dtype[Any], target: Write) -> str:
    """Return the bits that a register gets of a result of its own type."""
    if dtype.kind == "f" and dtype.itemsize > 2:
        return f"bits{dtype.itemsize * 8}({expression})"
    own = f"({c_type(dtype)})({expression})"
    if dtype.kind == "b" or target.widen is None:
        return f"({storage(dtype)}){own}"
    return f"({storage(target.widen)})({c_type(target.widen)}){own}"


_OF_BLOCK = ("%ntid", "%ctaid", "%nctaid", "%nwarpid", "%dynamic_smem_size", "%total_smem_size")


def _uniform(kernel: Kernel) -> dict[int, Compute]:
    """Find registers that one unguarded step writes, from nothing but what a whole block shares."""
    writers: dict[int, list[Step]] = {}
    for block in kernel.blocks:
        for step in block.all_steps:
            for target in step.targets:
                if target is not None:
                    writers.setdefault(target.register, []).append(step)
    specials = {r for r, name in kernel.specials.items() if name.startswith(_OF_BLOCK)}
    known = {*kernel.constants, *kernel.arguments, *specials}
    found: dict[int, Compute] = {}
    for block in sorted(kernel.blocks, key=lambda b: b.rank):
        for step in block.steps:
            if not isinstance(step, Compute) or step.guard is not None or len(step.targets) != 1:
                continue
            target = step.targets[0]
            if target is None or len(writers[target.register]) > 1 or kernel.blocks[0].live >> target.register & 1:
                continue
            if all(read.register in known for read in step.sources):
                found[target.register] = step
                known.add(target.register)
    return found


def _constant(value: Any) -> str:
    bits = int.from_bytes(value.tobytes(), "little")
    if value.dtype.itemsize < 8:
        return f"{bits:#x}u"
    variable = variable_at(bits)
    return f"{bits:#x}ull" if variable is None else f"(variables[{variable[0]}] + {variable[1] & (2**64 - 1):#x}ull)"


def _special(name: str) -> str:
    assert name in SPECIALS
    stem, _, axis = name.lstrip("%").partition(".")
    if axis:
        place = _AXES[axis]
        return {
            "tid": f"w->common.tid[{place}][l]",
            "ntid": f"k->launch->block[{place}]",
            "ctaid": f"k->ctaid[{place}]",
            "nctaid": f"k->launch->grid[{place}]",
        }[stem]
    return {
        "laneid": "(uint32_t)l",
        "warpid": "w->common.number",
        "nwarpid": "warps_of(k)",
        "dynamic_smem_size": "k->launch->dynamic_shared_bytes",
        "total_smem_size": "(STATIC_SHARED_ASKED + k->launch->dynamic_shared_bytes)",
        "lanemask_eq": "(1u << l)",
        "lanemask_lt": "((1u << l) - 1)",
        "lanemask_le": "((2u << l) - 1)",
        "lanemask_gt": "~((2u << l) - 1)",
        "lanemask_ge": "~((1u << l) - 1)",
    }[stem]


def live_registers(kernel: Kernel) -> int:
    """Estimate the 32-bit registers that a thread needs: the most that are alive at once between blocks, and a few."""
    words = {r: 2 if kind == "uint64_t" else 0 for r, kind in Registers.of(kernel).storage.items()}
    most = max(
        (sum(words[r] or 1 for r in words if block.live >> r & 1) for block in kernel.blocks),
        default=0,
    )
    return min(255, 16 + most)
