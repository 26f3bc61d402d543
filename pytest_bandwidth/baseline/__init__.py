"""Read and write baseline files: people's YAML and the machine's runs ↔ `domain.baseline` values.

`load`, `load_all` → values; `update`, `remove`, `init` → a changed file; `find_file`, `check_device` → whose
file it is.
"""

from __future__ import annotations

from pathlib import Path

from pytest_bandwidth.baseline.locate import check_device, find_code, find_file, keys_at, load_all, refuse_other_devices
from pytest_bandwidth.baseline.reader import read
from pytest_bandwidth.baseline.update import Merge, init, remove, update
from pytest_bandwidth.domain.baseline import Baseline

__all__ = [
    "SCHEMA_FILE",
    "Merge",
    "check_device",
    "find_code",
    "find_file",
    "init",
    "keys_at",
    "load",
    "load_all",
    "refuse_other_devices",
    "remove",
    "update",
]

SCHEMA_FILE = Path(__file__).with_name("baseline.schema.json")


def load(path: Path) -> Baseline:
    """Return the values of one file. Raises BaselineError with every problem found, one line each."""
    return read(path).baseline
