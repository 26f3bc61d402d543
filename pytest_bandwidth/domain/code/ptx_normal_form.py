"""Bring one kernel's PTX into a normal form: a module of its own that can be compiled, named by its hash.

What does not change what is computed is left out: comments, source lines, debug information, other kernels and what
only they use, and what `assert` and `printf` only say. What compilers number or name by the whole file is numbered
anew: labels, registers, strings, and names that hold a hash of the file (static ones, and those in unnamed namespaces).
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_bandwidth.domain.code.identity import digest

# What the device's runtime brings, and which of its parameters are texts, and a line.
_TEXTS = {"__assertfail": (0, 1, 3), "vprintf": (0,)}
_LINES = {"__assertfail": 2}
WORD = re.compile(r"[%$A-Za-z_][\w$]*", re.ASCII)
_CALL = re.compile(r"\bcall(?:\.uni)?\s+(?:\([^()]*\)\s*,\s*)?(__assertfail|vprintf)\s*,\s*\(([^()]*)\)\s*;", re.ASCII)
_BRACE = re.compile(r"[{}]")
_STORE = re.compile(r"\bst\.param\.\w+\s+\[\s*([\w$]+)\s*(?:\+\s*0\s*)?\]\s*,\s*(%\w+|\d+)\s*;", re.ASCII)
_ADDRESS = re.compile(r"\bcvta\.global\.u64\s+(%\w+)\s*,\s*(%\w+)\s*;", re.ASCII)
_MOVE = re.compile(r"\bmov\.[bu](?:32|64)\s+(%\w+)\s*,\s*([%$A-Za-z_][\w$]*|\d+)\s*;", re.ASCII)
# As NVIDIA's compilers name the texts in a source, and their definition, which nothing outside the module can see.
OF_TEXT = re.compile(r"(?:\$str(?:\$\d+)?|__unnamed_\d+)", re.ASCII)
_DEFINITION = re.compile(r"(\.global\s+\.align\s+1\s+\.b8\s+[\w$]+)\s*\[\d+\]\s*=\s*\{[\d,\s]*\}\s*;", re.ASCII)
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
class Said:
    """Hold what is only said: the names of texts, and numbers of lines."""

    texts: frozenset[str] = frozenset()
    lines: frozenset[int] = frozenset()


NOTHING_SAID = Said()


def without_texts(parts: Mapping[str, tuple[str, ...]]) -> tuple[Mapping[str, tuple[str, ...]], Said]:
    """Return a module's functions and variables, by name, without texts and lines of `assert` and `printf`; and these.

    parts: the same with them.
    """
    known = {name for name in _TEXTS if name in parts and not any("{" in part for part in parts[name])}
    if not known:
        return parts, NOTHING_SAID
    found = {name: [_PtxBody(text, known) for text in texts] for name, texts in parts.items()}
    said: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for name, bodies in found.items():
        for body in bodies:
            said.update(body.texts)
            used.update({word: count for word, count in body.words.items() if word != name})
    only_said: set[str] = set()
    for name, count in said.items():
        own = parts.get(name, ())
        if used[name] == count and OF_TEXT.fullmatch(name) and len(own) == 1 and _DEFINITION.fullmatch(own[0]):
            only_said.add(name)
    written = {
        name: (_DEFINITION.sub(r"\1[1] = {0};", parts[name][0]),)
        if name in only_said
        else tuple(body.without_lines for body in bodies)
        for name, bodies in found.items()
    }
    lines = frozenset(line for bodies in found.values() for body in bodies for line in body.lines)
    return written, Said(frozenset(only_said), lines)


class _PtxBody:
    """Look through a function, or a variable, for what is handed to such calls and goes nowhere else.

    words: how often each name occurs. texts: how often a name's address is taken for such calls alone. lines: the
    numbers that were left out of `without_lines`.
    """

    def __init__(self, text: str, known: Collection[str]) -> None:
        self.words = Counter(WORD.findall(text))
        self.texts: Counter[str] = Counter()
        self.lines: set[int] = set()
        self.without_lines = text
        handed = list(_handed(text, known))
        if not handed:
            return
        moves = {match[1]: match for match in _MOVE.finditer(text)}
        addresses = {match[1]: match[2] for match in _ADDRESS.finditer(text)}
        # Registers that are set once, and handed to such calls alone.
        times = Counter(value for value, _, _ in handed)
        lone = {value for value, count in times.items() if self.words[value] == count + 1}
        numbers: dict[int, str] = {}
        for value, start, is_line in handed:
            move = moves.get(value) if value in lone else None
            if is_line and value.isdigit():
                numbers[start] = value
            elif is_line and move is not None and move[2].isdigit():
                numbers[move.start(2)] = move[2]
        for register in lone & addresses.keys():
            source = addresses[register]
            if self.words[source] == 2 and source in moves:
                self.texts[moves[source][2]] += 1
        self.lines = set(map(int, numbers.values()))
        for start, number in sorted(numbers.items(), reverse=True):
            self.without_lines = f"{self.without_lines[:start]}0{self.without_lines[start + len(number) :]}"


def _handed(text: str, known: Collection[str]) -> Iterator[tuple[str, int, bool]]:
    """Yield what calls are handed as a text, or as a line; where that is written; and whether it is a line."""
    for call in _CALL.finditer(text):
        if call[1] not in known:
            continue
        # The call's parameters are variables of the innermost block, each of which is stored to once.
        start = max(text.rfind("{", 0, call.start()), text.rfind("}", 0, call.start()))
        end = _BRACE.search(text, call.end())
        if start < 0 or text[start] != "{" or end is None or end[0] != "}":
            continue
        stores = list(_STORE.finditer(text, start, call.start()))
        for number, name in enumerate(call[2].split(",")):
            own = [match for match in stores if match[1] == name.strip()]
            is_line = number == _LINES.get(call[1])
            if len(own) == 1 and (is_line or number in _TEXTS[call[1]]):
                yield own[0][2], own[0].start(2), is_line


@dataclass(frozen=True, slots=True)
class PtxNormalForm:
    """Hold a normal form. data: the definitions of the variables in it; said: what it leaves out as only said."""

    text: str
    data: tuple[str, ...]
    said: Said


def normal_form(ptx: str, kernel: str) -> PtxNormalForm | None:
    """Return the module of `kernel` alone, by its PTX name; None where the text has no such kernel."""
    headers, by_name, _ = _divided(ptx)
    if not any(item.is_code and item.text.endswith("}") for item in by_name.get(kernel, ())):
        return None
    return _module(headers, by_name, _needed(by_name, kernel))


def normal_form_of_all(ptx: str) -> PtxNormalForm | None:
    """Return the module of all that the text has; None where it holds what is no function, nor a variable."""
    headers, by_name, is_whole = _divided(ptx)
    return _module(headers, by_name, list(by_name)) if headers and is_whole else None


def _module(headers: Mapping[str, str], by_name: Mapping[str, Sequence[_Item]], needed: Sequence[str]) -> PtxNormalForm:
    # Other names for those that hold a number or a hash of the file.
    names: dict[str, str] = {}
    for name in needed:
        if name.startswith("$") or OF_TEXT.fullmatch(name):
            names[name] = f"$data_{len(names)}"
        elif (lasting := without_file(name)) != name:
            names[name] = lasting if lasting not in names.values() else f"{lasting}_{len(names)}"
    header = [headers[name] for name in ("version", "target", "address_size") if name in headers]
    parts, said = without_texts({name: tuple(item.text for item in by_name[name]) for name in needed})
    written = [
        (item, item.written(text, names))
        for name in needed
        for item, text in zip(by_name[name], parts[name], strict=True)
    ]
    declared = [part for item, part in written if item.is_code and not part.endswith("}")]
    data = [part for item, part in written if not item.is_code]
    defined = [part for item, part in written if item.is_code and part.endswith("}")]
    return PtxNormalForm("\n".join([*header, *declared, *data, *defined, ""]), tuple(data), said)


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
    for item in found:
        by_name.setdefault(item.name, []).append(item)
    return headers, by_name, "".join("".join(item.text for item in found).split()) == "".join(rest.split())


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


def _items(text: str) -> Iterator[_Item]:
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
            yield _Item(function[1], item, is_code=True)
            continue
        variable = _VARIABLE.search(item.removesuffix(";").partition("=")[0].strip())
        if variable is not None:
            yield _Item(variable[1], item, is_code=False)


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


def without_file(name: str) -> str:
    """Take out of a name what tells of its file."""
    at = 0
    while (match := _OF_FILE.search(name, at)) is not None:
        skipped = match.end(1) + int(match[1]) + (match[2] == "_")
        name = f"{name[: match.start()]}{match[2]}{name[skipped:]}"
        at = match.start() + len(match[2])
    return name


def _renamed(text: str, names: Mapping[str, str]) -> str:
    if not names:
        return text

    def renamed(match: re.Match[str]) -> str:
        function, parameter, number = match[0].rpartition("_param_")  # of a function's parameter
        return f"{names.get(function, function)}{parameter}{number}" if parameter else names.get(match[0], match[0])

    # Of the words of a kernel a few are such.
    words = _DOLLAR_WORD if all(name.startswith("$") for name in names) else WORD
    return words.sub(renamed, text)


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
