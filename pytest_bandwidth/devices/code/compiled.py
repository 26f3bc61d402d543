"""Find a kernel in code that is compiled already: PTX, a cubin, a fatbin container, a library or an object file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_bandwidth.devices.base import CompiledCode
from pytest_bandwidth.devices.code.cubin import CUDA, MAGIC, UNREADABLE, kernels_in, read_elf
from pytest_bandwidth.devices.code.fatbin import CONTAINER, MACHINE_CODE, PTX, SECTIONS, elements_of
from pytest_bandwidth.domain.code.kernel_signature import without_comments
from pytest_bandwidth.domain.errors import KernelError
from pytest_bandwidth.domain.text import listed, shown

# PTX names its version first, after comments.
_VERSION = re.compile(r"\s*\.version\s+\d", re.ASCII)
_TARGET = re.compile(r"^\s*\.target\s+sm_(\d{1,4})(a?)", re.MULTILINE | re.ASCII)
ENTRY = re.compile(r"\.entry\s+([%$A-Za-z_][\w$]*)", re.ASCII)
MOST_NAMES = 5
_LONGEST_NAME = 200


def is_ptx(text: str) -> bool:
    return ".version" in text and _VERSION.match(without_comments(text)) is not None


def is_binary(start: bytes) -> bool:
    """Return whether a file that starts so holds compiled code that is no text."""
    return start.startswith((MAGIC, CONTAINER))


def code_of_ptx(text: str) -> CompiledCode:
    target = _TARGET.search(text)
    arch, is_exact = (0, False) if target is None else (int(target[1]), bool(target[2]))
    return CompiledCode(text.encode(), arch, is_ptx=True, is_exact=is_exact)


def kernel_in(data: bytes | str, place: str, name: str | None) -> tuple[str, tuple[CompiledCode, ...]]:
    """Return a kernel's symbol, and all code that holds it. data: PTX's text, or a binary file; place: how to call it.

    name: its symbol; None for the only one. Raises KernelError, listing kernels that exist.
    """
    given = [code_of_ptx(data)] if isinstance(data, str) else codes_in(data)
    found = [(code, kernels_of_code(code)) for code in given]
    if not found:
        raise KernelError(f"{place} holds no CUDA kernels, expected PTX or machine code for NVIDIA's GPUs")
    names = sorted(set().union(*(names for _, names in found)))
    if name is None and len(names) == 1:
        name = names[0]
    codes = tuple(code for code, names in found if name in names)
    if name is not None and codes:
        return name, codes
    # Those that have the name in them come first, such as its mangled one.
    names.sort(key=lambda one: name is not None and name not in one)
    told = listed([one if len(one) <= _LONGEST_NAME else f"{one[:_LONGEST_NAME]}…" for one in names], MOST_NAMES)
    has = f"it has {told}" if names else "it has none"
    unread = any(code.arch < 0 for code, _ in found)
    hint = "; some of it cannot be unpacked: pip install backports.zstd" if unread else ""
    if name is None:
        raise KernelError(f"{place}: {has}{hint}: name the kernel that is meant")
    raise KernelError(f"{place} has no kernel {shown(name, _LONGEST_NAME)}, {has}{hint}")


def kernels_of_code(code: CompiledCode) -> frozenset[str]:
    """Return the symbols of the kernels in it."""
    if code.is_ptx:
        return frozenset(ENTRY.findall(without_comments(code.data.decode("utf-8", "replace"))))
    return kernels_in(code.data)


def for_architecture(codes: Sequence[CompiledCode], arch: int) -> list[CompiledCode]:
    """Return the codes that a GPU of that architecture runs, the driver's choice first: machine code, then PTX."""

    def runs(code: CompiledCode) -> bool:
        if code.is_exact:
            return code.arch == arch
        return code.arch <= arch and (code.is_ptx or code.arch == 0 or code.arch // 10 == arch // 10)

    return sorted(filter(runs, codes), key=lambda code: (code.is_ptx, -code.arch))


def codes_in(data: bytes) -> Iterator[CompiledCode]:
    """Yield the code in a binary file; what cannot be unpacked has an architecture below 0."""
    sections = [memoryview(data)]
    if not data.startswith(CONTAINER):
        try:
            elf = read_elf(data)
        except UNREADABLE:
            return
        if elf.machine == CUDA:
            yield CompiledCode(data, 0, is_ptx=False)
            return
        sections = [section.data for section in elf.sections if section.name in SECTIONS]
    for section in sections:
        for element in elements_of(section):
            if not element.is_known:
                yield CompiledCode(b"", -1, is_ptx=False)
            elif element.kind == PTX:
                text = element.data.partition(b"\0")[0].decode("utf-8", "replace")
                yield replace(code_of_ptx(text), arch=element.arch)
            elif element.kind == MACHINE_CODE:
                yield CompiledCode(element.data, element.arch, is_ptx=False)
