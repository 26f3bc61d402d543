"""Right work with NumPy, of the kinds that an over-eager check accuses."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from table import (
    COPY,
    COPY_INTO,
    REFUSED,
    RISE,
    ROOT,
    ROOT_INTO,
    SUM,
    WITH,
    WITHOUT,
    N,
    Task,
    right,
    work,
)

from pytest_bandwidth import Reference


def vector(dtype="float32", distribution="uniform", size=N):
    """Return what makes one array."""
    return lambda bandwidth: (bandwidth.random(size, dtype, distribution=distribution),)


def arrays(*dtypes):
    """Return what makes an array of each type."""
    return lambda bandwidth: tuple(bandwidth.random(N, dtype) for dtype in dtypes)


def close(rtol):
    """Return what holds results to the reference less exactly."""
    return lambda reference: Reference(reference, rtol=rtol)


right("elementwise", ROOT)(
    returning=lambda x: work(x), for_its_parts=lambda x: np.concatenate([*map(work, np.split(x, 8))])
)


@right("elementwise", ROOT_INTO)
def writing(x, y):
    np.sqrt(x, out=y)
    y *= 3


@right("elementwise", ROOT_INTO)
def only_where_it_differs(x, y):
    new = work(x)
    np.copyto(y, new, where=y != new)


right("copy", COPY)(copy_returned=lambda x: np.array(x))
right("copy", COPY_INTO)(copy_written=lambda x, y: np.copyto(y, x))
right("copy", Task(lambda b: (b.random((128, 256)),), lambda x: x.T.copy()))(
    transposed=lambda x: np.ascontiguousarray(x.T)
)


@right("in-place", RISE)
def one_more(x):
    x += 1


@right("in-place", Task(arrays("float32", "float32"), lambda x, y: y + 2 * x, writes=(1,), reads=(0, 1)))
def axpy(x, y):
    y += 2 * x


right("in-place", Task(vector(), lambda x: np.zeros_like(x), writes=(0,), reads=()))(set_to_zero=lambda x: x.fill(0))

SIGNED = vector(distribution="signed")
ROUNDED_SUM = Task(vector(), lambda x: float(x.sum(dtype="float64")), nbytes=8, check=close(1e-4))
right("reduction", SUM)(whole_sum=lambda x: np.float32(x.sum(dtype="float64")))
right("reduction", Task(SIGNED, lambda x: int(x.argmax()), nbytes=8))(place_of_the_largest=lambda x: int(np.argmax(x)))
right("reduction", Task(vector(), lambda x: np.array([x.min(), x.max()])))(both_ends=lambda x: np.sort(x)[[0, -1]])
right("reduction", ROUNDED_SUM)(python_number=lambda x: float(x.sum()))
right("counts", Task(vector("uint8"), lambda x: np.bincount(x, minlength=256)))(
    histogram=lambda x: np.histogram(x, np.arange(257))[0]
)

# The same, or nothing, for all such inputs.
right("same", Task(vector(), lambda x: bool((x > 0).all()), nbytes=1), ways=[WITH])(
    whether_all_are_positive=lambda x: bool(x.min() > 0)
)
right("same", Task(vector("uint8"), lambda x: np.arange(256, dtype="uint8")), ways=[WITH])(
    unique_values=lambda x: np.unique(x)
)
right("same", Task(vector(), lambda x: np.empty(0, "float32")), ways=[WITH])(nothing_found=lambda x: x[x > 5])


def _indexed(bandwidth):
    return bandwidth.random(N), bandwidth.indices(N // 2, N)


right("indices", Task(_indexed, lambda x, at: x[at]))(gather=lambda x, at: x.take(at))


def _permuted(bandwidth):
    return bandwidth.random(N), bandwidth.indices(N), bandwidth.empty(N)


@right("indices", Task(_permuted, lambda x, at, y: x[np.argsort(at)], writes=(2,)))
def scatter(x, at, y):
    """Write each place once: the indices are a permutation."""
    y[at] = x


def _csr(bandwidth):
    rows, each = 1024, 16
    start = np.arange(0, rows * each + 1, each, dtype="int32")
    return start, bandwidth.indices(rows * each, 4096), bandwidth.random(rows * each), bandwidth.random(4096)


def _spmv(start, at, values, x):
    return np.array([values[a:b] @ x[at[a:b]] for a, b in itertools.pairwise(start)], "float32")


@right("indices", Task(_csr, _spmv))
def compressed_rows(start, at, values, x):
    return np.add.reduceat(values * x[at], start[:-1])


# Few rows of the table are read.
right("indices", Task(lambda b: (b.random((512, 64)), b.indices(256, 512, order="zipf")), lambda table, at: table[at]))(
    embedding=lambda table, at: np.take(table, at, axis=0)
)

right("masks", Task(vector(), lambda x: x > 1.5))(mask=lambda x: np.greater(x, 1.5))
MASKED = arrays("float32", "bool")
right("masks", Task(MASKED, lambda x, keep: np.where(keep, x, 0)))(masked=lambda x, keep: x * keep)
# As many elements as the mask has.
right("masks", Task(MASKED, lambda x, keep: x[keep]))(compressed=lambda x, keep: np.compress(keep, x))
WHERE = Task(arrays("float32", "bool", "float32"), lambda x, keep, y: np.where(keep, x, y), (2,), (0, 1, 2))
# Leave what the mask leaves out, which is why y is read as well.
right("masks", WHERE)(written_in_part=lambda x, keep, y: np.copyto(y, x, where=keep))


def _flags(bandwidth):
    """Two arrays whose smallest elements are at one place: to change either gives the same result."""
    found = bandwidth.random(N, "bool"), bandwidth.random(N, "bool")
    for one in found:
        one[0] = False
    return found


right("types", Task(_flags, lambda a, b: a | b))(flags_joined=lambda a, b: np.logical_or(a, b))
right("types", Task(vector("uint64"), np.bitwise_xor.reduce, nbytes=8))(parity=lambda x: np.bitwise_xor.reduce(x))
right("types", Task(vector("float16"), lambda x: (x.astype("float32") * 2).astype("float16")))(halves=lambda x: x + x)
right("types", Task(vector("complex64"), lambda x: x.conj() * x))(complex_numbers=lambda x: np.conj(x) * x)
right("types", Task(vector(), lambda x: x.astype("float16")))(narrowed=lambda x: np.float16(x))
right("values", Task(vector(distribution="special"), lambda x: x + 1))(special_values=lambda x: np.add(x, 1))
right("values", Task(vector(distribution="sparse"), lambda x: np.flatnonzero(x)))(places=lambda x: np.nonzero(x)[0])

right("sizes", Task(vector(size=1), lambda x: x + 1))(one_element=lambda x: np.add(x, 1))
right("sizes", Task(lambda b: (b.random((3, 5, 7)),), lambda x: x.sum(axis=(0, 2))))(
    odd_shape=lambda x: x.sum(axis=2).sum(axis=0)
)


def _strided(bandwidth):
    return bandwidth.random((256, 128))[:, ::2], bandwidth.empty((256, 128))[:, :64]


def _halves_of_one(bandwidth):
    whole = bandwidth.random(2 * N)
    return whole[:N], whole[N:]


def _shifted(bandwidth):
    whole = bandwidth.random(N + 1)
    return whole[:-1], whole[1:]


right("views", Task(_strided, lambda x, y: x * 2, writes=(1,)))(gaps=lambda x, y: np.multiply(x, 2, out=y))
right("views", Task(_halves_of_one, lambda x, y: x + 1, writes=(1,)))(two_parts=lambda x, y: np.add(x, 1, out=y))
right("views", Task(_shifted, lambda a, b: a - b))(overlapping_inputs=lambda a, b: np.subtract(a, b))
right("views", Task(lambda b: (b.random((64, 256)).T,), lambda x: x.sum(axis=0)))(
    columns_first=lambda x: np.sum(x, axis=0)
)
# An array that cannot be written.
right("views", Task(lambda b: (np.broadcast_to(b.random(256), (64, 256)),), lambda x: x + 1))(
    repeated_rows=lambda x: np.add(x, 1)
)


@right("buffers", ROOT)
def one_buffer_for_each_result(given):
    """Return the same memory each time, computed anew."""
    result = np.empty_like(given.args[0])

    def run(x):
        np.sqrt(x, out=result)
        np.multiply(result, 3, out=result)
        return result

    return run


@right("buffers", ROOT)
def two_buffers_in_turn(given):
    buffers = [np.empty_like(given.args[0]) for _ in range(2)]

    def run(x):
        buffers.reverse()
        np.sqrt(x, out=buffers[0])
        buffers[0] *= 3
        return buffers[0]

    return run


@right("buffers", ROOT_INTO)
def scratch_kept_between_calls(given):
    scratch = np.empty_like(given.args[0])

    def run(x, y):
        np.sqrt(x, out=scratch)
        np.multiply(scratch, 3, out=y)

    return run


@right("plans", Task(vector(), lambda x: x * np.linspace(0, 1, N, dtype="float32")))
def table_made_once(given):
    table = np.linspace(0, 1, N, dtype="float32")
    return lambda x: x * table


@right("threads", ROOT_INTO)
def pool_that_is_waited_for(given):
    pool = given.at_end.enter_context(ThreadPoolExecutor(2))

    def run(x, y):
        def part(half):
            y[half] = work(x[half])

        list(pool.map(part, [slice(0, N // 2), slice(N // 2, None)]))

    return run


@right(
    "threads",
    Task(vector(), lambda x: x.sum(dtype="float64"), nbytes=4, check=close(1e-3)),
    ways=[WITH],
)
def sum_in_any_order(given):
    """Add the parts as they come: the last digits differ from call to call."""
    generator = np.random.default_rng(1)

    def run(x):
        total = np.float32(0)
        for part in generator.permutation(64):
            total += x[part * 512 : part * 512 + 512].sum()
        return total

    return run


right("results", Task(arrays("float32", "float32"), lambda a, b: (a + b, a - b)))(
    a_pair=lambda a, b: (np.add(a, b), np.subtract(a, b))
)


@right("results", Task(vector(), lambda x: {"sum": x.sum(), "root": np.sqrt(x)}), ways=[WITHOUT])
def a_dictionary(x):
    return {"sum": x.sum(), "root": np.sqrt(x)}


right("results", ROOT, reads=4 * N, writes=4 * N)(bytes_declared_by_number=lambda x: work(x))


@right("results", ROOT, REFUSED, ways=[WITHOUT], reads=4 * N, writes=0)
def nothing_returned(x):
    """Read only: what it computes goes nowhere."""
    work(x).sum()


@right("results", ROOT_INTO)
def writes_and_returns_something(x, y):
    y[:] = work(x)
    return "done"


@right("results", Task(lambda b: (), lambda: None), REFUSED, ways=[WITHOUT], reads=4 * N, writes=4 * N)
def arrays_closed_over(given):
    x, y = given.bandwidth.random(N), given.bandwidth.empty(N)
    return lambda: np.copyto(y, x)


def _fixed(bandwidth):
    return (np.arange(N, dtype="float32"),)


# Held to an array in place of a function.
right("given", Task(_fixed, np.sqrt, check=lambda f: f(*_fixed(None))))(expected_array=lambda x: np.sqrt(x))
right("given", Task(vector(size=4096), np.sqrt, check=close(1e-2)))(
    as_exact_as_is_asked=lambda x: np.sqrt(x.astype("float16")).astype("float32")
)


def _strictly_rising(bandwidth):
    return np.linspace(1, 2, 4096, dtype="float32"), bandwidth.random(1024)


@right("given", Task(_strictly_rising, lambda edges, x: np.searchsorted(edges, x)))
def rising_edges(edges, x):
    """Rely on one input being sorted, as its caller promises."""
    assert (np.diff(edges) >= 0).all()
    return np.searchsorted(edges, x)


right("given", Task(lambda b: (b.random(N), np.float32(3), 2), lambda x, scale, power: (x * scale) ** power))(
    numbers_beside_arrays=lambda x, scale, power: np.power(x * scale, power)
)
