"""The pieces of work that most candidates do, on the host."""

import numpy as np
from table import Task

N = 1 << 15
ROWS, COLUMNS = 128, 256


def _vector(bandwidth):
    return (bandwidth.random(N, "float32"),)


def _vector_and_out(bandwidth):
    return bandwidth.random(N, "float32"), bandwidth.empty(N, "float32")


def _rows(bandwidth):
    return (bandwidth.random((ROWS, COLUMNS), "float32", distribution="signed"),)


def _rows_and_out(bandwidth):
    return *_rows(bandwidth), bandwidth.empty((ROWS, COLUMNS), "float32")


def work(x):
    """Return what most candidates are to compute; the reference is another function."""
    return np.sqrt(x) * 3


def _root(x):
    return np.sqrt(x) * 3


def _root_into(x, y):
    return _root(x)


# Returning, and writing into its second argument.
ROOT = Task(_vector, _root)
ROOT_INTO = Task(_vector_and_out, _root_into, writes=(1,))
COPY = Task(_vector, lambda x: x.copy())
COPY_INTO = Task(_vector_and_out, lambda x, y: x.copy(), writes=(1,))
FLIP = Task(_vector, lambda x: x[::-1].copy())
RISE = Task(_vector, lambda x: x + 1, writes=(0,), reads=(0,))
SUM = Task(_vector, lambda x: x.sum(dtype="float64").astype("float32"), nbytes=4)
SHARES = Task(_vector, lambda x: x / x.sum())
MEAN_OF_ROWS = Task(_rows, lambda x: x.mean(axis=1))
SOFTMAX_INTO = Task(_rows_and_out, lambda x, y: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True), writes=(1,))
PRODUCT = Task(lambda b: (b.random((128, 128)), b.random((128, 128))), lambda a, b: a @ b)
DOUBLES = Task(lambda b: (b.random(N, "float64"),), _root)
