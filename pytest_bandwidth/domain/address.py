"""Tell a bucket's address from a path, and keep the secrets that an address may hold out of what is shown."""

from __future__ import annotations

import re
from pathlib import PurePath
from urllib.parse import unquote

# `Documentation` of pyproject.toml's [project.urls]: messages link to its headings.
DOCUMENTATION = "https://pytest-bandwidth.readthedocs.io/en/latest"
_MASK = "***"
# Shorter ones would be found inside the words of a sentence.
_SHORTEST_SECRET = 4
# As a path it would be a folder named "s3:".
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_IN_TEXT = re.compile(rf"{_ADDRESS.pattern}[^\s'\"]*")
_HELP = re.compile(rf"{re.escape(DOCUMENTATION)}/[a-z]+\.html#[a-z-]+\)?")
# In an address of Azure's, what stands before an "@" is the container.
_AZURE = re.compile(r"(?:abfss?|wasbs?|az|adl)://")


def is_address(text: str) -> bool:
    """Return whether text is an address (``s3://bucket/history``), and no path."""
    return _ADDRESS.match(text) is not None


def masked(text: str) -> str:
    """Return text with the credentials, query and fragment of each address in it as ``***``; but of our own pages.

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
    """Return the credentials, "" where there are none, and what follows them. A secret may hold any sign, "/" too."""
    rest = _ADDRESS.sub("", address, count=1)
    before, at, after = rest.rpartition("@")
    # A key of a bucket may hold an "@" as well.
    plain = ":" not in before and ("/" in before or _AZURE.match(address) is not None)
    return ("", rest) if not at or plain else (before, after)


class Address:
    """Hold the address of a folder in a bucket: text that shows it, by ``str`` or ``repr``, holds no secret.

    It joins as an absolute path does: ``folder / address`` is the address, ``address / name`` a file there, to show.
    url: as it was given, for what opens it; name: the file's, else the folder's.
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
        """Return text, of what opened the address, with each secret that the address holds as ``***``."""
        credentials, rest = _parts(self.url)
        query = re.search(r"[?#](.*)", rest)
        whole = [credentials, *credentials.split(":", 1), query[1] if query else ""]
        whole += [value for pair in whole[-1].split("&") for value in pair.split("=", 1)[1:]]
        text = masked(text)
        secrets = {one for known in whole for one in (known, unquote(known)) if len(one) >= _SHORTEST_SECRET}
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, _MASK)
        return text
