"""The same softmax by each framework that is installed, on the host: same declared bytes, right results."""

import numpy as np
import pytest
from user_project import bandwidth_on

from pytest_bandwidth.domain.errors import UsageError

ROWS, COLUMNS = 16, 8


@pytest.fixture
def bandwidth(tmp_path):
    return bandwidth_on("cpu", tmp_path)


def of_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed: docs/frameworks.md")
    return lambda x: torch.softmax(x, 1), torch.from_numpy, np.asarray


def of_jax():
    jax = pytest.importorskip("jax", reason="jax is not installed: docs/frameworks.md")
    return jax.jit(lambda x: jax.nn.softmax(x, axis=1)), jax.numpy.asarray, np.asarray


def of_tinygrad():
    tinygrad = pytest.importorskip("tinygrad", reason="tinygrad is not installed: docs/frameworks.md")

    def there(x):
        return tinygrad.Tensor(x, device="PYTHON").realize()

    return lambda x: x.softmax(axis=1), there, lambda y: y.numpy()


@pytest.mark.parametrize("framework", [of_torch, of_jax, of_tinygrad])
def test_softmax(bandwidth, framework):
    softmax, there, back = framework()
    x = bandwidth.random((ROWS, COLUMNS), "float32")
    measured = bandwidth(softmax, there(x), reads="args", writes="result")
    assert (measured.traffic.bytes_read, measured.traffic.bytes_written) == (ROWS * COLUMNS * 4, ROWS * COLUMNS * 4)
    e = np.exp(x.astype("float64"))
    np.testing.assert_allclose(back(measured.value), e / e.sum(axis=1, keepdims=True), rtol=1e-5)
    assert measured.method == "clock"
    assert measured.rounds.warmup_runs > 0


@pytest.mark.parametrize("framework", [of_torch, of_jax])
def test_two_frameworks_in_one_call_are_refused(bandwidth, framework):
    _, there, _ = framework()
    x = bandwidth.random((ROWS, COLUMNS), "float32")
    with pytest.raises(UsageError, match="arrays of two frameworks in one call: x is NumPy's, y is "):
        bandwidth(lambda x, y: (x, y), x, there(x), reads="args")
