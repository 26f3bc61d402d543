"""Write text as a YAML scalar that fits one line and reads the same everywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import INVISIBLE, shown

# What stands unquoted: a subset of YAML's plain scalars on which block and flow context, YAML 1.1 and 1.2 agree.
# One blank or some colons only ever between two such characters, so neither ": " nor " #" can arise.
# Bounded, because a regular expression remembers every turn of a loop.
_WORD = re.compile(r"[A-Za-z0-9](?:(?: |:{1,4})?[\w./+@%()~^*=<>$;'-]){0,500}", re.ASCII)
_KEY = re.compile(r"[A-Za-z0-9_/.](?:(?: |:{1,4})?[\w./+@%()~^*=<>$;'&!?,\[\]-]){0,900}", re.ASCII)
# A plain key may take 1024 characters (YAML 1.2, 7.4.2); a longer one needs the "? key" form.
_MAX_SIMPLE_KEY = 1000
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_TO_ESCAPE = re.compile(r'["\\\n\t]')


@lru_cache(maxsize=4096)
def word(text: str) -> str:
    """Render text as a scalar. Raises UsageError for text that no baseline may hold."""
    return text if _WORD.fullmatch(text) else _quoted(text)


def key_line(key: str) -> str:
    """Render an entry's first line."""
    text = key if _KEY.fullmatch(key) else _quoted(key)
    return f"  {text}:\n" if len(text) <= _MAX_SIMPLE_KEY else f"  ? {text}\n  :\n"


def flow(fields: Mapping[str, str]) -> str:
    """Render a mapping of YAML texts on one line."""
    return "{" + ", ".join(f"{word(name)}: {text}" for name, text in fields.items()) + "}"


def refuse_invisible(text: str) -> None:
    """Raise UsageError for text that no baseline may hold."""
    if match := INVISIBLE.search(text):
        raise UsageError(
            f"found the character U+{ord(match[0]):04X} in {shown(text)}, expected visible text in a baseline"
        )


def _quoted(text: str) -> str:
    refuse_invisible(text)
    return '"' + _TO_ESCAPE.sub(lambda match: _ESCAPES[match[0]], text) + '"'
