"""Find the folders that are this user's own: where copies are kept, and where nobody else writes.

Knows nothing of the package, so that each of its rooms may use it.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

HAS_OWNERS = hasattr(os, "getuid")


def cache_folder() -> Path:
    """Return the folder of what can be made or fetched anew; nothing is made."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "pytest-bandwidth"


def what_is_wrong(folder: Path) -> str | None:
    """Return why a folder, which is made where it is missing, is not this user's alone to write; None where it is."""
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError as error:
        return error.strerror or type(error).__name__
    if not stat.S_ISDIR(found.st_mode):
        return "found a link" if stat.S_ISLNK(found.st_mode) else "found a file"
    if HAS_OWNERS and found.st_uid != os.getuid():
        return f"found one of the user {found.st_uid}"
    if HAS_OWNERS and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "found one that others may write to"
    return None
