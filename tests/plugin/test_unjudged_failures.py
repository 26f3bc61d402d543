"""A bandwidth test that fails before it is judged is in the run's document, and the report is not green."""

from pytest_bandwidth.domain.unjudged import UNJUDGED
from pytest_bandwidth.rendering.document import read_document
from pytest_bandwidth.rendering.headline import headline_of

TESTS = """
import numpy as np
import pytest

def copy(bandwidth):
    a, b = bandwidth.random(1 << 14, "float32"), bandwidth.empty(1 << 14, "float32")
    bandwidth(np.copyto, b, a, reads=a, writes=b)

@pytest.mark.bandwidth(min_gbps=0.0001)
def test_good(bandwidth):
    copy(bandwidth)

def test_wrong_result(bandwidth):
    copy(bandwidth)
    assert False, "not what it should be"

@pytest.fixture
def broken():
    raise ValueError("no data")

def test_broken_setup(bandwidth, broken):
    copy(bandwidth)

def test_of_no_bandwidth():
    assert False
"""


def test_failures_without_a_verdict_are_told(project):
    project.file("test_kernels.py", TESTS)
    document = project.document()
    texts = [finding["text"] for finding in document["findings"] if finding["code"] == UNJUDGED]
    assert texts == [
        "test_kernels.py::test_wrong_result failed before it was judged: AssertionError: not what it should be",
        "test_kernels.py::test_broken_setup failed before it was judged: ValueError: no data",
    ]
    headline = headline_of(read_document(document))
    assert (headline.sentence, headline.tone) == ("2 tests failed before being judged", "bad")


def test_a_failure_that_a_rerun_mended_is_not_told(project):
    project.file(
        "test_kernels.py",
        TESTS.partition("@pytest.mark")[0]
        + "tries = []\n\n@pytest.mark.flaky(reruns=1)\n@pytest.mark.bandwidth(min_gbps=0.0001)\n"
        "def test_second_time(bandwidth):\n    copy(bandwidth)\n    tries.append(1)\n    assert len(tries) > 1\n",
    )
    document = project.document()
    assert [finding for finding in document["findings"] if finding["code"] == UNJUDGED] == []
    assert headline_of(read_document(document)).tone == "good"
