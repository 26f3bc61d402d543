"""Tell the versions of what this process has loaded: with the same code they may be what a change comes from."""

from __future__ import annotations

import platform
import sys
from importlib import metadata

# Libraries that launch, compile or compute; by the names of their modules.
_LIBRARIES = ("numpy", "numba", "llvmlite", "cupy", "torch", "triton", "jax", "tinygrad")
LONGEST_VERSION = 60


def loaded_versions() -> dict[str, str]:
    """Return the versions of the operating system's kernel, Python and loaded libraries, by name."""
    found = {platform.system().lower() or "system": platform.release(), "python": platform.python_version()}
    for name in _LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None) or _installed(name)
        if isinstance(version, str):
            found[name] = version
    return {name: version[:LONGEST_VERSION] for name, version in found.items() if version}


def _installed(name: str) -> str | None:
    """Return the version of a loaded library that does not tell it itself, as tinygrad does not."""
    if name not in sys.modules:
        return None
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
