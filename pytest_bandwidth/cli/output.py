"""Write the file that `-o` asks for."""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_bandwidth.storage.atomic import write_whole


def write_output(path: Path, data: str | bytes) -> None:
    """Write the file whole or not at all, and says so on standard error, since standard output is for results."""
    write_whole(path, data.encode() if isinstance(data, str) else data, keep=True)
    print(f"wrote {path}", file=sys.stderr)
