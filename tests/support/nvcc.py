"""Run the nvcc that a wheel brings; tests that need it skip where it cannot be installed."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import pytest
from kept import kept


@functools.cache
def _nvcc() -> Path:
    nvidia = pytest.importorskip("nvidia", reason="nvcc is a wheel: pip install nvidia-cuda-nvcc")
    found = [path for folder in nvidia.__path__ for path in Path(folder).glob("cu13/bin/nvcc")]
    if not found:
        pytest.skip("nvcc is a wheel: pip install nvidia-cuda-nvcc")
    return found[0]


def nvcc(source: Path, result: Path, *options: str) -> Path:
    """Compile a file that includes none beside it, from within the folder of the result, and return that."""
    name = str(source.relative_to(result.parent))

    def make() -> bytes:
        command = [str(_nvcc()), "-o", str(result), *options, name]
        done = subprocess.run(command, cwd=result.parent, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return result.read_bytes()

    result.write_bytes(kept((source.read_text(), name, result.name, options), make))
    return result
