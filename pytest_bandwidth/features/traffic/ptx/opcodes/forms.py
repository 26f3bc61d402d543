"""Read the rows of the opcode table, and find the row of an opcode.

A row's syntax is the PTX manual's: ``add[.rnd][.ftz][.sat].f32``. A modifier that names a set in `SETS` matches any
member of it, other modifiers match themselves; brackets make them optional. A row's operands are types, ``results <-
sources``: a set's name means the member in the opcode, ``2*name`` the type of twice its width, ``cc`` the carry flag,
and a trailing ``?`` an optional operand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import Any

import numpy as np

Choice = Mapping[str, str]
Meaning = Callable[..., Any]

_INTEGERS = ("u16", "u32", "u64", "s16", "s32", "s64")
SETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "itype": _INTEGERS,
        "i3264": ("u32", "s32", "u64", "s64"),
        "stype": ("s16", "s32", "s64"),
        "btype": ("b16", "b32", "b64"),
        "bptype": ("pred", "b16", "b32", "b64"),
        "b3264": ("b32", "b64"),
        "xtype": ("b16", "b32", "b64", *_INTEGERS, "f32", "f64"),
        "ctype": ("b16", "b32", "b64", *_INTEGERS),
        "mtype": ("pred", "b16", "b32", "b64", *_INTEGERS, "f32", "f64"),
        "float": ("f32", "f64"),
        "half": ("f16", "f16x2"),
        "brain": ("bf16", "bf16x2"),
        "rnd": ("rn", "rz", "rm", "rp"),
        "irnd": ("rni", "rzi", "rmi", "rpi"),
        "utype": ("u16", "u32", "u64"),
        "same": ("eq", "ne"),
        "cmp": ("eq", "ne", "lt", "le", "gt", "ge"),
        "ucmp": ("lo", "ls", "hi", "hs"),
        "fcmp": ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"),
        "lohi": ("lo", "hi"),
        "clampwrap": ("clamp", "wrap"),
        "leftright": ("l", "r"),
        "pmode": ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"),
        "property": ("finite", "infinite", "number", "notanumber", "normal", "subnormal"),
        "space": (
            *("global", "shared", "shared::cta", "shared::cluster", "local", "const"),
            *("param", "param::entry", "param::func"),
        ),
        "stspace": ("global", "shared", "shared::cta", "shared::cluster", "local", "param", "param::func"),
        "holding": ("global", "shared", "shared::cta", "shared::cluster", "local", "const", "param", "param::entry"),
        "window": ("global", "shared", "shared::cta", "local"),
        "cached": ("global", "local"),
        "aspace": ("global", "shared", "shared::cta", "shared::cluster"),
        "memory": ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "b8", "b16", "b32", "b64", "f32", "f64"),
        "vec": ("v2", "v4", "v8"),
        "lcop": ("ca", "cg", "cs", "lu", "cv"),
        "scop": ("wb", "cg", "cs", "wt"),
        "lorder": ("weak", "volatile", "relaxed", "acquire"),
        "sorder": ("weak", "volatile", "relaxed", "release"),
        "order": ("relaxed", "acquire", "release", "acq_rel"),
        "rorder": ("relaxed", "release"),
        "forder": ("sc", "acq_rel", "acquire", "release"),
        "scope": ("cta", "cluster", "gpu", "sys"),
        "evict": ("L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"),
        "evict2": ("L2::evict_normal", "L2::evict_first", "L2::evict_last"),
        "evict3": ("L2::evict_first", "L2::evict_unchanged"),
        "prefetch": ("L2::64B", "L2::128B", "L2::256B"),
        "atop": ("and", "or", "xor", "exch", "add", "inc", "dec", "min", "max", "cas"),
        "redatop": ("and", "or", "xor", "add", "inc", "dec", "min", "max"),
        "attype": ("b16", "b32", "b64", "u32", "u64", "s32", "s64", "f16", "f16x2", "bf16", "bf16x2", "f32", "f64"),
        "redtype": ("b32", "b64", "u32", "u64", "s32", "s64", "f16", "f16x2", "bf16", "bf16x2", "f32", "f64"),
        "shmode": ("up", "down", "bfly", "idx"),
        "votemode": ("all", "any", "uni"),
        "barred": ("and", "or"),
        "more": ("inc", "dec"),
        "redop": ("add", "min", "max"),
        "nearzero": ("rn", "rz"),
        "dst16": ("f16", "bf16"),
        "packed": ("f16x2", "bf16x2"),
        "small": ("e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2"),
        "outward": ("rz", "rp"),
        "settype": ("u32", "s32", "f32"),
        "pairtype": ("u16x2", "s16x2"),
        "level": ("cta", "gl", "sys"),
        "cache": ("L1", "L2"),
        "cpcache": ("ca", "cg"),
        "dependent": ("wait", "launch_dependents"),
        "shmem": ("shared", "shared::cta"),
        "mspace": ("shared", "shared::cta", "shared::cluster"),
        "asem": ("release", "relaxed"),
        "wsem": ("acquire", "relaxed"),
        "arrival": ("arrive", "arrive_drop"),
        "waiting": ("test_wait", "try_wait"),
        "bulkto": ("shared::cta", "shared::cluster"),
        "ahead": ("prefetch",),  # as a word: "prefetch" is a set
        "near": ("cta", "cluster"),
        "matrices": ("x1", "x2", "x4"),
        **dict.fromkeys(("rowcol", "rowcol2"), ("row", "col")),
        **dict.fromkeys(("mresult", "maccumulated"), ("f32", "f16", "s32")),
        **dict.fromkeys(("mleft", "mright"), ("f16", "bf16", "tf32", "s8", "u8", "e4m3", "e5m2")),
        **dict.fromkeys(("tleft", "tright"), ("bf16", "tf32", "s8", "u8")),
        **dict.fromkeys(("tresult", "taccumulated"), ("f32", "s32")),
        **dict.fromkeys(("hresult", "haccumulated"), ("f16", "f32")),
        **dict.fromkeys(("dst", "src"), ("u8", "s8", *_INTEGERS, "f16", "bf16", "f32", "f64")),
        **dict.fromkeys(("bool", "bitop"), ("and", "or", "xor")),
        **dict.fromkeys(("i32", "atype", "btype4"), ("u32", "s32")),
        **dict.fromkeys(("halfwide", "word"), ("u16", "s16", "u32", "s32")),
        "mshape": ("m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32", "m8n8k16"),
        "gshape": tuple(f"m64n{n}k{k}" for k in (8, 16, 32) for n in range(8, 257, 8)),
        "proxied": ("global", "shared::cta", "shared::cluster"),
        "operand": ("a", "b", "c"),
        "wshape": ("m16n16k16", "m32n8k16", "m8n32k16", "m16n16k8"),
        "wspace": ("global", "shared", "shared::cta"),
        "wtype": ("f16", "bf16", "tf32", "s8", "u8", "f32", "s32"),
        "wresult": ("f16", "f32", "s32"),
        "hshape": ("m16n16k16", "m32n8k16", "m8n32k16"),
    }
)

# PTX's fundamental types as NumPy types. Packed pairs are in one word, bf16 in a 16-bit integer.
_NUMPY_NAMES = {
    "pred": "?",
    "cc": "?",
    "f16": "f2",
    "bf16": "u2",
    "f16x2": "u4",
    "bf16x2": "u4",
    "f32x2": "u8",
    "f32": "f4",
    "f64": "f8",
    **{f"{letter}{bits}": f"u{bits // 8}" for letter in "ub" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
}
DTYPES: Mapping[str, np.dtype[Any]] = MappingProxyType({name: np.dtype(kind) for name, kind in _NUMPY_NAMES.items()})


def chosen(choice: Choice, *names: str) -> str:
    """Return the opcode's modifier from these sets; "" where it has no such modifier."""
    return next((choice[name] for name in names if name in choice), "")


def by_choice(function: Callable[..., Any]) -> Callable[[Choice], Meaning]:
    """Return a row's meaning from a function that takes the chosen modifiers first, then the operands."""
    return lambda choice: partial(function, choice)


@dataclass(frozen=True, slots=True)
class Form:
    """Hold one row of the table: its syntax, its operands' types, and its meaning.

    meaning: maps the chosen modifiers by set name (literal modifiers map to themselves) to a function of NumPy arrays;
    for rows that are no computation it is the name of the decoder's action.
    """

    syntax: str
    operands: str
    meaning: Callable[[Choice], Meaning] | str

    @property
    def base(self) -> str:
        return self.syntax.split("[")[0].split(".")[0]

    @property
    def slots(self) -> tuple[tuple[str, bool], ...]:
        """Return each modifier, and whether it is optional: ``add[.rnd].f32`` → ((rnd, True), (f32, False))."""
        parts = self.syntax.replace("[.", " ?").replace("].", " ").replace("]", "").replace(".", " ").split()[1:]
        return tuple((part.lstrip("?"), part.startswith("?")) for part in parts)


@dataclass(frozen=True, slots=True)
class Match:
    """Hold an opcode's row and chosen modifiers. results, sources: PTX types; optional sources end in ``?``."""

    form: Form
    choice: Choice
    results: tuple[str, ...]
    sources: tuple[str, ...]


_ATOMICS = ("order", "scope", "aspace")


class Table:
    """Find rows by their first word; of several rows that fit, the first one counts."""

    def __init__(self, forms: Sequence[Form]) -> None:
        self.forms = tuple(forms)
        self._rows: dict[str, list[Form]] = {}
        for form in forms:
            self._rows.setdefault(form.base, []).append(form)
        self.find = cache(self._find)

    def _find(self, opcode: str) -> Match | None:
        """Return the first row that fits the opcode, else None."""
        base, *modifiers = opcode.split(".")
        if base in ("atom", "red"):  # compilers write order, scope and space in any order
            modifiers.sort(
                key=lambda word: next((n for n, name in enumerate(_ATOMICS) if word in SETS[name]), len(_ATOMICS))
            )
        for form in self._rows.get(base, ()):
            if (choice := _fit(form.slots, tuple(modifiers))) is not None:
                results, _, sources = form.operands.partition("<-")
                return Match(form, choice, _types(results, choice), _types(sources, choice))
        return None


def _fit(slots: tuple[tuple[str, bool], ...], modifiers: tuple[str, ...]) -> dict[str, str] | None:
    """Return the modifier of each slot; None where they do not fit."""
    if not slots:
        return None if modifiers else {}
    (name, optional), rest = slots[0], slots[1:]
    if modifiers and modifiers[0] in SETS.get(name, (name,)):
        found = _fit(rest, modifiers[1:])
        if found is not None:
            return {name: modifiers[0], **found}
    return _fit(rest, modifiers) if optional else None


def _types(text: str, choice: Choice) -> tuple[str, ...]:
    return tuple(_type(word, choice) for word in text.split())


def _type(word: str, choice: Choice) -> str:
    name, mark = word.rstrip("?"), "?" if word.endswith("?") else ""
    if name.startswith("2*"):
        narrow = choice[name[2:]]
        return f"{narrow[0]}{int(narrow[1:]) * 2}"
    return choice.get(name, name) + mark
