"""Time work on a GPU by CUPTI's records of it, in place of events around it: no launch is part of them.

CUPTI notes when each kernel, copy and fill of the process started and ended. The two kernels that stamp the clocks
around a sample tell which of them are the sample's.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from pytest_bandwidth.devices.cuda.runtime import STAMP, one_line
from pytest_bandwidth.domain.errors import UsageError

# Names of `cupti.ActivityKind`. KERNEL would run kernels one by one, and so wait for a stream that is blocked.
KINDS = ("CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET")
# As NVIDIA's samples have it; a record takes about 200 bytes.
BUFFER_BYTES = 8 << 20
# CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: also buffers in which a record of another thread's work is not complete.
FORCED = 1
_ASKED = "--bandwidth-timer=cupti"


class Record(NamedTuple):
    """Hold when something ran, in nanoseconds of CUPTI's clock."""

    start: int
    end: int
    device: int
    name: str | None


class Records:
    """Hold what CUPTI recorded since it was last asked. cupti: NVIDIA's module `cupti.cupti`."""

    def __init__(self, cupti: Any) -> None:
        self._cupti = cupti
        self._records: list[Record] = []
        self._recording = False

    def start(self) -> None:
        """Start CUPTI's records. Raises UsageError if CUPTI refuses, for example because another profiler runs."""
        if self._recording:
            return
        cupti = self._cupti
        try:
            cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), self._keep)
            for kind in KINDS:
                cupti.activity_enable(getattr(cupti.ActivityKind, kind))
        except (cupti.cuptiError, RuntimeError) as error:  # the second is its NotSupportedError
            raise UsageError(
                f"{_ASKED}: CUPTI does not record ({one_line(error)}): end other profilers, use the cupti-python of "
                "the driver's CUDA, or --bandwidth-timer=events"
            ) from None
        self._recording = True
        atexit.register(self._stop)  # or CUPTI would hand over its last records when Python has ended

    def span_seconds(self) -> float | None:
        """Return the time from the first start to the last end between the last two stamps; None: nothing ran.

        Ask when the device is idle. Raises UsageError where the stamps are not recorded.
        """
        self._cupti.activity_flush_all(FORCED)
        records, self._records = self._records, []
        stamps = sorted(record for record in records if record.name == STAMP)[-2:]
        if len(stamps) < 2:
            raise UsageError(
                f"{_ASKED}: CUPTI recorded nothing of a sample, so another profiler in this process has its records: "
                "end that, or use --bandwidth-timer=events"
            )
        before, after = stamps
        ran = [one for one in records if before.start < one.start < after.start and one.device == before.device]
        return (max(one.end for one in ran) - min(one.start for one in ran)) * 1e-9 if ran else None

    def _keep(self, activities: Iterable[Any]) -> None:
        # CUPTI takes the buffer back when this returns. Copies and fills have no name.
        self._records.extend(Record(a.start, a.end, a.device_id, getattr(a, "name", None)) for a in activities)

    def _stop(self) -> None:
        with suppress(self._cupti.cuptiError):  # of a lost context
            for kind in KINDS:
                self._cupti.activity_disable(getattr(self._cupti.ActivityKind, kind))
            self._cupti.activity_flush_all(FORCED)


@cache
def open_records() -> Records:
    """Return the records of this process, which has one account of them. Raises UsageError without cupti-python."""
    try:
        return Records(import_module("cupti.cupti"))
    except ImportError as error:
        raise UsageError(f"{_ASKED} ({one_line(error)}): pip install 'pytest-bandwidth[cupti]'") from None
