"""What a user's test can do to a GPU, real CuPy and all: each is one line, at the test that did it."""

import re
from pathlib import Path

import pytest
from card_processes import Card

TROUBLES = """
import gc
import threading
import time
from contextlib import suppress

import pytest

WILD = 'extern "C" __global__ void wild(float* x) { x[1ll << 36] = 1; }'

@pytest.fixture
def copied(bandwidth):
    x, y = bandwidth.random(1 << 16, "float32"), bandwidth.empty(1 << 16, "float32")
    return bandwidth.xp, x, y

def test_nested(bandwidth, copied):
    cp, x, y = copied
    def inner():
        bandwidth(lambda: cp.copyto(y, x), reads=x, writes=y, label="inner")
    bandwidth(inner, reads=x, writes=y)

def test_capture(bandwidth, copied):
    cp, x, y = copied
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        try:
            bandwidth(lambda: cp.copyto(y, x), reads=x, writes=y)
        finally:
            with suppress(RuntimeError):  # waiting has spoilt it
                stream.end_capture()

def test_other_card(bandwidth, copied):
    cp, x, y = copied
    with cp.cuda.Device(1):
        there = cp.ones(1 << 16, "float32")
    def call():
        with cp.cuda.Device(1):
            there.fill(2)
    bandwidth(call, writes=1 << 18)

def test_thread_with_a_stream_of_its_own(bandwidth, copied):
    cp, x, y = copied
    stream = cp.cuda.Stream(non_blocking=True)
    def work():
        with stream:
            cp.copyto(y, x)
    def call():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    bandwidth(call, reads=x, writes=y)

def test_well(bandwidth, copied):
    cp, x, y = copied
    with cp.cuda.Device(1):
        bandwidth(lambda: cp.copyto(y, x), reads=x, writes=y)

def test_too_large(bandwidth):
    bandwidth.random(1 << 42, "float32")

def test_clock_that_stands(bandwidth, copied, monkeypatch):
    cp, x, y = copied
    for name in ("monotonic", "perf_counter", "perf_counter_ns"):
        monkeypatch.setattr(time, name, lambda: 0)
    bandwidth(lambda: cp.copyto(y, x), reads=x, writes=y)

def test_wild_after_its_measurement(bandwidth, copied):
    gc.collect()  # streams of tests that failed, which cannot be destroyed without a context
    cp, x, y = copied
    bandwidth(lambda: cp.copyto(y, x), reads=x, writes=y)
    cp.RawKernel(WILD, "wild")((1,), (1,), (x,))

def test_next(bandwidth, copied):
    pass
"""
LOST = "the GPU context is lost, a kernel read or wrote outside its arrays"


@pytest.fixture(scope="module")
def shown(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("user")
    (folder / "test_troubles.py").write_text(TROUBLES)
    # Destructors that raise are errors, too.
    args = ("-p", "unraisableexception", "-W", "error")
    status, shown, _ = shared_card.tested(folder, *args, DEVICES=2, L2_BYTES=1 << 16)
    assert status == 1
    return shown


@pytest.mark.parametrize(
    ("test", "line"),
    [
        (
            "test_nested",
            "bandwidth was called inside a measured callable, or by another thread meanwhile: measure one at a time",
        ),
        ("test_capture", "a stream is capturing a graph, and CUDA cannot synchronize meanwhile"),
        ("test_other_card", "nothing ran on the timed stream"),
        ("test_thread_with_a_stream_of_its_own", "nothing ran on the timed stream"),
        ("test_too_large", "does not fit the GPU's memory"),
        ("test_wild_after_its_measurement", LOST),
        ("test_next", LOST),
    ],
)
def test_each_is_told_where_it_was_done(shown: str, test: str, line: str) -> None:
    (told,) = re.findall(rf"^_+ (?:ERROR at setup of )?{test} _+\n(.*)$", shown, re.MULTILINE)
    assert line in told


def test_nothing_else_is(shown: str) -> None:
    assert "Traceback" not in shown
    assert re.search(r"^=+ 6 failed, 2 passed, 1 error in ", shown, re.MULTILINE)
