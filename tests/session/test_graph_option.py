"""`graph=True` where no GPU has graphs: it measures, or counts, as without, and says so."""

import numpy as np
import pytest
from bandwidths import bandwidth_on

from pytest_bandwidth.domain.errors import UsageError

N = 1 << 12


@pytest.fixture(params=["cpu", "traffic"])
def bandwidth(request, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return bandwidth_on(request.param, tmp_path)


def copy(bandwidth, **more):
    x, y = bandwidth.random(N), bandwidth.empty(N)
    kernel = bandwidth.kernel("stream.cu", "copy_f32")
    return bandwidth.launch(kernel, 4, 256, (y, x, np.int64(N)), reads=x, writes=y, **more)


def test_it_changes_nothing_and_says_so(bandwidth):
    plain, graph = copy(bandwidth, label="plain"), copy(bandwidth, label="graph", graph=True)
    assert [one.text for one in graph.findings if one.code == "no-graphs"] == [
        "graph=True changes nothing here: only a GPU has graphs"
    ]
    assert not [one for one in plain.findings if one.code == "no-graphs"]
    assert (graph.method, graph.bytes_moved) == (plain.method, plain.bytes_moved)
    assert graph.counts == plain.counts
    assert bandwidth.measurements["graph"] is graph


def test_a_callable_too(bandwidth):
    if bandwidth.device == "traffic":
        pytest.skip("it takes launches only")
    x, y = bandwidth.random(N), bandwidth.empty(N)
    call = bandwidth(np.copyto, y, x, reads=x, writes=y, graph=True)
    compared = bandwidth.compare({name: lambda: np.copyto(y, x) for name in "ab"}, reads=x, writes=y, graph=True)
    for one in (call, compared["a"], compared["b"]):
        assert [found.code for found in one.findings if found.code == "no-graphs"] == ["no-graphs"]
        assert one.method == "clock"


def test_what_a_graph_of_a_callable_has_no_place_for_is_refused_everywhere(bandwidth):
    with pytest.raises(UsageError, match="graph=True and setup=: a graph keeps the arrays of its capture"):
        bandwidth(lambda: None, reads=8, graph=True, setup=lambda: None)
    with pytest.raises(UsageError, match="graph=1, expected True or False"):
        bandwidth(lambda: None, reads=8, graph=1)
    with pytest.raises(UsageError, match="graph=1, expected True or False"):
        bandwidth.compare({"a": lambda: None, "b": lambda: None}, reads=8, graph=1)


def test_what_a_graph_has_no_place_for_is_refused_everywhere(bandwidth):
    with pytest.raises(UsageError, match="graph=True and setup=: a graph has several launches and no place for it"):
        copy(bandwidth, graph=True, setup=lambda: None)
    with pytest.raises(UsageError, match="graph='yes', expected True or False"):
        copy(bandwidth, graph="yes")
