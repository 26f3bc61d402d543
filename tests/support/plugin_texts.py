"""Hold test files of imaginary users."""

COPY = """
import numpy as np

def test_copy(bandwidth):
    a = bandwidth.random(1 << 16, "float32")
    b = bandwidth.empty(1 << 16, "float32")
    result = bandwidth(np.copyto, b, a, reads=a, writes=b)
    assert (a == b).all()
    assert result.bytes_moved == 2 * a.nbytes
"""
