"""reads= and writes= by name: what they declare, what they refuse, and what is offered where nothing is declared."""

import numpy as np
import pytest
from scripted import ScriptedDevice

from pytest_bandwidth.devices.numpy_arrays import host_nbytes
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.judging.marker import MarkerOptions
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.session.fixture import Bandwidth
from pytest_bandwidth.session.fresh.child import Invocation
from pytest_bandwidth.session.run import Run
from pytest_bandwidth.session.user.call_arrays import CallArrays
from pytest_bandwidth.session.user.settings import Settings

X, W = np.ones((16, 4), np.float32), np.ones(16, np.float32)


@pytest.fixture
def bandwidth(tmp_path, monkeypatch):
    """Makes a fixture on the scripted device."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def make(**settings):
        run = Run(Settings(**settings), Invocation((), tmp_path, as_module=True), tmp_path)
        run.device = ScriptedDevice()
        return Bandwidth(run, MarkerOptions(max_time=0.01), tmp_path / "test_it.py")

    return make


def layer(x, w=None, *rest, scale=1.0, **more):
    return {"out": x * scale, "also": [w, rest, more]}


@pytest.mark.parametrize(
    ("sides", "moved"),
    [
        ({"reads": "args"}, (320, 0)),
        ({"reads": "x"}, (256, 0)),
        ({"reads": ("x", "w"), "writes": "result"}, (320, 320)),
        ({"reads": ["args", 80], "writes": "result"}, (400, 320)),
        ({"reads": ("args", X)}, (320, 0)),
        ({"reads": ("x", X[:2], W), "writes": ("result", X)}, (320, 576)),
        ({"reads": ("w", Traffic(1000, 24)), "writes": "w"}, (1064, 88)),
        ({"reads": "1 kB", "writes": "x"}, (1000, 256)),
        ({"writes": ("result", "args")}, (0, 576)),
    ],
)
def test_names_declare_what_they_stand_for(bandwidth, sides, moved):
    traffic = bandwidth()(layer, X, W, **sides).traffic
    assert (traffic.bytes_read, traffic.bytes_written) == moved


def test_parameters_that_gather_and_defaults_are_named_too(bandwidth):
    measured = bandwidth()
    assert measured(layer, X, W, X[1:], [W], k={"v": W}, reads=("rest", "more"), label="a").bytes_moved == 240 + 64
    assert measured(layer, X, None, X[1:], k=W, reads="args", label="b").bytes_moved == X.nbytes + W.nbytes
    assert measured(np.add, X, X[::-1], reads="args", writes="result", label="c").bytes_moved == 2 * X.nbytes


def test_without_a_declaration_the_error_offers_one_and_nothing_runs(bandwidth):
    with pytest.raises(
        UsageError, match=r"is declared: .*; here reads='args' would declare 2 arrays \(x, w\), 320 B, and"
    ):
        bandwidth()(layer, X, W)
    with pytest.raises(UsageError, match="here no array is among the arguments"):
        bandwidth()(pytest.fail, "it ran")
    with pytest.raises(UsageError, match="here reads='args' would not do: x is a generator"):
        bandwidth()(layer, (i for i in ()))


@pytest.mark.parametrize(
    ("sides", "said"),
    [
        ({"reads": "y"}, r"reads='y', expected arrays.* 'result' or a parameter of .* \(x, w, rest and 2 more\)"),
        ({"reads": "result"}, "reads='result': what a call returns is written, expected writes='result'"),
        ({"writes": ("x", "scale")}, r"writes='scale': scale holds no array \(a float\): name arrays or bytes"),
        ({"reads": "64 parsecs"}, "reads='64 parsecs', expected arrays, whole numbers of bytes"),
        ({"reads": "rest"}, r"rest\[0\] is a generator, whose arrays cannot be seen"),
    ],
)
def test_what_names_no_arrays_is_refused(bandwidth, sides, said):
    with pytest.raises(UsageError, match=said):
        bandwidth()(layer, X, W, (i for i in ()), **sides)


def test_a_result_without_arrays_is_refused(bandwidth):
    with pytest.raises(UsageError, match=r"writes='result': the call returned no array \(a float32\)"):
        bandwidth()(np.sum, X, reads="args", writes="result")


def test_an_array_elsewhere_is_refused_by_its_name():
    class OnGpu:
        @property
        def __cuda_array_interface__(self):
            return {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3}

    arrays = CallArrays(layer, (X, [OnGpu()]), {}, host_nbytes)
    with pytest.raises(
        UsageError, match=r"^w\[0\]: a test_call_arrays\.OnGpu in reads= or writes= is no array in host"
    ):
        arrays.declared("args", None, lambda: None)


def test_a_callable_that_tells_no_parameters_has_arguments_by_place():
    arrays = CallArrays(np.ndarray.__add__, (X, W), {}, host_nbytes)
    arrays.__dict__["_parameters"] = None
    with pytest.raises(UsageError, match=r"reads='x', expected .* \(whose parameters cannot be told\)"):
        arrays.declared("x", None, lambda: None)
    (group,), _ = arrays.declared("args", None, lambda: None)
    assert group.nbytes == X.nbytes + W.nbytes


@pytest.mark.parametrize("settings", [{"disable": True}, {}])
def test_the_result_is_asked_for_once(bandwidth, settings):
    runs, made = [], []

    def call(x):
        runs.append(len(made))
        return x + 1

    measured = bandwidth(**settings)(call, X, writes="result", setup=lambda: made.append(None))
    assert measured.value is not None
    assert measured.bytes_moved == X.nbytes
    assert runs == list(range(1, len(runs) + 1))
    # Untimed it does not run a second time.
    assert (len(runs) == 1) == bool(settings)


def test_what_the_first_run_raises_is_the_callables(bandwidth):
    from pytest_bandwidth.session.user.errors import WorkloadFailed

    with pytest.raises(WorkloadFailed, match=r"the measured callable \(k\) raised ZeroDivisionError"):
        bandwidth()(lambda: 1 / 0, writes="result", label="k")


@pytest.mark.parametrize(
    "made",
    [lambda: (i for i in [X]), lambda: map(np.sqrt, [X]), lambda: zip([X], [W], strict=True), lambda: iter([X])],
    ids=["generator", "map", "zip", "list_iterator"],
)
def test_an_argument_that_the_first_run_uses_up_is_refused(bandwidth, made):
    for declaration in ({"reads": X}, {"reads": 256}):
        with pytest.raises(UsageError, match=r"^argument 1 is a \w+, which the first run .* expected a list"):
            bandwidth()(lambda found: [one + 1 for one in found], made(), **declaration)
        with pytest.raises(UsageError, match=r"^found is a \w+, which the first run"):
            bandwidth()(lambda found: [one + 1 for one in found], found=made(), **declaration)


def test_what_can_be_wound_back_may_be_an_argument(bandwidth, tmp_path):
    X.tofile(tmp_path / "x")
    with open(tmp_path / "x", "rb") as file:
        measured = bandwidth()(np.fromfile, file, np.float32, reads=256, setup=lambda: file.seek(0))
    assert measured.value.size == X.size
