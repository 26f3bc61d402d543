"""What makes a built kernel another: the headers that it includes, by the compiler's own list, and no others."""

import subprocess
from pathlib import Path

import pytest

from emulated_card.kernels.build import CARD, HERE, NoCompiler, c_sources, compiler


def test_what_kernels_include_is_what_the_compiler_finds() -> None:
    try:
        preprocess = [compiler(), "-MM", f"-I{HERE / 'c'}", f"-I{CARD}"]
    except NoCompiler as reason:
        pytest.skip(str(reason))
    sources = sorted(map(str, (HERE / "c").glob("*.[ch]")))
    rules = subprocess.run([*preprocess, *sources], capture_output=True, text=True, check=True).stdout
    named = {Path(word).resolve() for word in rules.replace("\\\n", " ").split() if not word.endswith(":")}
    assert set(c_sources()) == named
    assert not {path for path in CARD.glob("*.h") if path.name == "devices.h"} & named
