"""Start the emulated card in every Python process whose environment asks for it; found through PYTHONPATH."""

import importlib.util
import os
import sys
from pathlib import Path

if os.environ.get("EMULATED_CARD"):
    _FOLDER = Path(__file__).parents[1]
    # By its file, so that nothing else of the tests' folder can be imported by chance.
    _spec = importlib.util.spec_from_file_location(
        "emulated_card", _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)]
    )
    assert _spec is not None
    assert _spec.loader is not None
    sys.modules["emulated_card"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["emulated_card"])
    from emulated_card.start import start

    start(Path(os.environ["EMULATED_CARD"]))
