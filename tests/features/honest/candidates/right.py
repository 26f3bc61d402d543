"""Right work with NumPy, of the kinds that an over-eager check accuses."""

import functools
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from table import REFUSED, WITH, WITHOUT, Task, right
from tasks import (
    COPY,
    COPY_INTO,
    FLIP,
    MEAN_OF_ROWS,
    PRODUCT,
    RISE,
    ROOT,
    ROOT_INTO,
    ROWS,
    SOFTMAX_INTO,
    SUM,
    N,
    work,
)

from pytest_bandwidth import Reference


def vector(dtype, distribution="uniform", size=N):
    """Return what makes one array."""
    return lambda bandwidth: (bandwidth.random(size, dtype, distribution=distribution),)


def vectors(*dtypes, size=N):
    """Return what makes an array of each type."""
    return lambda bandwidth: tuple(bandwidth.random(size, dtype) for dtype in dtypes)


def and_out(make, shape=N, dtype="float32"):
    """Return what makes those arrays, and one to write last."""
    return lambda bandwidth: (*make(bandwidth), bandwidth.empty(shape, dtype))


@right("elementwise", ROOT)
def returning(x):
    return work(x)


@right("elementwise", ROOT_INTO)
def writing(x, y):
    np.sqrt(x, out=y)
    y *= 3


@right("elementwise", ROOT)
def for_its_parts(x):
    return np.concatenate([work(part) for part in np.split(x, 8)])


@right("elementwise", ROOT_INTO)
def only_where_it_differs(x, y):
    new = work(x)
    np.copyto(y, new, where=y != new)


@right("elementwise", ROOT_INTO)
def several_passes_over_its_output(x, y):
    y[:] = 0
    y += x
    np.sqrt(y, out=y)
    y[:] = y + y + y


@right("copy", COPY)
def copy_returned(x):
    return x.copy()


@right("copy", COPY_INTO)
def copy_written(x, y):
    np.copyto(y, x)


@right("copy", FLIP)
def backwards_copy(x):
    return np.ascontiguousarray(x[::-1])


@right("copy", Task(lambda b: (b.random((128, 256)),), lambda x: x.T.copy()))
def transposed(x):
    return np.ascontiguousarray(x.T)


@right("in-place", RISE)
def one_more(x):
    x += 1


@right("in-place", RISE)
def one_more_and_returned(x):
    x += 1
    return x


@right("in-place", Task(vectors("float32", "float32"), lambda x, y: y + 2 * x, writes=(1,), reads=(0, 1)))
def axpy(x, y):
    y += 2 * x


@right("in-place", Task(vector("uint32"), lambda x: np.sort(x), writes=(0,), reads=(0,)))
def sorted_in_place(x):
    x.sort()


@right("in-place", Task(vector("float32"), lambda x: np.zeros_like(x), writes=(0,), reads=()))
def set_to_zero(x):
    x.fill(0)


@right("reduction", SUM)
def whole_sum(x):
    return x.sum(dtype="float64").astype("float32")


@right("reduction", Task(vector("float32", "signed"), np.ndarray.max, nbytes=4))
def largest(x):
    return x.max()


@right("reduction", Task(vector("float32", "signed"), lambda x: np.abs(x).max(), nbytes=4))
def largest_of_absolute_values(x):
    return max(x.max(), -x.min())


@right("reduction", Task(vector("float32", "signed"), lambda x: int(x.argmax()), nbytes=8))
def place_of_the_largest(x):
    return int(np.argmax(x))


@right("reduction", Task(vector("float32"), lambda x: np.array([x.min(), x.max()])))
def both_ends(x):
    return np.array([x.min(), x.max()])


@right("reduction", Task(vector("float32"), lambda x: bool((x > 0).all()), nbytes=1), ways=[WITH])
def whether_all_are_positive(x):
    """Return the same for all such inputs."""
    return bool((x > 0).all())


@right("reduction", Task(vector("float32"), lambda x: np.count_nonzero(np.isnan(x)), nbytes=8), ways=[WITH])
def number_of_nans(x):
    return np.count_nonzero(x != x)


@right("reduction", MEAN_OF_ROWS)
def mean_of_rows(x):
    return x.sum(axis=1) / np.float32(x.shape[1])


@right(
    "reduction",
    Task(vector("float32"), lambda x: float(x.sum(dtype="float64")), nbytes=8, check=lambda f: Reference(f, rtol=1e-4)),
)
def python_number(x):
    return float(x.sum())


@right("matrix", PRODUCT)
def product(a, b):
    return np.matmul(a, b)


@right("matrix", Task(lambda b: (b.random((96, 64)), b.random(64)), lambda a, x: a @ x))
def matrix_times_vector(a, x):
    return np.einsum("ij,j->i", a, x)


@right(
    "matrix",
    Task(and_out(lambda b: (b.random((64, 64)), b.random((64, 64))), (64, 64)), lambda a, b, c: a @ b, writes=(2,)),
)
def product_into(a, b, c):
    np.matmul(a, b, out=c)


@right("order", Task(vector("float32", "signed"), np.sort))
def sorted_copy(x):
    return np.sort(x)


@right("order", Task(vector("uint32"), lambda x: np.argsort(x, kind="stable")))
def order_of_sorting(x):
    return np.argsort(x, kind="stable")


@right("order", Task(vector("float32"), lambda x: np.partition(x, N - 10)[-10:].sum(), nbytes=4))
def sum_of_the_ten_largest(x):
    return np.sort(x)[-10:].sum()


@right("order", Task(vector("uint8"), lambda x: np.unique(x)), ways=[WITH])
def unique_values(x):
    """Return all 256 of them, whatever the input."""
    return np.unique(x)


@right("counts", Task(vector("uint8"), lambda x: np.bincount(x, minlength=256)))
def histogram(x):
    return np.bincount(x, minlength=256)


@right("counts", Task(vector("float32"), lambda x: np.histogram(x, 16, (1, 2))[0]))
def histogram_of_floats(x):
    return np.histogram(x, 16, (1, 2))[0]


@right("rows", SOFTMAX_INTO)
def softmax(x, y):
    np.subtract(x, x.max(axis=1, keepdims=True), out=y)
    np.exp(y, out=y)
    y /= y.sum(axis=1, keepdims=True)


def _normed(x, w, b):
    x = x.astype("float64")
    return ((x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w + b).astype("float32")


@right("rows", Task(lambda b: (b.random((ROWS, 256), distribution="signed"), b.random(256), b.random(256)), _normed))
def layer_norm(x, w, b):
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + np.float32(1e-5)) * w + b


def _indexed(bandwidth):
    return bandwidth.random(N), bandwidth.indices(N // 2, N)


@right("indices", Task(_indexed, lambda x, at: x[at]))
def gather(x, at):
    return x.take(at)


def _scattered(bandwidth):
    return bandwidth.random(N), bandwidth.indices(N), bandwidth.empty(N)


def _scattered_by_hand(x, at, y):
    out = np.empty_like(x)
    out[at] = x
    return out


@right("indices", Task(_scattered, _scattered_by_hand, writes=(2,)))
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


@right("indices", Task(lambda b: (b.random((512, 64)), b.indices(256, 512, order="zipf")), lambda table, at: table[at]))
def embedding(table, at):
    """Read few rows of its table."""
    return np.take(table, at, axis=0)


@right("integers", Task(vectors("int32", "int32"), lambda a, b: a + b))
def sum_of_whole_numbers(a, b):
    return np.add(a, b)


def flags(bandwidth):
    """Two arrays whose smallest elements are at one place: to change either gives the same result."""
    found = bandwidth.random(N, "bool"), bandwidth.random(N, "bool")
    for one in found:
        one[0] = False
    return found


@right("integers", Task(flags, lambda a, b: a | b))
def flags_joined(a, b):
    return np.logical_or(a, b)


@right("integers", Task(vector("uint8"), lambda x: x // 2))
def bytes_halved(x):
    return x >> 1


@right("integers", Task(vector("uint64"), np.bitwise_xor.reduce, nbytes=8))
def parity(x):
    return np.bitwise_xor.reduce(x)


@right("masks", Task(vector("float32"), lambda x: x > 1.5))
def mask(x):
    return np.greater(x, 1.5)


@right("masks", Task(lambda b: (b.random(N), b.random(N, "bool")), lambda x, keep: np.where(keep, x, 0)))
def masked(x, keep):
    return x * keep


@right("masks", Task(lambda b: (b.random(N), b.random(N, "bool")), lambda x, keep: x[keep]))
def compressed(x, keep):
    """Return as many elements as the mask has."""
    return np.compress(keep, x)


def _some(bandwidth):
    return bandwidth.random(N), bandwidth.random(N, "bool"), bandwidth.random(N)


@right("masks", Task(_some, lambda x, keep, y: np.where(keep, x, y), writes=(2,), reads=(0, 1, 2)))
def written_in_part(x, keep, y):
    """Leave what the mask leaves out, which is why y is read as well."""
    np.copyto(y, x, where=keep)


@right("types", Task(vector("float16"), lambda x: (x.astype("float32") * 2).astype("float16")))
def halves(x):
    return x + x


@right("types", Task(vector("float64"), lambda x: x * x))
def doubles(x):
    return np.square(x)


@right("types", Task(vector("complex64"), lambda x: x.conj() * x))
def complex_numbers(x):
    return np.conj(x) * x


@right("types", Task(vector("float32"), lambda x: x.astype("float16")))
def narrowed(x):
    return x.astype("float16")


@right("types", Task(vector("float32", "special"), lambda x: x + 1))
def special_values(x):
    """Meet NaN and infinities, and return them."""
    return np.add(x, 1)


@right("types", Task(vector("float32", "wide"), lambda x: x * np.float32(0.5)))
def wide_exponents(x):
    return x / 2


@right("types", Task(vector("float32", "sparse"), lambda x: np.flatnonzero(x)))
def places_of_what_is_not_zero(x):
    return np.nonzero(x)[0]


@right("sizes", Task(vector("float32", size=1), lambda x: x + 1))
def one_element(x):
    return x + 1


@right("sizes", Task(vector("float32", size=1), lambda x: x.sum(), nbytes=4))
def sum_of_one_element(x):
    return x.sum()


@right("sizes", Task(vector("float32"), lambda x: x[x > 5]), ways=[WITH])
def nothing_found(x):
    """Return an empty array, since no number is so large."""
    return x[x > 5]


@right("sizes", Task(lambda b: (b.random((3, 5, 7)),), lambda x: x.sum(axis=(0, 2))))
def odd_shape(x):
    return x.sum(axis=2).sum(axis=0)


def _strided(bandwidth):
    return bandwidth.random((256, 128))[:, ::2], bandwidth.empty((256, 128))[:, :64]


@right("views", Task(_strided, lambda x, y: x * 2, writes=(1,)))
def views_with_gaps(x, y):
    np.multiply(x, 2, out=y)


def _halves_of_one(bandwidth):
    whole = bandwidth.random(2 * N)
    return whole[:N], whole[N:]


@right("views", Task(_halves_of_one, lambda x, y: x + 1, writes=(1,)))
def two_parts_of_one_array(x, y):
    np.add(x, 1, out=y)


def _shifted(bandwidth):
    whole = bandwidth.random(N + 1)
    return whole[:-1], whole[1:]


@right("views", Task(_shifted, lambda a, b: a - b))
def overlapping_inputs(a, b):
    return a - b


@right("views", Task(lambda b: (b.random((64, 256)).T,), lambda x: x.sum(axis=0)))
def columns_first(x):
    return x.sum(axis=0)


@right("views", Task(lambda b: (np.broadcast_to(b.random(256), (64, 256)),), lambda x: x + 1))
def repeated_rows(x):
    """Read an array that cannot be written."""
    return x + 1


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


@right("buffers", ROOT)
def part_of_a_larger_buffer(given):
    buffer = np.empty(2 * N, "float32")

    def run(x):
        np.multiply(np.sqrt(x), 3, out=buffer[100 : 100 + x.size])
        return buffer[100 : 100 + x.size]

    return run


@right("plans", ROOT)
def plan_by_shape(given):
    @functools.lru_cache
    def plan(shape):
        return np.array_split(np.arange(shape[0]), 4)

    def run(x):
        return np.concatenate([work(x[part[0] : part[-1] + 1]) for part in plan(x.shape)])

    return run


@right("plans", Task(vector("float32"), lambda x: x * np.linspace(0, 1, N, dtype="float32")))
def table_made_once(given):
    table = np.linspace(0, 1, N, dtype="float32")
    return lambda x: x * table


@right("plans", Task(lambda b: (b.random(1024),), lambda x: np.convolve(x, np.hanning(16).astype("float32"), "valid")))
def window_made_at_the_first_call(given):
    windows = {}

    def run(x):
        if 16 not in windows:
            windows[16] = np.hanning(16).astype("float32")
        return np.convolve(x, windows[16], "valid")

    return run


@right("threads", ROOT_INTO)
def pool_that_is_waited_for(given):
    pool = given.at_end.enter_context(ThreadPoolExecutor(2))

    def run(x, y):
        def part(half):
            y[half] = work(x[half])

        list(pool.map(part, [slice(0, N // 2), slice(N // 2, None)]))

    return run


@right("threads", ROOT_INTO)
def threads_that_are_joined(x, y):
    def part(half):
        y[half] = work(x[half])

    threads = [threading.Thread(target=part, args=(half,)) for half in (slice(0, 999), slice(999, None))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@right(
    "threads",
    Task(vector("float32"), lambda x: x.sum(dtype="float64"), nbytes=4, check=lambda f: Reference(f, rtol=1e-3)),
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


@right("results", Task(vectors("float32", "float32"), lambda a, b: (a + b, a - b)))
def a_pair(a, b):
    return np.add(a, b), np.subtract(a, b)


@right("results", Task(vectors("float32"), lambda x: {"sum": x.sum(), "root": np.sqrt(x)}), ways=[WITHOUT])
def a_dictionary(x):
    return {"sum": x.sum(), "root": np.sqrt(x)}


@right("results", Task(vectors("float32"), lambda x: np.sqrt(x)), reads=4 * N, writes=4 * N)
def bytes_declared_by_number(x):
    return np.sqrt(x)


@right("results", ROOT, REFUSED, ways=[WITHOUT], reads=4 * N, writes=0)
def nothing_returned(x):
    """Read only: what it computes goes nowhere."""
    work(x).sum()


@right("results", ROOT_INTO)
def writes_and_returns_something(x, y):
    y[:] = work(x)
    return "done"


def _closed_over(bandwidth):
    return ()


@right("results", Task(_closed_over, lambda: None), REFUSED, ways=[WITHOUT], reads=4 * N, writes=4 * N)
def arrays_closed_over(given):
    x, y = given.bandwidth.random(N), given.bandwidth.empty(N)
    return lambda: np.copyto(y, x)


def _fixed(bandwidth):
    return (np.arange(N, dtype="float32"),)


@right("given", Task(_fixed, lambda x: np.sqrt(x), check=lambda f: f(*_fixed(None))))
def expected_array(x):
    """Be held to an array in place of a function."""
    return np.sqrt(x)


@right("given", Task(vector("float32", size=4096), np.sqrt, check=lambda f: Reference(f, rtol=1e-2)))
def as_exact_as_is_asked(x):
    return np.sqrt(x.astype("float16")).astype("float32")


def _strictly_rising(bandwidth):
    return np.linspace(1, 2, 4096, dtype="float32"), bandwidth.random(1024)


@right("given", Task(_strictly_rising, lambda edges, x: np.searchsorted(edges, x)))
def rising_edges(edges, x):
    """Rely on one input being sorted, as its caller promises."""
    assert (np.diff(edges) >= 0).all()
    return np.searchsorted(edges, x)


def _lengths(bandwidth):
    return bandwidth.random((64, 128)), np.full(64, 100, "int32")


@right("given", Task(_lengths, lambda x, lengths: np.array([row[:n].sum() for row, n in zip(x, lengths, strict=True)])))
def lengths_of_rows(x, lengths):
    """Rely on whole numbers that are sizes."""
    assert ((lengths > 0) & (lengths <= 128)).all()
    return np.array([row[:n].sum() for row, n in zip(x, lengths, strict=True)])


@right("given", Task(lambda b: (b.random(N), np.float32(3), 2), lambda x, scale, power: (x * scale) ** power))
def numbers_beside_arrays(x, scale, power):
    return (x * scale) ** power
