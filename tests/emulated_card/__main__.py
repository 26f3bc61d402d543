"""Run Python with the emulated card: ``python tests/emulated_card -m pytest tests/gpu``."""

import os
import sys
import tempfile
from pathlib import Path

sys.path.pop(0)
sys.path.insert(0, str(Path(__file__).parents[1]))
from emulated_card.environment import card_environment

if __name__ == "__main__":
    settings = {name[14:]: value for name, value in os.environ.items() if name.startswith("EMULATED_CARD_")}
    environment = card_environment(Path(tempfile.mkdtemp(prefix="emulated-card-")), settings)
    os.execve(sys.executable, [sys.executable, *sys.argv[1:]], environment)
