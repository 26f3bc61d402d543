"""What PyTorch's operators, JAX's equations and tinygrad's kernels move, held to bytes counted by hand."""

import pytest
from user_project import bandwidth_on

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.fixture.input import explained

ROWS, COLUMNS = 64, 32
N, R = ROWS * COLUMNS * 4, ROWS * 4


@pytest.fixture
def bandwidth(tmp_path):
    return bandwidth_on("cpu", tmp_path)


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed: docs/frameworks.md")


@pytest.fixture
def x(torch):
    return torch.rand(ROWS, COLUMNS)


def naive_softmax(x):
    e = (x - x.amax(1, keepdim=True)).exp()
    return e / e.sum(1, keepdim=True)


def moved(found):
    return [(one.name, one.bytes_read, one.bytes_written) for one in found.operators]


def test_naive_softmax(x):
    found = explained(naive_softmax, (x,), {})
    assert moved(found) == [
        ("amax", N, R),
        ("sub", N + R, N),
        ("exp", N, N),
        ("sum", N, R),
        ("div", N + R, N),
    ]
    assert (found.bytes_moved, found.least_bytes, found.intermediates) == (8 * N + 4 * R, 2 * N, (N, N, R, R))
    assert str(found).startswith("5 operators move 66.6 kB: 4 intermediates, 16.9 kB, materialised; 16.4 kB if fused")


def test_fused_softmax(torch, x):
    found = explained(torch.softmax, (x, 1), {})
    assert (moved(found), found.least_bytes, found.intermediates) == ([("_softmax", N, N)], 2 * N, ())
    assert str(found).startswith("1 operator moves 16.4 kB; 16.4 kB if fused\n")
    assert found.differs(N) == "declared 8.19 kB; PyTorch's operator moves 16.4 kB; 16.4 kB if fused"


def test_in_place_and_views_move_what_they_touch(x):
    found = explained(lambda x: x[: ROWS // 2].add_(1), (x,), {})
    assert (moved(found), found.least_bytes) == ([("add_", N // 2, N // 2)], N)
    same = explained(lambda x: x.T + x.T, (x,), {})
    assert (moved(same), same.least_bytes) == ([("add", N, N)], 2 * N)


def test_what_is_handed_an_output_does_not_read_it(torch, x):
    out = torch.empty_like(x)
    found = explained(torch.add, (x, 1), {"out": out})
    assert (moved(found), found.least_bytes) == ([("add", N, N)], 2 * N)
    copied = explained(lambda x, out: out.copy_(x), (x, out), {})
    assert (moved(copied), copied.least_bytes) == ([("copy_", N, N)], 2 * N)


def test_a_matrix_product_and_its_bias(torch, x):
    w, b = torch.rand(COLUMNS, ROWS), torch.rand(ROWS)
    product = ROWS * ROWS * 4
    found = explained(lambda x, w, b: {"y": [(x @ w + b).relu()]}, (x, w, b), {})
    assert moved(found) == [
        ("mm", 2 * N, product),
        ("add", product + R, product),
        ("relu", product, product),
    ]
    assert (found.least_bytes, found.intermediates) == (2 * N + R + product, (product, product))


def test_memory_that_is_given_back_and_taken_again_is_told_apart(x):
    found = explained(lambda x: ((x + 1) + 1) + 1, (x,), {})
    assert (found.least_bytes, found.intermediates) == (2 * N, (N, N))


def test_flop_are_told_of_products_and_of_what_is_done_to_each_number(torch, x):
    w = torch.rand(COLUMNS, ROWS)
    found = explained(lambda x, w: torch.softmax((x @ w).clone() + 1, 1).sum(), (x, w), {})
    elements = ROWS * ROWS
    assert [(one.name, one.flop) for one in found.operators] == [
        ("mm", 2 * ROWS * COLUMNS * ROWS),
        ("clone", 0),
        ("add", elements),
        ("_softmax", None),
        ("sum", elements),
    ]
    assert [one.bound(0.5) for one in found.operators] == ["compute", "memory", "memory", None, "memory"]
    assert "  mm: reads 16.4 kB, writes 16.4 kB, 8.00 FLOP/byte, compute-bound" in str(found.under(0.5))


def test_what_has_no_operators_is_refused(torch, x):
    with pytest.raises(UsageError, match="no operator of PyTorch ran in the call"):
        explained(lambda x: x, (x,), {})
    with pytest.raises(UsageError, match="args\\[0\\] requires grad"):
        explained(torch.abs, (torch.ones(3, requires_grad=True),), {})


def test_what_is_compiled_is_told_as_it_would_run_uncompiled(torch, x):
    found = explained(torch.compile(naive_softmax, backend="eager"), (x,), {})
    assert str(found).startswith("5 operators move 66.6 kB where nothing compiles them: 4 intermediates")
    assert (found.is_compiled, found.differs(2 * N)) == (True, None)


class TestJax:
    @pytest.fixture
    def jax(self):
        return pytest.importorskip("jax", reason="jax is not installed: docs/frameworks.md")

    @pytest.fixture
    def x(self, jax):
        return jax.numpy.ones((ROWS, COLUMNS), "float32")

    def naive_softmax(self, x):
        import jax.numpy as jnp

        e = jnp.exp(x - jnp.max(x, axis=1, keepdims=True))
        return e / jnp.sum(e, axis=1, keepdims=True)

    SOFTMAX = (
        ("reduce_max", N, R),
        ("broadcast_in_dim", R, R),
        ("sub", N + R, N),
        ("exp", N, N),
        ("reduce_sum", N, R),
        ("broadcast_in_dim", R, R),
        ("div", N + R, N),
    )

    def test_naive_softmax(self, x):
        found = explained(self.naive_softmax, (x,), {})
        assert tuple(moved(found)) == self.SOFTMAX
        assert (found.bytes_moved, found.least_bytes, found.is_compiled) == (8 * N + 8 * R, 2 * N, False)
        assert found.intermediates == (N, N, R, R, R, R)
        assert [one.flop for one in found.operators][2:4] == [ROWS * COLUMNS] * 2
        assert str(found).startswith("7 equations move 67.6 kB where each runs by itself: 6 intermediates, 17.4 kB, ")

    def test_compiled_softmax_is_what_its_compiler_counts(self, jax, x):
        jitted = jax.jit(self.naive_softmax)
        found = explained(jitted, (x,), {})
        assert tuple(moved(found)) == self.SOFTMAX
        said = jitted.lower(x).compile().cost_analysis()
        said = said[0] if isinstance(said, list) else said
        assert found.is_compiled
        assert found.compiled_bytes == int(said["bytes accessed"])
        assert "JAX's compiled program accesses" in found.differs(2 * N)

    def test_a_matrix_product_and_its_bias(self, jax, x):
        w, b = jax.numpy.ones((COLUMNS, ROWS), "float32"), jax.numpy.ones((ROWS, ROWS), "float32")
        product = ROWS * ROWS * 4
        found = explained(lambda x, w, *, b: {"y": [jax.lax.max(x @ w + b, 0.0 * b)]}, (x, w), {"b": b})
        assert moved(found) == [
            ("dot_general", 2 * N, product),
            ("add", 2 * product, product),
            ("mul", product, product),
            ("max", 2 * product, product),
        ]
        assert (found.least_bytes, found.intermediates) == (2 * N + 2 * product, (product, product, product))
        assert found.operators[0].flop == 2 * ROWS * COLUMNS * ROWS

    def test_each_call_of_one_compiled_part_has_arrays_of_its_own(self, jax, x):
        part = jax.jit(lambda x: x + 1)
        found = explained(lambda x: part(part(x)), (x,), {})
        assert moved(found) == [("add", N, N), ("add", N, N)]
        assert (found.least_bytes, found.intermediates, found.is_compiled) == (2 * N, (N,), False)

    def test_what_is_read_twice_or_passed_on_counts_once_and_what_the_callable_holds_is_read(self, jax, x):
        found = explained(lambda x: (x * x, x), (x,), {})
        assert (moved(found), found.least_bytes, found.intermediates) == ([("mul", N, N)], 2 * N, ())
        y = jax.numpy.ones((ROWS, COLUMNS), "float32")
        found = explained(lambda x: x + y, (x,), {})
        assert (moved(found), found.least_bytes) == ([("add", 2 * N, N)], 3 * N)

    def test_a_loop_is_one_operator(self, jax, x):
        found = explained(lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c * i, x), (x,), {})
        assert [one.name for one in found.operators] == ["scan"]
        assert found.least_bytes == 2 * N

    def test_what_cannot_be_traced_is_refused(self, jax, x):
        with pytest.raises(UsageError, match="JAX cannot trace the call"):
            explained(lambda x: x if x[0, 0] > 0 else -x, (x,), {})
        with pytest.raises(UsageError, match="no equation of JAX is in the call"):
            explained(lambda x: x, (x,), {})
        donated = jax.numpy.ones(4)
        donated.delete()
        with pytest.raises(UsageError, match="deleted or donated"):
            explained(lambda x: x + 1, (donated,), {})

    def test_the_row_says_what_is_materialised(self, bandwidth, x):
        measured = bandwidth(self.naive_softmax, x, reads="args", writes="result", explain=True)
        assert measured.detail["explained"]["bytes_moved"] == 8 * N + 8 * R
        assert [one.text for one in measured.findings if one.code == "operators-move"] == [
            "declared 16.4 kB; JAX's equations move 67.6 kB where each runs by itself: 6 intermediates of up to "
            "8.19 kB are materialised; 16.4 kB if fused"
        ]


class TestTinygrad:
    """16 rows of 8; tinygrad makes what is left of each callable after its own fusion into kernels."""

    N, R = 16 * 8 * 4, 16 * 4

    @pytest.fixture
    def tinygrad(self):
        return pytest.importorskip("tinygrad", reason="tinygrad is not installed: docs/frameworks.md")

    @pytest.fixture
    def x(self, tinygrad):
        """On NULL, which only schedules and counts."""
        return tinygrad.Tensor.rand(16, 8, device="NULL").contiguous().realize()

    def moved(self, found):
        return [one.bytes_moved for one in found.operators]

    @pytest.mark.parametrize("backend", ["PYTHON", "NULL"])
    def test_softmax(self, tinygrad, backend):
        x = tinygrad.Tensor.rand(16, 8, device=backend).contiguous().realize()
        found = explained(lambda x: x.softmax(1), (x,), {})
        assert self.moved(found) == [self.N + self.R, self.N + 2 * self.R, 2 * self.N + 2 * self.R]
        told = found.bytes_moved, found.least_bytes, found.intermediates
        assert told == (4 * self.N + 5 * self.R, 2 * self.N, None)
        said = "3 kernels move 2.37 kB by its own count (each buffer at most once); 1.02 kB if fused"
        assert str(found).startswith(said)
        assert all(one.flop for one in found.operators)

    def test_what_is_fused_moves_the_least_and_a_copy_in_between_is_materialised(self, x):
        for call, kernels in (
            (lambda x: ((x + 1) * 2).relu().realize(), 1),
            (lambda x: ((x + 1).contiguous() * 2).realize(), 2),
        ):
            found = explained(call, (x,), {})
            assert (self.moved(found), found.least_bytes) == ([2 * self.N] * kernels, 2 * self.N)

    def test_its_count_takes_a_buffer_whole_at_most(self, x):
        """The sum of all pairs of rows reads each row sixteen times; the count has the array once."""
        found = explained(lambda x: (x.reshape(16, 1, 8) + x.reshape(1, 16, 8)).sum((0, 1)), (x,), {})
        assert found.operators[0].bytes_read is None
        assert found.operators[0].bytes_moved <= self.N + 16 * 8 * 4

    def test_a_jitted_callable_is_counted_and_what_runs_no_kernel_refused(self, tinygrad, x):
        jitted = tinygrad.TinyJit(lambda x: (x.sum(1, keepdim=True) + x).realize())
        for _ in range(3):
            jitted(x)
        found = explained(jitted, (x,), {})
        assert found.bytes_moved == self.N + self.R + self.N + self.R + self.N

        with pytest.raises(UsageError, match="no kernel of tinygrad ran"):
            explained(lambda x: x, (x,), {})


def test_the_row_of_a_measured_callable_says_what_is_materialised(bandwidth, torch, x):
    assert bandwidth.explain(naive_softmax, x).least_bytes == 2 * N
    measured = bandwidth(naive_softmax, x, reads="args", writes="result", explain=True, label="naive")
    assert [one.text for one in measured.findings if one.code == "operators-move"] == [
        "declared 16.4 kB; PyTorch's operators move 66.6 kB: 4 intermediates of up to 8.19 kB are materialised; "
        "16.4 kB if fused"
    ]
    assert (measured.bytes_moved, bandwidth.measurements["naive"]) == (2 * N, measured)
    fused = bandwidth(torch.softmax, x, 1, reads="args", writes="result", explain=True, label="fused")
    assert not [one for one in fused.findings if one.code == "operators-move"]
    assert [one["name"] for one in fused.detail["explained"]["operators"]] == ["_softmax"]


def test_what_no_framework_explains_is_refused(bandwidth):
    with pytest.raises(UsageError, match="explain=1, expected True or False"):
        bandwidth(lambda: None, reads=8, explain=1)


EXPLAINS = """
from pytest_bandwidth.hooks import Explanation, Operator, Wording

def pytest_bandwidth_explain(framework, function, args, keywords):
    if framework is None and function.__name__ == "mine":
        function(*args, **keywords)
        return Explanation(Wording("mine", "step"), (Operator("first", 100), Operator("second", 60)), 80, (20,))
"""


@pytest.mark.in_process
def test_a_conftest_explains_calls_that_nothing_else_explains(project):
    project.file("conftest.py", EXPLAINS)
    project.file(
        "test_mine.py",
        "def mine(x):\n    return x\n"
        "def test_mine(bandwidth):\n"
        "    found = bandwidth.explain(mine, 3)\n"
        "    assert (found.bytes_moved, found.least_bytes) == (160, 80)\n"
        "    assert str(found).startswith('2 steps move 160 B: 1 intermediate')\n"
        "    measured = bandwidth(mine, 3, reads=160, explain=True)\n"
        "    assert measured.least.by == 'explained bytes'\n"
        "    assert abs(2 * measured.sol / measured.utilization - 1) < 1e-9\n",
    )
    project.run_here("-obandwidth_peak=1000 GB/s").assert_outcomes(passed=1)
