"""Fuzz the baseline loader, guided by coverage, with atheris (wheels for Linux on x86-64); tests run it shortly:

python tests/baseline/fuzz_baseline_loader.py -runs=200000 -max_len=4000 -timeout=1 -rss_limit_mb=512 \\
    -only_ascii=1

Fails on any exception but the loader's own error, and on an error that is not one printable line a problem. Without
-only_ascii two files of three are no text and reach no parser.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["pytest_bandwidth.baseline", "pytest_bandwidth.domain.units"]):
    from pytest_bandwidth.baseline.parse import Problems, decode
    from pytest_bandwidth.baseline.reader import read_text
    from pytest_bandwidth.domain.errors import BaselineError

FILE = "file.yaml"
LINE = re.compile(rf"{re.escape(FILE)}:[1-9][0-9]*: .{{1,900}}")
SEED = (
    Path(__file__)
    .with_name("test_baseline_hostile.py")
    .read_text()
    .partition('SEED_FILE = """\\\n')[2]
    .partition('"""')[0]
)


def refusal(error: BaselineError) -> str:
    """Return what the error says, which has to be one line a problem."""
    lines = str(error).splitlines()
    assert error.problems, f"an error without problems: {error!r}"
    assert len(lines) == len(error.problems), f"problems of more than one line: {error!r}"
    assert all(LINE.fullmatch(line) and line.isprintable() for line in lines), f"no line of a problem: {error!r}"
    return str(error)


def load(data: bytes) -> None:
    try:
        source = decode(data, Problems(FILE))
        read_text(source, Path(FILE), without_runs=True)
    except BaselineError as error:
        refusal(error)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as corpus:
        for number, text in enumerate((SEED, SEED[: SEED.index("  # by hand")], SEED.replace(", peak: 2039 GB/s", ""))):
            Path(corpus, str(number)).write_text(text)
        child = os.fork()  # libFuzzer ends its process at once, and the corpus would stay
        if child == 0:
            atheris.Setup([*sys.argv, corpus], load)
            atheris.Fuzz()
        status = os.waitpid(child, 0)[1]
    sys.exit(os.waitstatus_to_exitcode(status))
