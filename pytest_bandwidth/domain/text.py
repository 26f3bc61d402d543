"""Make text from anywhere fit for messages and pages: escape, quote and cut it, and mask the secrets of addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from urllib.parse import unquote

LONGEST_SHOWN = 60
SHORT_HASH = 10
FULL_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

# Invisible or misleading characters: controls except tab and newline; format characters and line separators; fillers
# and others that a font may ignore (Default_Ignorable_Code_Point); surrogates; noncharacters. Unicode TR36 and TR39
# describe their misuse.
_ALWAYS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
# Joiners and variation selectors shape adjacent letters and emoji; between other characters they are invisible as well.
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
    """Return a user's value for a message: on one line, without invisible characters, cut where it is long.

    Text is cut before it is quoted. A mapping or list of more than `at_most` items is shown by its kind alone, and so
    is an integer of thousands of digits.
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
    """List at most so many names, and count the others: ``a, b and 3 more``."""
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return f"{', '.join(names[:at_most])}{more}"


def kind_of(value: object) -> str:
    """Name a value's type with its library: ``torch.Tensor``."""
    return f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"


def short_commit(commit: str) -> str:
    """Return the first digits of a commit's full hash, as people read it; any other name as it is."""
    return commit[:SHORT_HASH] if FULL_HASH.fullmatch(commit) else commit


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xD800 <= code <= 0xDFFF:
        return "\N{REPLACEMENT CHARACTER}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# `Documentation` of pyproject.toml's [project.urls]: messages link to its headings.
DOCUMENTATION = "https://pytest-bandwidth.readthedocs.io/en/latest"
_MASK = "***"
# Shorter secrets would be found inside the words of a sentence.
_SHORTEST_SECRET = 4
# As a path it would be a folder named "s3:".
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_IN_TEXT = re.compile(rf"{_ADDRESS.pattern}[^\s'\"]*")
_HELP = re.compile(rf"{re.escape(DOCUMENTATION)}/[a-z]+\.html#[a-z-]+\)?")
# In an address of Azure, the part before an "@" is the container.
_AZURE = re.compile(r"(?:abfss?|wasbs?|az|adl)://")


def is_address(text: str) -> bool:
    """Return whether text is an address (``s3://bucket/history``), and not a path."""
    return _ADDRESS.match(text) is not None


def masked(text: str) -> str:
    """Return text with ``***`` for credentials, query and fragment of each address, except of our own pages.

    >>> masked("--bandwidth-history=s3://key:secret@bucket/history")
    '--bandwidth-history=s3://***@bucket/history'
    """
    return _IN_TEXT.sub(lambda found: found[0] if _HELP.fullmatch(found[0]) else _masked(found[0]), text)


def _masked(address: str) -> str:
    credentials, rest = _parts(address)
    scheme = _ADDRESS.match(address)
    query = re.search(r"[?#]", rest)
    if query is not None:
        rest = f"{rest[: query.end()]}{_MASK}"
    return f"{'' if scheme is None else scheme[0]}{f'{_MASK}@' if credentials else ''}{rest}"


def _parts(address: str) -> tuple[str, str]:
    """Return the credentials, or "", and the rest of the address. A secret may hold any character, "/" too."""
    rest = _ADDRESS.sub("", address, count=1)
    before, at, after = rest.rpartition("@")
    # A key of a bucket may hold an "@" as well.
    plain = ":" not in before and ("/" in before or _AZURE.match(address) is not None)
    return ("", rest) if not at or plain else (before, after)


class Address:
    """Hold the address of a folder in a bucket, whose secrets ``str`` and ``repr`` mask.

    It joins as an absolute path does: ``folder / address`` is the address, ``address / name`` a file there, to show.
    url: as it was given, to open it; name: the file's, else the folder's.
    """

    def __init__(self, url: str, file: str = "") -> None:
        scheme, sign, rest = url.partition("://")
        self.url = f"{scheme}{sign}{rest.rstrip('/')}"
        self._file = file

    def __str__(self) -> str:
        return f"{_masked(self.url)}/{self._file}" if self._file else _masked(self.url)

    __repr__ = __str__

    @property
    def name(self) -> str:
        return str(self).rpartition("/")[2]

    def __truediv__(self, file: str) -> Address:
        return Address(self.url, file)

    def __rtruediv__(self, folder: PurePath) -> Address:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and (other.url, other._file) == (self.url, self._file)

    def __hash__(self) -> int:
        return hash((self.url, self._file))

    def without_secrets(self, text: str) -> str:
        """Return text of the library that opened the address, with ``***`` for each secret of the address."""
        credentials, rest = _parts(self.url)
        query = re.search(r"[?#](.*)", rest)
        whole = [credentials, *credentials.split(":", 1), query[1] if query else ""]
        whole += [value for pair in whole[-1].split("&") for value in pair.split("=", 1)[1:]]
        text = masked(text)
        secrets = {one for known in whole for one in (known, unquote(known)) if len(one) >= _SHORTEST_SECRET}
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, _MASK)
        return text
