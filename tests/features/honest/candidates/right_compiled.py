"""Right work that Numba or JAX compiles."""

from dataclasses import dataclass

import numpy as np
import pytest
from right import close
from table import ROOT, ROOT_INTO, SUM, N, Task, right

numba = pytest.importorskip("numba")


@numba.njit
def _root(x):
    return np.sqrt(x) * np.float32(3)


@numba.njit(parallel=True)
def _root_into(x, y):
    for i in numba.prange(x.size):
        y[i] = np.sqrt(x[i]) * np.float32(3)


@numba.njit(parallel=True, fastmath=True)
def _sum(x):
    total = np.float32(0)
    for i in numba.prange(x.size):
        total += x[i]
    return total


@numba.njit
def _histogram(x, counts):
    for value in x:
        counts[value] += 1


def _counted(bandwidth):
    counts = bandwidth.empty(256, "int64")
    counts[:] = 0
    return bandwidth.random(N, "uint8"), counts


right("numba", ROOT)(compiled=lambda given: _root)
right("numba", ROOT_INTO)(on_all_threads=lambda given: _root_into)
right("numba", Task(SUM.make, SUM.reference, nbytes=4, check=close(1e-3)))(fast_sum=lambda given: _sum)
right("numba", Task(_counted, lambda x, c: c + np.bincount(x, minlength=256), writes=(1,), reads=(0, 1)))(
    counts_added_up=lambda given: _histogram
)


@dataclass(frozen=True)
class Shipped(Task):
    """Work that is a kernel of the package's."""

    def measure(self, bandwidth, work, args, **more):
        bandwidth.launch(work, N // 256, 256, args, reads=args[1:3], writes=args[0], **more)


def _triad(bandwidth):
    return bandwidth.empty(N), bandwidth.random(N), bandwidth.random(N), np.float32(3), np.int64(N)


@right("numba", Shipped(_triad, lambda a, b, c, scale, n: b + scale * c))
def shipped_kernel(given):
    return given.bandwidth.kernel("stream.cu", "triad_f32")


def _on_the_host(bandwidth):
    jax = pytest.importorskip("jax")
    return (jax.numpy.asarray(bandwidth.random(N)),)


@right("jax", Task(_on_the_host, lambda x: np.sqrt(np.asarray(x)) * 3))
def jitted(given):
    jax = pytest.importorskip("jax")
    return jax.jit(lambda x: jax.numpy.sqrt(x) * 3)
