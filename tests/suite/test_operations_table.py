"""The table of operations: complete, consistent with the kernels, and right about what it says of sizes."""

from pathlib import Path

import numpy as np
import pytest

from pytest_bandwidth.devices.kernel_source import kernel_names
from pytest_bandwidth.devices.numpy_arrays import RandomSource, empty_array
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.suite.operations import OPERATIONS
from pytest_bandwidth.suite.operations.model import Case, Tolerance, poison, tiled, wrong_results

CUDA_SRC = Path(__file__).parents[2] / "cuda_src"


class HostArrays:
    xp = np
    empty = staticmethod(empty_array)
    _source = RandomSource()

    def random(self, shape, dtype):
        if dtype == "bfloat16":
            pytest.importorskip("ml_dtypes")
        return self._source.array(shape, dtype)


EVERY = [pytest.param(o, dtype, id=f"{o.title}-{dtype}") for o in OPERATIONS for dtype in o.dtypes]
ON_THE_HOST = [p for p in EVERY if "cpu" in p.values[0].devices]
LAUNCHED = [p for p in EVERY if "traffic" in p.values[0].devices]


def prepared(operation, dtype, sizes):
    return operation.prepare(HostArrays(), dtype, sizes)


def test_every_version_is_a_pair_of_float32_and_float16():
    dtypes = {}
    for operation in OPERATIONS:
        dtypes.setdefault(operation.title, []).extend(operation.dtypes)
    assert all({"float32", "float16"} <= set(found) for found in dtypes.values())
    assert all(len(found) == len(set(found)) for found in dtypes.values())


def test_every_kernel_has_its_operation_and_every_operation_its_kernels():
    launched = set()
    for operation, dtype in (p.values for p in LAUNCHED):
        for sizes in operation.small:
            launched |= {(step.file, step.kernel) for step in prepared(operation, dtype, sizes).steps}
    # probe.cu is what the measuring itself needs.
    files = [path for path in CUDA_SRC.glob("*.cu") if path.name != "probe.cu"]
    defined = {(path.name, kernel) for path in files for kernel in kernel_names(path.read_text(encoding="utf-8"))}
    assert launched == defined


@pytest.mark.parametrize(("operation", "dtype"), LAUNCHED)
def test_launches_are_ones_that_cuda_accepts_and_declare_together_what_the_model_says(operation, dtype):
    def nbytes(declared):
        return sum(item if isinstance(item, int) else item.nbytes for item in declared)

    for sizes in operation.small:
        case = prepared(operation, dtype, sizes)
        for step in case.steps:
            assert 1 <= np.prod(step.block) <= 1024
            assert all(extent >= 1 for extent in step.grid)
            assert max(step.grid[1:]) <= 65535
            assert float not in map(type, step.args), "a bare float would be passed as a double"
        if all(sizes.values()):
            assert sum(nbytes(step.reads) for step in case.steps) == case.traffic.bytes_read + case.between
            assert sum(nbytes(step.writes) for step in case.steps) == case.traffic.bytes_written + case.between


def test_grids_of_many_rows_and_layers_stay_within_the_hardwares_limits():
    grid, _ = tiled(10**7, 33, (32, 32), (32, 8), layers=10**6)
    assert grid == (2, 65535, 65535)


MEMORY_BOUND = ("copy", "triad", "dot", "cos_cos", "transpose", "softmax", "layer_norm", "gather", "q4_0_dequantize")


@pytest.mark.parametrize(("operation", "dtype"), [p for p in ON_THE_HOST if p.values[0].name in MEMORY_BOUND])
def test_shapes_move_about_the_bytes_that_are_asked_for(operation, dtype):
    target = 3_000_000
    # Two launches are timed at the size of the one that does the work of both, and move twice as much.
    expected = 2 * target if operation.title == "cos_cos-unfused" else target
    for sizes in operation.shapes(target, dtype):
        moved = prepared(operation, dtype, sizes).traffic.bytes_moved
        assert moved == pytest.approx(expected, rel=0.35)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: f"{operation.title}-{operation.dtypes[0]}")
def test_small_sizes_are_those_that_break_kernels_and_there_are_shapes_however_few_bytes_are_asked_for(operation):
    sizes = operation.small
    assert any(1 in s.values() for s in sizes)
    assert any(any(value % 2 for value in s.values() if value > 1) for s in sizes)
    assert "traffic" not in operation.devices or any(0 in s.values() for s in sizes)
    for dtype in operation.dtypes:
        shapes = operation.shapes(1, dtype)
        assert shapes
        assert all(size >= 0 for sizes in shapes for size in sizes.values())


@pytest.mark.parametrize("name", ["gemm-library", "device_to_device-library"])
def test_calls_of_the_array_library_give_their_references_on_the_host(name):
    for operation in (o for o in OPERATIONS if o.title == name and "cpu" in o.devices):
        for sizes in operation.small:
            case = prepared(operation, "float32", sizes)
            poison(case)
            assert wrong_results(case), "poisoned results are wrong results"
            for call in case.steps:
                call()
            assert not wrong_results(case)


# ---- checking -------------------------------------------------------------------------------------------------------


AT_LIMIT, WIDE = Tolerance(relative=0.25, absolute=0.5), Tolerance(0.5, 1e6)
WORST = "out[1][1] is 9, expected 4 ± 0.1; 2 of 4 elements are wrong"


@pytest.mark.parametrize(
    ("result", "reference", "tolerance", "line"),
    [
        *((value, value, Tolerance(), None) for value in ([1.0], [np.nan], [np.inf], [])),
        ([0.0], [-0.0], Tolerance(), None),
        # What is not finite agrees with itself alone.
        *(([one], [other], WIDE, "out[0] is ") for one, other in ((np.nan, 1.0), (1.0, np.nan), (np.inf, -np.inf))),
        *(([one], [other], WIDE, "out[0] is ") for one, other in ((np.inf, 1.0), (1.0, np.inf))),
        ([3.0], [2.0], AT_LIMIT, None),
        ([4.0], [2.0], AT_LIMIT, "out[0] is 4, expected 2 ± 1; 1 of 1 elements are wrong"),
        ([[1.0, 2.5], [3.0, 9.0]], [[1.0, 2.0], [3.0, 4.0]], Tolerance(absolute=0.1), WORST),
        ([1.0, 2.0], [[1.0, 2.0]], Tolerance(), "out has shape (2,), expected (1, 2)"),
    ],
)
def test_what_is_not_its_reference_is_a_line_with_the_worst_element(result, reference, tolerance, line):
    case = Case((), Traffic(0, 0), {"out": np.array(result)}, lambda: {"out": np.array(reference)}, tolerance)
    found = wrong_results(case)
    assert [one[: len(line or "")] for one in found] == ([] if line is None else [line])
