"""The chart library that a page carries: Vega, Vega-Lite and Vega-Embed as one script, made offline by vl-convert.

Making it takes vl-convert one to two seconds each time, so a copy is kept in the user's cache folder, by version.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import os
import stat
from pathlib import Path

from pytest_bandwidth.whole_files import write_whole

_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def charts_available() -> bool:
    """Whether vl-convert is installed; it is imported only when it is needed."""
    return importlib.util.find_spec("vl_convert") is not None


@functools.cache
def javascript_bundle() -> str:
    """The script, which sets `window.vegaEmbed`. Safe in a script element: holds neither ``</script`` nor ``<!--``."""
    kept = _cache_file()
    known = _read(kept)
    if known is not None:
        return known
    import vl_convert

    made: str = vl_convert.javascript_bundle(_SNIPPET)
    bundle = made.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    _write(kept, bundle)
    return bundle


def _cache_file() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    version = importlib.metadata.version("vl-convert-python")
    return Path(base) / "pytest-bandwidth" / f"vega-{version}.js"


def _read(file: Path) -> str | None:
    """The kept copy; None where there is none, or where anybody but this user could have written it: pages run it."""
    try:
        with file.open(encoding="utf-8") as opened:
            state, folder = os.fstat(opened.fileno()), file.parent.stat()
            own = state.st_uid == folder.st_uid == os.getuid()
            if not own or (state.st_mode | folder.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
                return None
            return opened.read() or None
    except (OSError, UnicodeDecodeError):
        return None


def _write(file: Path, text: str) -> None:
    """Keeps a copy whole or not at all; a cache that cannot be written costs a second, nothing else."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(file, text.encode(), mode=0o600)  # for this user alone
