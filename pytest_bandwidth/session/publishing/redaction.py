"""Take out of a document what it must not say: credentials; host, user and absolute paths where that is asked."""

from __future__ import annotations

import getpass
import hashlib
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pytest_bandwidth.domain.address import masked

Clean = Callable[[str], str]
# A test is known by these: they hold no name of a host or a user but by accident.
_NAMES_OF_TESTS = frozenset({"nodeid", "key", "label", "status", "code", "run_id"})
# An absolute path in a text, to its last name; no part of an address, a fraction or a relative path.
_PATH = re.compile(r"(?<![\w.:/~…-])/(?:[^\s/'\"<>|:;,()\[\]{}=]+/)+([^\s/'\"<>|:;,()\[\]{}=]*)")
_HOMES = re.compile(r"(?<![\w.:/~…-])/(?:home|Users)/[^\s/'\"<>|:;,()\[\]{}=]+")


def redacted(value: Any, clean: Clean, name: str = "") -> Any:
    """Return JSON-ready data with each of its texts cleaned; the same object where none changed. name: its key's."""
    if isinstance(value, str):
        return masked(value) if name in _NAMES_OF_TESTS else clean(value)
    if isinstance(value, dict):
        cleaned = {key: redacted(one, clean, str(key)) for key, one in value.items()}
        return cleaned if any(cleaned[key] is not one for key, one in value.items()) else value
    if isinstance(value, list | tuple) and not (value and isinstance(value[0], float)):
        items = [redacted(one, clean, name) for one in value]
        return items if any(new is not one for new, one in zip(items, value, strict=True)) else value
    return value


def cleaner(root: Path, hosts: Iterable[str] = (), *, private: bool) -> Clean:
    """Return what cleans a text. root: of the tests, to which paths become relative. hosts: further names."""
    if not private:
        return masked
    words = {}
    for host in {*hosts, platform.node()}:
        # Another name for a host, the same in every run: its devices stay told apart.
        words[host] = f"host-{hashlib.sha256(host.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    with suppress(KeyError, OSError, ImportError):  # a container whose user has no name
        words[getpass.getuser()] = "user"
    # The longest first: a home may lie in the root, and the root in a home.
    folders = {str(root): ".", str(Path.home()): "~", tempfile.gettempdir(): "…", sys.prefix: "…"}
    pattern = re.compile(
        "|".join(rf"(?<![\w.-]){re.escape(word)}(?![\w-])" for word in sorted(words, key=len, reverse=True) if word)
    )

    def clean(text: str) -> str:
        text = masked(text)
        for folder in sorted(folders, key=len, reverse=True):
            if len(folder) > 1:
                text = re.sub(rf"(?<![\w.-]){re.escape(folder)}(?![\w.-])", folders[folder], text)
        text = _PATH.sub(r"…/\1", _HOMES.sub("~", text))
        return pattern.sub(lambda found: words[found[0]], text)

    return clean
