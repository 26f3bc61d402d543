"""Convert one kernel's PTX to a normal form: a module of its own that can be compiled, named by its hash.

Comments, source lines, debug information and code that the kernel does not use are left out. So are texts and line
numbers that `assert` and `printf` only print. Names that depend on the whole file are numbered anew: labels, registers,
strings, static names, and names in unnamed namespaces.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_bandwidth.domain.code.identity import digest

# Functions of the device's runtime: which of their parameters are texts, and which is a line number.
_TEXTS = {"__assertfail": (0, 1, 3), "vprintf": (0,)}
_LINES = {"__assertfail": 2}
WORD = re.compile(r"[%$A-Za-z_][\w$]*", re.ASCII)
_CALL = re.compile(r"\bcall(?:\.uni)?\s+(?:\([^()]*\)\s*,\s*)?(__assertfail|vprintf)\s*,\s*\(([^()]*)\)\s*;", re.ASCII)
_BRACE = re.compile(r"[{}]")
_STORE = re.compile(r"\bst\.param\.\w+\s+\[\s*([\w$]+)\s*(?:\+\s*0\s*)?\]\s*,\s*(%\w+|\d+)\s*;", re.ASCII)
_ADDRESS = re.compile(r"\bcvta\.global\.u64\s+(%\w+)\s*,\s*(%\w+)\s*;", re.ASCII)
_MOVE = re.compile(r"\bmov\.[bu](?:32|64)\s+(%\w+)\s*,\s*([%$A-Za-z_][\w$]*|\d+)\s*;", re.ASCII)
# Names that NVIDIA's compilers give to the texts in a source, and their definition, which is local to the module.
OF_TEXT = re.compile(r"(?:\$str(?:\$\d+)?|__unnamed_\d+)", re.ASCII)
_DEFINITION = re.compile(r"(\.global\s+\.align\s+1\s+\.b8\s+[\w$]+)\s*\[\d+\]\s*=\s*\{[\d,\s]*\}\s*;", re.ASCII)
# Returns the module in normal form with a hash (`ptx_digest`), or raises BandwidthError where it is not available.
PtxSource = Callable[[str], str]
FILES_KEPT = 8
# A text in quotes; compilers put a backslash before a quote in a file's path.
_STRING = r'"(?:[^"\\\n]|\\[^\n])*"'
_VERSION = re.compile(r"\.version \d{1,3}\.\d{1,3}", re.ASCII)
# What separates two items, at the top of a module or in a function: braces and the end of a statement.
_MARKS = re.compile(rf"{_STRING}|[{{}};]")
_COMMENT = re.compile(rf"({_STRING})|//[^\n]*|/\*.*?\*/", re.DOTALL)
# Lines that end without a semicolon, at the top of a module.
_HEADER = re.compile(r"^[ \t]*\.(version|target|address_size)\b[^\n]*$", re.MULTILINE)
_OF_FILES = re.compile(r"^[ \t]*(?:\.file\b|\.loc\b|@@DWARF\b)[^\n]*$", re.MULTILINE)
_SECTION = re.compile(r"^[ \t]*\.section\b[^{]*\{[^}]*\}", re.MULTILINE)
# Names that compilers give to labels and strings.
_DOLLAR_WORD = re.compile(r"(?<![%\w$])\$[\w$]*", re.ASCII)
_FUNCTION = re.compile(r"\.(?:entry|func)\b\s*(?:\([^)]*\)\s*)?([%$A-Za-z_][\w$]*)", re.ASCII)
_VARIABLE = re.compile(r"([%$A-Za-z_][\w$]*)\s*(?:\[[^\]]*\]\s*)*(?:=|$)", re.ASCII)
_REGISTERS = re.compile(r"(\.reg\s+\.\w+\s+)%([A-Za-z_]+)<\d+>")
_LABEL = re.compile(r"(?:^|(?<=[;{}:]))\s*([%$A-Za-z_][\w$]*)\s*:(?!:)", re.MULTILINE | re.ASCII)
_DEPOT = re.compile(r"__local_depot\d+")
# `39_INTERNAL_00000000_9_kernel_cu_2f1254c8`: the length of the rest, a hash, the length of the file's name, that
# name, and another hash or a name from the file. `__nv_static_29__3951c593_9_kernel_cu_weights_` is one of linked code.
_OF_FILE = re.compile(r"(\d{1,5})(_INTERNAL_|_GLOBAL__N_|(?<=__nv_static_\d\d)_)_?[0-9a-f]{8}_\d+_", re.ASCII)
_NUMBERED = re.compile(r"%([A-Za-z_]+)(\d+)\b", re.ASCII)


@dataclass(frozen=True, slots=True)
class OnlyPrinted:
    """Hold what `assert` and `printf` only print: the names of texts, and line numbers."""

    texts: frozenset[str] = frozenset()
    lines: frozenset[int] = frozenset()


NOTHING_PRINTED = OnlyPrinted()


def without_texts(parts: Mapping[str, tuple[str, ...]]) -> tuple[Mapping[str, tuple[str, ...]], OnlyPrinted]:
    """Remove the texts and lines of `assert` and `printf` from a module; return the rest, and what was removed.

    parts: the module's functions and variables, by name.
    """
    known = {name for name in _TEXTS if name in parts and not any("{" in part for part in parts[name])}
    if not known:
        return parts, NOTHING_PRINTED
    found = {name: [_PtxBody(text, known) for text in texts] for name, texts in parts.items()}
    as_texts: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for name, bodies in found.items():
        for body in bodies:
            as_texts.update(body.texts)
            used.update({word: count for word, count in body.words.items() if word != name})
    only_printed: set[str] = set()
    for name, count in as_texts.items():
        own = parts.get(name, ())
        if used[name] == count and OF_TEXT.fullmatch(name) and len(own) == 1 and _DEFINITION.fullmatch(own[0]):
            only_printed.add(name)
    written = {
        name: (_DEFINITION.sub(r"\1[1] = {0};", parts[name][0]),)
        if name in only_printed
        else tuple(body.without_lines for body in bodies)
        for name, bodies in found.items()
    }
    lines = frozenset(line for bodies in found.values() for body in bodies for line in body.lines)
    return written, OnlyPrinted(frozenset(only_printed), lines)


class _PtxBody:
    """Find in a function or variable the values that are only passed to calls of `assert` and `printf`.

    words: how often each name occurs. texts: how often a name's address is taken only for such calls. lines: the
    numbers that `without_lines` leaves out.
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
        # Registers that are set once, and only passed to such calls.
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
    """Yield each text or line that is passed to calls, its position in the code, and whether it is a line."""
    for call in _CALL.finditer(text):
        if call[1] not in known:
            continue
        # The call's parameters are variables of the innermost block; each is stored to once.
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
    """Hold a normal form. data: the definitions of its variables; only_printed: texts and lines that it leaves out."""

    text: str
    data: tuple[str, ...]
    only_printed: OnlyPrinted


def normal_form(ptx: str, kernel: str) -> PtxNormalForm | None:
    """Return the module with only `kernel`, by its PTX name; None where the text has no such kernel."""
    headers, by_name, _ = _divided(ptx)
    if not any(item.is_code and item.text.endswith("}") for item in by_name.get(kernel, ())):
        return None
    return _module(headers, by_name, _needed(by_name, kernel))


def normal_form_of_all(ptx: str) -> PtxNormalForm | None:
    """Return the normal form of the whole module; None where it holds anything but functions and variables."""
    headers, by_name, is_whole = _divided(ptx)
    return _module(headers, by_name, list(by_name)) if headers and is_whole else None


def _module(headers: Mapping[str, str], by_name: Mapping[str, Sequence[_Item]], needed: Sequence[str]) -> PtxNormalForm:
    # New names for those that hold a number or a hash of the file.
    names: dict[str, str] = {}
    for name in needed:
        if name.startswith("$") or OF_TEXT.fullmatch(name):
            names[name] = f"$data_{len(names)}"
        elif (lasting := without_file(name)) != name:
            names[name] = lasting if lasting not in names.values() else f"{lasting}_{len(names)}"
    header = [headers[name] for name in ("version", "target", "address_size") if name in headers]
    parts, removed = without_texts({name: tuple(item.text for item in by_name[name]) for name in needed})
    written = [
        (item, item.written(text, names))
        for name in needed
        for item, text in zip(by_name[name], parts[name], strict=True)
    ]
    declared = [part for item, part in written if item.is_code and not part.endswith("}")]
    data = [part for item, part in written if not item.is_code]
    defined = [part for item, part in written if item.is_code and part.endswith("}")]
    return PtxNormalForm("\n".join([*header, *declared, *data, *defined, ""]), tuple(data), removed)


def is_same_but_for_target(one: str, other: str) -> bool:
    """Return whether two normal forms hold the same instructions, even if for different architectures."""
    return _HEADER.sub("", one) == _HEADER.sub("", other)


@functools.lru_cache(FILES_KEPT)
def _divided(ptx: str) -> tuple[Mapping[str, str], Mapping[str, Sequence[_Item]], bool]:
    """Return a module's header lines, its items by name, and whether these are the whole module.

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
    """Return the hash of a module in normal form, without a first line that holds only the PTX version."""
    first, _, rest = text.partition("\n")
    return digest(rest if _VERSION.fullmatch(first) else text)


@dataclass(frozen=True, slots=True)
class _Item:
    """Hold a function or a variable of a module, or its declaration."""

    name: str
    text: str
    is_code: bool

    def written(self, text: str, names: Mapping[str, str]) -> str:
        """Return the item's text with new names and white space. text: its own, or what is left of that."""
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
    """Return the names that the kernel uses, itself included, each after the names that it uses."""
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
    """Remove from a name the parts that depend on its file."""
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

    # Few words of a kernel begin with a dollar sign.
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
    # Where inner blocks declare registers of the same name, the meaning of the name depends on the block.
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
