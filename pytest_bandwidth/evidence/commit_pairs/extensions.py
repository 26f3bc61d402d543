"""Find the extensions that this process has loaded and another revision lacks: they are built, and not committed."""

from __future__ import annotations

import os
from functools import cache
from importlib import metadata
from pathlib import Path

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.evidence.commit_pairs.builds import folder_of_editable
from pytest_bandwidth.evidence.commit_pairs.checkout import Revision
from pytest_bandwidth.evidence.commit_pairs.run_in_worktree import inside, loaded_modules
from pytest_bandwidth.evidence.commit_pairs.worktrees import belongs, environment_in

_EXTENSIONS = (".so", ".pyd", ".dylib")


def check_extensions(revision: Revision) -> None:
    """Raise UsageError where an extension that is loaded here is not at a revision that was not built."""
    if revision.python is not None:
        return
    missing = sorted(file for file in loaded_modules().values() if _is_missing(file, revision))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UsageError(
            f"{missing[0]}{more}: a built extension is loaded that git does not have at {revision}: set how a revision "
            "is built in the ini file, such as bandwidth_build = pip install -e . --no-build-isolation"
        )


def _is_missing(file: str, revision: Revision) -> bool:
    if not file.endswith(_EXTENSIONS):
        return False
    if belongs(file, revision.top, environment_in(revision.top)):
        at = revision.counterpart(Path(file))
        return at is None or not at.exists()
    return file in _of_editable_installs(revision.top)


@cache
def _of_editable_installs(top: str) -> frozenset[str]:
    """Return the extensions that installs of folders below a tree keep elsewhere, as scikit-build's and meson's do."""
    found: set[str] = set()
    for one in metadata.distributions():
        folder = folder_of_editable(one)
        if folder is not None and inside(os.path.realpath(folder), top):
            files = (file for file in one.files or () if str(file).endswith(_EXTENSIONS))
            found |= {os.path.realpath(str(one.locate_file(file))) for file in files}
    return frozenset(found)
