"""Programs in the shape of real ones run on the traffic device, and compute what NumPy does."""

from __future__ import annotations

import pytest

pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'")

from compat import PROGRAMS
from ptx_sources import computes_what_numpy_does

from pytest_bandwidth.domain.errors import NotOnThisDevice

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_what_numpy_does(name: str) -> None:
    one = PROGRAMS[name]
    if not one.skips:
        computes_what_numpy_does(one)
        return
    with pytest.raises(NotOnThisDevice, match=one.skips):
        computes_what_numpy_does(one)


def test_there_are_many_and_few_do_not_run() -> None:
    assert len(PROGRAMS) >= 120
    assert sum(bool(one.skips) for one in PROGRAMS.values()) <= 0.05 * len(PROGRAMS)
