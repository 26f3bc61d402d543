"""What a test hands the fixture that cannot be measured: refused in one short line."""

import re

import numpy as np
import pytest

from pytest_bandwidth.devices.base import Workload
from pytest_bandwidth.devices.numpy_arrays import host_nbytes
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.session.user.errors import with_named_errors
from pytest_bandwidth.session.user.input import (
    LARGEST_COUNT,
    checked_callable,
    checked_launch,
    checked_shape,
    declared,
    refuse_unlabelled,
)

HUGE = bytes(3_000_000)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: declared(HUGE, None, None, None, len),
        lambda: declared("x" * 10**6, None, None, None, len),
        lambda: declared(-(10**5000), None, None, None, len),
        lambda: declared(8, None, HUGE, None, len),
        lambda: checked_shape((HUGE,)),
        lambda: checked_callable("setup", HUGE),
        lambda: checked_launch(None, HUGE, 1, (), 0),
        lambda: checked_launch(None, 1, 1, (), HUGE),
    ],
)
def test_a_long_value_is_cut(wrong):
    with pytest.raises(UsageError) as caught:
        wrong()
    assert len(str(caught.value)) < 200


def test_views_of_one_another_hold_each_byte_once():
    x, y = np.zeros(1024), np.zeros(16, np.float32)
    for reads, nbytes in (
        ((x, x), 8192),
        ((x[:512], x[512:], x), 8192),
        ((x[:600], x[500:], 100), 8192 + 100),
        ((x, y), 8192 + 64),
        ((x[::2], x[1::2]), 8192),
    ):
        found = declared(reads, x, None, None, host_nbytes)
        assert (found.traffic.bytes_read, found.traffic.bytes_written) == (nbytes, 8192)
    assert [id(one) for one in declared((x, y, x), None, None, None, host_nbytes).reads] == [id(x), id(y)]


def test_each_of_several_arrays_has_to_be_in_the_devices_memory():
    def elsewhere(_array):
        raise UsageError("not in its memory")

    with pytest.raises(UsageError, match="not in its memory"):
        declared((np.zeros(4), np.zeros(4)), None, None, None, elsewhere)


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        (3, (3,)),
        (np.int64(3), (3,)),
        ((2, np.int32(3)), (2, 3)),
        (np.array([2, 3]), (2, 3)),
        ([], ()),
        (0, (0,)),
    ],
)
def test_sizes_are_whole_numbers_of_python_or_numpy(shape, sizes):
    found = checked_shape(shape)
    assert (found, [type(size) for size in found]) == (sizes, [int] * len(sizes))
    launch = checked_launch(None, (np.int64(4), 2), np.array([32]), (), 0)
    assert (launch.grid, launch.block) == ((4, 2, 1), (32, 1, 1))


@pytest.mark.parametrize("wrong", [3.0, np.float64(3), (2, 3.0), -1, (2, -1), True, (2, True), None, "3", object()])
def test_what_is_no_size_is_refused(wrong):
    with pytest.raises(UsageError, match="expected a whole number or a sequence of them"):
        checked_shape(wrong)
    with pytest.raises(UsageError, match="expected one to three whole numbers"):
        checked_launch(None, wrong, 1, (), 0)


@pytest.mark.parametrize(
    ("reads", "flop", "named"),
    [
        (10**30, None, "reads= and writes= add up to more than 2^60 bytes"),
        ((LARGEST_COUNT, 1), None, "reads= and writes= add up to more than 2^60 bytes"),
        (Traffic(LARGEST_COUNT + 1, 0), None, "reads= and writes= add up to more than 2^60 bytes"),
        (8, 10**30, "flop= is more than 2^60"),
    ],
)
def test_no_run_moves_or_computes_without_bounds(reads, flop, named):
    with pytest.raises(UsageError, match=re.escape(named)):
        declared(reads, None, flop, None, len)
    assert declared(LARGEST_COUNT, None, LARGEST_COUNT, None, len).traffic.flop == LARGEST_COUNT


async def coroutine():
    pass


def generator():
    yield


async def async_generator():
    yield


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (coroutine, "coroutine"),
        (generator, "generator"),
        (async_generator, "async generator"),
        (lambda: coroutine(), "coroutine"),
        (lambda: (i for i in ()), "generator"),
    ],
)
def test_what_has_not_run_when_it_returns_is_refused(call, kind):
    workload = with_named_errors(Workload(call, Traffic(8, 0), label="f"))
    with pytest.raises(UsageError, match=rf"the measured callable \(f\) returned a {kind}, whose body has not run"):
        workload.call()


def test_any_other_value_is_handed_on():
    values = iter((range(3), [1], None))
    workload = with_named_errors(Workload(lambda: next(values), Traffic(8, 0)))
    assert [workload.call() for _ in range(3)] == [range(3), [1], None]


def twice(bandwidth):
    bandwidth(len, (), reads=8)
    found = bandwidth.launch(None, 1, 1, (), reads=8)
    del found


def once_each(bandwidth):
    bandwidth(len, (), reads=8)
    bandwidth(len, (), reads=8, label="b")
    bandwidth.bind(None, 1, 1, ())
    if bandwidth.xp is None:
        bandwidth(len, (), reads=8)


def test_two_measurements_without_a_label_are_refused_where_they_are_sure_to_come():
    refuse_unlabelled(once_each)
    refuse_unlabelled(len)  # whose source cannot be had
    first = twice.__code__.co_firstlineno + 1
    with pytest.raises(UsageError, match=rf"\(lines {first} and {first + 1}\): give each a label= of its own"):
        refuse_unlabelled(twice)


@pytest.mark.parametrize(("text", "count"), [("64 MiB", 2**26), ("1 kB", 1000)])
def test_bytes_may_have_a_unit(text, count):
    found = declared(text, None, None, None, len)
    assert (found.traffic.bytes_read, found.reads) == (count, ())


def test_text_that_is_no_number_of_bytes_is_refused():
    said = "reads='1 MB/s', expected arrays, whole numbers of bytes, text such as '64 MiB'"
    with pytest.raises(UsageError, match=said):
        declared("1 MB/s", None, None, None, len)


@pytest.mark.parametrize("number", [np.int64(1 << 20), np.uint32(1 << 20), np.prod((1 << 10, 1 << 10))])
def test_numpys_whole_numbers_are_bytes_and_flop(number):
    found = declared(number, [number, 4], number, None, host_nbytes)
    assert found.traffic == Traffic(1 << 20, (1 << 20) + 4, flop=1 << 20)
    assert found.reads == found.writes == ()


@pytest.mark.parametrize("wrong", [np.float32(4096), np.float64(4096), 4096.0, 1j, np.complex64(1)])
def test_other_numbers_are_no_bytes(wrong):
    with pytest.raises(UsageError, match="whole numbers of bytes"):
        declared(wrong, None, None, None, host_nbytes)
    with pytest.raises(UsageError, match="flop="):
        declared(8, None, wrong, None, host_nbytes)


@pytest.mark.parametrize(("given", "known"), [("fp16-tensor", "fp16-tensor"), ("float32", "fp32"), ("half", "fp16")])
def test_a_precision_is_one_that_a_peak_is_known_by(given, known):
    assert declared(8, None, 8, given, host_nbytes).precision == known


@pytest.mark.parametrize("wrong", ["fp99", "FP32", "fp16 tensor", 32, "", ["fp32"]])
def test_another_precision_is_refused_with_those_there_are(wrong):
    with pytest.raises(UsageError, match=r"precision=.*, expected one of bf16, .*fp32"):
        declared(8, None, 8, wrong, host_nbytes)
