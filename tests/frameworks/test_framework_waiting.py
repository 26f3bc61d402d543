"""Callables that return before they have finished: waited for, or refused with the reason."""

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import count

import numpy as np
import pytest

from pytest_bandwidth.devices.base import Workload
from pytest_bandwidth.devices.code.callables import callable_code
from pytest_bandwidth.devices.numpy_arrays import host_nbytes
from pytest_bandwidth.devices.open import open_device
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.frameworks.arrays import grouped, located
from pytest_bandwidth.frameworks.waiting import awaited
from pytest_bandwidth.options.errors import with_named_errors

X = np.ones((8, 4), np.float32)


def waited(call, on_gpu=False, **given):
    """The callable that waits, given those arguments."""
    return awaited(call, given, None, on_gpu=on_gpu)[0]


class OnGpu:
    """Offer memory as CuPy's arrays do."""

    @property
    def __cuda_array_interface__(self):
        return {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3}


def test_bad_arrays_of_jax(jax):
    x, deleted = jax.numpy.asarray(X), jax.numpy.ones(4)
    deleted.delete()
    with pytest.raises(UsageError, match="x is a JAX array whose buffer was deleted or donated"):
        located("x", deleted)

    key = jax.random.key(0)
    assert grouped([located("x", x), located("y", x), located("key", key)], {}).nbytes == X.nbytes + key.nbytes
    with pytest.raises(UsageError, match="JAX's, which runs on streams where no event"):
        waited(lambda: x, on_gpu=True, x=x)


def test_a_gpu_that_times_any_stream_waits_for_jax(jax):
    x = jax.numpy.asarray(X)
    call, stream = awaited(lambda: x + 1, {"x": x}, None, on_gpu=True, any_stream=True)
    assert (call().is_ready(), stream) == (True, None)
    with pytest.raises(
        UsageError, match="no graph can be recorded; expected --bandwidth-timer=cupti, without graph=True"
    ):
        awaited(lambda: x + 1, {"x": x}, None, on_gpu=True, any_stream=True, graph=True)


def test_views_and_bad_tensors_of_torch(torch):
    x = torch.ones(8, 4)
    views = [located("x", x), located("t", x.T), located("v", x[:, ::2]), located("b", x[0].expand(100, 4))]
    group = grouped(views, {})
    assert group.nbytes == 128
    assert all(isinstance(view, np.ndarray) for view in group.arrays)
    assert grouped([located("half", torch.ones(3, dtype=torch.bfloat16))], {}).nbytes == 6
    for bad, said in (
        (torch.ones(3, requires_grad=True), "x requires grad: each run would record a graph"),
        (torch.eye(3).to_sparse(), r"x is a tensor of layout torch\.sparse_coo"),
    ):
        with pytest.raises(UsageError, match=said):
            located("x", bad)
    with torch.no_grad():
        assert located("x", torch.ones(3, requires_grad=True)).framework.name == "PyTorch"


def test_stand_ins_for_tensors_are_refused_whatever_is_declared(torch):
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(3)
    for bad in (fake, torch.ones(3, device="meta")):
        with pytest.raises(UsageError, match=r"x is a meta or fake tensor, which has no memory"):
            waited(lambda: None, x=bad)
        with pytest.raises(UsageError, match="the result is a meta or fake tensor"):
            waited(lambda bad=bad: bad)()


def test_tensors_are_not_captured_by_others_than_torch(torch):
    """On a host's tensors: where they lie does not matter to it."""
    said = "is PyTorch's, which keeps memory only for graphs .*: capture it with torch.cuda.graph, and measure"
    with pytest.raises(UsageError, match=rf"graph=True: x {said}"):
        awaited(lambda: None, {"x": torch.ones(3)}, None, on_gpu=True, graph=True)
    call, _ = awaited(lambda: torch.ones(3), {}, None, on_gpu=True, graph=True)
    with pytest.raises(UsageError, match=f"graph=True: the result {said}"):
        call()


@pytest.mark.bandwidth(device="cpu")
@pytest.mark.parametrize("declared", [{"reads": "args", "writes": "result"}, {"reads": X.nbytes}])
def test_a_measured_callable_that_gives_away_is_named(bandwidth, jax, declared):
    donating = jax.jit(lambda x: x + 1, donate_argnums=0)
    with pytest.raises(UsageError, match="x is JAX's and was donated"):
        bandwidth(donating, jax.numpy.asarray(X), **declared)


def test_what_returns_its_arguments_alone_is_refused(jax):
    """What it computes beside them would go on after it has returned."""
    x, beside = jax.numpy.asarray(X), []

    def call():
        beside.append(x * 2)
        return [x]

    with pytest.raises(UsageError, match="returned only arrays that it was given, into which JAX computes nothing"):
        waited(call, x=x)()
    waited(lambda: (x, x * 2), x=x)()


def test_what_tinygrad_would_not_compute_is_refused(tinygrad):
    x = tinygrad.Tensor(X, device="PYTHON").realize()
    with pytest.raises(UsageError, match="no tinygrad kernel ran: the result was computed before"):
        waited(lambda: x, x=x)()
    with pytest.raises(UsageError, match="x is not realized: each run would compute it again"):
        located("x", x + 1)
    with pytest.raises(UsageError, match="is not realized: each run would compute it again"):
        waited(lambda: None, x=[x + 1])
    with pytest.raises(UsageError, match="x is a view, and tinygrad does not give its address"):
        located("x", x[2:4])


def on_python(call, given):
    device = open_device("tinygrad:PYTHON")
    return awaited(call, given, None, on_gpu=False, own_check=device.check_array)


def test_on_a_backend_its_tensors_are_waited_for_and_others_refused(tinygrad, jax):
    x = tinygrad.Tensor(X, device="PYTHON").realize()
    call, stream = on_python(lambda: x + 1, {"x": x})
    assert call().uop.is_realized
    assert stream is None
    elsewhere = tinygrad.Tensor(X, device="PYTHON:1").realize()
    for bad, said in (
        (elsewhere, r"x is on tinygrad's PYTHON:1, this run measures PYTHON: expected tensors there, or --bandwidth-"),
        (X, r"x is NumPy's and not in the memory of tinygrad's PYTHON, where .* by Tensor\(…, device='PYTHON'\)"),
        (jax.numpy.asarray(X), r"x is JAX's and not in the memory of tinygrad's PYTHON"),
    ):
        with pytest.raises(UsageError, match=said):
            on_python(lambda: None, {"x": bad})
        returning, _ = on_python(lambda bad=bad: [bad], {})
        with pytest.raises(UsageError, match=said.replace("x is", r"the result\[0\] is")):
            returning()


def test_what_tinygrad_computes_in_place_is_waited_for(tinygrad):
    x, out = (tinygrad.Tensor(X + number, device="PYTHON").realize() for number in (0, 1))
    assert waited(lambda: out.assign(x * 3), out=out, x=x)() is out
    assert out.uop.is_realized
    np.testing.assert_array_equal(out.numpy(), X * 3)
    with pytest.raises(UsageError, match="out is assigned to and not realized, so its work never runs"):
        waited(lambda: [out.assign(x * 4), x + 1][1], out=out, x=x)()


def test_what_a_backend_holds_is_refused_on_a_gpu_and_says_what_would_do(tinygrad):
    x = tinygrad.Tensor(X, device="PYTHON").realize()
    with pytest.raises(UsageError, match=r"x is tinygrad's on PYTHON, .* expected --bandwidth-device=tinygrad:BACKEND"):
        waited(lambda: x, on_gpu=True, x=x)


def test_arrays_of_a_gpu_are_refused_on_the_host():
    with pytest.raises(UsageError, match="is test_framework_waiting's and not in host memory, where this run"):
        waited(lambda: None, x=OnGpu())
    with pytest.raises(UsageError, match="the result is test_framework_waiting's and not in host memory"):
        waited(OnGpu)()
    waited(OnGpu, on_gpu=True)()


def test_what_still_runs_when_it_is_returned_is_refused():
    go = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        thread = threading.Thread(target=go.wait, args=(10,))
        thread.start()
        try:
            future = pool.submit(go.wait, 10)
            for unfinished in (thread, future, [future], (future, 1), {"a": future}):
                kind = "Thread" if unfinished is thread else "Future"
                workload = with_named_errors(Workload(lambda one=unfinished: one, Traffic(8, 0)))
                with pytest.raises(UsageError, match=f"returned a {kind} that has not finished"):
                    workload.call()
        finally:
            go.set()
        thread.join()
        done = pool.submit(int)
        done.result()
        assert with_named_errors(Workload(lambda: done, Traffic(8, 0))).call() is done


class Holds:
    def __init__(self, array):
        self.array = array


class Registered(Holds):
    """Told to JAX as a pytree."""


@cache
def long_work(jax):
    """A function, and what it is given: a tenth of a second of work is not done when the call returns."""
    function = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, y: x @ y / 1000, x))
    x = jax.numpy.ones((1000, 1000))
    jax.block_until_ready(function(x))  # compiled
    assert not function(x).is_ready(), "nothing would show that waiting is needed"
    return function, x


@pytest.mark.parametrize("shape", ["pytree", "beside an iterator", "deque", "values", "mapping"])
def test_jax_is_waited_for_wherever_it_is_seen(jax, shape):
    if shape == "pytree":
        jax.tree_util.register_pytree_node(Registered, lambda h: ((h.array,), None), lambda _, y: Registered(*y))
    function, x = long_work(jax)
    ways = {
        "pytree": (Registered, lambda value: value.array),
        "beside an iterator": (lambda y: (y, iter([])), lambda value: value[0]),
        "deque": (lambda y: deque([y]), lambda value: value[0]),
        "values": (lambda y: {"y": y}.values(), lambda value: next(iter(value))),
        "mapping": (lambda y: {"y": y}, lambda value: value["y"]),
    }
    held, taken = ways[shape]
    call = waited(lambda: held(function(x)), x=x)
    assert taken(call()).is_ready()


@pytest.mark.parametrize("how", ["closure", "partial", "a global", "a function of its own"])
def test_jax_that_comes_in_by_no_argument_has_to_come_out(jax, how, monkeypatch):
    x = jax.numpy.asarray(X)
    monkeypatch.setitem(globals(), "Y", x)

    def inner():
        x * 2

    calls = {
        "closure": inner,
        "partial": partial(lambda a: (a * 2, None)[1], x),
        "a global": lambda: (Y * 2, None)[1],  # noqa: F821
        "a function of its own": lambda: inner() or None,
    }
    with pytest.raises(UsageError, match="computed later and returned None, so there is nothing to wait for"):
        waited(calls[how])()


def test_an_attribute_is_no_name_of_the_module(jax, monkeypatch):
    monkeypatch.setitem(globals(), "T", jax.numpy.asarray(X))
    assert waited(lambda: (X.T, None)[1])() is None


@pytest.mark.parametrize("value", [Holds, lambda _: [], lambda _: (None, []), lambda _: None])
def test_a_result_in_which_jax_is_not_seen_is_refused(jax, value):
    x, found = jax.numpy.asarray(X), r"(None|a .* without an array)"
    with pytest.raises(UsageError, match=rf"computed later and returned {found}, so there is nothing to wait for"):
        waited(lambda: value(x * 2), x=x)()


def test_numbers_and_other_arrays_were_waited_for_by_the_callable(jax):
    x = jax.numpy.asarray(X)
    for told in (lambda: float(x.sum()), lambda: np.asarray(x * 2), lambda: (str(x.sum()), None)):
        assert waited(told, x=x)() is not None


def test_a_tracer_is_refused_by_name(jax):
    def outside(x):
        waited(lambda: x * 2, x=x)

    with pytest.raises(UsageError, match="x is a tracer of a JAX transformation"):
        jax.jit(outside)(jax.numpy.asarray(X))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_nested_and_sparse_tensors_are_refused_by_name(torch):
    rows = torch.nested.nested_tensor([torch.ones(3), torch.ones(5)])
    with pytest.raises(UsageError, match="x is a nested tensor"):
        located("x", rows)
    with pytest.raises(UsageError, match="has no known size"):
        host_nbytes(torch.eye(4).to_sparse())
    assert callable_code(len, (rows,), {}, None).identity.launch != ""


def test_a_future_of_torch_that_is_not_done_is_refused(torch):
    with pytest.raises(UsageError, match="returned a Future that has not finished"):
        with_named_errors(Workload(torch.futures.Future, Traffic(1, 0))).call()


SOFTMAX = {
    "torch": lambda torch: (lambda x: torch.softmax(x, 1), torch.from_numpy, np.asarray),
    "jax": lambda jax: (jax.jit(lambda x: jax.nn.softmax(x, axis=1)), jax.numpy.asarray, np.asarray),
    "tinygrad": lambda tinygrad: (
        lambda x: x.softmax(axis=1),
        lambda x: tinygrad.Tensor(x, device="PYTHON").realize(),
        lambda y: y.numpy(),
    ),
}


@pytest.mark.bandwidth(device="cpu", min_samples=3, max_time=0.02)
@pytest.mark.parametrize("name", SOFTMAX)
def test_a_softmax_on_the_host_has_its_declared_bytes_and_right_results(bandwidth, request, name):
    softmax, there, back = SOFTMAX[name](request.getfixturevalue(name))
    x = bandwidth.random((16, 8), "float32")
    measured = bandwidth(softmax, there(x), reads="args", writes="result")
    assert (measured.traffic.bytes_read, measured.traffic.bytes_written) == (x.nbytes, x.nbytes)
    e = np.exp(x.astype("float64"))
    np.testing.assert_allclose(back(measured.value), e / e.sum(axis=1, keepdims=True), rtol=1e-5)
    assert measured.method == "clock"
    assert measured.rounds.warmup_runs > 0
    with pytest.raises(UsageError, match="arrays of two frameworks in one call: x is NumPy's, y is "):
        bandwidth(lambda x, y: (x, y), x, there(x), reads="args", label="both")


# ---- samples in which JAX compiles do not count; what PyTorch has in its place ---------------------------------------


@pytest.mark.bandwidth(device="cpu", min_samples=4, max_time=0.2)
def test_each_third_sample_is_dropped_where_each_third_call_has_another_shape(bandwidth, jax):
    jitted, calls = jax.jit(lambda x: x + 1), count(1)

    def call(x):
        n = next(calls)
        return jitted(np.ones(n, np.float32) if n % 3 == 0 else x)

    rounds = bandwidth(call, jax.numpy.ones(7), reads=28, writes=28).rounds
    spoilt = [one for one in rounds.dropped if one.code == "recompiled"]
    assert spoilt
    assert "JAX compiled during the sample: shapes, types, static arguments or the function" in spoilt[0].reason
    assert {one.round % 3 for one in spoilt} == {spoilt[0].round % 3}


@pytest.mark.bandwidth(device="cpu", min_samples=3, max_time=0.02)
def test_what_compiles_in_every_call_leaves_no_sample(bandwidth, jax):
    found = bandwidth(lambda x: jax.jit(lambda x: x + 1)(x), jax.numpy.ones(8), reads="args", writes="result")
    assert "JAX compiled during the sample" in found.invalid.text


@pytest.mark.bandwidth(device="cpu", min_samples=3, max_time=0.02)
def test_torchs_own_stance_makes_a_recompilation_an_error(bandwidth, torch):
    """PyTorch has no public account of its recompilations: this is what the docs say instead."""
    compiled, sizes = torch.compile(lambda x: x + 1, backend="eager", dynamic=False), count(2)
    compiled(torch.ones(2))
    with (
        torch.compiler.set_stance("fail_on_recompile"),
        pytest.raises(BandwidthError, match="the measured callable raised RuntimeError: Detected recompile"),
    ):
        bandwidth(lambda: compiled(torch.ones(next(sizes))), reads=8, writes=8)
