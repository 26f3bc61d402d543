"""Make a compiled module ready to run: its kernels by name, its variables in memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np

from pytest_bandwidth.domain.code.kernel_signature import source_name
from pytest_bandwidth.domain.errors import KernelError, NotOnThisDevice
from pytest_bandwidth.features.traffic.ptx.decode import decode
from pytest_bandwidth.features.traffic.ptx.lanes import Array
from pytest_bandwidth.features.traffic.ptx.memory import FIRST_VARIABLE_REGION, Region, RegionKind, region_base
from pytest_bandwidth.features.traffic.ptx.nvrtc import PtxModule
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES
from pytest_bandwidth.features.traffic.ptx.operands import element_bytes, parameters_of
from pytest_bandwidth.features.traffic.ptx.parsing import Number, Variable, parse_ptx
from pytest_bandwidth.features.traffic.ptx.program import Kernel, Parameter, Symbol, readable_name


class Program:
    """Hold a module that is ready to run; kernels are decoded when first asked for.

    kernels: parameters of each kernel by its name in the PTX. variables: regions of __device__ and __constant__
    variables, which keep their values from launch to launch.
    Raises KernelError for PTX that it cannot read.
    """

    def __init__(self, compiled: PtxModule) -> None:
        self.compiled = compiled
        self._module = parse_ptx(compiled.ptx)
        self._functions = {f.name: f for f in self._module.functions if f.is_entry and f.is_defined}
        self.kernels: Mapping[str, tuple[Parameter, ...]] = {n: parameters_of(f) for n, f in self._functions.items()}
        self.variables = tuple(_regions(self._module.variables))
        self._symbols = {
            name: Symbol(name, "global" if region.writable else "const", region_base(region.number), region.nbytes)
            for name, region in zip((v.name for v in _placed(self._module.variables)), self.variables, strict=True)
        }
        self._decoded: dict[str, Kernel] = {}

    def renewed(self) -> Program:
        """Return the same program with its variables as when loaded; what was parsed and decoded is shared."""
        twin = copy(self)
        twin.variables = tuple(_regions(self._module.variables))
        return twin

    def resolve(self, name: str) -> str:
        """Return a kernel's PTX name from that name, its C++ name, or a name expression. Raises KernelError, listing
        what there is.
        """
        name = self.compiled.lowered.get(name, name)
        if name in self.kernels:
            return name
        alike = [mangled for mangled in self.kernels if source_name(mangled) == name]
        if len(alike) == 1:
            return alike[0]
        known = ", ".join(sorted(source_name(mangled) for mangled in self.kernels)) or "none"
        found = "several kernels" if alike else "no kernel"
        # The compiler keeps a template's instances only.
        is_written = re.search(rf"__global__[^;{{}}]*\b{re.escape(name)}\s*\(", self.compiled.source)
        hint = f"; a template needs its arguments, as in {name}<float>" if is_written and not alike else ""
        raise KernelError(f"{self.compiled.filename} has {found} named {name!r}; it has: {known}{hint}")

    def kernel(self, name: str) -> Kernel:
        """Decode a kernel. Raises KernelError for unknown names, NotOnThisDevice for opcodes that are not modelled."""
        resolved = self.resolve(name)
        if resolved not in self._decoded:
            main = self.compiled.filename.rsplit("/", 1)[-1]
            self._decoded[resolved] = decode(self._module, self._functions[resolved], self._symbols, main)
        return self._decoded[resolved]


def _placed(variables: tuple[Variable, ...]) -> list[Variable]:
    return [variable for variable in variables if variable.space in ("global", "const")]


def _regions(variables: tuple[Variable, ...]) -> list[Region]:
    regions = []
    for number, variable in enumerate(_placed(variables), FIRST_VARIABLE_REGION):
        size = element_bytes(variable.type) * (variable.count or 0)
        data = np.zeros((1, -(-size // 16) * 16), np.uint8)
        values = _initial_bytes(variable)
        data[0, : len(values)] = values
        kind: RegionKind = "const" if variable.space == "const" else "global"
        region = Region(readable_name(variable.name), kind, number, data[:, :size], writable=kind == "global")
        regions.append(region)
    return regions


def _initial_bytes(variable: Variable) -> Array:
    dtype = DTYPES[variable.type]
    if any(isinstance(value, str) for value in variable.initial):
        raise NotOnThisDevice(f"variable {variable.name} holds an address, which the traffic device does not model")
    unsigned = np.dtype(f"u{dtype.itemsize}")
    out = np.zeros(len(variable.initial), unsigned)
    for place, item in enumerate(variable.initial):
        assert isinstance(item, Number)
        value: Any = item.value
        if isinstance(value, float):
            out[place] = np.array(value, dtype).view(unsigned)
        else:
            out[place] = int(value) & ((1 << (dtype.itemsize * 8)) - 1)
    return out.view(np.uint8)
