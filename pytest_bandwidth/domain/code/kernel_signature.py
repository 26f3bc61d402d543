"""Find in a CUDA source what its PTX lacks: the names of a kernel's parameters, and the types of arrays."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$")
_POINTER_TO_ARRAY = re.compile(r"\(\s*[*&]\s*([A-Za-z_]\w*)\s*\)")
_QUALIFIERS = re.compile(r"\b(?:const|volatile|struct|typename|__restrict__|__restrict|restrict)\b|[()]")
_STORAGE = re.compile(r"\b(?:static|extern|inline|constexpr|__device__|__constant__|__managed__)\b")
_MANGLED = re.compile(r"^_Z(?:N.*?)?(\d+)(\w+)")


def without_comments(source: str) -> str:
    """Return C++ text with a blank in place of each comment."""
    return _COMMENT.sub(" ", source)


class SourceParameter(NamedTuple):
    """Describe one parameter of a kernel, as its source declares it. A field is "" where it is unknown.

    pointee: the type that a pointer points at: ``const float* x`` → ``float``. held: the type of any other parameter:
    ``const int n`` → ``int``.
    """

    name: str
    pointee: str = ""
    held: str = ""


@functools.lru_cache(256)
def lacks_initialiser(source: str, variable: str) -> bool:
    """Return whether the source declares a __constant__ variable without a value, which PTX writes as a zero."""
    declared = rf"__constant__[^;={{}}()]*\b{re.escape(variable)}\b\s*(?:\[[^\]]*\]\s*)*[;,]"
    return re.search(declared, without_comments(source[:1_000_000])) is not None


def type_of_variable(source: str, variable: str) -> str:
    """Return the type of a __constant__ or __device__ variable, or of an array's elements, as written: ``float``.

    Empty where the source does not declare it, or declares it with several types.
    """
    declared = rf"__(?:constant|device)__([^;={{}}()]*?)\b{re.escape(variable)}\b\s*(?:\[[^\]]*\]\s*)*[;,=({{]"
    kinds = set()
    for match in re.finditer(declared, without_comments(source[:1_000_000])):
        first, comma, _ = match[1].partition(",")
        kind = _LAST_NAME.sub("", first.strip()) if comma else first
        kinds.add(" ".join(_STORAGE.sub(" ", _QUALIFIERS.sub(" ", kind)).split()))
    return kinds.pop() if len(kinds) == 1 else ""


@functools.lru_cache(256)
def source_parameters(source: str, kernel: str, count: int) -> tuple[SourceParameter, ...]:
    """Return `kernel`'s `count` parameters; named ``argument 1`` … where the source does not define so many.

    kernel: its PTX name. Cached: launches repeat and sources are long.
    """
    text = without_comments(source[:1_000_000])
    for match in re.finditer(rf"\b{re.escape(source_name(kernel))}\s*\(", text):
        declared, end = _declared(text, match.end())
        if text[end : end + 200].lstrip()[:1] != "{":  # a declaration or a call
            continue
        parts = [part.split("=")[0].strip() for part in declared]
        names = [_POINTER_TO_ARRAY.search(part) or _LAST_NAME.search(part) for part in parts]
        if len(names) == count and all(names):
            return tuple(
                SourceParameter(name[1], *_types(part)) for name, part in zip(names, parts, strict=True) if name
            )
    return tuple(SourceParameter(f"argument {number}") for number in range(1, count + 1))


def _types(parameter: str) -> tuple[str, str]:
    """Return the type that a parameter points at, and its own type where it is not a pointer."""
    before, star, _ = parameter.partition("*")
    if not star:
        before, bracket, _ = parameter.partition("[")
        before = before.rstrip().rpartition(" ")[0] if bracket else ""
    own = "" if any(mark in parameter for mark in "*&[") else _LAST_NAME.sub("", parameter)
    pointee, held = (" ".join(_QUALIFIERS.sub(" ", one).split()) for one in (before, own))
    return pointee, held


def source_name(kernel: str) -> str:
    """Return a kernel's name as written: ``_Z5scaleIfEvPT_`` → ``scale`` (Itanium C++ ABI, §5.1)."""
    match = _MANGLED.match(kernel)
    return match[2][: int(match[1])] if match else kernel


def _declared(text: str, start: int) -> tuple[list[str], int]:
    """Split a parameter list at its top-level commas; return the parts and the index after the closing parenthesis."""
    parts, begin, depth, nested = [], start, 1, 0
    for place in range(start, min(len(text), start + 20_000)):
        character = text[place]
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            parts.append(text[begin:place])
            return [part for part in parts if part.strip()], place + 1
        nested += {"(": 1, "<": 1, "[": 1, ")": -1, ">": -1, "]": -1}.get(character, 0)
        if character == "," and nested == 0:
            parts.append(text[begin:place])
            begin = place + 1
    return [], len(text)
