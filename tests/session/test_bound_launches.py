"""A bound launch that is measured by itself is the launch: its code is known, and the traffic device counts it."""

import numpy as np
import pytest
from bandwidths import bandwidth_on

from pytest_bandwidth.domain.errors import NotOnThisDevice

N = 1 << 12


@pytest.fixture(params=["cpu", "traffic"])
def bandwidth(request, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return bandwidth_on(request.param, tmp_path)


def launch_of(bandwidth):
    x, y = bandwidth.random(N), bandwidth.empty(N)
    return x, y, (bandwidth.kernel("stream.cu", "copy_f32"), 4, 256, (y, x, np.int64(N)))


def test_it_is_measured_as_the_launch_is(bandwidth):
    x, y, launch = launch_of(bandwidth)
    launched = bandwidth.launch(*launch, reads=x, writes=y, label="launched")
    bound = bandwidth(bandwidth.bind(*launch), reads=x, writes=y, label="bound")
    assert bound.code == launched.code
    assert bound.code.known()
    assert (bound.counts, bound.method, bound.ptx) == (launched.counts, launched.method, launched.ptx)
    assert np.array_equal(x, y)


def test_what_calls_it_is_a_callable_like_any_other(bandwidth):
    x, y, launch = launch_of(bandwidth)
    copy = bandwidth.bind(*launch)
    if bandwidth.device == "traffic":
        with pytest.raises(NotOnThisDevice):
            bandwidth(lambda: copy(), reads=x, writes=y)
        return
    assert not bandwidth(lambda: copy(), reads=x, writes=y).code.known()
    assert bandwidth(copy, reads=x, writes=y, label="said", code=b"cubin").code.function is not None


def test_each_of_several_that_are_compared_tells_its_code(bandwidth):
    if bandwidth.device == "traffic":
        pytest.skip("it takes launches only, one at a time")
    x, y, launch = launch_of(bandwidth)
    launched = bandwidth.launch(*launch, reads=x, writes=y)
    compared = bandwidth.compare(
        {"bound": bandwidth.bind(*launch), "numpy": lambda: np.copyto(y, x)}, reads=x, writes=y
    )
    assert compared["bound"].code == launched.code
    assert compared["numpy"].code.function not in (None, launched.code.function)
