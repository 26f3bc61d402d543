"""What index arrays hold identifies a measurement: those that are passed, held or declared, before the first run."""

import numpy as np
import pytest
from user_project import bandwidth_on

from pytest_bandwidth.domain.errors import UsageError

N = 1 << 10


@pytest.fixture
def bandwidth(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return bandwidth_on("cpu", tmp_path)


def gather(x, index, out):
    np.take(x, index, out=out)


class Gathers:
    """Measures a gather, each time under a label of its own."""

    def __init__(self, bandwidth):
        self.bandwidth, self.x, self.out, self.number = bandwidth, np.ones(N), np.empty(N), 0

    def code(self, index, function=gather, **more):
        self.number += 1
        declared = {"reads": (self.x, index), "writes": self.out, **more}
        args = () if function is not gather else (self.x, index, self.out)
        return self.bandwidth(function, *args, label=str(self.number), **declared).code


@pytest.fixture
def gathers(bandwidth):
    return Gathers(bandwidth)


def test_other_indices_are_other_inputs_and_floats_are_none(gathers):
    index = np.arange(N)
    first = gathers.code(index)
    gathers.x += 1
    assert gathers.code(index.copy()).is_same(first, by="sass")
    other = gathers.code(index[::-1].copy())
    assert other.changes_since(first) == ("the contents of an index array changed",)
    assert not other.is_same(first, by="sass")


def test_arrays_count_that_are_undeclared_or_of_a_closure(gathers):
    first, other = (gathers.code(index, reads="64 KiB") for index in (np.arange(N), np.arange(N)[::-1].copy()))
    assert first.inputs != other.inputs

    def made(index):
        x, out = gathers.x, gathers.out
        return lambda: np.take(x, index, out=out)

    first, other = (gathers.code(i, made(i), reads="64 KiB") for i in (np.arange(N), np.arange(N)[::-1].copy()))
    assert first.inputs != other.inputs
    assert first.function == other.function


def test_an_array_that_is_only_written_does_not_count_nor_floats(bandwidth, monkeypatch):
    out = np.zeros(N, int)
    codes = [
        bandwidth(lambda: out.fill(3), writes=out, label=f"{n}", setup=lambda n=n: out.fill(n)).code for n in (1, 2)
    ]
    assert codes[0].inputs is codes[1].inputs is None
    view = [
        bandwidth(lambda: out.fill(3), reads=out[:4], writes=out, label=f"view {n}", setup=lambda n=n: out.fill(n)).code
        for n in (1, 2)
    ]
    assert view[0].inputs != view[1].inputs
    monkeypatch.setattr("pytest_bandwidth.devices.contents.host_contents", None)
    x = np.ones(N)
    assert bandwidth(np.sum, x, reads=x).code.inputs is None


def test_contents_are_those_before_the_first_run_and_after_set_up(bandwidth):
    counts = np.zeros(N, int)

    def run(label, **more):
        return bandwidth(lambda: np.add(counts, 1, out=counts), reads=counts, writes=counts, label=label, **more).code

    first = run("first")
    assert counts[0] > 1
    assert run("second").inputs != first.inputs
    assert run("set up", setup=lambda: counts.fill(0)).inputs == first.inputs


def test_random_indices_are_the_same_in_every_run_of_a_test(bandwidth):
    device = bandwidth._device
    drawn = []
    for _ in range(2):
        device.begin_test()
        bandwidth.random(7, "float32")
        drawn.append([bandwidth.random(N, dtype) for dtype in ("int32", "bool", "int32")])
    for one, other in zip(*drawn, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(drawn[0][0], drawn[0][2])
    assert not np.array_equal(bandwidth.random(N), bandwidth.random(N))


def test_what_is_opaque_does_not_count(gathers):
    index, other = np.arange(N), np.arange(N)[::-1].copy()
    reads = {"reads": "64 KiB"}
    assert gathers.code(index, opaque=1, **reads).is_same(gathers.code(other, opaque="index", **reads), by="sass")
    with pytest.raises(UsageError, match=r"opaque='nothing', expected places .* 0 to 2, or .* \(x, index, out\)"):
        gathers.code(index, opaque="nothing")
    for wrong in (3, -1, None.__class__, 1.5):
        with pytest.raises(UsageError, match="opaque="):
            gathers.code(index, opaque=(wrong,))


def test_contents_that_are_unknown_make_the_code_unknown_and_say_why(gathers, monkeypatch):
    def refuse(*_):
        raise UsageError("it takes too long")

    monkeypatch.setattr("pytest_bandwidth.devices.contents.host_contents", refuse)
    code = gathers.code(np.arange(N))
    assert not code.is_same(code, by="sass")
    (finding,) = [found for found in gathers.bandwidth.measurements["1"].findings if "code" in found.code]
    assert finding.text == "its code is not known: what its index arrays hold is not known (it takes too long)"


def test_opaque_fields_and_parameters_of_a_launch(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    bandwidth = bandwidth_on("traffic", tmp_path)
    text = 'extern "C" __global__ void fill(float* x, int seed, int n) { if (threadIdx.x < n) x[threadIdx.x] = seed; }'
    x = bandwidth.empty(64)

    def code(seed, **more):
        launch = (bandwidth.kernel(text, "fill"), 1, 64, (x, np.int32(seed), np.int32(64)))
        return bandwidth.launch(*launch, writes=x, label=str(more) + str(seed), **more).code

    assert code(1).launch != code(2).launch
    assert code(1, opaque="seed").is_same(code(2, opaque=("seed",)), by="ptx")
    assert code(1, opaque=1).launch == code(3, opaque="seed").launch
    with pytest.raises(UsageError, match=r"0 to 2, or names of parameters or fields \(x, seed, n\)"):
        code(1, opaque="sed")
