"""Tell CUDA's errors apart by what can be done: no device, no memory, a lost context, or the user's own mistake."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pytest_bandwidth.domain.errors import DeviceLost, DeviceUnavailable, OutOfMemory, UsageError

# Errors after which every call in the process fails until it ends: "the process must be terminated and relaunched"
# (CUDA Runtime API, cudaError). HIP uses the same numbers for those it has.
STICKY: dict[int, str] = {
    214: "an uncorrectable ECC error",
    220: "an uncorrectable NVLink error",
    700: "a kernel read or wrote outside its arrays",
    702: "a kernel ran longer than the display watchdog allows",
    709: "the context was destroyed",
    710: "an assert in a kernel failed",
    714: "a kernel overran its stack",
    715: "a kernel ran an illegal instruction",
    716: "a kernel used a misaligned address",
    717: "a kernel used an address of the wrong space",
    718: "a kernel's program counter left its code",
    719: "a kernel failed",
}
# cudaErrorStreamCaptureUnsupported to cudaErrorStreamCaptureWrongThread: a call that a stream's capture does not allow.
CAPTURING = range(900, 909)
INSUFFICIENT_DRIVER = 35
NO_DEVICE = 100
INSTEAD = "use --bandwidth-device=cpu or traffic"
EXTRAS = "pip install 'pytest-bandwidth[cuda13]' (cuda12 for a driver older than 580, rocm for an AMD GPU)"


def status_of(error: BaseException) -> int | None:
    """Return CUDA's number of an error that CuPy raised (runtime or driver); None for any other."""
    status = getattr(error, "status", None)
    return status if isinstance(status, int) and not isinstance(status, bool) else None


def no_cupy(error: ImportError) -> DeviceUnavailable:
    """Tell that CuPy does not import: not installed, or its libraries are missing."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "cupy":
        return DeviceUnavailable(f"the cuda device needs CuPy, which is not installed: {EXTRAS}")
    return DeviceUnavailable(f"CuPy does not import ({one_line(error)}): reinstall it, {EXTRAS}")


def no_device(
    error: BaseException, driver_version: int, runtime_version: int, visible: str | None, hip: bool = False
) -> DeviceUnavailable:
    """Tell why CUDA cannot be used here. Versions as CUDA gives them (13020 = 13.2; driver 0 = none installed)."""
    status = status_of(error)
    if hip:
        return DeviceUnavailable(f"ROCm shows no GPU ({one_line(error)}): {INSTEAD}")
    if driver_version == 0:
        return DeviceUnavailable(f"no NVIDIA driver on this machine: install one, or {INSTEAD}")
    if status == INSUFFICIENT_DRIVER or driver_version // 1000 < runtime_version // 1000:
        return DeviceUnavailable(
            f"the NVIDIA driver is too old: it supports CUDA {version_text(driver_version)}, "
            f"CuPy needs {version_text(runtime_version)}: update the driver, or {EXTRAS}"
        )
    if status == NO_DEVICE:
        hidden = f" (CUDA_VISIBLE_DEVICES is {visible!r})" if visible is not None else ""
        return DeviceUnavailable(f"the driver shows no GPU{hidden}: {INSTEAD}")
    return DeviceUnavailable(f"CUDA does not start: {one_line(error)}")


def no_such_index(index: int, count: int, visible: str | None) -> DeviceUnavailable:
    """Tell that cuda:N is past the last GPU."""
    listed = f" under CUDA_VISIBLE_DEVICES={visible}" if visible is not None else ""
    there_is = "there is 1 GPU, cuda:0" if count == 1 else f"there are {count} GPUs, cuda:0 to cuda:{count - 1}"
    return DeviceUnavailable(f"no device cuda:{index}: {there_is}{listed}")


def version_text(version: int) -> str:
    """Format a version of CUDA: 13020 → 13.2."""
    return f"{version // 1000}.{version % 1000 // 10}"


def hip_version_text(version: int) -> str:
    """Format a version of HIP: 70051831 → 7.0.51831."""
    return f"{version // 10_000_000}.{version // 100_000 % 100}.{version % 100_000}"


def one_line(error: BaseException, limit: int = 300) -> str:
    """Join an error's text into one line, cut where it grows long."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else f"{text[:limit]} …"


def mute_lost_context() -> None:
    """Say nothing more of a lost context, to be called where Python ends: CuPy's kernels cannot be destroyed in it."""
    unraisable, uncaught = sys.unraisablehook, sys.excepthook

    def is_sticky(error: BaseException | None) -> bool:
        return error is not None and status_of(error) in STICKY

    sys.unraisablehook = lambda told: None if is_sticky(told.exc_value) else unraisable(told)
    sys.excepthook = lambda kind, error, trace: None if is_sticky(error) else uncaught(kind, error, trace)


class ContextGuard:
    """Watch everything that touches the GPU, and remember when the context is lost.

    synchronize: waits for the device; raises what CUDA has to report.
    out_of_memory: the exceptions that mean that an allocation failed.
    """

    def __init__(self, synchronize: Callable[[], Any], out_of_memory: tuple[type[BaseException], ...]) -> None:
        self._synchronize = synchronize
        self._out_of_memory = out_of_memory
        self.lost: str | None = None

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Run a block of work. Raises DeviceLost where it poisons the context, or an earlier one did.

        Whatever else the block raises passes through: it is the user's own. But a framework's own words for a sticky
        error are found out by asking CUDA itself.
        """
        self._refuse_if_lost()
        try:
            yield
        except DeviceLost:
            raise
        except Exception as error:
            self._note_if_sticky(error)
            if status_of(error) in CAPTURING:
                raise UsageError(
                    f"a stream is recording a graph, and nothing can be waited for meanwhile ({one_line(error)}): end "
                    "its capture first (an earlier test may have begun it), and measure the graph's launch"
                ) from None
            raise

    @contextmanager
    def allocation(self, what: str) -> Iterator[None]:
        """Run an allocation of ours. Raises OutOfMemory, with what it was for."""
        try:
            yield
        except self._out_of_memory as error:
            raise OutOfMemory(
                f"{what} does not fit the GPU's memory ({one_line(error)}): use smaller arrays, or free some"
            ) from None

    def _refuse_if_lost(self) -> None:
        if self.lost is not None:
            raise DeviceLost(self.lost)

    def _note_if_sticky(self, error: BaseException) -> None:
        culprit: BaseException | None = error
        if status_of(error) not in STICKY:
            culprit = self._ask_device()
        if culprit is None:
            return
        status = status_of(culprit)
        why = STICKY.get(status, "the context does not answer") if status is not None else "the context does not answer"
        self.lost = self.lost or (
            f"the GPU context is lost, {why} ({one_line(culprit)}): nothing more can be measured in this process; "
            "run the test alone under compute-sanitizer to find the place"
        )
        raise DeviceLost(self.lost) from error

    def _ask_device(self) -> BaseException | None:
        try:
            self._synchronize()
        except RuntimeError as error:  # what CuPy's errors of runtime and driver are
            return error if status_of(error) in STICKY else None
        return None
