"""Coverage-guided fuzzing of the baseline loader with atheris, where that is installed (the tests do without):

python tests/storage/fuzz_baseline_loader.py -runs=200000 -max_len=4000

Fails on any exception but the loader's own error, and where the fast reading and the YAML parser disagree.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["pytest_bandwidth.storage", "pytest_bandwidth.domain.units"]):
    from pytest_bandwidth.domain.errors import BaselineError
    from pytest_bandwidth.storage.reading import read_text, read_undivided
    from pytest_bandwidth.storage.text import Unreadable, decode

SEED = (
    Path(__file__)
    .with_name("test_baseline_hostile.py")
    .read_text()
    .partition('SEED_FILE = """\\\n')[2]
    .partition('"""')[0]
)


def outcome(read, source):
    try:
        return read(source, "file.yaml").baseline
    except BaselineError as error:
        return str(error)


def load(data: bytes) -> None:
    try:
        source = decode(data)
    except Unreadable:
        return
    assert outcome(read_text, source) == outcome(read_undivided, source)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as corpus:
        for number, text in enumerate((SEED, SEED[: SEED.index("  # by hand")], SEED.replace(", peak: 2039 GB/s", ""))):
            Path(corpus, str(number)).write_text(text)
        atheris.Setup([*sys.argv, corpus], load)
        atheris.Fuzz()
