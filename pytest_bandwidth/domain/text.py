"""Make text from anywhere fit for messages and pages: escape invisible characters, quote and cut values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

LONGEST_SHOWN = 60
SHORT_HASH = 10
_FULL_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

# Invisible, or telling lies about the text around: controls but tab and newline; format characters and line separators;
# fillers and others that Unicode lets a font ignore (Default_Ignorable_Code_Point); surrogates; no characters.
# Unicode TR36 and TR39 say what they are misused for.
_ALWAYS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
# Joiners and variation selectors shape the letters and emoji beside them; between others they are invisible as well.
_SHAPING = "\u200c\u200d\ufe00-\ufe0f"
INVISIBLE = re.compile(
    f"[{_ALWAYS}{_SHAPING}](?<![^\x00-\x7f][{_SHAPING}])"  # one set in front keeps the search fast
    "(?:(?<![0-9#*]\ufe0f)|(?!\u20e3))"  # keycaps
)


def escaped(text: str) -> str:
    """Return the text with each invisible character as an escape, half a surrogate pair as U+FFFD."""
    if text.isascii() and text.isprintable():  # nearly all
        return text
    return INVISIBLE.sub(_escape, text) if INVISIBLE.search(text) else text


def shown(value: object, at_most: int = LONGEST_SHOWN) -> str:
    """Return a user's value as a message quotes it: on one line, without invisible characters, cut where it grows long.

    Text is cut before it is quoted. A mapping or list of more than a few items goes by its kind alone, and so does an
    integer of thousands of digits, which Python does not write out.
    """
    if isinstance(value, str):
        return escaped(repr(value if len(value) <= at_most else f"{value[:at_most]}…"))
    if isinstance(value, Mapping | list | tuple) and len(value) > at_most:
        return "a mapping" if isinstance(value, Mapping) else "a list"
    try:
        text = " ".join(repr(value).split())
    except (ValueError, RecursionError):
        return f"<{type(value).__name__}>"
    return escaped(text if len(text) <= at_most else f"{text[:at_most]}…")


def listed(names: Sequence[str], at_most: int) -> str:
    """List names, and count those past so many: ``a, b and 3 more``."""
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return f"{', '.join(names[:at_most])}{more}"


def kind_of(value: object) -> str:
    """Name a value's type with the library that it is of: ``torch.Tensor``."""
    return f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"


def short_commit(commit: str) -> str:
    """Return the first digits of a commit's full hash, as people read it; any other name as it is."""
    return commit[:SHORT_HASH] if _FULL_HASH.fullmatch(commit) else commit


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xD800 <= code <= 0xDFFF:
        return "\N{REPLACEMENT CHARACTER}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
