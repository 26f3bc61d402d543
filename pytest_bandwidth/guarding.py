"""Tells what a user's own code raises from what the device raises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest_bandwidth.devices.base import Workload
from pytest_bandwidth.domain.errors import BandwidthError


class WorkloadFailed(BandwidthError):
    """The measured callable raised; the original exception is the cause."""


def told_apart(workload: Workload) -> Workload:
    """The workload with its own exceptions as WorkloadFailed, so that they are not taken for the device's."""
    name = f" ({workload.label})" if workload.label else ""
    return replace(
        workload,
        call=_guarded(f"the measured callable{name}", workload.call),
        setup=None if workload.setup is None else _guarded(f"setup{name}", workload.setup),
        beside=tuple(_guarded(f"the callable beside it{name}", other) for other in workload.beside),
    )


def _guarded(what: str, call: Callable[[], object]) -> Callable[[], object]:
    def run() -> object:
        try:
            return call()
        except BandwidthError:
            raise
        except Exception as error:  # whatever a user's callable may raise
            text = " ".join(str(error).split())[:400]
            raise WorkloadFailed(f"{what} raised {type(error).__name__}: {text}") from error

    return run
