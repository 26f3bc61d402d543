"""What PyTorch's operators move, held to bytes counted by hand."""

import pytest

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.frameworks.explain import Operator, explained

ROWS, COLUMNS = 64, 32
N, R = ROWS * COLUMNS * 4, ROWS * 4


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
    found = explained(lambda: naive_softmax(x), (x,))
    assert moved(found) == [
        ("amax", N, R),
        ("sub", N + R, N),
        ("exp", N, N),
        ("sum", N, R),
        ("div", N + R, N),
    ]
    assert (found.bytes_moved, found.least_bytes, found.intermediates) == (8 * N + 4 * R, 2 * N, (N, N, R, R))
    assert str(found).startswith("5 operators move 66.6 kB: 4 intermediates, 16.9 kB, materialised; fused, 16.4 kB")


def test_fused_softmax(torch, x):
    found = explained(lambda: torch.softmax(x, 1), (x,))
    assert (moved(found), found.least_bytes, found.intermediates) == ([("_softmax", N, N)], 2 * N, ())
    assert "intermediate" not in str(found)


def test_in_place_and_views_move_what_they_touch(x):
    found = explained(lambda: x[: ROWS // 2].add_(1), (x,))
    assert (moved(found), found.least_bytes) == ([("add_", N // 2, N // 2)], N)
    same = explained(lambda: x.T + x.T, (x,))
    assert (moved(same), same.least_bytes) == ([("add", N, N)], 2 * N)


def test_what_is_handed_an_output_does_not_read_it(torch, x):
    out = torch.empty_like(x)
    found = explained(lambda: torch.add(x, 1, out=out), (x,))
    assert (found.operators, found.least_bytes) == ((Operator("add", N, N),), 2 * N)
    copied = explained(lambda: out.copy_(x), (x, out))
    assert (moved(copied), copied.least_bytes) == ([("copy_", N, N)], 2 * N)


def test_a_matrix_product_and_its_bias(torch, x):
    w, b = torch.rand(COLUMNS, ROWS), torch.rand(ROWS)
    product = ROWS * ROWS * 4
    found = explained(lambda: {"y": [(x @ w + b).relu()]}, (x, w, b))
    assert moved(found) == [
        ("mm", 2 * N, product),
        ("add", product + R, product),
        ("relu", product, product),
    ]
    assert (found.least_bytes, found.intermediates) == (2 * N + R + product, (product, product))


def test_memory_that_is_given_back_and_taken_again_is_told_apart(x):
    found = explained(lambda: ((x + 1) + 1) + 1, (x,))
    assert (found.least_bytes, found.intermediates) == (2 * N, (N, N))


@pytest.mark.bandwidth(device="cpu")
def test_the_fixture_explains(bandwidth, x):
    assert bandwidth.explain(naive_softmax, x).least_bytes == 2 * N


def test_what_has_no_operators_is_refused(torch, x):
    with pytest.raises(UsageError, match="no operator of PyTorch ran in the call"):
        explained(lambda: x, (x,))
    with pytest.raises(UsageError, match="an argument\\[0\\] requires grad"):
        explained(lambda: None, (torch.ones(3, requires_grad=True),))
