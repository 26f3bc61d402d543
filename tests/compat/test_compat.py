"""Programs in the shape of real ones run on the traffic device, and compute what NumPy does."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'")

from compat import PROGRAMS
from compat.registry import Random
from ptx_sources import run

from pytest_bandwidth.domain.errors import NotOnThisDevice

pytestmark = pytest.mark.slow
TOLERANCES = {"f2": 2e-3, "f4": 2e-5, "f8": 1e-12}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_what_numpy_does(name: str) -> None:
    one = PROGRAMS[name]
    args, results = one.make(Random(one.dtype))
    if one.skips:
        with pytest.raises(NotOnThisDevice, match=one.skips):
            run(one.source, "k", one.grid, one.block, *args)
        return
    expected = [np.array(value) for _, value in results]
    run(one.source, "k", one.grid, one.block, *args, shared_bytes=one.shared_bytes)
    for (array, _), value in zip(results, expected, strict=True):
        found = np.asarray(array)
        if found.dtype.kind in "iu":
            np.testing.assert_array_equal(found, value)
        else:
            tolerance = TOLERANCES[found.dtype.str[1:]]
            np.testing.assert_allclose(found, value, rtol=tolerance, atol=tolerance * max(1, np.abs(value).max()))


def test_there_are_many_and_few_do_not_run() -> None:
    assert len(PROGRAMS) >= 120
    assert sum(bool(one.skips) for one in PROGRAMS.values()) <= 0.05 * len(PROGRAMS)
