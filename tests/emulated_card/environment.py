"""Make the environment of processes that have the card, children of theirs included."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from emulated_card.kernels.build import cache_folder
from emulated_card.libraries import built_libraries

SITE = Path(__file__).parent / "site"


def card_environment(state: Path, settings: Mapping[str, object]) -> dict[str, str]:
    """Return this process's environment with the card in it, healthy but for `settings`.

    state: a folder that the card's processes share, empty at first: the second use of it is another history, and so
    other figures. settings: without their prefix, as ``{"CLOCK_PACE": 0.6}``; README.md lists them.
    Raises NoCompiler, ModuleNotFoundError.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EMULATED_CARD_")}
    paths = [str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(paths),
        "EMULATED_CARD": str(built_libraries()),
        "EMULATED_CARD_CACHE": str(cache_folder()),
        "EMULATED_CARD_STATE": str(state),
        # Locks of devices lie there: this card is another than the next one, which has the same name.
        "TMPDIR": str(state),
        "CUPY_CACHE_DIR": str(cache_folder() / "cupy"),
        # Modules arrive as text where nothing else is asked for, and sums without CUB's kernels, which are no text.
        "CUPY_COMPILE_WITH_PTX": os.environ.get("CUPY_COMPILE_WITH_PTX", "1"),
        "CUPY_ACCELERATORS": "",
        "NUMBA_DISABLE_CUDA": "1",  # its own driver calls are not done
        **{f"EMULATED_CARD_{name}": str(value) for name, value in settings.items()},
    }
