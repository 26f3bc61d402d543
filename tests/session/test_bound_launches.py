"""A bound launch that is measured by itself is the launch: its code is known, and the traffic device counts it."""

import functools

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


def test_what_calls_it_is_looked_into_where_that_is_timed(bandwidth):
    x, y, launch = launch_of(bandwidth)
    copy = bandwidth.bind(*launch)
    if bandwidth.device == "traffic":
        with pytest.raises(NotOnThisDevice):
            bandwidth(lambda: copy(), reads=x, writes=y)
        return
    assert bandwidth(lambda: copy(), reads=x, writes=y).code.function is not None
    assert bandwidth(copy, reads=x, writes=y, label="said", code=b"cubin").code.function is not None


def as_lambda(*calls):
    first, second = calls
    return lambda: (first(), second())


def as_loop(*calls):
    def run():
        for call in calls:
            call()

    return run


def as_list(*calls):
    steps = [[call] for call in calls]

    def run():
        for (call,) in steps:
            call()

    return run


def as_default(*calls):
    def run(one=calls[0], other=calls[1]):
        one()
        other()

    return run


def as_partial(*calls):
    def run(one, other):
        one()
        other()

    return functools.partial(run, *calls)


@pytest.mark.parametrize("together", [as_lambda, as_loop, as_list, as_default, as_partial])
def test_several_are_known_by_all_of_theirs(tmp_path, monkeypatch, together):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    bandwidth = bandwidth_on("cpu", tmp_path)
    n = np.int64(N)
    x, y, z = bandwidth.random(N), bandwidth.empty(N), bandwidth.empty(N)

    def code(label, *launches):
        calls = [bandwidth.bind(bandwidth.kernel("stream.cu", kernel), 4, 256, args) for kernel, args in launches]
        return bandwidth(together(*calls), reads=x, writes=z, label=label).code

    copies, scales = ("copy_f32", (y, x, n)), ("scale_f32", (z, y, np.float32(3), n))
    first = code("first", copies, scales)
    assert first.is_same(code("again", copies, scales), by="sass")
    others = {
        "kernel": (copies, ("copy_f32", (z, y, n))),
        "order": (scales, copies),
        "value": (copies, ("scale_f32", (z, y, np.float32(4), n))),
        "what the second reads": (copies, ("scale_f32", (z, x, np.float32(3), n))),
        "in place": (copies, ("scale_f32", (y, y, np.float32(3), n))),
    }
    for name, launches in others.items():
        other = code(name, *launches)
        assert other.standing(first, by="sass") == "changed", name


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
