"""Leave out of PTX what `assert` and `printf` only say: texts, and the numbers of lines.

They change where a comment is added above, or the file is moved. What is left out is proven to go nowhere else: a
constant that is stored into the call's parameter, and a text whose address is used for nothing but such calls.
Anything else (``__LINE__`` in a sum, ``__FILE__`` as an argument of `printf`) stays as it is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

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


@dataclass(frozen=True, slots=True)
class Said:
    """Hold what is only said: the names of texts, and numbers of lines."""

    texts: frozenset[str] = frozenset()
    lines: frozenset[int] = frozenset()


NOTHING_SAID = Said()


@dataclass(frozen=True, slots=True)
class WithoutTexts:
    """Hold the parts of a module, by name, without what is only said, and that."""

    parts: Mapping[str, tuple[str, ...]]
    said: Said


def without_texts(parts: Mapping[str, tuple[str, ...]]) -> WithoutTexts:
    """Return a module's functions and variables, by name, without texts and lines of `assert` and `printf`."""
    known = {name for name in _TEXTS if name in parts and not any("{" in part for part in parts[name])}
    if not known:
        return WithoutTexts(parts, NOTHING_SAID)
    found = {name: [_Body(text, known) for text in texts] for name, texts in parts.items()}
    said: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for name, bodies in found.items():
        for body in bodies:
            said.update(body.texts)
            used.update({word: count for word, count in body.words.items() if word != name})
    only_said = {name for name, count in said.items() if used[name] == count and _is_text(name, parts.get(name, ()))}
    written = {
        name: (_DEFINITION.sub(r"\1[1] = {0};", parts[name][0]),)
        if name in only_said
        else tuple(body.without_lines for body in bodies)
        for name, bodies in found.items()
    }
    lines = frozenset(line for bodies in found.values() for body in bodies for line in body.lines)
    return WithoutTexts(written, Said(frozenset(only_said), lines))


def _is_text(name: str, definitions: tuple[str, ...]) -> bool:
    return len(definitions) == 1 and OF_TEXT.fullmatch(name) is not None and bool(_DEFINITION.fullmatch(definitions[0]))


class _Body:
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
        times = Counter(one.value for one in handed)
        lone = {value for value, count in times.items() if self.words[value] == count + 1}
        numbers: dict[int, str] = {}
        for one in handed:
            move = moves.get(one.value) if one.value in lone else None
            if one.is_line and one.value.isdigit():
                numbers[one.start] = one.value
            elif one.is_line and move is not None and move[2].isdigit():
                numbers[move.start(2)] = move[2]
        for register in lone & addresses.keys():
            source = addresses[register]
            if self.words[source] == 2 and source in moves:
                self.texts[moves[source][2]] += 1
        self.lines = set(map(int, numbers.values()))
        for start, number in sorted(numbers.items(), reverse=True):
            self.without_lines = f"{self.without_lines[:start]}0{self.without_lines[start + len(number) :]}"


class _Handed(NamedTuple):
    """Hold what a call is handed as a text, or as a line, and where that is written."""

    value: str
    start: int
    is_line: bool


def _handed(text: str, known: Collection[str]) -> Iterator[_Handed]:
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
                yield _Handed(own[0][2], own[0].start(2), is_line)
