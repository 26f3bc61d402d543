"""Declare every operation of the built-in suite, as data.

``for operation in OPERATIONS: for dtype in operation.dtypes: for sizes in operation.shapes(target_bytes, dtype): …``,
with ``case = operation.prepare(bandwidth, dtype, sizes)``: poison its results, run its steps in order, look at
`wrong_results`, then measure.
"""

from pytest_bandwidth.suite.operations import access, attention, matmul, rows, stream
from pytest_bandwidth.suite.operations.model import Operation

OPERATIONS: tuple[Operation, ...] = (
    *stream.OPERATIONS,
    *access.OPERATIONS,
    *rows.OPERATIONS,
    *matmul.OPERATIONS,
    *attention.OPERATIONS,
    *access.COPIES,
)
