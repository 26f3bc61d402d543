"""Make the chart library that a page carries: Vega, Vega-Lite and Vega-Embed as one script, offline by vl-convert.

Making it takes vl-convert one to two seconds each time, so a copy is kept in the user's cache folder, by version.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import stat
from importlib.metadata import version
from pathlib import Path

from pytest_bandwidth.storage.atomic import write_whole
from pytest_bandwidth.storage.own_folders import cache_folder

MISSING = "charts need vl-convert-python: pip install 'pytest-bandwidth[report]'"
_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def charts_available() -> bool:
    """Return whether vl-convert is installed; it is imported only when it is needed."""
    return importlib.util.find_spec("vl_convert") is not None


@functools.cache
def javascript_bundle() -> str:
    """Return the script that sets `window.vegaEmbed`, safe in a script element: no ``</script``, no ``<!--``."""
    file = _cache_file()
    known = _read(file)
    if known is not None:
        return known
    import vl_convert

    made: str = vl_convert.javascript_bundle(_SNIPPET)
    bundle = made.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    # Whole or not at all; a cache that cannot be written costs a second, nothing else.
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(file, bundle.encode(), mode=0o600)  # for this user alone
    return bundle


def _cache_file() -> Path:
    return cache_folder() / f"vega-{version('vl-convert-python')}.js"


def _read(file: Path) -> str | None:
    """Read the kept copy; None where there is none, or where another user could have written it: pages run it."""
    try:
        with file.open(encoding="utf-8") as opened:
            state, folder = os.fstat(opened.fileno()), file.parent.stat()
            own = state.st_uid == folder.st_uid == os.getuid()
            if not own or (state.st_mode | folder.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
                return None
            return opened.read() or None
    except (OSError, UnicodeDecodeError):
        return None
