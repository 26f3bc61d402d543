"""List a module's variables, once for each text: they are kept beside the kernels.

So a process whose kernels are built already loads neither parser nor decoder.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from emulated_card.kernels.build import cache_folder, key_of


@dataclass(frozen=True, slots=True)
class Variable:
    """Describe a ``__device__`` or ``__constant__`` variable; `initial` is what it holds once loaded, `size` bytes."""

    name: str
    size: int
    align: int
    initial: bytes


@cache
def variables_of(ptx_text: str) -> tuple[Variable, ...]:
    """List a module's variables. Raises KernelError for text that is no PTX, NotSupported."""
    kept = cache_folder() / f"{key_of('variables', ptx_text)}.json"
    if not kept.exists():
        from emulated_card.kernels.module import declared  # on a miss only: it takes half a second to import

        _keep(declared(ptx_text), kept)
    found = json.loads(kept.read_text(encoding="utf-8"))
    return tuple(Variable(name, size, align, base64.b64decode(initial)) for name, size, align, initial in found)


def _keep(variables: tuple[Variable, ...], kept: Path) -> None:
    rows = [(v.name, v.size, v.align, base64.b64encode(v.initial).decode()) for v in variables]
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False, encoding="utf-8") as file:
        file.write(json.dumps(rows))
    os.replace(file.name, kept)
