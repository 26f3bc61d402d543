"""`bandwidth.launch(…, graph=True)` where no GPU has graphs: it measures, or counts, as without, and says so."""

import numpy as np
import pytest

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.judging.marker import MarkerOptions
from pytest_bandwidth.session.fixture import Bandwidth
from pytest_bandwidth.session.fresh.child import Invocation
from pytest_bandwidth.session.run import Run
from pytest_bandwidth.session.settings import Settings

N = 1 << 12


@pytest.fixture(params=["cpu", "traffic"])
def bandwidth(request, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run = Run(Settings(device=request.param), Invocation((), tmp_path, as_module=True), tmp_path)
    return Bandwidth(run, MarkerOptions(max_time=0.01, min_samples=3), tmp_path / "test_it.py")


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


def test_what_a_graph_has_no_place_for_is_refused_everywhere(bandwidth):
    with pytest.raises(UsageError, match="graph=True and setup=: a graph has several launches and no place for it"):
        copy(bandwidth, graph=True, setup=lambda: None)
    with pytest.raises(UsageError, match="graph='yes', expected True or False"):
        copy(bandwidth, graph="yes")
