"""Bring one kernel's PTX into a normal form: a module of its own that can be compiled, named by its hash.

What does not change what is computed is left out: comments, source lines, debug information, other kernels and what
only they use, and what `assert` and `printf` only say. What compilers number or name by the whole file is numbered
anew: labels, registers, strings, and names that hold a hash of the file (static ones, and those in unnamed namespaces).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_bandwidth.domain.code.identity import digest
from pytest_bandwidth.domain.code.ptx_texts import OF_TEXT, WORD, Said, without_texts

# Returns the module in normal form of a hash (`ptx_digest`), or raises BandwidthError where it is not to be had.
PtxSource = Callable[[str], str]
FILES_KEPT = 8
# A text in quotes; compilers put a backslash before a quote in a file's path.
_STRING = r'"(?:[^"\\\n]|\\[^\n])*"'
_VERSION = re.compile(r"\.version \d{1,3}\.\d{1,3}", re.ASCII)
# What stands between an item and the next, at the top of a module or in a function: braces and the end of a statement.
_MARKS = re.compile(rf"{_STRING}|[{{}};]")
_COMMENT = re.compile(rf"({_STRING})|//[^\n]*|/\*.*?\*/", re.DOTALL)
# Lines that end without a semicolon, at the top of a module.
_HEADER = re.compile(r"^[ \t]*\.(version|target|address_size)\b[^\n]*$", re.MULTILINE)
_OF_FILES = re.compile(r"^[ \t]*(?:\.file\b|\.loc\b|@@DWARF\b)[^\n]*$", re.MULTILINE)
_SECTION = re.compile(r"^[ \t]*\.section\b[^{]*\{[^}]*\}", re.MULTILINE)
# As compilers name labels, and strings.
_DOLLAR_WORD = re.compile(r"(?<![%\w$])\$[\w$]*", re.ASCII)
_FUNCTION = re.compile(r"\.(?:entry|func)\b\s*(?:\([^)]*\)\s*)?([%$A-Za-z_][\w$]*)", re.ASCII)
_VARIABLE = re.compile(r"([%$A-Za-z_][\w$]*)\s*(?:\[[^\]]*\]\s*)*(?:=|$)", re.ASCII)
_REGISTERS = re.compile(r"(\.reg\s+\.\w+\s+)%([A-Za-z_]+)<\d+>")
_LABEL = re.compile(r"(?:^|(?<=[;{}:]))\s*([%$A-Za-z_][\w$]*)\s*:(?!:)", re.MULTILINE | re.ASCII)
_DEPOT = re.compile(r"__local_depot\d+")
# `39_INTERNAL_00000000_9_kernel_cu_2f1254c8`: the length of what follows, a hash, the length of the file's name, that
# name, and another hash or a name from the file. `__nv_static_29__3951c593_9_kernel_cu_weights_` is of what is linked.
_OF_FILE = re.compile(r"(\d{1,5})(_INTERNAL_|_GLOBAL__N_|(?<=__nv_static_\d\d)_)_?[0-9a-f]{8}_\d+_", re.ASCII)
_NUMBERED = re.compile(r"%([A-Za-z_]+)(\d+)\b", re.ASCII)


@dataclass(frozen=True, slots=True)
class PtxModule:
    """Hold a normal form. data: the definitions of the variables in it; said: what it leaves out as only said."""

    text: str
    data: tuple[str, ...]
    said: Said


def normal_form(ptx: str, kernel: str) -> PtxModule | None:
    """Return the module of `kernel` alone, by its PTX name; None where the text has no such kernel."""
    headers, by_name, _ = _divided(ptx)
    if not any(item.is_code and item.text.endswith("}") for item in by_name.get(kernel, ())):
        return None
    return _module(headers, by_name, _needed(by_name, kernel))


def normal_form_of_all(ptx: str) -> PtxModule | None:
    """Return the module of all that the text has; None where it holds what is no function, nor a variable."""
    headers, by_name, is_whole = _divided(ptx)
    return _module(headers, by_name, list(by_name)) if headers and is_whole else None


def _module(headers: Mapping[str, str], by_name: Mapping[str, Sequence[_Item]], needed: Sequence[str]) -> PtxModule:
    names = _new_names(needed)
    header = [headers[name] for name in ("version", "target", "address_size") if name in headers]
    plain = without_texts({name: tuple(item.text for item in by_name[name]) for name in needed})
    written = [
        (item, item.written(text, names))
        for name in needed
        for item, text in zip(by_name[name], plain.parts[name], strict=True)
    ]
    declared = [part for item, part in written if item.is_code and not part.endswith("}")]
    data = [part for item, part in written if not item.is_code]
    defined = [part for item, part in written if item.is_code and part.endswith("}")]
    return PtxModule("\n".join([*header, *declared, *data, *defined, ""]), tuple(data), plain.said)


def is_same_but_for_target(one: str, other: str) -> bool:
    """Return whether two normal forms hold the same instructions, for whatever architecture each was compiled."""
    return _HEADER.sub("", one) == _HEADER.sub("", other)


@functools.lru_cache(FILES_KEPT)
def _divided(ptx: str) -> tuple[Mapping[str, str], Mapping[str, Sequence[_Item]], bool]:
    """Return a module's header lines, its items by name, and whether that is all of it.

    Cached, since most tests share a file of kernels.
    """
    text = _SECTION.sub("", _OF_FILES.sub("", _COMMENT.sub(lambda match: match[1] or " ", ptx)))
    headers = {match[1]: " ".join(match[0].split()) for match in _HEADER.finditer(text)}
    by_name: dict[str, list[_Item]] = {}
    rest = _HEADER.sub("", text)
    found = list(_items(rest))
    for name, part, is_code in found:
        by_name.setdefault(name, []).append(_Item(name, part, is_code))
    return headers, by_name, _squeezed(part for _, part, _ in found) == _squeezed([rest])


def _squeezed(parts: Iterable[str]) -> str:
    return "".join("".join(part.split()) for part in parts)


def ptx_digest(text: str) -> str:
    """Return the hash of a module in normal form, without a first line that holds the language's version alone."""
    first, _, rest = text.partition("\n")
    return digest(rest if _VERSION.fullmatch(first) else text)


@dataclass(frozen=True, slots=True)
class _Item:
    """Hold a function or a variable of a module, or its declaration."""

    name: str
    text: str
    is_code: bool

    def written(self, text: str, names: Mapping[str, str]) -> str:
        """Return its text, or what is left of that, with other names and white space."""
        text = _renamed(_with_own_names(text) if self.is_code else text, names)
        return "\n".join(" ".join(line.split()) for line in text.split("\n") if line.strip())


def _items(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield name, text and whether it is a function of each item at the top of a module."""
    start, depth = 0, 0
    for mark in _MARKS.finditer(text):
        depth += {"{": 1, "}": -1}.get(mark[0], 0)
        if depth or mark[0] not in ("}", ";"):
            continue
        item = text[start : mark.end()].strip()
        function = _FUNCTION.search(item.partition("{")[0])
        if mark[0] == "}" and function is None:  # an initialiser: the statement goes on
            continue
        start = mark.end()
        if function is not None:
            yield function[1], item, True
            continue
        variable = _VARIABLE.search(item.removesuffix(";").partition("=")[0].strip())
        if variable is not None:
            yield variable[1], item, False


def _needed(by_name: Mapping[str, Sequence[_Item]], kernel: str) -> list[str]:
    """Return the names that the kernel uses, itself included, each after those that it uses."""
    found: list[str] = []
    seen = {kernel}
    stack: list[tuple[str, Iterator[str]]] = [(kernel, _uses(by_name, kernel))]
    while stack:
        name, uses = stack[-1]
        used = next((other for other in uses if other not in seen), None)
        if used is None:
            found.append(name)
            stack.pop()
        else:
            seen.add(used)
            stack.append((used, _uses(by_name, used)))
    return found


def _uses(by_name: Mapping[str, Sequence[_Item]], name: str) -> Iterator[str]:
    words = dict.fromkeys(word for item in by_name[name] for word in dict.fromkeys(WORD.findall(item.text)))
    return (word for word in words if word in by_name)


def _new_names(needed: Sequence[str]) -> dict[str, str]:
    """Return other names for those that hold a number or a hash of the file."""
    names: dict[str, str] = {}
    for name in needed:
        if name.startswith("$") or OF_TEXT.fullmatch(name):
            names[name] = f"$data_{len(names)}"
        elif (lasting := without_file(name)) != name:
            names[name] = lasting if lasting not in names.values() else f"{lasting}_{len(names)}"
    return names


def without_file(name: str) -> str:
    """Take out of a name what tells of its file."""
    at = 0
    while (match := _OF_FILE.search(name, at)) is not None:
        skipped = match.end(1) + int(match[1]) + (match[2] == "_")
        name = f"{name[: match.start()]}{match[2]}{name[skipped:]}"
        at = match.start() + len(match[2])
    return name


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Put other words in the place of some."""
    if not names:
        return text
    # Of the words of a kernel a few are such.
    words = _DOLLAR_WORD if all(name.startswith("$") for name in names) else WORD
    return words.sub(lambda match: _new_name(match[0], names), text)


def _new_name(word: str, names: Mapping[str, str]) -> str:
    """Return a name, or that of a function's parameter, as it is to be."""
    function, parameter, number = word.rpartition("_param_")
    return f"{names.get(function, function)}{parameter}{number}" if parameter else names.get(word, word)


def _with_own_names(text: str) -> str:
    """Number a function's labels and registers in the order of their appearance."""
    head, brace, body = text.partition("{")
    if not brace:
        return text
    labels = {label: f"$L{number}" for number, label in enumerate(dict.fromkeys(_LABEL.findall(body)))}
    body = _DEPOT.sub("__local_depot", body)
    body = _renamed(body, labels)
    declared = [match[2] for match in _REGISTERS.finditer(body)]
    # Where inner blocks declare registers of the same name, which is meant depends on the place.
    numbers: dict[str, dict[str, int]] = {name: {} for name in declared if declared.count(name) == 1}

    def numbered(match: re.Match[str]) -> str:
        of_name = numbers.get(match[1])
        if of_name is None:
            return match[0]
        return f"%{match[1]}{of_name.setdefault(match[2], len(of_name) + 1)}"

    def counted(match: re.Match[str]) -> str:
        of_name = numbers.get(match[2])
        return match[0] if of_name is None else f"{match[1]}%{match[2]}<{len(of_name) + 1}>"

    body = _NUMBERED.sub(numbered, body)
    return head + brace + _REGISTERS.sub(counted, body)
