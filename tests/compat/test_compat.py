"""Programs in the shape of real ones run on the traffic device, and compute what NumPy does."""

from __future__ import annotations

import functools
import re

import pytest

pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'")

from compat import PROGRAMS
from ptx_sources import computes_what_numpy_does

from pytest_bandwidth.domain.errors import NotOnThisDevice

pytestmark = pytest.mark.slow

INCLUDE = re.compile(r"^#include .*\n", re.MULTILINE)


@functools.cache
def together(headers: tuple[str, ...]) -> str:
    """Return a text of all programs that include these headers, which take NVRTC most of its time."""
    texts = []
    for number, (name, one) in enumerate(PROGRAMS.items()):
        if tuple(INCLUDE.findall(one.source)) == headers:
            own = re.sub(r"(__global__ void .*?\bk)\(", rf"\g<1>{number}(", INCLUDE.sub("", one.source), count=1)
            texts.append(f"namespace of{number} {{  // {name}\n{own}\n}}\n")
    return "".join((*headers, *texts))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_what_numpy_does(name: str) -> None:
    one = PROGRAMS[name]
    text, kernel = together(tuple(INCLUDE.findall(one.source))), f"k{list(PROGRAMS).index(name)}"
    if not one.skips:
        computes_what_numpy_does(one, text=text, kernel=kernel)
        return
    with pytest.raises(NotOnThisDevice, match=one.skips):
        computes_what_numpy_does(one, text=text, kernel=kernel)


def test_there_are_many_and_few_do_not_run() -> None:
    assert len(PROGRAMS) >= 120
    assert sum(bool(one.skips) for one in PROGRAMS.values()) <= 0.05 * len(PROGRAMS)
